"""A run that is stopped and continued, at its own layout or any other, is the run that was never stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from mlm.checkpoint.manifest import damage
from mlm.checkpoint.storage import mapped, read_index
from mlm.launch.signals import Signals
from mlm.parallel.job import Place
from mlm.train.loop import Trainer
from mlm.train.resume import read_plan
from mlm.train.setup import build_run
from tests.dist.meshes import TINY, mesh_of
from tests.dist.runs import GLOBAL_BATCH, SAMPLES, Case, config_of, make_data, new_run, run_steps

LAYOUTS = [(1, 1), (2, 1), (1, 2), (2, 2)]
BOUNDS = {
    torch.float64: {"loss": 1e-9, "tensors": 1e-9, "key bias": 1e-9},
    # Those of the tests of layout invariance.
    torch.float32: {"loss": 1e-5, "tensors": 2e-4, "key bias": 1e-5},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("data") / "tokens")


def run(pool: Any, case: Case, run_dir: Path) -> dict[str, Any]:
    """Run it and gather what its ranks and its metrics say."""
    ranks = pool(case.tp * case.dp).run(run_steps, case, run_dir)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for rank, result in enumerate(ranks):
        for name, tensor in ranks[0]["tensors"].items():
            assert torch.equal(tensor, result["tensors"][name]), f"{name} of rank {rank} is not rank 0's"
    # tp ranks hold the same samples; each dp rank has its own part of every step's.
    replicas = [ranks[dp * case.tp]["samples"] for dp in range(case.dp)]
    return {
        "steps": {line["step"]: line for line in lines if line["kind"] == "train"},
        "samples": [list(chain(*parts)) for parts in zip(*replicas, strict=True)],
        "tensors": ranks[0]["tensors"],
        "state": ranks[0]["state"],
    }


def stopped(pool: Any, case: Case, folder: Path, data: Path) -> tuple[dict[str, Any], Path]:
    """The run that saves after its third step and is never heard of again, and its checkpoint."""
    run_dir = new_run(folder / f"stopped tp={case.tp} dp={case.dp}", data)
    result = run(pool, replace(case, interval=3, steps=4), run_dir)
    checkpoint = run_dir / "checkpoints" / "step_3"
    assert damage(checkpoint) == []
    return result, checkpoint


def continued(pool: Any, case: Case, checkpoint: Path, folder: Path, data: Path) -> dict[str, Any]:
    return run(pool, case, new_run(folder / f"on tp={case.tp} dp={case.dp}", data, checkpoint))


def assert_same(unbroken: dict[str, Any], resumed: dict[str, Any], bounds: dict[str, float] | None) -> None:
    """bounds: relative; None: to the bit. The resumed run has the steps from 4 on."""
    assert sorted(resumed["steps"]) == [4, 5, 6]
    assert resumed["samples"] == unbroken["samples"][3:]
    assert resumed["state"] == unbroken["state"]
    exact = ["lr", "consumed_samples", "consumed_tokens"] + (["loss", "grad_norm"] if bounds is None else [])
    for step, record in resumed["steps"].items():
        before = unbroken["steps"][step]
        assert {key: record[key] for key in exact} == {key: before[key] for key in exact}
        if bounds is not None:
            assert record["loss"] == pytest.approx(before["loss"], rel=bounds["loss"], abs=0)
    assert resumed["tensors"].keys() == unbroken["tensors"].keys()
    for name, tensor in unbroken["tensors"].items():
        if bounds is None:
            assert torch.equal(tensor, resumed["tensors"][name]), name
        else:
            assert_close(tensor, resumed["tensors"][name], bounds, name)


def assert_close(a: torch.Tensor, b: torch.Tensor, bounds: dict[str, float], name: str) -> None:
    if name.endswith("qkv.bias"):
        # The key third has no true gradient: what it and its moments hold is rounding, compared as it is.
        a, b = (t.view(TINY.num_heads, 3, -1) for t in (a, b))
        key = (a[:, 1] - b[:, 1]).abs().max().item()
        assert key <= bounds["key bias"], f"{name}: key third differs by {key:.2e}"
        a, b = a[:, ::2], b[:, ::2]
    error = (a - b).abs().max().item() / a.abs().max().item()
    assert error <= bounds["tensors"], f"{name}: relative error {error:.2e}"


@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_on_the_same_layout_the_run_goes_on_to_the_bit_with_dropout(pool, tmp_path, data, tp, dp):
    case = Case(tp=tp, dp=dp, dropout=0.3)
    unbroken = run(pool, case, new_run(tmp_path / "unbroken", data))
    _, checkpoint = stopped(pool, case, tmp_path, data)
    assert_same(unbroken, continued(pool, case, checkpoint, tmp_path, data), None)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "fp32"])
@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_on_every_other_layout_the_run_goes_on_to_rounding(pool, tmp_path, data, tp, dp, dtype):
    # As where these bounds are from: with larger weights the rounding in the key biases grows as well.
    case = Case(tp=tp, dp=dp, dtype=dtype, init_std=0.02)
    unbroken = run(pool, case, new_run(tmp_path / "unbroken", data))
    _, checkpoint = stopped(pool, case, tmp_path, data)
    for other_tp, other_dp in LAYOUTS:
        if (other_tp, other_dp) != (tp, dp):
            other = replace(case, tp=other_tp, dp=other_dp, micro=4)
            assert_same(unbroken, continued(pool, other, checkpoint, tmp_path, data), BOUNDS[dtype])


def test_the_samples_are_every_number_once_across_the_end_of_an_epoch_and_with_fewer_ranks(
    pool, tmp_path, data
):
    before, checkpoint = stopped(pool, Case(tp=1, dp=2), tmp_path, data)
    after = continued(pool, Case(tp=1, dp=1, micro=4), checkpoint, tmp_path, data)
    numbers = list(chain(*before["samples"][:3], *after["samples"]))
    assert numbers == list(range(6 * GLOBAL_BATCH))
    assert len(numbers) > 2 * SAMPLES, "two epochs end in it, the first before the checkpoint, one behind it"


def test_a_resume_of_a_resume_is_the_unbroken_run(pool, tmp_path, data):
    case = Case(dropout=0.3)
    unbroken = run(pool, case, new_run(tmp_path / "unbroken", data))
    _, first = stopped(pool, case, tmp_path, data)
    middle = new_run(tmp_path / "middle", data, first)
    run(pool, replace(case, interval=2, steps=5), middle)
    last = run(pool, case, new_run(tmp_path / "last", data, middle / "checkpoints" / "step_4"))
    assert sorted(last["steps"]) == [5, 6]
    for step, record in last["steps"].items():
        assert record["loss"] == unbroken["steps"][step]["loss"]
        assert record["lr"] == unbroken["steps"][step]["lr"]
    for name, tensor in unbroken["tensors"].items():
        assert torch.equal(tensor, last["tensors"][name]), name


def test_a_checkpoint_that_is_loaded_and_saved_again_holds_the_same_tensors(pool, tmp_path, data):
    _, checkpoint = stopped(pool, Case(tp=2, dp=1), tmp_path, data)
    again = new_run(tmp_path / "again", data, checkpoint)
    pool(2).run(load_and_save, Case(tp=1, dp=2), again)
    first, second = full_tensors(checkpoint), full_tensors(again / "checkpoints" / "step_3")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (checkpoint / "state.json").read_bytes() == (
        again / "checkpoints" / "step_3" / "state.json"
    ).read_bytes()


def load_and_save(case: Case, run_dir: Path) -> None:
    place = Place(torch.device("cpu"), mesh_of(case.tp, case.dp), "highest")
    trainer = Trainer(build_run(config_of(case, run_dir), place), 0.0, Signals())
    trainer.checkpoints.save(trainer.state)
    trainer.close()


def full_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """Put together from the index by plain arithmetic, as any reader of the format could."""
    found = {}
    for name, tensor in read_index(directory).items():
        assert tensor["dtype"] == "F32"
        full = torch.full(tensor["shape"], torch.nan)
        for chunk in tensor["chunks"]:
            raw = mapped(directory / chunk["file"])
            count = torch.Size(chunk["shape"]).numel()
            part = raw[chunk["start"] : chunk["start"] + 4 * count].clone().view(torch.float32)
            where = tuple(slice(o, o + n) for o, n in zip(chunk["offsets"], chunk["shape"], strict=True))
            full[where] = part.view(chunk["shape"])
        found[name] = full
    return found


def test_a_changed_batch_goes_on_at_the_next_sample_and_keeps_the_schedule(pool, tmp_path, data):
    before, checkpoint = stopped(pool, Case(batch=4), tmp_path, data)
    after = continued(pool, Case(batch=8, steps=5), checkpoint, tmp_path, data)
    assert before["steps"][3]["consumed_samples"] == 12
    assert [after["steps"][step]["consumed_samples"] for step in (4, 5)] == [20, 28]
    assert after["samples"] == [list(range(12, 20)), list(range(20, 28))]
    unbroken = run(pool, Case(), new_run(tmp_path / "unbroken", data))
    assert after["steps"][5]["lr"] == unbroken["steps"][5]["lr"]


def test_a_changed_learning_rate_is_that_of_the_new_schedule_at_the_same_step(pool, tmp_path, data):
    _, checkpoint = stopped(pool, Case(), tmp_path, data)
    after = continued(pool, Case(lr=1e-3), checkpoint, tmp_path, data)
    new = run(pool, Case(lr=1e-3), new_run(tmp_path / "new", data))
    for step in (4, 5, 6):
        assert after["steps"][step]["lr"] == new["steps"][step]["lr"]


def test_every_rank_begins_with_what_rank_0_reads(pool, tmp_path, data):
    """As where one machine still sees the files of the attempt before."""
    ours, theirs = new_run(tmp_path / "a", data, tmp_path / "step_9"), new_run(tmp_path / "b", data)
    changed = (theirs / "data.json").read_text().replace('"source": "made"', '"source": "before"')
    (theirs / "data.json").write_text(changed)
    assert pool(2).run(read_by, ours, theirs) == [(str(tmp_path / "step_9"), "made")] * 2


def read_by(first: Path, others: Path) -> tuple[str | None, str]:
    mesh = mesh_of(2, 1)
    origin, data = read_plan(first if mesh.rank == 0 else others, mesh)
    return origin.checkpoint, data.source
