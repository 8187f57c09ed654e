"""A folder of config.json and weights as a Source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlm.config.schema import ModelConfig
from mlm.convert.huggingface.config import TITLES, model_of
from mlm.convert.huggingface.tokenizer import tokenizer_of
from mlm.convert.source import Reading
from mlm.convert.tensor_files import PickledFile, SafetensorsFile, TensorFile
from mlm.errors import ConfigError, Problem
from mlm.models import bert_names, gpt2_names
from mlm.models.names import Table

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
FILES = (
    ("model.safetensors", False),
    ("model.safetensors.index.json", True),
    ("pytorch_model.bin", False),
    ("pytorch_model.bin.index.json", True),
)
"""Where weights are looked for, in this order; True: an index of several files."""
TABLES: dict[str, Table] = {"gpt2": gpt2_names.HUGGING_FACE, "bert": bert_names.HUGGING_FACE}
"""By our architecture."""


def look(path: Path) -> bool:
    """Whether a path is a folder with a config.json."""
    return (path / CONFIG).is_file()


def open_source(path: Path, reading: Reading) -> HuggingFace:
    """Raises ConfigError with everything in config.json that mlm has no like for, or what the files lack."""
    content = read_json(path / CONFIG)
    model = model_of(content, path)
    return HuggingFace(path, model, _files(path, reading.allow_pickle))


class HuggingFace:
    """A Source. A model that is said to share its output layer and holds another one has its own."""

    def __init__(self, path: Path, model: ModelConfig, files: list[TensorFile]):
        self.path, self.table = path, TABLES[model.architecture]
        self.cautions: tuple[str, ...] = ()
        self.format = TITLES[model.architecture]
        self._file_of = {name: file for file in files for name in file.shapes}
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: file.shapes[name] for name, file in self._file_of.items()
        }
        self.model = self._untied_if_so(model)
        self.tokenizer = tokenizer_of(path, model.architecture)

    def tensor(self, name: str) -> Tensor:
        return self._file_of[name].tensor(name)

    def _untied_if_so(self, model: ModelConfig) -> ModelConfig:
        from dataclasses import replace

        if model.architecture != "gpt2" or not model.tie_embeddings:
            return model
        written = {self.table.canonical(name): name for name in self.shapes}
        head, word = written.get("lm_head.weight"), written.get("wte.weight")
        if head is None or word is None or self.shapes[head] != self.shapes[word]:
            return model
        import torch

        same = torch.equal(self.tensor(head), self.tensor(word))
        return model if same else replace(model, tie_embeddings=False)


def read_json(path: Path) -> dict[str, Any]:
    """Raises ConfigError when it is no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(Problem(str(path), f"cannot be read ({error})", "get the file again")) from None
    if not isinstance(content, dict):
        raise ConfigError(Problem(str(path), "holds no object", "get the file again"))
    return content


def _files(path: Path, allow_pickle: bool) -> list[TensorFile]:
    for name, is_index in FILES:
        if not (path / name).is_file():
            continue
        names = _shards(path / name) if is_index else [name]
        missing = [each for each in names if not (path / each).is_file()]
        if missing:
            raise ConfigError(
                Problem(
                    str(path / name), f"names {', '.join(missing)}, not in the folder", "get all of its files"
                )
            )
        return [_open(path / each, allow_pickle) for each in names]
    wants = ", ".join(name for name, _ in FILES)
    raise ConfigError(Problem(str(path), f"holds no weights ({wants})", "get them beside config.json"))


def _shards(index: Path) -> list[str]:
    weights = read_json(index).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise ConfigError(Problem(str(index), "has no weight_map", "get the file again"))
    return sorted(set(weights.values()))


def _open(path: Path, allow_pickle: bool) -> TensorFile:
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    return PickledFile(path, allow_pickle=allow_pickle)
