"""Byte-level BPE in GPT-2's two files, vocab.json and merges.txt: the shipped pair or another one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers.base import PIECE_CHARACTERS, Tokenizer, cut_at_line_ends, joined, sha256
from mlm.data.tokenizers.names import special_ids

GPT2_FOLDER = Path(__file__).parents[1] / "assets" / "gpt2"
GPT2_FILES = ("vocab.json", "merges.txt")
GPT2_VOCAB_SIZE = 50_257


class Gpt2Tokenizer(Tokenizer):
    """GPT-2's BPE over bytes; exact on every text. folder: one with another pair of the two files.

    The text "<|endoftext|>" is text like any other: only a caller that means the id appends eod. GPT-2's
    pattern cuts such names at their brackets, so that no merge can make one of them from text.
    Raises BadData when a file is missing, or is no part of a byte-level BPE.
    """

    kind, lossless = "gpt2", True

    def __init__(self, folder: str | Path | None = None):
        from tokenizers import Tokenizer as Pipeline
        from tokenizers import decoders, models, pre_tokenizers

        self.folder = GPT2_FOLDER if folder is None else Path(folder)
        vocab = read_vocabulary(self.folder)
        try:
            # This library's errors are plain Exceptions.
            model = models.BPE.from_file(*(str(self.folder / file) for file in GPT2_FILES))
        except Exception as error:
            wrong = f"has a merges.txt that does not fit vocab.json ({error})"
            raise BadData(str(self.folder), wrong, BOTH_FILES) from None
        self._bpe = Pipeline(model)
        self._bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._bpe.decoder = decoders.ByteLevel()
        self.vocab_size = max(vocab.values()) + 1
        self.special = special_ids(vocab.get)
        self.eod = self.special.get("eod")
        self.fingerprint = gpt2_fingerprint(self.folder)

    def encode(self, text: str) -> NDArray[np.int32]:
        # GPT-2's pattern never matches across the border from a non-space to a space, so that a cut
        # there changes no token.
        return joined(self._bpe.encode(piece).ids for piece in cut_at_line_ends(text, PIECE_CHARACTERS))

    def _decode(self, ids: list[int]) -> str:
        return str(self._bpe.decode(ids, skip_special_tokens=False))

    def piece(self, token: int) -> str:
        name = self._bpe.id_to_token(token)
        return "" if name is None else name if token in self.special.values() else visible_bytes(name)

    def describe(self) -> dict[str, Any]:
        path = {} if self.folder == GPT2_FOLDER else {"path": str(self.folder.absolute())}
        return {**super().describe(), **path}


BOTH_FILES = "give the folder of a vocab.json and the merges.txt that belongs to it"


@cache
def byte_characters() -> tuple[str, ...]:
    """What stands for each byte in the two files: a visible character itself, else one from U+0100 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in seen else next(others)) for byte in range(256))


def visible_bytes(token: str) -> str:
    """What a token of the two files stands for; <0xE6> for bytes that are only part of a character."""
    raw = bytes(byte_characters().index(character) for character in token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 128 else f"<0x{byte:02X}>" for byte in raw)


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Ids by token of folder/vocab.json.

    Raises BadData when one of the two files is missing, or this one lacks the token of a byte: the library
    would drop such bytes from the text without a word.
    """
    where = str(folder)
    missing = [file for file in GPT2_FILES if not (folder / file).is_file()]
    if missing:
        raise BadData(where, f"holds no {' and no '.join(missing)}", BOTH_FILES)
    try:
        vocab = json.loads((folder / GPT2_FILES[0]).read_bytes())
    except (OSError, ValueError) as error:
        raise BadData(where, f"has a vocab.json that is not read ({error})", BOTH_FILES) from None
    if not isinstance(vocab, dict) or not all(isinstance(number, int) for number in vocab.values()):
        raise BadData(where, "has a vocab.json that is no mapping from tokens to ids", BOTH_FILES)
    absent = [byte for byte, character in enumerate(byte_characters()) if character not in vocab]
    if absent:
        raise BadData(
            where,
            f"has a vocab.json without tokens for {len(absent)} bytes, 0x{absent[0]:02x} the first",
            "give a byte-level vocabulary; for another one use its tokenizer.json as hf",
        )
    return vocab


def gpt2_fingerprint(folder: Path = GPT2_FOLDER) -> str:
    """Fingerprint of the Gpt2Tokenizer of a folder, without loading it."""
    return sha256(b"gpt2", *((folder / file).read_bytes() for file in GPT2_FILES))
