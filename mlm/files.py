"""Files that are there as a whole or not at all, and on the disk when a function says so."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that gets its name, over one that has it already, when the block ends without error.

    durable: only when all of it is on the disk, so that a power failure leaves the old file or the new one.
    Written beside its place under a name nobody else uses, removed when anything fails. Raises OSError.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(aside, "xb") as file:
            yield file
            if durable:
                sync(file)
        os.replace(aside, path)
        if durable:
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that gets its name when the block ends without error; path may be an empty folder.

    Made beside its place under a name nobody else uses, removed when anything fails. Raises OSError.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        aside.mkdir(parents=True)
        yield aside
        os.replace(aside, path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_whole(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """The file with this content (text as UTF-8), or what was there before. Raises OSError."""
    with whole_file(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync(file: BinaryIO) -> None:
    """What has been written to an open file is on the disk when this returns."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Names that were given or taken in a folder survive a power failure when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
