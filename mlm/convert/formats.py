"""The formats that weights come in from, each recognised by looking at its files. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlm.convert.huggingface import source as huggingface
from mlm.convert.megatron import files as megatron_files
from mlm.convert.megatron import source as megatron
from mlm.convert.source import Reading, Source
from mlm.errors import ConfigError, Problem


@dataclass(frozen=True)
class Format:
    """One format. look: whether the files at a path are of this kind, by their names alone.

    open: the source at a path; raises ConfigError with all that is wrong with it. wants: what look looks for.
    """

    title: str
    wants: str
    look: Callable[[Path], bool]
    open: Callable[[Path, Reading], Source]


FORMATS: dict[str, Format] = {
    "hf": Format(
        "Hugging Face",
        "a folder of config.json and model.safetensors or pytorch_model.bin",
        huggingface.look,
        huggingface.open_source,
    ),
    "megatron": Format(
        "Megatron-LM",
        "a folder of latest_checkpointed_iteration.txt and iter_N/mp_rank_NN/model_optim_rng.pt",
        megatron_files.look,
        megatron.open_source,
    ),
}
"""By the name that --from takes."""


def recognised(path: Path) -> str | None:
    """The name of the format of what lies there; None where it is none of them."""
    return next((name for name, each in FORMATS.items() if each.look(path)), None)


def open_source(
    path: Path, reading: Reading | None = None, *, kind: str | None = None, key: str = ""
) -> Source:
    """The weights at a path. kind: of FORMATS, None: found by looking. key: what named the path.

    Raises ConfigError when there are none, or they are not what they have to be.
    """
    where = f"{key}={path}" if key else str(path)
    found = kind or recognised(path)
    if found is None:
        if not path.exists():
            raise ConfigError(Problem(where, "does not exist", "name a folder of weights"))
        wants = "; ".join(each.wants for each in FORMATS.values())
        raise ConfigError(Problem(where, "is in no format that is known", f"known are: {wants}"))
    return FORMATS[found].open(path, reading or Reading())
