"""The real command, stopped and continued: what it says, what it leaves, and that no number is different."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mlm.checkpoint.folder import complete_steps
from mlm.checkpoint.manifest import damage
from mlm.report.history import unbroken
from tests.e2e.launching import MLM_EVAL, MLM_TRAIN, Launched, Launches

STEPS = 8
WORDS = [
    "model=gpt2_tiny",
    "train.global_batch_size=4",
    "train.micro_batch_size=2",
    "train.log_interval=2",
    "train.eval_interval=0",
    "train.final_eval=false",
    "train.sample_tokens=0",
    "optim.warmup_steps=3",
    f"optim.decay_steps={STEPS}",
]
NO_DROPOUT = ["model.dropout=0", "model.attention_dropout=0"]


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    folder = tmp_path_factory.mktemp("resuming")
    return Launches(folder, folder / "cache")


def train(launches: Launches, *words: str, code: int = 0) -> Launched:
    launched = launches.run([*MLM_TRAIN, *WORDS, *words], timeout_s=280)
    assert launched.code == code, launched.out + launched.err
    return launched


def records(run_dir: Path, kind: str = "train") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [record for record in unbroken(lines) if record["kind"] == kind]


@pytest.fixture(scope="module")
def stopped(launches: Launches) -> Path:
    """A run of the first half, tp=2, with checkpoints step_2 and step_4."""
    half = ["train.steps=4", "checkpoint.interval=2", *NO_DROPOUT]
    train(launches, "tp=2", *half, "run_dir=stopped")
    return launches.folder / "stopped"


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    """One of its own for each test: only the directory names in it are those of the original."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def test_a_continued_run_has_the_numbers_of_the_unbroken_one_at_its_layout_and_another(launches, stopped):
    train(launches, "tp=2", f"train.steps={STEPS}", *NO_DROPOUT, "run_dir=unbroken")
    before = records(launches.folder / "unbroken")
    assert [r["step"] for r in before] == list(range(1, STEPS + 1))

    same = Path(shutil.copytree(stopped, launches.folder / "same"))
    launched = train(launches, "tp=2", f"train.steps={STEPS}", *NO_DROPOUT, "run_dir=same", "resume=auto")
    assert f"going on from {same}/checkpoints/step_4 (all checksums match): step 4 is done" in launched.err
    assert "the next sample is number 16" in launched.err
    assert any(
        line.split()[1:] == ["train.steps", "4", "8", "allowed:", "training", "ends", "there"]
        for line in launched.err.splitlines()
    )
    assert "attempt 2: going on from" in launched.out
    after = records(same)
    assert [(r["step"], r["attempt"]) for r in after] == [
        (s, 1 if s <= 4 else 2) for s in range(1, STEPS + 1)
    ]
    exact = ("loss", "grad_norm", "lr", "consumed_samples", "consumed_tokens")
    assert [[r[key] for key in exact] for r in after] == [[r[key] for key in exact] for r in before]
    assert (same / "attempts" / "1" / "summary.json").exists()
    summary = json.loads((same / "summary.json").read_text())
    assert summary["checkpoint"] == str(same / "checkpoints" / "step_8")
    assert (summary["steps"], summary["attempt"], summary["consumed_samples"]) == (STEPS, 2, 32)

    words = ["tp=1", "dp=2", "train.micro_batch_size=1", f"train.steps={STEPS}", *NO_DROPOUT]
    words.remove("train.micro_batch_size=1")
    launched = train(launches, *words, f"resume={stopped}", "run_dir=other")
    assert "exact to rounding" in launched.err
    after = records(launches.folder / "other")
    assert [r["step"] for r in after] == list(range(5, STEPS + 1))
    for new, old in zip(after, before[4:], strict=True):
        assert new["loss"] == pytest.approx(old["loss"], rel=1e-5)
        assert (new["lr"], new["consumed_samples"]) == (old["lr"], old["consumed_samples"])
    assert sorted(p.name for p in (stopped / "checkpoints").iterdir()) == ["latest", "step_2", "step_4"]


def test_checkpoints_are_recorded_logged_and_kept_as_many_as_asked(launches):
    words = ["train.steps=7", "checkpoint.interval=1", "checkpoint.keep_last=2", "checkpoint.keep_every=3"]
    launched = train(launches, *words, "run_dir=kept")
    run_dir = launches.folder / "kept"
    assert [p.name for p in complete_steps(run_dir / "checkpoints")] == ["step_3", "step_6", "step_7"]
    found = records(run_dir, "checkpoint")
    assert [r["step"] for r in found] == list(range(1, 8))
    for record in found:
        assert record["error"] is None
        assert 0 < record["stall_s"] <= record["seconds"]
        assert record["bytes"] > 3 * 120_640 * 4, "weights and two moments of 120,640 parameters"
    assert launched.out.count("training waited") == 7


def test_a_finished_run_is_told_that_only_its_end_is_left_and_more_steps_train_on(launches, copy):
    words = ["tp=2", *NO_DROPOUT, f"run_dir={copy}", "resume=auto"]
    launched = train(launches, *words, "train.steps=4")
    assert "all 4 steps are done, only what follows them is left" in launched.err
    assert json.loads((copy / "summary.json").read_text())["steps"] == 4
    assert [p.name for p in complete_steps(copy / "checkpoints")] == ["step_2", "step_4"]


def test_auto_begins_a_new_run_and_init_from_gives_it_weights(launches, stopped):
    words = ["tp=1", "train.steps=1", *NO_DROPOUT, "resume=auto", "run_dir=fresh", f"init_from={stopped}"]
    launched = train(launches, *words)
    assert "the weights of" in launched.err
    first = records(launches.folder / "fresh")[0]
    assert (first["step"], first["consumed_samples"]) == (1, 4)
    random = records(stopped)[0]
    assert first["loss"] < random["loss"], "the same first batch, by a model that has learned from it"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a truncated file": ("rank_1.safetensors", lambda d: os.truncate(d / "rank_1.safetensors", 1000)),
    "a flipped bit": ("rank_0.safetensors", lambda d: flip(d / "rank_0.safetensors")),
    "a missing file": ("index.json", lambda d: (d / "index.json").unlink()),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_one_sentence_that_names_the_file(launches, copy, kind):
    name, act = DAMAGES[kind]
    directory = copy / "checkpoints" / "step_4"
    act(directory)
    launched = train(launches, f"resume={directory}", "train.steps=8", *NO_DROPOUT, code=2)
    assert launched.err.startswith("mlm-train: 1 problem, nothing was started\n")
    assert "is damaged: " + name in launched.err
    assert f"the newest whole one there is {copy}/checkpoints/step_2" in launched.err
    assert launches.run_dirs() == []
    evaluated = launches.run(
        [*MLM_EVAL, f"checkpoint={copy}", "tasks=[perplexity]", f"task_paths.perplexity={__file__}"]
    )
    assert evaluated.code == 2
    assert name in evaluated.err
    assert "Traceback" not in launched.err + evaluated.err


def test_auto_names_the_damaged_checkpoint_and_goes_on_from_the_one_before(launches, copy):
    flip(copy / "checkpoints" / "step_4" / "rank_1.safetensors")
    words = ["tp=2", "train.steps=6", "checkpoint.interval=2", *NO_DROPOUT, f"run_dir={copy}", "resume=auto"]
    launched = train(launches, *words)
    assert "warning: passing over step_4: checkpoints/step_4/rank_1.safetensors has changed" in launched.err
    assert "step 2 is done" in launched.err
    assert [r["step"] for r in records(copy)] == [1, 2, 3, 4, 5, 6]
    assert [p.name for p in complete_steps(copy / "checkpoints")] == ["step_4", "step_6"]
    assert (copy / "checkpoints" / "step_4.damaged").is_dir()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.num_layers=3"], "model.num_layers=3  was 2 for step_4"),
        (["model.hidden_size=96", "model.num_heads=6"], "model.hidden_size=96"),
        (["seed=2"], "seed=2  was 1234 for step_4"),
    ],
)
def test_another_architecture_or_order_of_samples_is_refused(launches, copy, words, message):
    launched = train(launches, "train.steps=8", *words, *NO_DROPOUT, f"run_dir={copy}", "resume=auto", code=2)
    assert message in launched.err
    assert "nothing was started" in launched.err


def test_two_jobs_are_not_in_one_run_directory(launches, copy):
    """The second is refused while the first waits, and the first is not disturbed."""
    environment = {"FAULT_OF_RANK_0": "hang", "FAULT_OF_RANK_1": "hang"}
    words = ["tp=2", f"train.steps={STEPS}", *NO_DROPOUT, f"run_dir={copy}", "resume=auto"]
    first = launches.start([*MLM_TRAIN, *WORDS, *words], environment)
    launches.wait_for_marks(2)
    second = train(launches, *words, code=2)
    assert f"run_dir={copy}  is in use by process {first.process.pid} on " in second.err
    for child in first.descendants():
        child.kill()
    first.finish()


class Hostile:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_a_hostile_pickle_among_the_files_of_a_checkpoint_is_not_run(launches, copy, tmp_path):
    mark = tmp_path / "mark"
    evil = pickle.dumps(Hostile(mark))
    pickle.loads(evil)
    assert mark.exists(), "it would tell"
    mark.unlink()
    directory = copy / "checkpoints" / "step_4"
    (directory / ".metadata").write_bytes(evil)
    (directory / "__0_0.distcp").write_bytes(evil)
    words = ["tp=2", "train.steps=5", *NO_DROPOUT, "run_dir=hostile"]
    train(launches, *words, f"resume={directory}")
    for name in ("rank_0.safetensors", "index.json", "state.json"):
        shutil.copy(copy / "checkpoints" / "step_4" / name, tmp_path / name)
        (directory / name).write_bytes(evil)
        launched = train(launches, *words[:-1], f"resume={directory}", "run_dir=hostile2", code=2)
        assert name in launched.err
        shutil.copy(tmp_path / name, directory / name)
    assert not mark.exists()


@contextmanager
def mounted(where: Path, *options: str) -> Iterator[Path]:
    """A small file system there, or a skip where this process may not mount one."""
    where.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(where)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


def test_on_a_full_disk_the_save_fails_by_name_training_goes_on_and_the_run_can_be_resumed(
    launches, tmp_path
):
    """Room for two checkpoints of 1.4 MiB and for the other files, not for a third."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=3600k", "tmpfs") as disk:
        run_dir = disk / "run"
        words = ["train.steps=5", "checkpoint.interval=1", *NO_DROPOUT, f"run_dir={run_dir}"]
        launched = train(launches, *words, code=1)
        assert "no checkpoint: " in launched.err + launched.out
        assert "MiB free" in launched.err
        assert [r["step"] for r in records(run_dir)] == [1, 2, 3, 4, 5], "training goes on"
        failed = [r["step"] for r in records(run_dir, "checkpoint") if r["error"] is not None]
        assert failed == [3, 4, 5]
        folder = run_dir / "checkpoints"
        assert sorted(p.name for p in folder.iterdir()) == ["latest", "step_1", "step_2"]
        assert damage(folder / "step_2") == []
        shutil.rmtree(folder / "step_1")
        again = train(launches, *words, "resume=auto", "checkpoint.keep_last=1", code=0)
        assert "step 2 is done" in again.err
        assert [p.name for p in complete_steps(folder)] == ["step_5"]


def test_a_read_only_run_is_refused_for_writing_and_can_be_resumed_from(launches, copy, tmp_path):
    with mounted(tmp_path / "view", "--bind", str(copy)) as view:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(view)], check=True)
        words = ["tp=2", "train.steps=5", *NO_DROPOUT]
        launched = train(launches, *words, f"run_dir={view}", "resume=auto", code=2)
        assert f"run_dir={view}  cannot be written" in launched.err
        train(launches, *words, f"resume={view}", "run_dir=from_read_only")
        assert [r["step"] for r in records(launches.folder / "from_read_only")] == [5]
