"""The installed mlm-data filter: the same bytes for any number of workers, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("mlm-data"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 24 MB in three files: distinct documents, copies of earlier ones, and near-copies."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    vocabulary = [
        "".join(generator.choices("abcdefghijklmnop", k=generator.randint(2, 9))) for _ in range(20_000)
    ]
    earlier: list[list[str]] = []
    for part in range(3):
        with open(folder / f"part{part}.jsonl", "w", encoding="utf-8") as file:
            for number in range(4000):
                if earlier and generator.random() < 0.2:
                    row = list(generator.choice(earlier))
                    for _ in range(generator.choice((0, 3, 30))):
                        row[generator.randrange(len(row))] = generator.choice(vocabulary)
                else:
                    row = generator.choices(vocabulary, k=generator.choice((20, 300, 400)))
                    earlier.append(row)
                record = {"id": f"{part}-{number}", "text": " ".join(row)}
                file.write(json.dumps(record) + "\n")
    return folder


def start(corpus: Path, out: Path, workers: int) -> subprocess.Popen[str]:
    words = [COMMAND, "filter", str(corpus), "--out", str(out), "--tokenizer", "byte", "--min-tokens", "500",
             "--workers", str(workers), "--report", str(out.with_suffix(".json"))]  # fmt: skip
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("undisturbed") / "out.jsonl"
    process = start(corpus, out, 1)
    shown, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    report = json.loads(out.with_suffix(".json").read_text())
    assert report["documents"] == 12_000
    assert min(report[reason] for reason in ("short", "copies", "near_duplicates")) > 300
    assert f"{report['kept']:,}" in shown
    assert out.read_bytes().count(b"\n") == report["kept"]
    return out.read_bytes()


@pytest.mark.parametrize("workers", [2, 3])
def test_the_output_and_the_report_are_the_same_for_any_number_of_workers(
    corpus: Path, undisturbed: bytes, tmp_path: Path, workers: int
):
    out = tmp_path / "out.jsonl"
    process = start(corpus, out, workers)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert out.read_bytes() == undisturbed


def test_a_kill_at_any_moment_leaves_no_output_and_the_next_run_makes_the_same(
    corpus: Path, undisturbed: bytes, tmp_path: Path
):
    out = tmp_path / "out.jsonl"
    generator = random.Random(1)
    killed = 0
    for _ in range(5):
        process = start(corpus, out, 2)
        time.sleep(generator.uniform(0.2, 4))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
        if process.returncode == 0:  # it was faster
            assert out.read_bytes() == undisturbed
            out.unlink()
        assert not out.exists()
        # The workers of a killed run end by themselves; until then its folder may still be there.
        assert {path.name for path in tmp_path.iterdir()} <= {".out.jsonl.partial", "out.json"}
    assert killed
    process = start(corpus, out, 2)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert out.read_bytes() == undisturbed
    assert {path.name for path in tmp_path.iterdir()} == {"out.jsonl", "out.json"}


def test_ctrl_c_leaves_nothing(corpus: Path, tmp_path: Path):
    process = start(corpus, tmp_path / "out.jsonl", 2)
    deadline = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_second_filter_onto_the_same_output_is_refused(corpus: Path, undisturbed: bytes, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    first = start(corpus, out, 1)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.jsonl.partial/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    second = start(corpus, out, 1)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 2
    assert "is being written by another process" in errors
    first.communicate(timeout=300)
    assert first.returncode == 0
    assert out.read_bytes() == undisturbed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"text": "word " * 200}) + "\n")
    script = (
        "import sys; from pathlib import Path; import mlm.corpus.cleaning.stage as stage\n"
        "class Full(stage.Stage):\n"
        "    def __init__(self, out):\n"
        "        super().__init__(out); self._file.close(); self._file = open('/dev/full', 'wb')\n"
        "import mlm.corpus.cleaning.filter as module; module.Stage = Full\n"
        "from mlm.cli.data.main import main; sys.exit(main(sys.argv[1:]))\n"
    )
    out = tmp_path / "out.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", script, "filter", str(source), "--out", str(out)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
