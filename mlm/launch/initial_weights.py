"""What init_from names: a checkpoint or weights of another program, and whether they can be the model's.

Torch is imported only where the tensors of foreign files are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm.checkpoint.locate import Checkpoint, resolve_checkpoint
from mlm.config.checks import OBJECTIVES
from mlm.config.fields import plain
from mlm.config.schema import ModelConfig, TokenizerConfig, TrainConfig
from mlm.config.store import load_config
from mlm.convert.formats import open_source, recognised
from mlm.convert.heads import allowed_heads, name_problems
from mlm.convert.source import FoundTokenizer, Reading, Source
from mlm.data.bad_data import BadData
from mlm.data.prepared import PreparedData
from mlm.data.tokenizers.configured import build
from mlm.errors import ConfigError, Problem
from mlm.launch import changes
from mlm.launch.checkpoint_checks import data_of, other_tokenizer, sentences

if TYPE_CHECKING:
    from mlm.convert.walk import Match

KEY = "init_from"
FROM_CHECKPOINT = "from_checkpoint"
_OURS_TO_CHOOSE = ("model.padded_vocab_size",)
"""Keys of the model that foreign weights leave open."""


@dataclass(frozen=True)
class InitialWeights:
    """Where weights lie. checkpoint: that of a run; None: they are another program's, at path."""

    path: Path
    checkpoint: Checkpoint | None = None


def resolve_weights(path: str) -> InitialWeights:
    """Raises ConfigError when nothing there is a checkpoint, or in a format that is known."""
    place = Path(path).expanduser().absolute()
    if recognised(place) is not None:
        return InitialWeights(place)
    checkpoint = resolve_checkpoint(path, KEY)
    return InitialWeights(checkpoint.directory, checkpoint)


def reading_for(config: TrainConfig) -> Reading:
    """What the configuration answers where foreign files leave a question."""
    model = config.model
    return Reading(config.allow_pickle, model.num_heads, model.vocab_size)


def weights_problems(path: str, config: TrainConfig | None, asked: TrainConfig) -> list[Problem]:
    """Why what lies there cannot be the weights of the model that is meant, as far as headers tell.

    config: resolved; None where it cannot be laid out, and then nothing is compared. asked: as it was typed.
    """
    if config is not None and config.objective.name not in OBJECTIVES[config.model.architecture]:
        config = None  # refused by mlm.config.checks: there is no such model to compare with
    try:
        weights = resolve_weights(path)
        if weights.checkpoint is not None:
            return _checkpoint_problems(weights.checkpoint, config)
        source = open_source(weights.path, reading_for(asked), key=KEY)
        if config is None:
            return []
        found = _differences(source, config.model)
        if not found:
            _match(source, config)
        return found
    except ConfigError as error:
        return error.problems


def contents_problems(weights: InitialWeights, config: TrainConfig) -> list[Problem]:
    """What is wrong with them once every byte that counts is read."""
    if weights.checkpoint is not None:
        return sentences(KEY, weights.checkpoint, contents=True)
    from mlm.convert.walk import check_copies

    try:
        source = open_source(weights.path, reading_for(config), key=KEY)
        check_copies(source, _match(source, config))
    except ConfigError as error:
        return error.problems
    return []


def described(weights: InitialWeights, config: TrainConfig) -> str:
    """The weights in a line of the log, once they have been found whole."""
    if weights.checkpoint is not None:
        return f"the weights of {weights.path} (all checksums match), at step 0"
    source = open_source(weights.path, reading_for(config), key=KEY)
    return f"the weights of {weights.path} ({source.format}), at step 0"


def tokenizer_problems(weights: InitialWeights, config: TrainConfig, data: PreparedData) -> list[Problem]:
    """Whether the ids of the training text mean to the weights what they meant before."""
    if weights.checkpoint is not None:
        return other_tokenizer(weights.checkpoint, data)
    source = open_source(weights.path, reading_for(config), key=KEY)
    if source.tokenizer is None:
        return []
    try:
        before = build(_tokenizer_config(source.tokenizer), "", Path())
    except BadData as error:
        return [error.problem]
    now = data.tokenizer
    if before.fingerprint == now["fingerprint"]:
        return []
    wrong = f"gives other ids than the {before.kind} tokenizer that lies with {weights.path}"
    return [Problem(f"tokenizer.kind={now['kind']}", wrong, f"use tokenizer={FROM_CHECKPOINT}")]


def model_and_tokenizer(
    path: str, allow_pickle: bool, num_heads: int | None = None, vocab_size: int | None = None
) -> tuple[ModelConfig, TokenizerConfig | None]:
    """What model=from_checkpoint and tokenizer=from_checkpoint stand for; None: it has no tokenizer."""
    weights = resolve_weights(path)
    if weights.checkpoint is None:
        source = open_source(weights.path, Reading(allow_pickle, num_heads, vocab_size), key=KEY)
        found = source.tokenizer
        return source.model, None if found is None else _tokenizer_config(found)
    trained = load_config(weights.checkpoint.config_path)
    return trained.model, _tokenizer_of(weights.checkpoint)


def _checkpoint_problems(checkpoint: Checkpoint, config: TrainConfig | None) -> list[Problem]:
    found = sentences(KEY, checkpoint, contents=False)
    if found or config is None:
        return found
    try:
        then = load_config(checkpoint.config_path)
    except ConfigError:
        damaged = sentences(KEY, checkpoint, contents=True)
        if damaged:
            return damaged
        raise
    built_in = [
        change
        for change in changes.changes(then, config)
        if change.rule is changes.SHAPE and change.key.startswith("model.")
    ]
    refused = changes.refusals(built_in, checkpoint.directory.name)
    if refused or then.objective.name == config.objective.name:
        return refused
    return _head_problems(checkpoint, then, config)


def _head_problems(checkpoint: Checkpoint, then: TrainConfig, config: TrainConfig) -> list[Problem]:
    """Whether weights of another objective have what this one cannot begin without, and no more."""
    from mlm.checkpoint.storage import read_index
    from mlm.convert.declared import declarations

    there = {n.removeprefix("model.") for n in read_index(checkpoint.directory) if n.startswith("model.")}
    needed = set(declarations(config.model, config.objective.name))
    missing, left_over = name_problems(there, needed, allowed_heads(config.objective.name))
    where = f"objective.name={config.objective.name}"
    remedy = f"start from a model that has all but its heads, or use objective.name={then.objective.name}"
    found = []
    if missing:
        wrong = f"needs {', '.join(missing)}, which {checkpoint.directory} does not have"
        found.append(Problem(where, wrong, remedy))
    if left_over:
        wrong = f"has no place for {', '.join(left_over)}, which {checkpoint.directory} has"
        found.append(Problem(where, wrong, remedy))
    return found


def _differences(source: Source, model: ModelConfig) -> list[Problem]:
    """Every key of the model's shape that is not what the files say."""
    found = []
    for key, rule in changes.RULES.items():
        if rule is not changes.SHAPE or not key.startswith("model.") or key in _OURS_TO_CHOOSE:
            continue
        then, now = (_value(each, key.removeprefix("model.")) for each in (source.model, model))
        if then != now:
            wrong = f"is {plain(then)} in {source.path} ({source.format}), and its weights are made for that"
            remedy = f"use {key}={plain(then)}, or model={FROM_CHECKPOINT} for all of it"
            found.append(Problem(f"{key}={plain(now)}", wrong, remedy))
    return found


def _value(model: ModelConfig, name: str) -> Any:
    if name == "ffn_hidden_size" and model.ffn_hidden_size is None:
        return 4 * model.hidden_size
    return getattr(model, name)


def _match(source: Source, config: TrainConfig) -> Match:
    """Raises ConfigError with every tensor that is missing, left over or of another shape."""
    from mlm.convert.declared import declarations
    from mlm.convert.walk import match

    heads, objective = allowed_heads(config.objective.name), config.objective.name
    shapes = {name: each.shape for name, each in declarations(config.model, objective).items()}
    return match(source, config.model, shapes, fresh=heads.fresh, dropped=heads.dropped)


def _tokenizer_config(found: FoundTokenizer) -> TokenizerConfig:
    return TokenizerConfig(kind=found.kind, path=None if found.path is None else str(found.path.absolute()))


def _tokenizer_of(checkpoint: Checkpoint) -> TokenizerConfig:
    description = data_of(checkpoint).tokenizer
    path = description.get("path")
    kept = None if path is None else str(checkpoint.data_path.parent / path)
    return TokenizerConfig(kind=description["kind"], path=kept)
