"""A checkpoint as Megatron-LM loads one: a folder of ranks, whole or not at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from mlm.convert.consolidate import check_room
from mlm.convert.dtypes import FORMATS
from mlm.convert.exporting import Outgoing
from mlm.convert.megatron.tree import Tree
from mlm.convert.places import new_folder_problems
from mlm.data.tokenizers import Tokenizer
from mlm.data.tokenizers.wordpiece import WordPieceTokenizer
from mlm.errors import CheckpointError, ConfigError
from mlm.files import whole_folder


@dataclass(frozen=True)
class Exported:
    """What an export has written. rows: of the embedding table, padding included; elements: without it."""

    folder: Path
    ranks: int
    rows: int
    elements: int
    bytes: int


def export(out: Path, sent: Outgoing, *, tp: int = 1, version: int = 3, dtype: str = "fp32") -> Exported:
    """Write the folder for tp ranks with QKV rows as that checkpoint version has them.

    Rows of padding are left out and made anew, as zeros, where Megatron-LM pads. One tensor is in memory at a
    time, besides the checkpoint's maps. Raises ConfigError with all that is wrong, CheckpointError when a
    weight does not fit the dtype or the disk fails.
    """
    out = out.expanduser().absolute()
    tree = Tree(sent.model, sent.shapes, FORMATS[dtype], tp, version, _tokenizer_type(sent.tokenizer))
    problems = [*new_folder_problems(out)]
    try:
        tree.check()
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    check_room(out, tree.bytes)
    try:
        with whole_folder(out) as folder:
            tree.write(folder, sent.tensor, sent.checkpoint.step)
    except OSError as error:
        raise CheckpointError(f"{out} could not be written: {error.strerror or error}") from error
    padding = (sent.model.padded_vocab_size or sent.model.vocab_size) - sent.model.vocab_size
    tables = [
        name for name in sent.shapes if name in ("embedding.word.weight", "head.weight", "lm_head.bias")
    ]
    spare = sum(padding * math.prod(sent.shapes[name][1:]) for name in tables)
    elements = sum(math.prod(shape) for shape in sent.shapes.values()) - spare
    return Exported(out, tp, tree.rows, elements, tree.bytes)


def _tokenizer_type(tokenizer: Tokenizer) -> str | None:
    """What Megatron-LM calls it; None for one that it does not have."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return "BertWordPieceLowerCase" if tokenizer.lowercase else "BertWordPieceCase"
    return "GPT2BPETokenizer" if tokenizer.kind == "gpt2" else None
