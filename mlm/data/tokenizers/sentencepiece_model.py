"""SentencePiece models as tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers.base import PIECE_CHARACTERS, Tokenizer, cut_at_line_ends, joined, sha256
from mlm.data.tokenizers.names import special_ids
from mlm.data.tokenizers.sentencepiece_file import ModelFile, read_model

# What SentencePiece writes for a space, and so the one character it cannot tell from a space.
SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece .model file; exact if its normalisation is (the models trained here are).

    Control pieces, and user-defined ones that are written as such (<mask>, [SEP]), are given by no text.
    Raises BadData when the file is missing or no model.
    """

    kind = "sentencepiece"

    def __init__(self, path: str | Path):
        import sentencepiece

        self.path = Path(path)
        where, remedy = str(path), "give a .model file"
        try:
            model = self.path.read_bytes()
            file = read_model(model)
            self._model = sentencepiece.SentencePieceProcessor(model_proto=file.model)
        except OSError as error:
            raise BadData(where, f"cannot be read ({error.strerror})", remedy) from None
        except (RuntimeError, ValueError):
            raise BadData(where, "is no SentencePiece model", remedy) from None
        self.vocab_size = int(self._model.vocab_size())
        self.fingerprint = sha256(b"sentencepiece", model)
        unknown = int(self._model.unk_id())
        self.special = special_ids(
            lambda name: self._model.piece_to_id(name) if name in file.controls else None
        ) | {"unk": unknown}
        eos = int(self._model.eos_id())
        self.eod = eos if eos >= 0 else self.special.get("eod")
        if self.eod is not None:
            self.special = {**self.special, "eod": self.eod}

        newline = self._model.piece_to_id("\n")
        self._cuts_at_newlines = newline != unknown and self._model.encode("a\nb") == [
            *self._model.encode("a"),
            newline,
            *self._model.encode("b"),
        ]
        mark = [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE_MARK.encode()]
        has_bytes = all(self._model.is_byte(piece) for piece in mark)
        # Where a text begins matters to a model that adds or drops spaces there: it takes texts in one piece.
        self._mark = mark if has_bytes and not (file.adds_space or file.drops_spaces) else None
        self.loss = "; ".join(_losses(file, has_bytes, self._mark is not None))
        self.lossless = not self.loss

    def encode(self, text: str) -> NDArray[np.int32]:
        if not self._cuts_at_newlines:
            # Each call may add a space in front or fold spaces: such a model sees the text in one piece.
            return joined([self._encode_exactly(text)])
        return joined(self._encode_exactly(piece) for piece in cut_at_line_ends(text, PIECE_CHARACTERS))

    def _encode_exactly(self, text: str) -> list[int]:
        if self._mark is None or SPACE_MARK not in text:
            return list(self._model.encode(text))
        ids: list[int] = []
        for number, stretch in enumerate(text.split(SPACE_MARK)):
            ids += [*(self._mark if number else ()), *self._model.encode(stretch)]
        return ids

    def _decode(self, ids: list[int]) -> str:
        return str(self._model.decode(ids))

    def piece(self, token: int) -> str:
        return str(self._model.id_to_piece(token))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "path": str(self.path.absolute())}


def _losses(file: ModelFile, has_bytes: bool, keeps_marks: bool) -> list[str]:
    """What a text can lose, in words; nothing when every text comes back."""
    found = []
    if file.normalises:
        found.append("it normalises characters")
    if file.drops_spaces:
        found.append("it drops spaces at both ends and all but one of several")
    if not file.marks_spaces:
        found.append("it moves spaces")
    if not has_bytes:
        found.append("characters without a piece become <unk>")
    return found or ([] if keeps_marks else ["U+2581 becomes a space"])
