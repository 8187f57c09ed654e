"""`from_checkpoint` in place of a value of model or tokenizer: what the weights of init_from have there."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from mlm.config.command import Spec
from mlm.errors import ConfigError, Problem

if TYPE_CHECKING:
    from omegaconf import DictConfig

MARK = "from_checkpoint"
_SECTIONS = ("model", "tokenizer")


def fill_from_checkpoint(composed: DictConfig, spec: Spec[Any]) -> tuple[list[Problem], set[str]]:
    """Replace every mark in composed; problems, and the dotted keys whose mark could not be replaced."""
    marked = [
        (section, name)
        for section in _SECTIONS
        for name in _names(composed, section)
        if _raw(composed[section], name) == MARK
    ]
    if not marked:
        return [], set()
    keys = {f"{section}.{name}" for section, name in marked}
    chosen = " ".join(dict.fromkeys(f"{section}={MARK}" for section, _ in marked))
    path = _raw(composed, "init_from")
    if spec.from_checkpoint is None or not isinstance(path, str):
        wrong = "stands for that of init_from, which is not set"
        return [Problem(chosen, wrong, "add init_from=PATH, or choose another")], keys
    try:
        model, tokenizer = spec.from_checkpoint(
            path,
            _raw(composed, "allow_pickle") is True,
            _typed_number(composed, "num_heads"),
            _typed_number(composed, "vocab_size"),
        )
    except ConfigError as error:
        return error.problems, keys
    unknown = set()
    for section, name in marked:
        there = model if section == "model" else tokenizer
        if there is None:
            unknown.add(f"{section}.{name}")
            continue
        value = getattr(there, name)
        composed[section][name] = value.name if isinstance(value, Enum) else value
    if not unknown:
        return [], unknown
    wrong = f"stands for that of init_from={path}, which holds no file of a tokenizer"
    remedy = "name the one that it was trained with: tokenizer=gpt2, wordpiece, ..."
    return [Problem(f"tokenizer={MARK}", wrong, remedy)], unknown


def _names(composed: DictConfig, section: str) -> list[str]:
    """What stands in a section; nothing where somebody gave a plain value in its place."""
    from omegaconf import DictConfig

    inside = composed.get(section)
    return [str(name) for name in inside] if isinstance(inside, DictConfig) else []


def _typed_number(composed: DictConfig, name: str) -> int | None:
    """A number of the model that was given in place of the mark."""
    value = _raw(composed["model"], name) if name in _names(composed, "model") else None
    return value if isinstance(value, int) else None


def _raw(node: DictConfig, name: Any) -> Any:
    """The value as it stands there, nothing looked up."""
    from omegaconf import OmegaConf

    if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name):
        return None
    return node.get(name)
