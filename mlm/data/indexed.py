"""The token format of the ecosystem: PREFIX.bin holds ids end to end, PREFIX.idx says where sequences lie.

Layout of PREFIX.idx, little endian: magic (9 bytes), version (uint64, 1), dtype code (uint8),
N sequences (uint64), D = documents + 1 (uint64), lengths int32[N] in tokens, pointers int64[N] in bytes,
document index int64[D]: document d is sequences index[d] to index[d+1].
"""

from __future__ import annotations

import os
import secrets
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlm.data.bad_data import BadData
from mlm.files import sync

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPES: dict[int, np.dtype[Any]] = {
    code: np.dtype(name)
    for code, name in enumerate(("u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"), start=1)
}
# The ecosystem's writers leave room below 65,536 for tokens added after the vocabulary was counted.
UINT16_BELOW = 65_500
# Entries per step of a pass over a whole index: it bounds memory when there are 10^9 of them.
CHUNK = 1 << 22
COPY_AGAIN = "copy it again, or prepare it again"


def bin_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".bin")


def idx_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".idx")


class IndexedDataset:
    """PREFIX.bin and PREFIX.idx by memory map; opening reads a header and costs the same at any size.

    tokens: every id of the .bin in file order, one flat read-only map. lengths int32[N], pointers
    int64[N], document_index int64[D]: the arrays of the .idx, mapped.
    Raises BadData when a file is missing, is not of this format, or has not the size it must have.
    """

    def __init__(self, prefix: str | Path):
        self.prefix = Path(prefix)
        idx, data = idx_path(self.prefix), bin_path(self.prefix)
        self.dtype, sequences, entries = _read_header(idx)
        arrays = np.asarray(np.memmap(idx, dtype=np.uint8, mode="r"))[HEADER.size :]
        ends = np.cumsum([4 * sequences, 8 * sequences, 8 * entries], dtype=np.int64)
        self.lengths: NDArray[np.int32] = arrays[: ends[0]].view("<i4")
        self.pointers: NDArray[np.int64] = arrays[ends[0] : ends[1]].view("<i8")
        self.document_index: NDArray[np.int64] = arrays[ends[1] : ends[2]].view("<i8")

        described = int(self.pointers[-1]) + int(self.lengths[-1]) * self.dtype.itemsize
        found = _size(data)
        if found != described:
            raise BadData(
                str(data), f"is {found:,} bytes, but {idx.name} describes {described:,} bytes", COPY_AGAIN
            )
        if int(self.document_index[0]) != 0 or int(self.document_index[-1]) != sequences:
            raise BadData(
                str(idx), f"has documents that do not cover its {sequences:,} sequences", COPY_AGAIN
            )
        if found == 0:
            raise BadData(str(data), "holds no tokens", "prepare it from text that is not empty")
        # asarray: still the map, but without the subclass's cost at every indexing.
        self.tokens: NDArray[Any] = np.asarray(np.memmap(data, dtype=self.dtype, mode="r"))  # [tokens]

    def __len__(self) -> int:
        """Sequences, which are documents unless a writer split documents further."""
        return len(self.lengths)

    @property
    def num_documents(self) -> int:
        return len(self.document_index) - 1

    def sequence(self, number: int) -> NDArray[Any]:
        """The ids of one sequence. Shapes: [length]."""
        start = int(self.pointers[number]) // self.dtype.itemsize
        return self.tokens[start : start + int(self.lengths[number])]

    def document_start(self, document: int) -> int:
        """Position in `tokens` of a document's first id; of document `num_documents`, the end."""
        sequence = int(self.document_index[document])
        if sequence == len(self):
            return len(self.tokens)
        return int(self.pointers[sequence]) // self.dtype.itemsize

    def document_starts(self, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        """document_start of each. Shapes: [n] -> [n]."""
        return self.sequence_starts(self.document_index[documents])

    def sequence_starts(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position in `tokens` of each sequence's first id; of sequence len(self), the end. Shapes: [n]."""
        inside = np.minimum(sequences, len(self) - 1)
        starts = self.pointers[inside] // self.dtype.itemsize
        return np.where(sequences == len(self), len(self.tokens), starts)

    def document(self, document: int) -> NDArray[Any]:
        """The ids of one document. Shapes: [length]."""
        return self.tokens[self.document_start(document) : self.document_start(document + 1)]

    def verify(self) -> None:
        """Read the whole index: each sequence begins where the one before ended, documents do not overlap.

        Raises BadData naming the first sequence or document for which that is not so.
        """
        idx, expected = str(idx_path(self.prefix)), 0
        for first in range(0, len(self), CHUNK):
            lengths = self.lengths[first : first + CHUNK].astype(np.int64)
            # int64 before the product: int32 lengths times the item size wrap past 2 GiB.
            ends = expected + np.cumsum(lengths * self.dtype.itemsize)
            starts = np.concatenate([[expected], ends[:-1]])
            wrong = np.flatnonzero((starts != self.pointers[first : first + CHUNK]) | (lengths < 0))
            if len(wrong):
                at = int(wrong[0])
                raise BadData(
                    idx,
                    f"places sequence {first + at:,} at byte {int(self.pointers[first + at]):,}, "
                    f"but the sequences before it end at byte {int(starts[at]):,}",
                    COPY_AGAIN,
                )
            expected = int(ends[-1])
        for first in range(0, self.num_documents, CHUNK):
            wrong = np.flatnonzero(np.diff(self.document_index[first : first + CHUNK + 1]) < 0)
            if len(wrong):
                raise BadData(idx, f"ends document {first + int(wrong[0]):,} before its start", COPY_AGAIN)


class IndexedWriter:
    """Writes PREFIX.bin and PREFIX.idx; both appear only when complete.

    The ids are uint16 when vocab_size is below 65,500, else int32. Use it in a `with` block: leaving it
    after an error leaves no file. Raises BadData for an id outside [0, vocab_size), an empty document,
    and when nothing was added.
    """

    def __init__(self, prefix: str | Path, vocab_size: int):
        self.prefix = Path(prefix)
        self.vocab_size = vocab_size
        self.dtype_code = 8 if vocab_size < UINT16_BELOW else 4
        self.dtype = DTYPES[self.dtype_code]
        self._lengths = array("q")
        self._documents = array("q", [0])
        aside = f".{self.prefix.name}.{os.getpid()}-{secrets.token_hex(4)}"
        self._aside = {suffix: self.prefix.with_name(aside + suffix) for suffix in (".bin", ".idx")}
        self._bin = open(self._aside[".bin"], "xb")  # noqa: SIM115 - closed by finish or discard

    def __enter__(self) -> IndexedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            self.discard()

    def add_document(self, ids: ArrayLike) -> None:
        """Append one document as one sequence. Shapes: [length], length from 1 to 2^31 - 1."""
        self.add_sentences([ids])

    def add_sentences(self, sentences: Sequence[ArrayLike]) -> None:
        """Append one document of a sequence per sentence, at least one. Shapes: as add_document, each."""
        for sentence in sentences:
            self._add_sequence(np.asarray(sentence))
        self._documents.append(len(self._lengths))

    def _add_sequence(self, document: NDArray[Any]) -> None:
        where = f"document {len(self._documents) - 1:,} of {self.prefix}"
        if not 0 < len(document) < 2**31:
            raise BadData(where, f"has {len(document):,} tokens", "a document holds 1 to 2,147,483,647")
        low, high = int(document.min()), int(document.max())
        if low < 0 or high >= self.vocab_size:
            # Before the cast: astype(uint16) would turn 70,000 into 4,464 without a word.
            raise BadData(
                where,
                f"has token id {low if low < 0 else high:,}, outside the vocabulary of {self.vocab_size:,}",
                "write it with the vocabulary it was encoded with",
            )
        self._bin.write(np.ascontiguousarray(document, dtype=self.dtype).tobytes())
        self._lengths.append(len(document))

    def finish(self) -> None:
        """Complete both files under their names; the .idx comes last, so where it is, the .bin is too."""
        if not self._lengths:
            raise BadData(str(self.prefix), "would hold no tokens", "give it text that is not empty")
        sync(self._bin)
        self._bin.close()
        lengths = np.frombuffer(self._lengths, dtype=np.int64)
        pointers = np.cumsum(lengths * self.dtype.itemsize) - lengths * self.dtype.itemsize
        with open(self._aside[".idx"], "xb") as idx:
            idx.write(HEADER.pack(MAGIC, VERSION, self.dtype_code, len(lengths), len(self._documents)))
            idx.write(lengths.astype("<i4").tobytes())
            idx.write(pointers.astype("<i8").tobytes())
            idx.write(np.frombuffer(self._documents, dtype=np.int64).astype("<i8").tobytes())
            sync(idx)
        os.replace(self._aside[".bin"], bin_path(self.prefix))
        os.replace(self._aside[".idx"], idx_path(self.prefix))

    def discard(self) -> None:
        """Remove what was not finished; nothing to do after finish."""
        self._bin.close()
        for path in self._aside.values():
            path.unlink(missing_ok=True)


def _read_header(idx: Path) -> tuple[np.dtype[Any], int, int]:
    """(dtype of the ids, sequences, entries of the document index) of an .idx of exactly the right size."""
    found = _size(idx)
    with open(idx, "rb") as file:
        raw = file.read(HEADER.size)
    if not raw.startswith(MAGIC):
        raise BadData(
            str(idx),
            f"begins with {raw[:9]!r}, not with {MAGIC!r}: it is no token index",
            "give the PREFIX of a .bin/.idx pair",
        )
    if len(raw) < HEADER.size:
        raise BadData(str(idx), f"is {found:,} bytes, but its header alone takes {HEADER.size}", COPY_AGAIN)
    _, version, code, sequences, entries = HEADER.unpack(raw)
    if version != VERSION:
        raise BadData(str(idx), f"is of version {version}, not {VERSION}", "prepare it again")
    if code not in DTYPES:
        raise BadData(str(idx), f"has the dtype code {code}", f"codes 1 to {len(DTYPES)} exist: {COPY_AGAIN}")
    if DTYPES[code].kind == "f":
        raise BadData(str(idx), f"holds {DTYPES[code].name} numbers, not token ids", "give a dataset of ids")
    expected = HEADER.size + 12 * sequences + 8 * entries
    if found != expected:
        raise BadData(
            str(idx),
            f"is {found:,} bytes, but {sequences:,} sequences and {max(entries - 1, 0):,} documents "
            f"take {expected:,}",
            COPY_AGAIN,
        )
    if sequences == 0 or entries < 2:
        raise BadData(str(idx), "holds no documents", "prepare it from text that is not empty")
    return DTYPES[code], sequences, entries


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise BadData(str(path), f"cannot be read ({error.strerror})", "check the path") from None
