"""launch=slurm: the job file, its submission, and what became of a step."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mlm.config.compose import compose
from mlm.config.fields import flatten
from mlm.config.schema import LaunchConfig
from mlm.config.slurm_options import slurm_problems
from mlm.errors import ConfigError
from mlm.launch import rundir
from mlm.launch.machine import Machine
from mlm.launch.preflight import place
from tests.unit.launch.machines import config
from tests.unit.launch.slurm_commands import TYPED, FakeSlurm, submit
from tests.unit.launch.test_step import SRUN


def directives(text: str) -> dict[str, str]:
    lines = [shlex.split(line.removeprefix("#SBATCH ")) for line in text.splitlines() if "#SBATCH" in line]
    assert all(len(words) == 1 for words in lines), "one option a line, quoted where it has to be"
    return dict((*words[0].removeprefix("--").split("=", 1), "")[:2] for words in lines)


def test_the_job_asks_for_the_nodes_of_the_run_and_starts_the_run_that_was_typed(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(slurm) == 0
    folder = tmp_path / "a run"
    assert {path.name for path in folder.iterdir()} == {"job.sbatch", "slurm_job_id"}
    assert (folder / "slurm_job_id").read_text() == "4711\n"
    assert slurm.called("sbatch") == ["--parsable", str(folder / "job.sbatch")]
    said = capsys.readouterr().err
    assert "submitted job 4711: 2 nodes of 4 processes" in said
    assert f"{folder}/slurm-4711.log" in said
    assert "scancel 4711" in said

    text = (folder / "job.sbatch").read_text()
    assert directives(text) == {
        "job-name": "gpt2_tiny",
        "nodes": "2",
        "ntasks-per-node": "4",
        "cpus-per-task": "3",
        "partition": "short",
        "time": "02:00:00",
        "no-requeue": "",
        "chdir": str(tmp_path),
        "output": f"{folder}/slurm-%j.log",
        "qos": "high",
    }

    # The body, run by bash with an srun that keeps its words.
    slurm.command("srun", code=3)
    body = subprocess.run(
        ["bash", str(folder / "job.sbatch")], env=slurm.environment | {"SLURM_JOB_ID": "99"}, check=False
    )
    assert body.returncode == 3, "the code of the job is srun's"
    assert (folder / "slurm_job_id").read_text() == "99\n"
    words = slurm.called("srun")
    options = [word for word in words if word.startswith("--")]
    assert {"--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=3"} < set(options)
    at = words.index("mlm.cli.train")
    assert words[at - 1] == "-m"
    composed, typed = flatten(compose(words[at + 1 :])), flatten(compose(TYPED))
    assert {key for key in typed if composed[key] != typed[key]} == {"launch.mode"}
    assert composed["launch.mode"] == "join"


def test_a_run_that_resumes_by_itself_may_be_started_again_by_slurm_and_by_hand(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    words = [*TYPED, "resume=auto"]
    assert submit(slurm, words) == 0
    folder = tmp_path / "a run"
    assert "requeue" in directives((folder / "job.sbatch").read_text())
    # As after a first job: the run has begun, and the same command is given again.
    (folder / "config.yaml").write_text("tp: 1\n")
    (folder / "slurm-4711.log").write_text("")
    slurm.command("sbatch", prints="4712")
    assert submit(slurm, words) == 0
    assert (folder / "slurm_job_id").read_text() == "4712\n"
    with pytest.raises(ConfigError, match="already holds a run"):
        submit(slurm, TYPED)


def test_gpus_are_asked_for_where_the_processes_use_them(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.command("sinfo", prints="short*|10|gpu:h100:8")
    gpu_torch = Machine(cores=4, memory_bytes=1 << 34, torch_version="2.13", torch_cuda="12.8")
    asked = config(tp=2, dp=1, mode="slurm")
    launch, problems = place(asked, gpu_torch, slurm.environment, tmp_path / "run", "training")
    assert problems == []
    assert launch.slurm is not None

    from mlm.launch.slurm.job import Job, job_text

    job = Job("x", "mlm-train", launch.slurm, asked.launch, ["-m", "x"], tmp_path / "50%", "", tmp_path)
    asks = directives(job_text(job))
    assert asks["gpus-per-node"] == "2"
    assert asks["output"] == f"{tmp_path}/50%%/slurm-%j.log"
    assert "gpus-per-node" not in directives(job_text(replace(job, plan=replace(job.plan, device="cpu"))))


def test_a_refusal_of_sbatch_leaves_nothing_behind(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.command("sbatch", complains="sbatch: error: invalid account\nsbatch: error: Nope", code=1)
    with pytest.raises(ConfigError, match=r"refuses the job \(invalid account; Nope\)"):
        submit(slurm)
    assert not (tmp_path / "a run").exists()


def test_problems_of_configuration_cluster_and_directory_come_together_before_submission(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    (tmp_path / "a run").mkdir()
    (tmp_path / "a run" / "notes").write_text("mine")
    typed = [word for word in TYPED if not word.startswith(("dp=", "launch.time_limit="))]
    with pytest.raises(ConfigError) as refused:
        submit(slurm, [*typed, "dp=44", "optim.lr=-1", "launch.time_limit=tomorrow"])
    said = "\n".join(map(str, refused.value.problems))
    for words in ("optim.lr=-1", "needs 22 nodes", "launch.time_limit=tomorrow", "already holds files"):
        assert words in said
    assert slurm.called("sbatch") == []
    assert [path.name for path in (tmp_path / "a run").iterdir()] == ["notes"]


def test_what_is_typed_wins_over_the_defaults_of_sbatch(slurm: FakeSlurm) -> None:
    path = slurm.folder / "sbatch"
    path.write_text(f"#!/bin/bash\nenv | grep ^SBATCH > {slurm.folder}/seen\necho '5;cluster'\n")
    defaults = {"SBATCH_PARTITION": "long", "SBATCH_TIMELIMIT": "1", "SBATCH_ACCOUNT": "mine"}
    assert submit(slurm, **defaults) == 0
    assert (slurm.folder / "seen").read_text() == "SBATCH_ACCOUNT=mine\n"


@pytest.mark.parametrize(
    ("log", "config_yaml", "code", "expected", "said"),
    [
        ("all well", True, 0, 0, "job 4711 finished"),
        ("srun: error: n1: task 0: Exited with exit code 2", False, 143, 2, "its log with\nsrun: error"),
        ("srun: error: n1: task 3: Out Of Memory", True, 137, 137, "rank 3 was killed by SIGKILL"),
        (
            "slurmstepd-n1: error: *** JOB 4711 ON n1 CANCELLED AT X DUE TO TIME LIMIT ***",
            True,
            1,
            143,
            "LIMIT",
        ),
        (None, False, 0, 143, "has ended without having started"),
    ],
)
def test_waiting_ends_with_what_became_of_the_run(
    slurm: FakeSlurm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    log: str | None,
    config_yaml: bool,
    code: int,
    expected: int,
    said: str,
) -> None:
    monkeypatch.setattr("mlm.launch.slurm.job.VISIBLE_TIMEOUT_S", 0.1)
    folder = tmp_path / "a run"
    script = ["#!/bin/bash", f'printf "%s\\n" "$@" >> {slurm.folder}/sbatch.called', "echo 4711"]
    script += [f'echo "{log}" > "{folder}/slurm-4711.log"'] if log else []
    script += [f'touch "{folder}/config.yaml"'] if config_yaml else []
    (slurm.folder / "sbatch").write_text("\n".join([*script, f"exit {code}\n"]))
    assert submit(slurm, [*TYPED, "launch.wait=true"]) == expected
    assert "--wait" in slurm.called("sbatch")
    assert said in capsys.readouterr().err


def test_a_job_accepts_the_directory_of_its_own_submission_only(tmp_path: Path) -> None:
    def names(*files: str, job_id: str = "12") -> Path:
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name in files:
            (folder / name).write_text(f"{job_id}\n")
        return folder

    own = names("job.sbatch", "slurm_job_id", "slurm-12.log")
    assert rundir.problems(own, job_id="12") == []
    assert rundir.create(own, given=True, job_id="12") == own
    assert rundir.problems(own) != [], "outside of any job it is somebody's"
    assert rundir.problems(own, job_id="13") != []
    assert rundir.problems(names("job.sbatch", "slurm_job_id", "config.yaml"), job_id="12") != []
    assert rundir.problems(names("job.sbatch", "slurm-12.log"), job_id="12") != []
    # Submitted a second time by hand: the log of the first attempt is no run.
    again = names("job.sbatch", "slurm_job_id", "slurm-11.log", "slurm-12.log")
    assert rundir.problems(again, job_id="12") == []


def test_a_task_with_cores_of_its_own_does_not_share_them_out_again() -> None:
    """8 cores that the task is bound to are 8 threads; 8 that two tasks share are 4 each."""
    step = SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    bound = step | {"SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": "0xff,0xff00"}
    machine = Machine(cores=8, memory_bytes=1 << 34, torch_version="2.13")
    for environment, threads in ((step, 4), (bound, 8)):
        launch, problems = place(config(tp=2), machine, environment, Path("run"), "training")
        assert problems == []
        assert launch.threads == threads


@pytest.mark.parametrize("limit", ["90", "30:00", "24:00:00", "2-00", "2-12:30", "1-00:00:00", "UNLIMITED"])
def test_time_limits_that_sbatch_documents_are_accepted(limit: str) -> None:
    assert slurm_problems(LaunchConfig(mode="slurm", time_limit=limit)) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"time_limit": "1 day"}, "launch.time_limit=1 day is no time limit"),
        ({"partition": "a b"}, "launch.partition=a b is no name of one word"),
        ({"account": "x\n#SBATCH --nodes=9"}, "is no name of one word"),
        ({"sbatch_options": ["qos=high"]}, "launch.sbatch_options: qos=high is no option of sbatch"),
        ({"sbatch_options": ["--mem=0\n#SBATCH -N9"]}, "is no option of sbatch"),
        ({"sbatch_options": ["--nodes=3"]}, "is decided elsewhere: set tp, pp, dp"),
        ({"sbatch_options": ["-c4"]}, "is decided elsewhere: set launch.threads"),
    ],
)
def test_settings_that_cannot_stand_in_a_job_file_are_refused(fields: dict[str, object], said: str) -> None:
    (problem,) = slurm_problems(LaunchConfig(mode="slurm", **fields))  # type: ignore[arg-type]
    assert said in str(problem)
