"""Text to token ids and back: GPT-2's byte-level BPE, SentencePiece, characters, bytes.

A tokenizer is described by a small dictionary (and, for SentencePiece, a file), from which workers,
checkpoints and generation rebuild the same one; a fingerprint shows when it is not the same.
"""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlm.data.bad_data import BadData

KINDS = ("gpt2", "sentencepiece", "char", "byte")
GPT2_FOLDER = Path(__file__).parent / "assets" / "gpt2"
GPT2_FILES = ("vocab.json", "merges.txt")
GPT2_VOCAB_SIZE = 50_257
BYTE_VOCAB_SIZE = 257
# Characters encoded at once: the libraries hold many times a piece's size in memory while they work.
PIECE_CHARACTERS = 1 << 18
# What SentencePiece writes for a space, and so the one character it cannot tell from a space.
SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"


class Tokenizer(ABC):
    """Encodes text to ids in [0, vocab_size) and decodes them.

    eod: the id that ends a document, or None; encode never gives it and decode writes nothing for it.
    fingerprint: sha256 of whatever decides the ids, equal if and only if the ids of every text are.
    """

    kind: str
    vocab_size: int
    eod: int | None
    fingerprint: str

    @property
    def name(self) -> str:
        """For people: the kind and the size of the vocabulary."""
        return f"{self.kind}, {self.vocab_size:,} tokens"

    @abstractmethod
    def encode(self, text: str) -> NDArray[np.int32]:
        """The ids of a text, with no beginning or end added. Shapes: [tokens]."""

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """The text of ids that all exist and of which none is eod."""

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; U+FFFD for ids outside the vocabulary and bytes that are no character.

        A model's vocabulary can be larger than its tokenizer's, so ids outside are possible output.
        """
        array = np.asarray(ids, dtype=np.int64).reshape(-1)
        if self.eod is not None:
            array = array[array != self.eod]
        outside = np.flatnonzero((array < 0) | (array >= self.vocab_size))
        first, *others = np.split(array, outside)
        return "\ufffd".join([self._decode(first.tolist()), *(self._decode(o[1:].tolist()) for o in others)])

    def describe(self) -> dict[str, Any]:
        """What load_tokenizer needs to rebuild this tokenizer, as JSON values."""
        return {
            "kind": self.kind,
            "vocab_size": self.vocab_size,
            "eod": self.eod,
            "fingerprint": self.fingerprint,
        }


class Gpt2Tokenizer(Tokenizer):
    """GPT-2's BPE over bytes, from the two files shipped with this package; exact on every text.

    The text "<|endoftext|>" is text like any other: only a caller that means the id appends eod.
    """

    kind, vocab_size, eod = "gpt2", GPT2_VOCAB_SIZE, 50_256

    def __init__(self) -> None:
        from tokenizers import Tokenizer as Pipeline
        from tokenizers import decoders, models, pre_tokenizers

        vocab, merges = (str(GPT2_FOLDER / file) for file in GPT2_FILES)
        self._bpe = Pipeline(models.BPE.from_file(vocab, merges))
        self._bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._bpe.decoder = decoders.ByteLevel()
        self.fingerprint = gpt2_fingerprint()

    def encode(self, text: str) -> NDArray[np.int32]:
        # GPT-2's pattern never matches across the border from a non-space to a space, so that a cut
        # there changes no token.
        return _joined(self._bpe.encode(piece).ids for piece in cut_at_line_ends(text, PIECE_CHARACTERS))

    def _decode(self, ids: list[int]) -> str:
        return str(self._bpe.decode(ids, skip_special_tokens=False))


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece .model file; exact if its normalisation is (the models trained here are).

    Raises BadData when the file is missing or no model.
    """

    kind = "sentencepiece"

    def __init__(self, path: str | Path):
        import sentencepiece

        self.path = Path(path)
        try:
            model = self.path.read_bytes()
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except OSError as error:
            raise BadData(
                f"tokenizer.path={path}", f"cannot be read ({error.strerror})", "give a .model file"
            ) from None
        except RuntimeError:
            wrong = "is no SentencePiece model"
            raise BadData(f"tokenizer.path={path}", wrong, "give a .model file") from None
        self.vocab_size = int(self._model.vocab_size())
        self.eod = int(self._model.eos_id()) if self._model.eos_id() >= 0 else None
        self.fingerprint = _sha256(b"sentencepiece", model)
        newline = self._model.piece_to_id("\n")
        self._cuts_at_newlines = newline != self._model.unk_id() and self._model.encode("a\nb") == [
            *self._model.encode("a"),
            newline,
            *self._model.encode("b"),
        ]
        mark = [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE_MARK.encode()]
        self._mark = mark if all(self._model.is_byte(piece) for piece in mark) else None

    def encode(self, text: str) -> NDArray[np.int32]:
        if not self._cuts_at_newlines:
            # Each call may add a space in front or fold spaces: such a model sees the text in one piece.
            return _joined([self._model.encode(text)])
        return _joined(self._encode_exactly(piece) for piece in cut_at_line_ends(text, PIECE_CHARACTERS))

    def _encode_exactly(self, text: str) -> list[int]:
        if self._mark is None or SPACE_MARK not in text:
            return list(self._model.encode(text))
        ids: list[int] = []
        for number, stretch in enumerate(text.split(SPACE_MARK)):
            ids += [*(self._mark if number else ()), *self._model.encode(stretch)]
        return ids

    def _decode(self, ids: list[int]) -> str:
        return str(self._model.decode(ids))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "path": str(self.path.absolute())}


class CharTokenizer(Tokenizer):
    """One id per character of an alphabet, in the order of the alphabet; no eod."""

    kind, eod = "char", None

    def __init__(self, alphabet: str):
        self.alphabet = alphabet
        self.vocab_size = len(alphabet)
        self.fingerprint = _sha256(b"char", alphabet.encode())
        codes = code_points(alphabet)
        self._order = np.argsort(codes)
        self._codes = codes[self._order]

    @classmethod
    def of_text(cls, text: str) -> CharTokenizer:
        """The tokenizer of a text's own characters, sorted."""
        return cls("".join(sorted(set(text))))

    def encode(self, text: str) -> NDArray[np.int32]:
        """Raises BadData naming the first character outside the alphabet and its offset."""
        codes = code_points(text)
        if not len(codes):
            return np.empty(0, dtype=np.int32)
        place = np.minimum(np.searchsorted(self._codes, codes), self.vocab_size - 1)
        unknown = np.flatnonzero(self._codes[place] != codes)
        if len(unknown):
            at = int(unknown[0])
            raise BadData(
                f"character {text[at]!r} at offset {at:,}",
                f"is not among the {self.vocab_size:,} characters of the alphabet",
                "leave it out, or use tokenizer=byte",
            )
        return self._order[place].astype(np.int32)

    def _decode(self, ids: list[int]) -> str:
        return "".join(self.alphabet[i] for i in ids)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "alphabet": self.alphabet}


class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8 as ids 0 to 255, and eod 256; exact on every text."""

    kind, vocab_size, eod = "byte", BYTE_VOCAB_SIZE, 256

    def __init__(self) -> None:
        self.fingerprint = _sha256(b"byte")

    def encode(self, text: str) -> NDArray[np.int32]:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def _decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")


def load_tokenizer(description: dict[str, Any], folder: Path | None = None) -> Tokenizer:
    """The tokenizer that describe() described; a relative path in it is taken from `folder`.

    Raises BadData when its file is missing or is not the one described.
    """
    tokenizer: Tokenizer
    match description["kind"]:
        case "gpt2":
            tokenizer = Gpt2Tokenizer()
        case "sentencepiece":
            tokenizer = SentencePieceTokenizer((folder or Path()) / description["path"])
        case "char":
            tokenizer = CharTokenizer(description["alphabet"])
        case "byte":
            tokenizer = ByteTokenizer()
        case other:
            raise BadData(f"tokenizer kind {other!r}", "is not known", f"known are {', '.join(KINDS)}")
    if tokenizer.fingerprint != description["fingerprint"]:
        raise BadData(
            f"the tokenizer {description.get('path', tokenizer.kind)}",
            "has changed since the data was encoded with it",
            "bring the former file back, or prepare the data again",
        )
    return tokenizer


def keep_tokenizer(description: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Copy the file a description needs, if any, into `folder`; the description with the path relative to it.

    For a checkpoint, which has to outlive the cache.
    """
    if "path" not in description:
        return description
    shutil.copyfile(description["path"], folder / "tokenizer.model")
    return {**description, "path": "tokenizer.model"}


def gpt2_fingerprint() -> str:
    """Fingerprint of Gpt2Tokenizer, without loading it."""
    return _sha256(b"gpt2", *((GPT2_FOLDER / file).read_bytes() for file in GPT2_FILES))


def code_points(text: str) -> NDArray[np.uint32]:
    """The characters of a text as numbers. Shapes: [characters]."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def cut_at_line_ends(text: str, characters: int) -> Iterator[str]:
    """Pieces of at least `characters` that join to the text, each cut between a non-space and a newline."""
    start = 0
    while len(text) - start > characters:
        at = text.find("\n", start + characters)
        while at != -1 and text[at - 1].isspace():
            at = text.find("\n", at + 1)
        if at == -1:
            break
        yield text[start:at]
        start = at
    yield text[start:]


def _joined(pieces: Iterator[list[int]] | list[list[int]]) -> NDArray[np.int32]:
    return np.concatenate([np.asarray(piece, dtype=np.int32) for piece in pieces])


def _sha256(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()
