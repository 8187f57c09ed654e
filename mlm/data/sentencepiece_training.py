"""Trains a SentencePiece tokenizer that gives every text back exactly."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlm.data.bad_data import BadData
from mlm.data.tokenizers import code_points
from mlm.files import write_whole

# What decides the model besides the text and vocab_size; part of the cache's key.
OPTIONS: dict[str, Any] = {
    "model_type": "unigram",
    # Text comes back unchanged: nothing normalised, no space added, folded or cut off, and what has no
    # piece of its own goes through the 256 byte pieces.
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "byte_fallback": True,
    # Training reads lines, so a newline could only get a piece by being named.
    "user_defined_symbols": ["\n"],
    "unk_id": 0,
    "eos_id": 1,
    "bos_id": -1,
    "pad_id": -1,
    # The sums of expectation-maximisation depend on it in the last digit, so it is fixed.
    "num_threads": 2,
}
# The trainer skips longer lines, so they are cut; the unit is bytes and a character takes up to 4.
LINE_CHARACTERS = 2_000
# Of a longer text evenly spread lines are read: its memory is about 50 bytes per character.
TRAINING_CHARACTERS = 20_000_000


def train(text: str, vocab_size: int, out_path: Path) -> None:
    """Train on `text` and write a model of vocab_size pieces to out_path; the same text gives the same bytes.

    Silent. The file appears complete or not at all. Raises BadData when vocab_size is too large or too
    small for the text, naming the limit.
    """
    coverage = _coverage(text, vocab_size)
    write_whole(out_path, train_on_lines(_lines(text), vocab_size, character_coverage=coverage), durable=True)


def train_on_lines(
    lines: Iterable[str], vocab_size: int, *, setting: str = "tokenizer.vocab_size=", **options: Any
) -> bytes:
    """The bytes of a model of vocab_size pieces, trained on lines without their line ends.

    setting: what a user types in front of the vocabulary size. options: of the SentencePiece trainer, over
    those of OPTIONS. Raises BadData as train does.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocab_size,
            max_sentence_length=4 * LINE_CHARACTERS,
            minloglevel=2,
            **{**OPTIONS, **options},
        )
    except RuntimeError as error:
        raise _explained(str(error), vocab_size, setting) from None
    return model.getvalue()


def _coverage(text: str, vocab_size: int) -> float:
    """The share of the text whose characters get a piece of their own; the rest goes through bytes.

    All of it, unless the alphabet would take more than half of what the 256 bytes leave of the pieces.
    """
    counts = np.sort(np.unique(code_points(text), return_counts=True)[1])[::-1]
    affordable = max(1, (vocab_size - 260) // 2)
    share = float(counts[:affordable].sum() / counts.sum())
    return max(share, 0.98) if len(counts) > affordable else 1.0  # the trainer takes no less


def _lines(text: str) -> Iterator[str]:
    stride = -(-len(text) // TRAINING_CHARACTERS)
    for line in text.split("\n")[::stride]:
        yield from cut_line(line)


def cut_line(line: str) -> Iterator[str]:
    """A line in parts that the trainer takes."""
    for start in range(0, len(line), LINE_CHARACTERS):
        yield line[start : start + LINE_CHARACTERS]


def _explained(message: str, vocab_size: int, setting: str) -> BadData:
    where = f"a SentencePiece vocabulary of {vocab_size:,}"
    if limit := re.search(r"too high.*<= (\d+)", message):
        most = int(limit[1])
        return BadData(
            where,
            f"is too large for this text, which gives at most {most:,}",
            f"use {setting}{most} or less",
        )
    if limit := re.search(r"required_chars\. \d+ vs (\d+)", message):
        least = int(limit[1])
        return BadData(
            where,
            f"is too small for this text, which needs {least:,}",
            f"use {setting}{least} or more",
        )
    return BadData(where, f"cannot be trained ({message.strip()})", "use more text or tokenizer=byte")
