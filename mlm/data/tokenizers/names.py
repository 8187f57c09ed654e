"""The names under which vocabularies keep their control tokens, and what they are for."""

from __future__ import annotations

import re
from collections.abc import Callable

# The first name that a vocabulary has counts.
NAMES: dict[str, tuple[str, ...]] = {
    "eod": (
        "<|endoftext|>",
        "<|end_of_text|>",
        "<｜end▁of▁sentence｜>",
        "</s>",
        "<eos>",
        "[EOS]",
        "[SEP]",
    ),
    "bos": ("<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<s>", "<bos>", "[BOS]"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "unk": ("[UNK]", "<unk>"),
}
_CONTROL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def is_control(token: str) -> bool:
    """Whether a token is written as control tokens are: one word in <> or []. <0x41> stands for a byte."""
    return bool(_CONTROL.fullmatch(token)) and not _BYTE.fullmatch(token)


def special_ids(id_of: Callable[[str], int | None]) -> dict[str, int]:
    """NAMES of a vocabulary as ids. id_of: the id of a control token, None where there is no such token."""
    found = {}
    for purpose, names in NAMES.items():
        ids = [number for name in names if (number := id_of(name)) is not None]
        if ids:
            found[purpose] = ids[0]
    return found
