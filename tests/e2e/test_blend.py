"""mlm-train on token datasets: blended by weight, packed by document, the same at every layout."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlm.data.indexed import IndexedWriter
from mlm.data.metadata import write_metadata
from mlm.data.tokenizers import Gpt2Tokenizer
from tests.e2e.launching import MLM_TRAIN, TINY, Launched, Launches

STEPS, BATCH = 5, 20
WORDS = [
    *(
        word
        for word in TINY
        if not word.startswith(("tp=", "train.steps", "train.global", "train.micro", "train.final"))
    ),
    f"train.steps={STEPS}",
    f"train.global_batch_size={BATCH}",
    "train.micro_batch_size=5",
    "model.dropout=0",
    "model.attention_dropout=0",
    "launch.threads=1",
    "data.split=[90,10,0]",
]

# Every worker writes down what its optimizer step is given.
_RECORD = """
import json, os, sys

if "mlm.train.worker" in sys.orig_argv and os.environ.get("RECORD"):
    import mlm.train.step as module
    inner = module.train_step
    def train_step(model, optimizer, micro_batches, **rest):
        with open(os.path.join(os.environ["RECORD"], os.environ["RANK"]), "a") as file:
            file.write(json.dumps([row for batch in micro_batches for row in batch.ids.tolist()]) + "\\n")
        return inner(model, optimizer, micro_batches, **rest)
    module.train_step = train_step
"""


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    folder = tmp_path_factory.mktemp("blend")
    launches = Launches(folder, folder / "cache")
    (folder / "site" / "sitecustomize.py").write_text(_RECORD)
    rng = np.random.default_rng(0)
    for k, documents in ((0, 60), (1, 200), (2, 50)):
        # Ids of dataset k are 64 k to 64 k + 63: every sample shows where it is from.
        with IndexedWriter(folder / f"set{k}", vocab_size=257) as writer:
            for length in rng.integers(5, 90, documents):
                writer.add_document(64 * k + rng.integers(0, 64, length))
    return launches


def trained(
    launches: Launches, name: str, *words: str, run_dir: str | None = None, steps: int = STEPS
) -> Launched:
    """A run whose samples are recorded under its name; with a checkpoint if its run_dir is of several."""
    record = launches.folder / f"record_{name}"
    record.mkdir()
    settings = [word for word in WORDS if not word.startswith(("train.steps=", "train.save="))]
    launched = launches.run(
        [*MLM_TRAIN, *settings, f"train.steps={steps}", *words, f"run_dir={run_dir or name}"]
        + ([] if run_dir else ["train.save=false"]),
        {"RECORD": str(record)},
        timeout_s=280,
    )
    assert launched.code == 0, launched.out + launched.err
    return launched


def samples(launches: Launches, name: str, dp: int, tp: int = 1, steps: int = STEPS) -> list[list[int]]:
    """What the steps of a run were given, in the order of sample numbers."""
    ranks = []
    for rank in range(dp * tp):
        lines = (launches.folder / f"record_{name}" / str(rank)).read_text().splitlines()
        ranks.append([json.loads(line) for line in lines])
    for rank in range(dp * tp):
        assert ranks[rank] == ranks[rank // tp * tp], "ranks that share a layer see the same samples"
    return [row for step in range(steps) for rank in range(0, dp * tp, tp) for row in ranks[rank][step]]


def losses(run_dir: Path) -> list[float]:
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


BLEND = "data.blend=[{weight: 0.3, path: set0}, {weight: 0.7, path: set1}, {weight: 0, path: set2}]"


def test_a_run_takes_from_each_dataset_its_weight_of_the_samples_whatever_the_layout(launches):
    out = trained(launches, "one", "data=blend", BLEND).out
    trained(launches, "two", "data=blend", BLEND, "dp=2")
    taken = samples(launches, "one", dp=1)
    assert samples(launches, "two", dp=2) == taken
    of = np.array(taken) // 64
    assert (of == of[:, :1]).all()
    for n in range(1, STEPS * BATCH + 1):
        counts = np.bincount(of[:n, 0], minlength=3)
        assert abs(counts[0] - 0.3 * n) <= 1, n
        assert abs(counts[1] - 0.7 * n) <= 1, n
        assert counts[2] == 0
    summary = json.loads((launches.folder / "one" / "summary.json").read_text())
    assert summary["samples_by_dataset"] == {"set0": 30, "set1": 70, "set2": 0}
    assert losses(launches.folder / "two") == pytest.approx(losses(launches.folder / "one"), rel=1e-6)

    assert re.search(
        r"set0 +0\.3: 30 samples, 0\.\d+ epochs of \d+ \(54 documents, [\d,]+ training tokens\)", out
    )
    assert re.search(r"set1 +0\.7: 70 samples", out)
    assert re.search(r"set2 +weight 0: not read", out)
    assert "it is repeated" not in out


def test_a_blended_run_that_is_continued_on_more_replicas_takes_the_samples_of_the_unbroken_one(launches):
    trained(launches, "half", "data=blend", BLEND, run_dir="halves", steps=3)
    trained(launches, "rest", "data=blend", BLEND, "resume=auto", "dp=2", run_dir="halves")
    both = samples(launches, "half", dp=1, steps=3) + samples(launches, "rest", dp=2, steps=STEPS - 3)
    assert both == samples(launches, "one", dp=1)
    summary = json.loads((launches.folder / "halves" / "summary.json").read_text())
    assert summary["samples_by_dataset"] == {"set0": 30, "set1": 70, "set2": 0}


def test_a_dataset_that_its_weight_repeats_is_named_with_the_numbers(launches):
    words = ["data=blend", "data.blend=[{weight: 1, path: set2}, {weight: 1, path: set1}]"]
    out = trained(launches, "repeated", *words, "train.final_eval=true").out
    found = re.search(r"set2 has (\d+) samples and gives 50: it is repeated ([\d.]+) times", out)
    assert found, out
    assert float(found[2]) == pytest.approx(50 / int(found[1]), abs=0.05)
    assert "set1 has" not in out
    lines = map(json.loads, (launches.folder / "repeated" / "metrics.jsonl").read_text().splitlines())
    (valid,) = (line for line in lines if line["kind"] == "valid")
    assert valid["loss"] == pytest.approx((valid["loss_set1"] + valid["loss_set2"]) / 2, rel=1e-12)


def test_resets_at_documents_change_the_loss_and_are_the_same_at_every_layout(launches):
    one = ["data=indexed", "data.path=set1"]
    resets = ["data.reset_positions=true", "data.reset_attention=true"]
    trained(launches, "plain", *one)
    out = trained(launches, "reset", *one, *resets).out
    trained(launches, "reset_split", *one, *resets, "tp=2", "dp=2")
    assert "positions and attention begin anew at each document" in out
    plain, reset = (losses(launches.folder / name) for name in ("plain", "reset"))
    assert samples(launches, "plain", dp=1) == samples(launches, "reset", dp=1)
    assert plain != reset
    assert losses(launches.folder / "reset_split") == pytest.approx(reset, rel=1e-6)


def refused(launches: Launches, *words: str) -> str:
    launched = launches.run([*MLM_TRAIN, *WORDS, *words])
    assert launched.code == 2, launched.out + launched.err
    return launched.err


def test_what_is_wrong_with_datasets_is_refused_at_once_with_the_numbers(launches):
    folder, tokenizer = launches.folder, Gpt2Tokenizer()
    with IndexedWriter(folder / "other", tokenizer.vocab_size) as writer:
        for _ in range(20):
            writer.add_document([1] * 50)
    write_metadata(folder / "other", {"tokenizer": tokenizer.describe()})
    with IndexedWriter(folder / "short", 257) as writer:
        writer.add_document([1] * 40)
    with IndexedWriter(folder / "cut", 257) as writer:
        writer.add_document([1] * 900)
    with open(folder / "cut.bin", "r+b") as file:
        file.truncate(1776)
    names = ["other", "short", "cut", "absent"]
    parts = ", ".join(f"{{weight: {w}, path: {name}}}" for w, name in zip((1, 1, -1, 1), names, strict=True))
    said = refused(launches, "data=blend", f"data.blend=[{parts}]")
    for part in (
        "was encoded with gpt2, 50,257 tokens",
        "tokenizer=gpt2",
        f"36 tokens, to train of {folder / 'short'}, and one sample takes 65",
        "is 1,776 bytes, but cut.idx describes 1,800 bytes",
        "data.blend[2].weight=-1 is negative",
        "no such dataset (absent.bin, absent.idx)",
    ):
        assert part in " ".join(said.split()), said
    assert "data.blend[2].path" not in said
    assert not launches.run_dirs()


def values(launches: Launches, name: str) -> dict[str, Any]:
    return json.loads((launches.folder / name / "data.json").read_text())


def test_the_run_directory_says_what_was_read(launches):
    found = values(launches, "one")
    assert [(d["name"], d["weight"]) for d in found["datasets"]] == [
        ("set0", 0.3),
        ("set1", 0.7),
        ("set2", 0.0),
    ]
    assert found["datasets"][0]["prefix"] == str(launches.folder / "set0")
    assert found["datasets"][0]["documents"]["train"] == 54
