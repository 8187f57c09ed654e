"""Documents of token datasets copied into a new one: streamed, written aside, complete or absent."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.progress import TextProgress
from mlm.data.bad_data import BadData
from mlm.data.indexed import (
    CHUNK,
    DTYPES,
    HEADER,
    MAGIC,
    VERSION,
    IndexedDataset,
    bin_path,
    idx_path,
)
from mlm.data.metadata import metadata_path, write_metadata
from mlm.errors import Problem
from mlm.files import sync, sync_folder

# Tokens per step: enough for the disk, little for memory.
STEP = 1 << 22


@dataclass(frozen=True)
class Piece:
    """Documents [first, stop) of a dataset whose index has been verified."""

    dataset: IndexedDataset
    first: int
    stop: int

    @property
    def documents(self) -> int:
        return self.stop - self.first

    @property
    def sequences(self) -> tuple[int, int]:
        """[first, stop) of its sequences."""
        index = self.dataset.document_index
        return int(index[self.first]), int(index[self.stop])

    @property
    def tokens(self) -> tuple[int, int]:
        """[start, stop) of its tokens in the token file."""
        return self.dataset.document_start(self.first), self.dataset.document_start(self.stop)

    @property
    def num_tokens(self) -> int:
        start, stop = self.tokens
        return stop - start


def output_problems(out: Path, option: str, size: int, *, overwrite: bool) -> list[Problem]:
    """What stands against writing a dataset of `size` bytes there."""
    if not out.parent.is_dir():
        wrong = f"cannot be written: there is no folder {out.parent}"
        return [Problem(f"{option} {out}", wrong, "make it first")]
    there = [path.name for path in (bin_path(out), idx_path(out), metadata_path(out)) if path.exists()]
    if there and not overwrite:
        return [
            Problem(f"{option} {out}", f"exists ({', '.join(there)})", "use another name, or --overwrite")
        ]
    free = shutil.disk_usage(out.parent).free
    if size > free:
        wrong = f"takes {size:,} bytes, and {free:,} are free in {out.parent}"
        return [Problem(f"{option} {out}", wrong, "make room, or write it elsewhere")]
    return []


def size_of(pieces: Sequence[Piece], dtype: np.dtype[Any]) -> int:
    """Bytes of the .bin and the .idx that `write_pieces` would write."""
    tokens = sum(piece.num_tokens for piece in pieces)
    sequences = sum(piece.sequences[1] - piece.sequences[0] for piece in pieces)
    documents = sum(piece.documents for piece in pieces)
    return tokens * dtype.itemsize + HEADER.size + 12 * sequences + 8 * (documents + 1)


def write_pieces(
    out: Path,
    pieces: Sequence[Piece],
    dtype: np.dtype[Any],
    metadata: Callable[[dict[str, str]], dict[str, Any] | None],
    *,
    doing: str,
) -> None:
    """Write OUT.bin, OUT.json (unless metadata gives None) and, last of all, OUT.idx.

    Sequences and documents stay what they are; ids are converted to dtype, which has to hold them.
    metadata: called with the sha256 of `bin` and `idx`. Memory does not grow with the datasets.
    Raises BadData when the disk refuses, or another process is writing the same dataset.
    """
    # Under names that the next attempt takes again: a kill leaves no heap of remains.
    aside = {name: out.with_name(f".{out.name}.partial.{name}") for name in ("bin", "idx")}
    try:
        with ExitStack() as stack:
            files = {name: stack.enter_context(open(path, "ab")) for name, path in aside.items()}
            _lock(files["bin"], aside["bin"], out)
            try:
                for file in files.values():
                    file.truncate(0)
                checksums = {
                    "bin": _write_tokens(files["bin"], pieces, dtype, doing),
                    "idx": _write_index(files["idx"], pieces, dtype),
                }
                for file in files.values():
                    sync(file)
                _name(out, aside, metadata(checksums))
            except BaseException:
                for path in aside.values():
                    path.unlink(missing_ok=True)
                raise
    except OSError as error:
        remedy = "make room or write elsewhere, and start again: nothing of it was kept"
        raise BadData(str(out), f"cannot be written ({error.strerror})", remedy) from None


def _name(out: Path, aside: dict[str, Path], record: dict[str, Any] | None) -> None:
    """Give complete files their names. Without its index a dataset is none: it goes first and comes last."""
    idx_path(out).unlink(missing_ok=True)
    metadata_path(out).unlink(missing_ok=True)
    os.replace(aside["bin"], bin_path(out))
    if record is not None:
        write_metadata(out, record)
    os.replace(aside["idx"], idx_path(out))
    sync_folder(out.parent)


def _write_tokens(file: BinaryIO, pieces: Sequence[Piece], dtype: np.dtype[Any], doing: str) -> str:
    checksum = hashlib.sha256()
    total, done = sum(piece.num_tokens for piece in pieces), 0
    with TextProgress(doing, total * dtype.itemsize) as progress:
        for piece in pieces:
            start, stop = piece.tokens
            for first in range(start, stop, STEP):
                tokens = piece.dataset.tokens[first : min(first + STEP, stop)].astype(dtype)
                file.write(tokens.data)
                checksum.update(tokens.data)
                done += len(tokens)
                progress.update(done * dtype.itemsize, tokens.nbytes, f"{done:,} tokens")
    return checksum.hexdigest()


def _write_index(file: BinaryIO, pieces: Sequence[Piece], dtype: np.dtype[Any]) -> str:
    sequences = sum(piece.sequences[1] - piece.sequences[0] for piece in pieces)
    documents = sum(piece.documents for piece in pieces)
    code = next(code for code, known in DTYPES.items() if known == dtype)
    checksum = hashlib.sha256()

    def write(raw: bytes) -> None:
        file.write(raw)
        checksum.update(raw)

    write(HEADER.pack(MAGIC, VERSION, code, sequences, documents + 1))
    for lengths in _lengths(pieces):
        write(lengths.tobytes())
    end = 0
    for lengths in _lengths(pieces):
        # int64 before the product: int32 lengths times the item size wrap past 2 GiB.
        sizes = lengths.astype(np.int64) * dtype.itemsize
        ends = end + np.cumsum(sizes)
        write((ends - sizes).astype("<i8").tobytes())
        end = int(ends[-1])
    tokens = sum(piece.num_tokens for piece in pieces)
    assert end == tokens * dtype.itemsize, f"the index ends at byte {end}, {tokens} tokens do not"
    write(np.zeros(1, dtype="<i8").tobytes())
    before = 0
    for piece in pieces:
        first, stop = piece.sequences
        for at in range(piece.first + 1, piece.stop + 1, CHUNK):
            index = piece.dataset.document_index[at : min(at + CHUNK, piece.stop + 1)]
            write((index - first + before).astype("<i8").tobytes())
        before += stop - first
    return checksum.hexdigest()


def _lengths(pieces: Sequence[Piece]) -> Iterator[NDArray[np.int32]]:
    for piece in pieces:
        first, stop = piece.sequences
        for at in range(first, stop, CHUNK):
            yield piece.dataset.lengths[at : min(at + CHUNK, stop)]


def _lock(file: BinaryIO, path: Path, out: Path) -> None:
    """Make sure that this process alone writes the file, and that it still has its name."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have finished since it was opened: what is open is then its dataset.
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return
    except BlockingIOError:
        pass
    raise BadData(str(out), "is being written by another process", "wait for it, or end it")
