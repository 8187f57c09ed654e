"""What a run says of a step that was not finite: found again by running it once more, or not found again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mlm.errors import DivergedError, TrainError
from mlm.launch.signals import Signals
from mlm.parallel.job import Place
from mlm.train.batches import sample_numbers
from mlm.train.loop import Trainer
from mlm.train.setup import build_run
from tests.dist.meshes import mesh_of
from tests.dist.runs import Case, config_of, make_data, new_run

STEPS = 6


def broken(tp: int, dp: int, run_dir: Path, kind: str) -> tuple[str, list[bool], list[int]]:
    """Train until step 3 goes wrong on rank 1: (error, which parameters moved since, this rank's samples)."""
    mesh = mesh_of(tp, dp)
    config = config_of(Case(tp=tp, dp=dp, steps=STEPS, dropout=0.1), run_dir)
    run = build_run(config, Place(torch.device("cpu"), mesh, "highest"), torch.float32)
    before: list[torch.Tensor] = []
    samples = []
    draw = run.objective.train.batch

    def batch(numbers: Any) -> Any:
        if numbers[0] // config.train.global_batch_size == 2 and not before:
            before.extend(p.detach().clone() for p in run.model.parameters())
            samples.extend(sample_numbers(run, 16).tolist())
            if mesh.rank == 1:
                spoil(run.model, kind)
        return draw(numbers)

    run.objective.train.batch = batch  # type: ignore[method-assign]
    trainer = Trainer(replace(run), 0.0, Signals())
    with pytest.raises(TrainError) as caught:
        trainer.steps()
    assert isinstance(caught.value, DivergedError) == (kind != "once"), "only what can be repeated diverges"
    trainer.close()
    moved = [not torch.equal(a, b) for a, b in zip(before, run.model.parameters(), strict=True)]
    return str(caught.value), moved, samples


def spoil(model: torch.nn.Module, kind: str) -> None:
    """Make the next pass go wrong: once only, in every pass's backward, or in every pass's forward."""
    layer = model.get_submodule("layers.1.mlp.expand")
    if kind == "once":
        fired = []

        def flash(gradient: torch.Tensor) -> torch.Tensor:
            fired.append(1)
            return torch.full_like(gradient, math.inf) if len(fired) == 1 else gradient

        layer.weight.register_hook(flash)
    elif kind == "gradient":
        layer.weight.register_hook(lambda gradient: torch.full_like(gradient, math.nan))
    else:
        layer.register_forward_hook(lambda module, inputs, output: output * math.inf)


EXPECTED = {
    "once": "run again, the step was finite",
    "gradient": "the gradient of parameter layers.1.mlp.expand.weight (rank 1, micro batch 0)",
    "output": "the output of layers.1.mlp.expand (rank 1, micro batch 0)",
}


@pytest.mark.parametrize(("tp", "dp"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("kind", EXPECTED)
def test_every_rank_ends_with_the_same_finding_and_unmoved_parameters(pool, tmp_path, kind, tp, dp):
    run_dir = new_run(tmp_path / "run", make_data(tmp_path / "data"))
    ranks = pool(2).run(broken, tp, dp, run_dir, kind)
    for error, moved, _ in ranks:
        assert error.startswith("step 3: loss=")
        assert EXPECTED[kind] in error
        assert error == ranks[0][0]
        assert not any(moved), "no parameter has changed since step 2, though steps went on"
    known = json.loads((run_dir / "bad_step_3.json").read_text())
    assert known["reproduced"] == (kind != "once")
    assert (known["first_sample"], known["samples"], known["parameters_after_updates"]) == (16, 8, 2)
    for rank, (_, _, samples) in zip(known["ranks"], ranks, strict=True):
        assert (rank["first_sample"], rank["last_sample"]) == (samples[0], samples[-1])
    losses = [[float(loss) for loss in rank["loss_of_micro_batches"]] for rank in known["ranks"]]
    assert all(math.isfinite(loss) for loss in losses[0]) == (kind != "output" or dp == 2)
    assert all(math.isfinite(loss) for loss in losses[1]) == (kind != "output")
