"""What a run begins with: the newest whole checkpoint, or a refusal that names the file; nothing silent."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mlm.checkpoint.manifest import Manifest, record_of, write_manifest
from mlm.checkpoint.origin import Origin, read_origin
from mlm.checkpoint.state import TrainingState
from mlm.config.compose import compose
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.config.store import save_config
from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.errors import ConfigError
from mlm.launch import resume
from mlm.launch.resume_checks import check

TINY = ["model=gpt2_tiny", "train.steps=100", "optim.warmup_steps=1", "dp=1", "run_dir=given_below"]


@cache
def composed(words: tuple[str, ...]) -> TrainConfig:
    return compose([*TINY, *words])


def settled(run_dir: Path, *words: str) -> TrainConfig:
    config = composed(words)
    return resolved(config, device="cpu", processes=1, threads=1, precision="fp32", run_dir=str(run_dir))


def data_of(source: str = "text", fingerprint: str = "abc", tokenizer: str = "t") -> PreparedData:
    return PreparedData(
        source=source,
        embedded=False,
        datasets=(
            PreparedDataset(
                name="text",
                prefix="/nowhere",
                ranges={"train": (0, 1000), "valid": (1000, 1100), "test": (1100, 1100)},
                documents={"train": 1, "valid": 1, "test": 0},
                first_documents={"train": None, "valid": None, "test": None},
            ),
        ),
        tokenizer={"kind": "byte", "fingerprint": tokenizer},
        seq_length=64,
        fingerprint=fingerprint,
        ln_vocab=5.5,
    )


def checkpoint(run_dir: Path, step: int, *words: str) -> Path:
    """A whole checkpoint, as far as anybody looks who does not open its tensors."""
    directory = run_dir / "checkpoints" / f"step_{step}"
    directory.mkdir(parents=True)
    (directory / "rank_0.safetensors").write_bytes(bytes(range(200)))
    (directory / "index.json").write_text('{"tensors": {}}\n')
    state = TrainingState(step=step, consumed_samples=8 * step, updates=step)
    (directory / "state.json").write_text(state.to_json())
    (directory / "data.json").write_text(data_of().to_json())
    save_config(settled(run_dir, *words), directory / "config.yaml")
    files = {path.name: record_of(path) for path in directory.iterdir()}
    write_manifest(directory, Manifest(step, files, {}))
    return directory


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that was ended somehow after its third checkpoint."""
    folder = tmp_path / "run"
    for step in (10, 20, 30):
        checkpoint(folder, step)
    save_config(settled(folder), folder / "config.yaml")
    Origin().write(folder)
    return folder


def begun(run_dir: Path, *words: str) -> tuple[resume.Beginning, list[str]]:
    said: list[str] = []
    config = settled(run_dir, *words)
    in_place = resume.goes_on_in_place(config, run_dir)
    return resume.begin(config, run_dir, said.append, in_place=in_place), said


def refused(run_dir: Path, *words: str) -> str:
    config = settled(run_dir, *words)
    found = resume.problems(config, config, run_dir)
    if not found:
        with pytest.raises(ConfigError) as caught:
            begun(run_dir, *words)
        found = caught.value.problems
    (problem,) = found
    return str(problem)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


class Hostile:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {os.environ['HOSTILE_MARK']}",)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "truncated": ("rank_0.safetensors has 100 bytes", lambda d: os.truncate(d / "rank_0.safetensors", 100)),
    "flipped": ("rank_0.safetensors has changed", lambda d: flip(d / "rank_0.safetensors")),
    "missing": ("rank_0.safetensors is missing", lambda d: (d / "rank_0.safetensors").unlink()),
    "state": ("state.json has changed", lambda d: flip(d / "state.json")),
    "config": ("config.yaml has changed", lambda d: flip(d / "config.yaml")),
    "manifest": ("it has no manifest.json", lambda d: (d / "manifest.json").unlink()),
    "manifest cut": ("manifest.json is damaged", lambda d: os.truncate(d / "manifest.json", 50)),
    "no folder": ("manifest.json", lambda d: [path.unlink() for path in d.iterdir()]),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_auto_passes_a_damaged_checkpoint_over_by_name_and_takes_the_one_before(run_dir, kind):
    words, damage = DAMAGES[kind]
    damage(run_dir / "checkpoints" / "step_30")
    beginning, said = begun(run_dir, "resume=auto")
    assert beginning.checkpoint is not None
    assert beginning.checkpoint.directory.name == "step_20"
    assert beginning.state.consumed_samples == 160
    assert any(line.startswith("warning: passing over step_30: ") and words in line for line in said), said


@pytest.mark.parametrize("kind", DAMAGES)
def test_an_explicit_resume_of_a_damaged_checkpoint_is_refused_and_names_the_file(run_dir, kind):
    words, damage = DAMAGES[kind]
    directory = run_dir / "checkpoints" / "step_30"
    damage(directory)
    sentence = refused(run_dir.with_name("other"), f"resume={directory}")
    assert sentence.startswith(f"resume={directory} is ")
    assert words in sentence
    assert "step_20" in sentence, "what there is instead"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("resume=nothing/there", "does not exist"),
        ("init_from=nothing/there", "does not exist"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(run_dir, words, message):
    assert message in refused(run_dir.with_name("other"), words)


def test_when_no_checkpoint_is_whole_auto_refuses_instead_of_beginning_anew(run_dir):
    for directory in (run_dir / "checkpoints").iterdir():
        flip(directory / "index.json")
    sentence = refused(run_dir, "resume=auto")
    assert "has 3 checkpoints, and none of them is whole" in sentence
    assert f"move {run_dir / 'checkpoints'} away" in sentence


def test_a_checkpoint_folder_that_cannot_be_listed_is_refused_and_not_taken_for_an_empty_one(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("tp: 1\n")
    (folder / "checkpoints").write_text("a file")
    assert f"{folder / 'checkpoints'} cannot be read (Not a directory)" in refused(folder, "resume=auto")


def test_auto_without_a_checkpoint_says_that_it_starts_at_step_0(tmp_path):
    for folder in (tmp_path / "new", tmp_path / "begun"):
        if folder.name == "begun":
            folder.mkdir()
            save_config(settled(folder), folder / "config.yaml")
        beginning, said = begun(folder, "resume=auto")
        assert beginning.checkpoint is None
        assert beginning.in_place == (folder.name == "begun")
        assert said == [f"warning: no checkpoint found in {folder}, starting at step 0"]


def test_a_run_without_a_checkpoint_of_its_own_begins_as_it_did_before(run_dir):
    """Stopped before its first save, a run that began with another one's checkpoint is not begun anew."""
    other, step_20 = run_dir.with_name("other"), run_dir / "checkpoints" / "step_20"
    other.mkdir()
    Origin(checkpoint=str(step_20)).write(other)
    beginning, said = begun(other, "resume=auto")
    assert beginning.checkpoint is not None
    assert (beginning.checkpoint.directory, beginning.state.step, said) == (step_20, 20, [])
    assert "model.num_layers=3 was 2" in refused(other, "resume=auto", "model.num_layers=3")
    Origin(weights=str(step_20)).write(other)
    beginning, said = begun(other, "resume=auto")
    assert (beginning.checkpoint, beginning.weights is not None) == (None, True)
    assert said == [f"the weights of {step_20} (all checksums match), at step 0"]
    flip(step_20 / "rank_0.safetensors")
    assert "rank_0.safetensors has changed" in refused(other, "resume=auto")


def test_an_earlier_checkpoint_is_not_continued_among_later_ones(run_dir):
    step_20 = run_dir / "checkpoints" / "step_20"
    assert "already holds step_30" in refused(run_dir, f"resume={step_20}")
    assert begun(run_dir.with_name("other"), f"resume={step_20}")[0].state.step == 20


def test_another_shape_and_seed_are_refused_all_at_once_and_fewer_steps_than_done(run_dir):
    config = settled(run_dir, "resume=auto", "model.num_layers=3", "seed=4")
    wheres = [problem.where for problem in resume.problems(config, config, run_dir)]
    assert wheres == ["model.num_layers=3", "seed=4"]
    fewer = replace(settled(run_dir, "resume=auto"), train=replace(config.train, steps=29))
    wrong = [problem.wrong for problem in resume.problems(fewer, fewer, run_dir)]
    assert wrong == ["is less than the 30 steps that step_30 has behind it"]


def test_steps_to_profile_must_not_lie_behind_the_checkpoint(run_dir):
    words = ("resume=auto", "profile=true")
    assert "names step 30, which step_30 has behind it" in refused(run_dir, *words, "profile_steps=[30,31]")
    assert resume.problems(settled(run_dir, *words), settled(run_dir, *words), run_dir) == []


def test_init_from_takes_another_seed_and_schedule_but_no_other_shape(run_dir):
    other = run_dir.with_name("other")
    good = settled(other, f"init_from={run_dir}", "seed=7", "optim.lr=1e-3", "model.dropout=0.5")
    assert resume.problems(good, good, other) == []
    beginning, said = begun(other, f"init_from={run_dir}")
    assert (beginning.checkpoint, beginning.state) == (None, TrainingState())
    assert beginning.weights is not None
    assert beginning.weights.checkpoint is not None
    assert beginning.weights.checkpoint.step == 30
    assert said == [f"the weights of {run_dir}/checkpoints/step_30 (all checksums match), at step 0"]
    assert "model.num_layers=3 was 2" in refused(other, f"init_from={run_dir}", "model.num_layers=3")


def checked(run_dir: Path, data: PreparedData, *words: str) -> list[str]:
    config = settled(run_dir, "resume=auto", *words)
    beginning, _ = begun(run_dir, "resume=auto", *words)
    said: list[str] = []
    check(beginning, config, data, said.append)
    return said


def test_the_same_tokens_elsewhere_are_exact_and_others_go_on_at_the_sample_number(run_dir):
    assert len(checked(run_dir, data_of())) == 1, "nothing has changed: where it goes on, and that is all"
    moved = checked(run_dir, data_of(source="moved"))[-1].split()
    assert moved[:4] == ["data", "text", "moved", "exact:"]
    other = checked(run_dir, data_of(fingerprint="def"))[-1]
    assert "allowed: goes on at sample number 240 of the order that these tokens have" in other


def test_a_tokenizer_with_other_ids_is_refused(run_dir):
    with pytest.raises(ConfigError, match=r"gives other ids than the byte tokenizer .*step_30"):
        checked(run_dir, data_of(tokenizer="u"))


def test_another_batch_is_warned_of(run_dir):
    said = checked(run_dir, data_of(), "train.global_batch_size=8", "train.micro_batch_size=8")
    assert said[-1] == "warning: the batch changes from 512 to 8 samples a step"


def test_an_attempt_puts_aside_what_the_one_before_left_and_keeps_its_history(run_dir):
    (run_dir / "metrics.jsonl").write_text("history\n")
    (run_dir / "summary.json").write_text("{}")
    (run_dir / "errors").mkdir()
    (run_dir / "errors" / "rank_0.json").write_text("{}")
    folder = run_dir / "checkpoints"
    (folder / "step_40.tmp").mkdir()
    (folder / "step_40.tmp" / "rank_0.safetensors").write_text("half of it")
    (folder / "latest.tmp").write_text("step_40")
    flip(folder / "step_30" / "index.json")
    beginning, _ = begun(run_dir, "resume=auto")
    said: list[str] = []
    beginning.settle(run_dir, said.append)
    assert said == ["removed step_40.tmp, a checkpoint that was never completed"]
    assert sorted(p.name for p in folder.iterdir()) == ["step_10", "step_20", "step_30.damaged"]
    assert sorted(p.name for p in run_dir.iterdir()) == [
        "attempts", "checkpoints", "config.yaml", "metrics.jsonl", "resume.json"
    ]  # fmt: skip
    assert sorted(p.name for p in (run_dir / "attempts" / "1").iterdir()) == [
        "config.yaml", "errors", "summary.json"
    ]  # fmt: skip
    assert read_origin(run_dir) == Origin(2, checkpoint=str(folder / "step_20"))
    begun(run_dir, "resume=auto")[0].settle(run_dir, said.append)
    assert read_origin(run_dir) == Origin(3, checkpoint=str(folder / "step_20"))


def test_a_restart_takes_the_newest_whole_checkpoint_whatever_the_run_began_with(run_dir, tmp_path):
    assert resume.restart(run_dir, lambda _: None) == run_dir / "checkpoints" / "step_30"
    assert read_origin(run_dir) == Origin(2, checkpoint=str(run_dir / "checkpoints" / "step_30"))
    other = tmp_path / "other"
    other.mkdir()
    Origin(checkpoint=str(run_dir / "checkpoints" / "step_20")).write(other)
    assert resume.restart(other, lambda _: None) == run_dir / "checkpoints" / "step_20"
    Origin(weights=str(run_dir / "checkpoints" / "step_20")).write(other)
    assert resume.restart(other, lambda _: None) is None
    assert read_origin(other) == Origin(2, weights=str(run_dir / "checkpoints" / "step_20"))


def test_a_pickle_in_place_of_any_file_is_damage_and_is_not_run(run_dir, monkeypatch):
    mark = run_dir / "mark"
    monkeypatch.setenv("HOSTILE_MARK", str(mark))
    pickle.loads(pickle.dumps(Hostile()))
    assert mark.exists(), "it would tell"
    mark.unlink()
    directory = run_dir / "checkpoints" / "step_30"
    (directory / ".metadata").write_bytes(pickle.dumps(Hostile()))
    assert begun(run_dir, "resume=auto")[0].state.step == 30, "a file that is not in the list is not read"
    for path in list(directory.iterdir()):
        content = path.read_bytes()
        path.write_bytes(pickle.dumps(Hostile()))
        beginning, said = begun(run_dir, "resume=auto")
        if path.name != ".metadata":
            assert beginning.state.step == 20, path.name
            assert path.name in said[0]
        path.write_bytes(content)
    assert not mark.exists()


def test_the_resolved_path_of_an_origin_is_read_back(tmp_path):
    assert read_origin(tmp_path) is None
    Origin(3, checkpoint="/a/step_1").write(tmp_path)
    assert read_origin(tmp_path) == Origin(3, checkpoint="/a/step_1")
    assert json.loads((tmp_path / "resume.json").read_text())["attempt"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["resume.json"]
