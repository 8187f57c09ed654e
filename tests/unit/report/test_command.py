"""mlm-report as a command: what it takes, where it writes, what it never overwrites, and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlm.cli.report import main, parse
from tests.unit.report.written import write_run, write_study

STEADY = [(1, 9.0), (4, 3.0), *[(5, 1.0)] * 5]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "a", windows=STEADY)


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    out, err = capsys.readouterr()
    return out, err


def test_a_run_gets_its_report_inside_itself(run, capsys):
    assert main([str(run)]) == 0
    assert {p.name for p in (run / "report").iterdir()} == {
        "index.html",
        "table.csv",
        "runs.csv",
        "throughput.png",
        "loss.png",
    }
    out, err = said(capsys)
    assert f"report in {run / 'report' / 'index.html'}" in out
    assert err == ""


def test_several_runs_get_theirs_in_the_working_directory_or_where_out_says(run, tmp_path, monkeypatch):
    other = write_run(tmp_path / "b", ["optim.lr=2e-3"], windows=STEADY)
    monkeypatch.chdir(tmp_path)
    assert main([str(run), str(other)]) == 0
    assert (tmp_path / "report" / "index.html").is_file()
    assert main([str(run), str(other), "out=deep/down/here"]) == 0
    assert (tmp_path / "deep" / "down" / "here" / "efficiency.png").is_file()


def test_an_earlier_report_is_replaced_as_a_whole(run, tmp_path, monkeypatch):
    other = write_run(tmp_path / "b", windows=STEADY)
    monkeypatch.chdir(tmp_path)
    assert main([str(run), str(other), "out=r"]) == 0
    assert (tmp_path / "r" / "efficiency.png").is_file()
    assert main([str(run), "out=r"]) == 0
    assert not (tmp_path / "r" / "efficiency.png").exists(), "the old report's figure is gone"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "r"], "nothing is left aside"


@pytest.mark.parametrize("strange", ["notes.txt", "index.html", "table.csv"])
def test_a_folder_that_holds_anything_else_is_never_touched(run, tmp_path, capsys, strange):
    out = tmp_path / "mine"
    out.mkdir()
    (out / strange).write_text("mine")
    assert main([str(run), f"out={out}"]) == 2
    assert [p.name for p in out.iterdir()] == [strange]
    assert (out / strange).read_text() == "mine"
    assert f"holds what no report left there ({strange})" in said(capsys)[1]


def test_a_file_added_to_an_earlier_report_is_not_lost(run, tmp_path):
    assert main([str(run), f"out={tmp_path / 'r'}"]) == 0
    (tmp_path / "r" / "notes.txt").write_text("mine")
    before = {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()}
    assert main([str(run), f"out={tmp_path / 'r'}"]) == 2
    assert {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()} == before


def test_out_may_not_be_a_file(run, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([str(run), f"out={tmp_path / 'file'}"]) == 2
    assert main([str(run), f"out={tmp_path / 'file' / 'below'}"]) == 2
    assert "is no directory" in said(capsys)[1]


def test_every_mistake_in_what_was_typed_is_said_at_once(tmp_path, capsys):
    words = [str(tmp_path / "no"), "outt=x", "--out", "warmup_steps=-1", "baseline="]
    assert main(words) == 2
    err = said(capsys)[1]
    assert err.startswith("mlm-report: 5 problems, nothing was written\n")
    for part in ("outt=x", "--out", "warmup_steps=-1", "baseline=", "/no"):
        assert part in err


def test_without_anything_to_report_on_it_says_what_to_name(capsys):
    assert main([]) == 2
    assert "RUNS is empty" in " ".join(said(capsys)[1].split())


def test_a_folder_with_an_equals_sign_in_its_name_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tp=1").mkdir()
    (tmp_path / "out=here").mkdir()
    given = parse(["tp=1", "out=here", "out=there", "warmup_steps=3"])
    assert [str(path) for path in given.runs] == ["tp=1", "out=here"]
    assert (given.out, given.warmup_steps, given.problems) == ("there", 3, [])


def test_damaged_and_unfinished_runs_are_named_and_are_no_failure(run, tmp_path, capsys):
    cut = write_run(tmp_path / "cut", windows=STEADY, finished=False)
    metrics = cut / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-30])
    broken = write_run(tmp_path / "broken", windows=STEADY)
    (broken / "config.yaml").unlink()
    assert main([str(run), str(cut), str(broken), f"out={tmp_path / 'r'}"]) == 0
    out = said(capsys)[0]
    assert "cut: unfinished, metrics.jsonl: line 30 is cut off and left out; unfinished: step 29 of 30" in out
    assert "broken: damaged, config.yaml is missing" in out
    page = (tmp_path / "r" / "index.html").read_text()
    assert "line 30 is cut off" in page
    assert "config.yaml is missing" in page


def test_when_nothing_can_be_read_it_refuses_with_each_reason(run, tmp_path, capsys):
    (run / "metrics.jsonl").write_text("")
    study = write_study(tmp_path / "s", [{"label": "p", "runs": [("r1", "failed", "no memory")]}])
    assert main([str(run), str(study), f"out={tmp_path / 'r'}"]) == 2
    err = said(capsys)[1]
    assert "2 problems, nothing was written" in err
    assert "no training step is recorded" in err
    assert "failed: no memory" in err
    assert not (tmp_path / "r").exists()


def test_help_names_every_key_and_imports_neither_torch_nor_matplotlib():
    code = (
        "import sys; from mlm.cli.report import main; assert main(['--help']) == 0; "
        "assert not {'torch', 'matplotlib', 'jinja2'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(
        key in done.stdout for key in ("RUN ...", "out=DIR", "baseline=", "warmup_steps=", "exit codes")
    )


def test_a_report_needs_no_torch(run):
    code = (
        "import sys; from mlm.cli.report import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
