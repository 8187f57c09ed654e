"""Records on their way to an output: gathered aside, thinned out, compressed, named when complete."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import shutil
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from mlm.corpus.cleaning.duplicates import Indices
from mlm.data.bad_data import BadData
from mlm.files import sync_folder

CHUNK_BYTES = 8 << 20
# Of level 6 and 3, the libraries' own defaults: more costs many times the time for a few per cent.
GZIP_LEVEL, ZSTD_LEVEL = 6, 3
SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""What an output may be called."""


class Stage:
    """Records of an output file, one a line, in a folder beside it that only one process works in.

    Until `finish` there is no output, and after a kill none that looks complete: the next run begins anew.
    """

    def __init__(self, out: Path):
        self.out = out
        self.folder = out.with_name(f".{out.name}.partial")
        self._lock: int | None = _locked(self.folder, out)
        for left in self.folder.iterdir():
            left.unlink()
        self.path = self.folder / "records.jsonl"
        self._file = open(self.path, "wb")  # noqa: SIM115 - closed by finish or discard
        self.ends = array("q", [0])
        """ends[i] is where record i begins and record i - 1 has ended."""

    def append(self, records: Sequence[bytes]) -> None:
        """Records without their line ends."""
        for record in records:
            self.ends.append(self.ends[-1] + len(record) + 1)
        if records:
            self._file.write(b"\n".join([*records, b""]))

    def flush(self) -> None:
        """Let others read what was appended."""
        self._file.flush()

    def finish(self, dropped: Indices) -> int:
        """Write all records but the dropped ones (sorted) to the output; its size in bytes."""
        self._file.close()
        kept = list(_ranges(self.ends, dropped))
        name = self.out.name
        whole = self.folder / "whole"
        if name.endswith((".gz", ".zst")):
            with (
                open(self.path, "rb") as source,
                open(whole, "wb") as target,
                _compressor(target, name) as file,
            ):
                for begin, end in kept:
                    source.seek(begin)
                    for size in _pieces(end - begin):
                        file.write(source.read(size))
        else:
            _move_together(self.path, kept)
            os.replace(self.path, whole)
        with open(whole, "rb+") as file:
            os.fsync(file.fileno())
        size = whole.stat().st_size
        os.replace(whole, self.out)
        sync_folder(self.out.parent)
        self.discard()
        return size

    def discard(self) -> None:
        """Remove what is unfinished."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):  # of a full disk, which has been told by now
            self._file.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = None


def _locked(folder: Path, out: Path) -> int:
    """A descriptor of the folder that no other process has locked. Raises BadData."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise BadData(str(out), f"cannot be written ({error.strerror})", "choose another --out") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BadData(str(out), "is being written by another process", "wait for it") from None
        # The other process may have finished and removed the folder between our two steps.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        os.close(descriptor)


def _ranges(ends: array[int], dropped: Indices) -> Iterator[tuple[int, int]]:
    """Stretches of bytes without the dropped records, in order."""
    begin = 0
    for record in dropped.tolist():
        if ends[record] > begin:
            yield begin, ends[record]
        begin = ends[record + 1]
    if ends[-1] > begin:
        yield begin, ends[-1]


def _move_together(path: Path, ranges: Sequence[tuple[int, int]]) -> None:
    """Close the gaps between the ranges within the file: it needs no second copy, and is ours alone."""
    with open(path, "rb+") as file:
        descriptor, to = file.fileno(), 0
        for begin, end in ranges:
            if begin == to:
                to = end
                continue
            for size in _pieces(end - begin):
                to += os.pwrite(descriptor, os.pread(descriptor, size, begin), to)
                begin += size
        os.truncate(descriptor, to)


def _pieces(size: int) -> Iterator[int]:
    for begin in range(0, size, CHUNK_BYTES):
        yield min(CHUNK_BYTES, size - begin)


@contextlib.contextmanager
def _compressor(target: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Compresses what is written to it, the same bytes at any time and under any name."""
    if name.endswith(".gz"):
        with gzip.GzipFile("", "wb", GZIP_LEVEL, target, mtime=0) as file:
            yield cast(BinaryIO, file)
    else:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        with zstd.ZstdFile(target, "wb", level=ZSTD_LEVEL) as file:
            yield cast(BinaryIO, file)


def read_staged(path: str, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Records of a stage by where they begin and end, without their line ends."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for begin, end in places:
            yield os.pread(descriptor, end - begin - 1, begin)
    finally:
        os.close(descriptor)
