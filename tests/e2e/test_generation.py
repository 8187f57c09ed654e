"""mlm-generate: texts on standard output and nothing else there, the same at every tp, and clean ends."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from mlm.cli.generate import main
from tests.e2e.launching import MLM_GENERATE, MLM_TRAIN, TINY, Launches

CONTEXT = 64


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    """A tiny model of bytes, trained a few steps at tp=2."""
    folder = tmp_path_factory.mktemp("generation")
    launches = Launches(folder, folder / "cache")
    job = launches.run([*MLM_TRAIN, *(word for word in TINY if word != "train.save=false"), "run_dir=run"])
    assert job.code == 0, job.err
    (folder / "prompts.txt").write_text("First\n\nÄ second, longer prompt: \nThird\n")
    return launches


def scratch() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("mlm_generate_*")}


def test_one_seed_gives_one_text_at_tp_1_and_2_on_standard_output_alone(launches):
    before = scratch()
    words = ["checkpoint=run", "prompt=To be, or: {x}", "max_new_tokens=40", "seed=3"]
    one = launches.run([*MLM_GENERATE, *words])
    two = launches.run([*MLM_GENERATE, *words, "tp=2", "echo=true"])
    assert (one.code, two.code) == (0, 0), one.err + two.err
    assert two.out == "To be, or: {x}" + one.out
    assert one.out.endswith("\n")
    assert len(one.out.encode()) > 20
    assert "gpt2_tiny, step 4" in one.err
    assert "ended because " in one.err
    assert scratch() == before


def test_a_file_of_prompts_gives_json_lines_in_order_whatever_is_at_once(launches):
    words = ["checkpoint=run", "prompts=prompts.txt", "samples=3", "max_new_tokens=20", "top_k=40"]
    job = launches.run([*MLM_GENERATE, *words, "batch_size=4", "tp=2", "out=texts.jsonl"])
    assert job.code == 0, job.err
    assert job.out == ""
    content = (launches.folder / "texts.jsonl").read_text("utf-8")
    records = [json.loads(line) for line in content.split("\n")[:-1]]
    prompts = ["First", "Ä second, longer prompt: ", "Third"]
    assert [(r["prompt"], r["sample"]) for r in records] == [(p, n) for p in prompts for n in range(3)]
    assert {r["finish_reason"] for r in records} <= {"length", "eod"}
    assert len({r["text"] for r in records}) == 9
    piped = launches.run([*MLM_GENERATE, *words, "batch_size=1"])
    assert (piped.code, piped.out) == (0, content), piped.err
    again = launches.run([*MLM_GENERATE, *words, "out=texts.jsonl"])
    assert again.code == 2
    assert "texts.jsonl" in again.err
    assert "is never overwritten" in again.err


def test_prompts_typed_in_a_terminal_are_answered_until_it_ends(launches):
    master, slave = pty.openpty()
    words = ["checkpoint=run", "interactive=true", "tp=2", "max_new_tokens=8", "temperature=0"]
    process = subprocess.Popen(
        [*MLM_GENERATE, *words],
        cwd=launches.folder,
        env=launches.environment,
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    try:
        for line in (b"To be\n", b"x" * (CONTEXT + 1) + b"\n", b"To be\n", b"\x04"):
            said = read_until(master, b"> ")
            os.write(master, line)
        assert b"ended" not in said
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(master)
    assert process.returncode == 0
    # Greedy, so the same answer twice; the prompt that was too long has none.
    first, second = out.decode().splitlines()
    assert first == second


def read_until(terminal: int, mark: bytes, timeout_s: float = 90) -> bytes:
    """What a terminal shows up to and with the mark."""
    seen, end = b"", time.monotonic() + timeout_s
    while not seen.endswith(mark):
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 4096)
    return seen


REFUSALS = [
    ([], ["checkpoint", "is not set", "checkpoint=RUN_DIR", "nothing else to go on from"]),
    (["checkpoint=nowhere", "prompt=a"], ["nowhere", "does not exist"]),
    (["checkpoint=run", "prompt=a", "tp=3"], ["tp=3", "4 heads", "use tp=1, 2 or 4"]),
    (
        ["checkpoint=run", f"prompt={'x' * 65}"],
        ["prompt", "has 65 tokens, and the model sees 64", "slide=true"],
    ),
    (["checkpoint=run", "prompt=a", "prompts=prompts.txt"], ["prompt and prompts", "keep one of them"]),
    (["checkpoint=run", "interactive=true"], ["standard input is none", "prompts=/dev/stdin"]),
    (["checkpoint=run", "prompts=none.txt"], ["none.txt", "cannot be read (No such file or directory)"]),
    (["checkpoint=run", "prompt=a", "out=run"], ["out=", "is a directory"]),
    (["checkpoint=run", "prompt=a", "out=no/where"], ["there is no directory"]),
    (["checkpoint=run", "prompt=a", "top_p=1.5", "top_k=0"], ["top_p=1.5", "is not at most 1", "top_k=0"]),
    (["checkpoint=run", "prompt=a", "max_tokens=3"], ["max_tokens=3", "use max_new_tokens=3"]),
]


@pytest.mark.parametrize(("words", "said"), REFUSALS)
def test_refused_before_anything_starts(launches, words, said, capsys, monkeypatch):
    monkeypatch.chdir(launches.folder)
    before = sorted(launches.folder.rglob("*")), scratch()
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for part in said:
        assert part in err, f"{part!r} not in:\n{err}"
    assert (sorted(launches.folder.rglob("*")), scratch()) == before


def test_a_dry_run_shows_the_plan_and_writes_nothing(launches, capsys, monkeypatch):
    monkeypatch.chdir(launches.folder)
    before = sorted(launches.folder.rglob("*")), scratch()
    words = ["checkpoint=run", "prompts=prompts.txt", "samples=3", "top_p=0.9", "launch=dry_run"]
    assert main(words) == 0
    out = capsys.readouterr().out
    # 9 texts, 8 at once: 2 layers x 8 rows x 64 tokens x hidden 64 x 2 x 4 bytes = 512 KiB.
    for part in (
        "gpt2_tiny",
        "step 4",
        "3 of up to 128 new tokens",
        "top_p 0.9, seed 1234",
        "0.5 MiB a rank",
    ):
        assert part in out
    assert (sorted(launches.folder.rglob("*")), scratch()) == before
