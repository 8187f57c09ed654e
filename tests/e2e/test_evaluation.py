"""mlm-eval and evaluation inside training: the same at every layout, every count in eval.json."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.launching import MLM_EVAL, MLM_TRAIN, TINY, TORCHRUN, Launched, Launches
from tests.e2e.test_refusals import QUICK_S

WIKITEXT = (
    " \n = Heron = \n \n The grey heron ( Ardea cinerea ) is a long @-@ legged bird , about 1 @.@ 0 m . \n"
    " It doesn 't migrate in <unk> winters . \n \n = = Diet = = \n \n It eats fish , and the odd vole . \n"
)
PASSAGES = [
    "The keeper counted the birds twice and wrote the number into his book",
    "She had lost the key, so nobody could open the door",
    "He asked for water, and all they had was wine",
    "They walked until the road ended at the sea",
]
LAYOUTS = {"tp4": ["tp=4"], "dp2": ["dp=2", "batch_tokens=64"], "tp2dp2": ["tp=2", "dp=2"]}


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    """A tiny model trained a few steps at tp=2, and small files for every task."""
    folder = tmp_path_factory.mktemp("evaluation")
    launches = Launches(folder, folder / "cache")
    texts = folder / "texts"
    texts.mkdir()
    (texts / "wiki.test.tokens").write_text(WIKITEXT)
    (texts / "lambada.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in PASSAGES))
    (texts / "mine.txt").write_text("Mit Umlauten: äöü.\nUnd einer zweiten Zeile.\n")
    job = launches.run([*MLM_TRAIN, *tiny(), "run_dir=run"])
    assert job.code == 0, job.err
    return launches


def tiny() -> list[str]:
    """TINY with its checkpoint."""
    return [word for word in TINY if word != "train.save=false"]


FILES = ["task_paths.wikitext103=texts/wiki.test.tokens", "task_paths.lambada=texts/lambada.jsonl"]


def evaluated(launches: Launches, name: str, *words: str, files: list[str] = FILES) -> dict[str, Any]:
    job = launches.run([*MLM_EVAL, "checkpoint=run", *files, *words, f"out={name}"])
    assert job.code == 0, job.out + job.err
    result: dict[str, Any] = json.loads((launches.folder / name / "eval.json").read_text())
    return result


def rows(result: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(t["task"], row["variant"]): row for t in result["tasks"] for row in t["rows"]}


@pytest.fixture(scope="module")
def reference(launches: Launches) -> dict[str, Any]:
    return evaluated(launches, "reference")


def test_every_layout_gives_the_same_counts_and_the_same_figures_to_rounding(launches, reference):
    expected = rows(reference)
    for name, words in LAYOUTS.items():
        found = rows(evaluated(launches, name, *words))
        assert found.keys() == expected.keys(), name
        for key, row in found.items():
            for figure, value in row["figures"].items():
                theirs = expected[key]["figures"][figure]
                if isinstance(value, float):
                    assert value == pytest.approx(theirs, rel=1e-4), (name, key, figure)
                else:
                    assert value == theirs, (name, key, figure)


def test_the_figures_of_eval_json_follow_from_its_counts(reference):
    for (task, variant), row in rows(reference).items():
        figures = row["figures"]
        assert row["value"] == figures[row["headline"]]
        assert len(row["protocol"]) > 40, variant
        nll = figures["nll_total"]
        if task == "wikitext103":
            assert figures["ppl_token"] == pytest.approx(math.exp(nll / figures["n_tokens"]))
            assert figures["ppl_word"] == pytest.approx(math.exp(nll / figures["n_words"]))
            bits = nll / math.log(2) / figures["n_bytes"]
            assert figures["bits_per_byte"] == pytest.approx(bits)
        elif variant == "paper":
            assert figures["accuracy"] == figures["n_correct"] / figures["n_items"]
            assert figures["ppl_last_word"] == pytest.approx(math.exp(nll / figures["n_items"]))
    paper = rows(reference)["wikitext103", "paper"]["figures"]
    assert paper["n_words"] == len(WIKITEXT.strip().split(" ")) - 1
    assert paper["n_tokens"] == paper["T"] - 1
    lambada = rows(reference)["lambada", "paper"]["figures"]
    assert lambada["n_items"] == len(PASSAGES)
    # One token a byte: a space and the last word.
    assert lambada["n_tokens"] == sum(1 + len(text.split()[-1]) for text in PASSAGES)


def test_eval_json_says_what_was_measured_with_what_and_that_it_is_not_the_paper_s(launches, reference):
    assert reference["checkpoint"]["directory"] == str(launches.folder / "run/checkpoints/step_4")
    assert reference["checkpoint"]["trained_with"]["tp"] == 2
    assert reference["layout"] == {"tp": 1, "dp": 1, "device": "cpu"}
    assert reference["precision"]["name"] == "fp32"
    assert reference["versions"]["torch"]
    for task in reference["tasks"]:
        assert task["context"] == 64
        assert not any(row["is_paper_protocol"] for row in task["rows"])
        (file,) = task["files"]
        content = Path(file["path"]).read_bytes()
        assert (file["size"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        assert not file["published"]


def test_the_console_has_a_table_a_task_and_marks_what_is_not_the_paper_s(launches):
    job = launches.run([*MLM_EVAL, "checkpoint=run/checkpoints/step_4", *FILES, "limit=2", "tp=2"])
    assert job.code == 0, job.err
    assert "wikitext103, limited to 2" in job.out
    assert "lambada, limited to 2" in job.out
    assert "paper, 8.3B" in job.out
    assert "NOT the paper's protocol (the model's context is 64, limited to 2)" in job.out
    assert "tokens/s" in job.out
    assert "\x1b" not in job.out
    (folder,) = (launches.folder / "run" / "eval").iterdir()
    result = json.loads((folder / "eval.json").read_text())
    assert result["limit"] == 2
    assert rows(result)["lambada", "paper"]["figures"]["n_items"] == 2
    assert rows(result)["lambada", "paper"]["figures"]["n_items_in_file"] == 4
    again = launches.run([*MLM_EVAL, "checkpoint=run", *FILES, f"out={folder}"])
    assert again.code == 2
    assert "never overwritten" in again.err


def test_any_text_has_a_perplexity(launches):
    mine = ["task_paths.perplexity=texts/mine.txt"]
    result = evaluated(launches, "mine", "tasks=[perplexity]", files=mine)
    figures = rows(result)["perplexity", "non-overlapping"]["figures"]
    size = (launches.folder / "texts/mine.txt").stat().st_size
    assert figures["n_bytes"] == figures["n_tokens"] == size
    assert figures["n_words"] == 7
    # Four steps do not make a model: close to one of 257 tokens.
    assert figures["ppl_token"] == pytest.approx(257, rel=0.15)


def test_a_model_of_zero_weights_has_exactly_the_vocabulary_as_its_perplexity(launches):
    job = launches.run(
        [*MLM_TRAIN, *tiny(), "model.init_std=0", "optim.lr=1e-30", "optim.min_lr=0", "run_dir=zero"]
    )
    assert job.code == 0, job.err
    mine = ["task_paths.perplexity=texts/mine.txt", "checkpoint=zero"]
    job = launches.run([*MLM_EVAL, "tasks=[perplexity]", *mine, "tp=2", "out=uniform"])
    assert job.code == 0, job.err
    result = json.loads((launches.folder / "uniform/eval.json").read_text())
    for row in result["tasks"][0]["rows"]:
        assert row["figures"]["ppl_token"] == pytest.approx(257, rel=1e-6)


def test_torchrun_can_start_the_workers(launches, reference):
    words = ["checkpoint=run", *FILES, "tp=2", "out=joined"]
    job = launches.run([*TORCHRUN, "--nproc-per-node=2", "-m", "mlm.cli.eval", *words])
    assert job.code == 0, job.err
    joined = json.loads((launches.folder / "joined/eval.json").read_text())
    for key, row in rows(joined).items():
        assert row["value"] == pytest.approx(rows(reference)[key]["value"], rel=1e-4), key


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ["checkpoint", "is not set", "checkpoint=RUN_DIR"]),
        (["checkpoint=nowhere"], ["nowhere", "does not exist"]),
        (["checkpoint=run", *FILES, "tp=3"], ["tp=3", "4 heads", "use tp=1, 2 or 4"]),
        (["checkpoint=run", "tasks=[]"], ["tasks=[]", "names nothing"]),
        (["checkpoint=run", "tasks=[wikitxt103]"], ["names wikitxt103, which is no task", "use wikitext103"]),
        (
            ["checkpoint=run", "tasks=lambada"],
            ["tasks=lambada", "is not a list", "tasks=[wikitext103,lambada]"],
        ),
        (
            ["checkpoint=run"],
            [
                "wiki.test.tokens (1,281,077 bytes, sha256 56db52eb",
                "lambada_test.jsonl (1,819,752",
                "MLM_DATA",
            ],
        ),
        (["checkpoint=run", "task_paths.lambda=x", *FILES], ["task_paths.lambda", "use task_paths.lambada"]),
        (
            ["checkpoint=run", "tasks=[lambada]", "task_paths.lambada=no.jsonl"],
            ["no.jsonl", "is no such file"],
        ),
        (["checkpoint=run", "tasks=[perplexity]"], ["task_paths.perplexity", "is not set"]),
        (["checkpoint=run", *FILES, "out=texts"], ["out=", "already holds files"]),
        (
            ["--fast", "checkpoint=run", "limt=3", "tasks=[lambda]", "dp=0", "batch_tokens=-1"],
            ["--fast", "use limit=3", "use lambada", "dp=0", "batch_tokens=-1"],
        ),
    ],
)
def test_refused_before_anything_starts(launches: Launches, words: list[str], said: list[str]) -> None:
    before = sorted(launches.folder.rglob("*"))
    job = launches.run([*MLM_EVAL, *words], timeout_s=60)
    assert job.code == 2, job.err
    assert job.err.startswith("mlm-eval: ")
    assert "nothing was started" in job.err.splitlines()[0]
    for part in said:
        assert part in job.err, f"{part!r} not in:\n{job.err}"
    assert "Traceback" not in job.err
    assert job.out == ""
    assert job.seconds < QUICK_S
    assert sorted(launches.folder.rglob("*")) == before


def test_a_file_that_is_broken_inside_ends_the_run_with_its_line_and_no_traceback(launches):
    (launches.folder / "broken.jsonl").write_text('{"text": "a b"}\n{"text": \n')
    words = ["checkpoint=run", "tasks=[lambada]", "task_paths.lambada=broken.jsonl", "out=broken"]
    job = launches.run([*MLM_EVAL, *words])
    assert job.code == 1
    assert "broken.jsonl, line 2 is not JSON" in job.err
    assert "Traceback" not in job.err
    assert not (launches.folder / "broken/eval.json").exists()


def test_a_dry_run_shows_the_plan_and_writes_nothing(launches):
    before = sorted(launches.folder.rglob("*"))
    job = launches.run([*MLM_EVAL, "checkpoint=run", *FILES, "tp=2", "launch=dry_run"])
    assert job.code == 0, job.err
    for part in ("gpt2_tiny", "step 4", "wiki.test.tokens", "mlm.eval.worker", "-m mlm.cli.eval"):
        assert part in job.out
    assert sorted(launches.folder.rglob("*")) == before


@pytest.mark.parametrize(
    "words", [["--help"], ["checkpoint=run", *FILES, "launch=dry_run"], ["checkpoint=x"]]
)
def test_answers_that_start_nothing_import_no_torch(launches, words):
    script = (
        "import sys; from mlm.cli.eval import main; main(sys.argv[1:]); "
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


def test_help_names_every_task_and_its_files(launches):
    from mlm.eval.tasks import TASKS

    job = launches.run([*MLM_EVAL, "--help"])
    assert job.code == 0
    for name, task in TASKS.items():
        assert f"task_paths.{name}=" in job.out
        assert task.summary in job.out


def metrics(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_evaluation_while_training_is_mlm_eval_s_and_leaves_the_losses_alone_to_the_last_digit(
    launches, reference
):
    hook = ["eval.tasks=[wikitext103,lambada]", "eval.interval=3", *(f"eval.{file}" for file in FILES)]
    job = launches.run([*MLM_TRAIN, *tiny(), *hook, "run_dir=watched"])
    assert job.code == 0, job.err
    watched, alone = launches.folder / "watched", launches.folder / "run"
    for ours, theirs in zip(metrics(watched, "train"), metrics(alone, "train"), strict=True):
        assert (ours["loss"], ours["grad_norm"]) == (theirs["loss"], theirs["grad_norm"])
    assert metrics(alone, "eval") == []
    found = metrics(watched, "eval")
    assert [record["step"] for record in found] == [3, 4]
    for (task, variant), row in rows(reference).items():
        measured = found[-1][f"{task}/{variant}/{row['headline']}"]
        assert measured == pytest.approx(row["value"], rel=1e-4), (task, variant)
    assert found[0]["wikitext103/paper/ppl_token"] != found[1]["wikitext103/paper/ppl_token"]
    summary = json.loads((watched / "summary.json").read_text())
    assert [task["task"] for task in summary["eval"]] == ["wikitext103", "lambada"]


def test_a_wrong_task_is_refused_by_mlm_train_too(launches):
    words = ["eval.tasks=[lambda]", "eval.task_paths.lambada=x", "eval.interval=-1"]
    job: Launched = launches.run([*MLM_TRAIN, *words])
    assert job.code == 2
    for part in ("eval.tasks=[lambda]", "use lambada", "eval.task_paths.lambada", "eval.interval=-1"):
        assert part in job.err
    missing = launches.run([*MLM_TRAIN, "eval.tasks=[lambada]"])
    assert missing.code == 2
    assert "eval.task_paths.lambada  is not set" in missing.err


def test_what_make_train_trains_is_evaluated_on_both_tasks(launches: Launches) -> None:
    short = ["train.steps=5", "optim.warmup_steps=1", "train.final_eval=false", "train.sample_tokens=0"]
    job = launches.run([*MLM_TRAIN, "experiment=quickstart", *short, "run_dir=quick"])
    assert job.code == 0, job.err
    job = launches.run([*MLM_EVAL, "checkpoint=quick", "tp=2", *FILES, "out=quick_eval"])
    assert job.code == 0, job.err
    tasks = json.loads((launches.folder / "quick_eval" / "eval.json").read_text())["tasks"]
    paper = {task["task"]: task["rows"][0]["figures"] for task in tasks}
    assert paper["wikitext103"]["T_o"] == len(WIKITEXT.strip().split(" "))
    assert paper["lambada"]["n_items"] == len(PASSAGES)
    assert "paper, 8.3B" in job.out, "the paper's figures stand beside ours"
