"""What cannot run is refused in a moment, all of it at once, with a remedy and without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.launching import MLM_TRAIN, Launches

QUICK_S = 6.0
"""The promise is 2 s on an idle machine; the tests may share theirs."""


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "file").write_text("")
    (folder / "broken.txt").write_bytes(b"abc\xff\xfe")
    return Launches(folder, tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.hiden_size=64"], ["model.hiden_size=64", "model.hidden_size"]),
        (["+train.learning_rte=1"], ["train.learning_rte"]),
        (["++seed=1"], ["++seed=1"]),
        (["model=gpt2_9b"], ["model=gpt2_9b", "gpt2_8b"]),
        (["tp=3"], ["model.num_heads=4", "tp=3", "use tp=1, 2"]),
        (["model.num_heads=5"], ["model.hidden_size=64", "model.num_heads"]),
        (["train.global_batch_size=10"], ["train.global_batch_size=10"]),
        (
            ["optim.lr=-1", "train.steps=0", "optim.beta1=nan"],
            ["optim.lr=-1", "train.steps=0", "optim.beta1=nan"],
        ),
        (["dp=0"], ["dp=0"]),
        (["pp=2"], ["pp=2", "not built yet"]),
        (["data=indexed", "data.path=nowhere/wiki"], ["nowhere/wiki", "wiki.bin, wiki.idx"]),
        (["data.path=broken.txt"], ["not UTF-8", "offset 3"]),
        (["run_dir=file/run"], ["run_dir=", "file is a file"]),
        (["launch.device=cuda"], ["launch.device=cuda"]),
        (["model=gpt2_8b", "tp=8"], ["124.4 GiB", "available", "launch=dry_run", "model=", "fits here"]),
        (["--explain"], ["--explain", "explain=VALUE"]),
        (["logger=[none,wandb]"], ["logger"]),
        (  # everything at once, from the flag to the run directory
            ["--fast", "model.hiden_size=8", "tp=3", "optim.lr=-1", "data.path=none.txt", "run_dir=file/x"],
            ["--fast", "model.hiden_size", "tp=3", "optim.lr=-1", "none.txt", "file is a file"],
        ),
    ],
)
def test_refused_before_anything_starts(launches: Launches, words: list[str], said: list[str]) -> None:
    job = launches.run([*MLM_TRAIN, *words], timeout_s=60)
    assert job.code == 2, job.err
    assert job.err.startswith("mlm-train: ")
    assert "nothing was started" in job.err.splitlines()[0]
    for part in said:
        assert part in job.err, f"{part!r} not in:\n{job.err}"
    assert "Traceback" not in job.err
    assert job.out == ""
    assert job.seconds < QUICK_S
    assert launches.run_dirs() == []


def test_a_list_given_to_a_group_is_refused_rather_than_cut_to_its_last(launches: Launches) -> None:
    job = launches.run([*MLM_TRAIN, "model=[gpt2_tiny,gpt2_8b]"])
    assert job.code == 2
    assert "model=[gpt2_tiny,gpt2_8b]" in job.err


def test_help_shows_examples_and_every_group_with_its_options(launches: Launches) -> None:
    job = launches.run([*MLM_TRAIN, "--help"])
    assert job.code == 0
    assert job.seconds < QUICK_S
    configs = Path(__file__).parents[2] / "configs"
    for path in configs.glob("*/*.yaml"):
        assert path.stem in job.out, path
    assert job.out.count("\n  mlm-train ") + job.out.count("\n  torchrun ") == 7


def test_version(launches: Launches) -> None:
    import mlm

    assert launches.run([*MLM_TRAIN, "--version"]).out == f"mlm-train {mlm.__version__}\n"


def test_dry_run_answers_at_once_on_any_machine_and_writes_nothing(launches: Launches) -> None:
    before = sorted(launches.folder.rglob("*"))
    job = launches.run([*MLM_TRAIN, "model=gpt2_8b", "tp=8", "launch=dry_run"])
    assert job.code == 0, job.err
    assert job.seconds < QUICK_S
    assert "1,043,549,184 at tp=8" in job.out
    assert "could it run here" in job.out
    assert sorted(launches.folder.rglob("*")) == before
    wrong = launches.run([*MLM_TRAIN, "model=gpt2_8b", "tp=7", "launch=dry_run"])
    assert wrong.code == 2
    assert "tp=7" in wrong.err


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["model=gpt2_8b", "tp=8", "launch=dry_run"],
        ["-m", "study=weak_scaling_tp", "launch=dry_run"],
        ["tp=3"],
    ],
)
def test_answers_that_start_nothing_import_no_torch(launches: Launches, words: list[str]) -> None:
    script = (
        "import sys; from mlm.cli.train import main; main(sys.argv[1:]); "
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=launches.folder,
        env=launches.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_gone_is_no_failure(launches: Launches) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)  # as `mlm-train --help | head -1` does after its line
    done = subprocess.run(
        [*MLM_TRAIN, "--help"],
        env=launches.environment,
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")
