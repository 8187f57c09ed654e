"""A Megatron-LM checkpoint of any tensor- and pipeline-parallel degree as a Source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlm.config.schema import ModelConfig
from mlm.convert.megatron.files import Shard, folder_of_ranks, open_shard, rank_files
from mlm.convert.megatron.options import Shapes, describe
from mlm.convert.source import FoundTokenizer, Reading
from mlm.errors import ConfigError, Problem
from mlm.models.megatron_names import NEW_NORMS, OLD, Spelling, bert_table, gpt_table
from mlm.models.names import Table

if TYPE_CHECKING:
    from torch import Tensor

_LAYER = re.compile(r"(language_model\.(?:transformer|encoder)\.layers\.)(\d+)(\..*)")
_WORD = "language_model.embedding.word_embeddings.weight"
_POSITION = "language_model.embedding.position_embeddings.weight"
_SEGMENT = "language_model.embedding.tokentype_embeddings.weight"
_BERT = (_SEGMENT, "language_model.pooler.", "lm_head.", "binary_head.")


def open_source(path: Path, reading: Reading) -> Megatron:
    """Raises ConfigError with all that is wrong with the files, unlike mlm's models, or left unsaid."""
    grid = [
        [open_shard(file, allow_pickle=reading.allow_pickle) for file in stage]
        for stage in rank_files(folder_of_ranks(path))
    ]
    return Megatron(path, grid, reading)


class Megatron:
    """A Source. grid: [pipeline stage][tensor-parallel rank], every rank's file.

    Names are those of the files, with layers numbered through all stages. A tensor is joined when it is asked
    for; rows of padding are left out. Versions 0 and 1 have QKV rows in other orders, which are put right.
    """

    def __init__(self, path: Path, grid: Sequence[Sequence[Shard]], reading: Reading):
        from mlm.convert.megatron.layout import full_shape

        self.path = path
        self._check_alike(grid)
        self._parts = _numbered_through(grid)
        self._check_parts()
        first = grid[0][0]
        self.version, self.tp = first.version, len(grid[0])
        found = describe(path, first.options, self._look(len(grid)), reading)
        if found.problems:
            raise ConfigError(found.problems)
        self.model: ModelConfig = found.model
        self.tokenizer: FoundTokenizer | None = found.tokenizer
        self.cautions: tuple[str, ...] = tuple(found.cautions)
        kind = "BERT" if self.model.architecture == "bert" else "GPT"
        self.format = f"Megatron-LM {kind}, checkpoint version {self.version}, tp={self.tp}"
        make = bert_table if self.model.architecture == "bert" else gpt_table
        self.table: Table = make(_spelling(self._parts))
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: full_shape(name, parts, self.model.vocab_size) for name, parts in self._parts.items()
        }

    def tensor(self, name: str) -> Tensor:
        from mlm.convert.megatron.layout import join

        return join(
            name,
            self._parts[name],
            version=self.version,
            heads=self.model.num_heads,
            vocab_size=self.model.vocab_size,
        )

    def _check_alike(self, grid: Sequence[Sequence[Shard]]) -> None:
        """Files of one checkpoint: one version, and the same names on all ranks of a stage."""
        problems = []
        first = grid[0][0]
        for shard in (shard for stage in grid for shard in stage):
            if shard.version != first.version:
                wrong = (
                    f"has checkpoint_version {shard.version}, {first.path.parent.name} has {first.version}"
                )
                problems.append(Problem(str(shard.path), wrong, "use files of one checkpoint"))
        for stage in grid:
            for shard in stage[1:]:
                differing = sorted(stage[0].tensors.keys() ^ shard.tensors.keys())
                if differing:
                    wrong = f"and {stage[0].path.parent.name} do not hold the same tensors: {differing[0]}"
                    problems.append(Problem(str(shard.path), wrong, "use files of one checkpoint"))
        if problems:
            raise ConfigError(problems)

    def _check_parts(self) -> None:
        """Parts of a tensor have one shape on all ranks, and what ranks hold copies of is the same in all."""
        import torch

        from mlm.convert.megatron.layout import split_dim

        problems = []
        for name, (first, *others) in self._parts.items():
            dim = split_dim(name)
            if (name in (_WORD, _POSITION, _SEGMENT) and first.dim() != 2) or first.dim() <= (dim or 0):
                wrong = f"has {name} of shape {list(first.shape)}, too few dimensions"
                problems.append(Problem(str(self.path), wrong, "get the files again"))
            elif any(part.shape != first.shape for part in others):
                shapes = " and ".join(str(list(part.shape)) for part in (first, *others))
                wrong = f"has ranks with {name} of shapes {shapes}"
                problems.append(Problem(str(self.path), wrong, "use files of one checkpoint"))
            elif dim is None and not all(torch.equal(first, part) for part in others):
                wrong = f"has ranks that differ in {name}, of which all hold a copy"
                problems.append(Problem(str(self.path), wrong, "use files of one checkpoint"))
        if problems:
            raise ConfigError(problems)

    def _look(self, stages: int) -> Shapes:
        """Raises ConfigError when what gives the sizes is not there."""
        layers = {int(found[2]) for name in self._parts if (found := _LAYER.fullmatch(name))}
        expand = next((n for n in self._parts if n.endswith(".mlp.dense_h_to_4h.weight")), "")
        wanted = {_WORD: _WORD, _POSITION: _POSITION, "layers with mlp.dense_h_to_4h.weight": expand}
        missing = [what for what, name in wanted.items() if name not in self._parts]
        if missing:
            wrong = f"has no {', no '.join(missing)}"
            remedy = "mlm reads GPT and BERT with learned positions in the classic format of Megatron-LM"
            raise ConfigError(Problem(str(self.path), wrong, remedy))
        word, position = self._parts[_WORD], self._parts[_POSITION]
        return Shapes(
            num_layers=max(layers) + 1,
            hidden_size=word[0].shape[1],
            ffn_hidden_size=sum(part.shape[0] for part in self._parts[expand]),
            positions=position[0].shape[0],
            rows=sum(part.shape[0] for part in word),
            bert=any(name.startswith(_BERT) for name in self._parts),
            segments=self._parts[_SEGMENT][0].shape[0] if _SEGMENT in self._parts else 0,
            tied="language_model.output_layer.weight" not in self._parts,
            tp=len(word),
            pp=stages,
        )


def _numbered_through(grid: Sequence[Sequence[Shard]]) -> dict[str, list[Tensor]]:
    """Name in the whole model -> its parts, one per rank; every pipeline stage counts its layers from 0."""
    parts: dict[str, list[Tensor]] = {}
    before = 0
    for stage in grid:
        own = 0
        for name in stage[0].tensors:
            layer = _LAYER.fullmatch(name)
            through = f"{layer[1]}{before + int(layer[2])}{layer[3]}" if layer else name
            own = max(own, int(layer[2]) + 1) if layer else own
            parts[through] = [shard.tensors[name] for shard in stage]
        before += own
    return parts


def _spelling(names: Mapping[str, object]) -> Spelling:
    """Which of the spellings the files use; where nothing tells, the oldest."""
    text = "\n".join(names)
    return Spelling(
        stack="encoder" if "language_model.encoder." in text else "transformer",
        attention="self_attention" if ".self_attention." in text else "attention",
        norms=NEW_NORMS if ".input_norm." in text else OLD.norms,
        head_norm="norm" if "lm_head.norm." in text else "layernorm",
    )
