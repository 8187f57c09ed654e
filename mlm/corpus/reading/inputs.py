"""Which files an input means, of what kind they are, and how they are opened."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from mlm.data.bad_data import BadData
from mlm.errors import ConfigError, Problem

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "txt", ".parquet": "parquet"}
COMPRESSIONS = {".gz": "gz", ".zst": "zst", ".bz2": "bz2", ".xz": "xz"}
MAGIC = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
KNOWN = ", ".join(FORMATS) + ", each also with " + ", ".join(COMPRESSIONS)
STDIN = "-"
BOM = b"\xef\xbb\xbf"
# What the decompressors raise on data that is cut off or altered; gzip's BadGzipFile is an OSError.
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, OSError, ValueError)


@dataclass(frozen=True)
class Source:
    """One file of text, or standard input. path: as typed or found below a typed folder.

    format: jsonl, json, txt or parquet; compression: gz, zst, bz2, xz or nothing; size: bytes of the file
    as it lies, None for standard input.
    """

    path: str
    format: str
    compression: str = ""
    size: int | None = None
    modified_ns: int = 0

    @property
    def name(self) -> str:
        """What messages call it."""
        return "standard input" if self.path == STDIN else self.path

    @property
    def plain(self) -> bool:
        """Whether its bytes can be read at any offset, by any process."""
        return not self.compression and self.path != STDIN


@dataclass
class Found:
    """What the inputs name, in the order typed and, below a folder, sorted by path.

    passed_over: files below a typed folder whose kind is not known; they are not read.
    """

    sources: list[Source] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    @property
    def size(self) -> int | None:
        """Bytes of all files as they lie; None with standard input, which ends when it ends."""
        sizes = [source.size for source in self.sources]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def find_sources(inputs: Sequence[str], stdin_format: str = "jsonl") -> Found:
    """The files that inputs (files, folders, patterns, `-`) mean.

    A file that is named must be of a known kind; below a folder others are passed over, and names that
    begin with a dot are not looked at. Raises ConfigError with every problem.
    """
    found = Found()
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for typed in inputs:
        for path in _expand(typed, found, problems):
            try:
                source = stdin_source(stdin_format) if path == STDIN else _source(path)
            except BadData as error:
                problems.append(error.problem)
                continue
            key = os.path.realpath(path) if path != STDIN else STDIN
            if key in seen:
                wrong = "is the same input twice" if seen[key] == path else f"is the same file as {seen[key]}"
                problems.append(Problem(path, wrong, "name it once: its documents would count twice"))
            else:
                seen[key] = path
                found.sources.append(source)
    if problems:
        raise ConfigError(problems)
    return found


def _expand(typed: str, found: Found, problems: list[Problem]) -> list[str]:
    path = os.path.expanduser(typed)
    if typed == STDIN or os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        known, others = _below(path)
        found.passed_over += others
        if not known:
            problems.append(
                Problem(typed, f"holds no file of a known kind{_some(others)}", f"known are {KNOWN}")
            )
        return known
    if glob.has_magic(path):
        matches = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
        if not matches:
            problems.append(
                Problem(typed, "matches no file", "check the pattern (quote it, ** for any depth)")
            )
        return matches
    if os.path.exists(path):
        return [path]  # a pipe or a device: refused with its suffix, or read
    problems.append(Problem(typed, "is no such file or folder", "check the path"))
    return []


def _below(folder: str) -> tuple[list[str], list[str]]:
    """Files below a folder, of known kinds and of others, sorted; links to folders are not followed."""
    known: list[str] = []
    others: list[str] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            if not name.startswith("."):
                (known if split_name(name)[0] else others).append(os.path.join(parent, name))
    return sorted(known, key=lambda path: Path(path).parts), sorted(others)


def _some(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f" (but {', '.join(os.path.basename(name) for name in names[:3])}{more})"


def split_name(name: str) -> tuple[str, str]:
    """(format, compression) that a file name says, each "" when it says none."""
    stem, compression = name, ""
    for suffix, kind in COMPRESSIONS.items():
        if name.lower().endswith(suffix):
            stem, compression = name[: -len(suffix)], kind
    return FORMATS.get(os.path.splitext(stem)[1].lower(), ""), compression


def stdin_source(stdin_format: str) -> Source:
    if sys.stdin is None or sys.stdin.isatty():
        raise BadData(
            STDIN, "is standard input, but nothing is piped into it", "use zcat FILE | mlm-data ... -"
        )
    return Source(STDIN, stdin_format)


def _source(path: str) -> Source:
    """A named file, looked at. Raises BadData when it is unreadable, of no known kind or not what it says."""
    format_, compression = split_name(os.path.basename(path))
    if not format_:
        suffix = "".join(Path(path).suffixes[-2:])
        wrong = (
            f"has the suffix {suffix}, which is no known kind"
            if suffix
            else "has no suffix that says its kind"
        )
        raise BadData(path, wrong, f"known are {KNOWN}")
    try:
        status = os.stat(path)
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise BadData(path, f"cannot be read ({error.strerror})", "check its permissions") from None
    real = _compression(head)
    if compression and head and real != compression:
        what = f"{real} data" if real else f"no {compression} data"
        raise BadData(path, f"is {what}, whatever its name says", "give it the suffix of what it is")
    if format_ == "parquet" and compression:
        raise BadData(path, "is Parquet compressed once more", "decompress it: Parquet is compressed inside")
    if format_ == "parquet":
        require("pyarrow", path, "Parquet")
    if format_ != "parquet" and head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadData(path, "is UTF-16", "convert it to UTF-8, for instance with iconv -f UTF-16 -t UTF-8")
    # A .jsonl that is compressed without saying so in its name is read all the same.
    return Source(path, format_, real if format_ != "parquet" else "", status.st_size, status.st_mtime_ns)


def require(package: str, path: str, what: str) -> None:
    """Raises BadData when an optional package is not installed."""
    try:
        __import__(package)
    except ImportError:
        raise BadData(path, f"is {what}, which needs {package}", 'pip install "mlm[data]"') from None


class Opened:
    """The decompressed bytes of a source, from its beginning; the context closes it."""

    def __init__(self, raw: BinaryIO, reader: BinaryIO):
        self._raw, self._reader = raw, reader

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        # The standard library's decompressors leave the file that they read from open.
        self._reader.close()
        self._raw.close()

    def read(self, size: int = -1) -> bytes:
        """As of a file; raises one of DAMAGED."""
        return self._reader.read(size)

    @property
    def consumed(self) -> int:
        """Bytes of the file as it lies, read so far; 0 where that is not known."""
        try:
            return self._raw.tell()
        except OSError:
            return 0


def open_source(source: Source) -> Opened:
    """Open a source; raises OSError."""
    if source.path != STDIN:
        raw = open(source.path, "rb")  # noqa: SIM115 - Opened closes it
        return Opened(raw, _decompressed(raw, source.compression))
    # A second reader of the same descriptor: closing it leaves sys.stdin alone.
    piped = open(os.dup(sys.stdin.fileno()), "rb")  # noqa: SIM115
    head = piped.peek(8)
    return Opened(piped, _decompressed(piped, _compression(head)))


def _compression(head: bytes) -> str:
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")


def _decompressed(file: BinaryIO, kind: str) -> BinaryIO:
    match kind:
        case "gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=file))
        case "bz2":
            return cast(BinaryIO, bz2.BZ2File(file))
        case "xz":
            return cast(BinaryIO, lzma.LZMAFile(file))
        case "zst":
            # Not the package zstandard: its reader takes a file that was cut off for one that ends there.
            return cast(BinaryIO, zstd.ZstdFile(file))
    return file


def damaged(source: Source, error: Exception, at_bytes: int) -> BadData:
    """The problem with a file whose decompression failed after at_bytes of text."""
    if not source.compression and source.path != STDIN:
        return BadData(source.name, f"cannot be read on ({error})", "check the disk it is on")
    cut = isinstance(error, EOFError) or "incomplete" in str(error).lower()
    what = "ends in the middle of its compressed data" if cut else f"is damaged ({error})"
    return BadData(source.name, f"{what}, past {at_bytes:,} bytes of text", "copy it again")
