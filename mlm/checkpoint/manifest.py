"""The list of a checkpoint's files with sizes and checksums: written last, read first. No torch.

Checksums find damage: a truncated file, a flipped byte, a file of another checkpoint. They do not find
malice, since whoever can write the files can write the list; a checkpoint therefore holds nothing that is
executed when it is read.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlm.errors import CheckpointError
from mlm.files import sync

MANIFEST = "manifest.json"
FORMAT = 1
WEIGHTS_ONLY = "weights_only"
"""In a manifest's `about`: true of a checkpoint without the state of an optimizer."""
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class FileRecord:
    """Size and CRC-32 of one file."""

    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """What a complete checkpoint says of itself. step: of the optimizer; about: versions and so on."""

    step: int
    files: Mapping[str, FileRecord]
    about: Mapping[str, Any]

    @property
    def total_bytes(self) -> int:
        return sum(record.bytes for record in self.files.values())


def record_of(path: Path) -> FileRecord:
    """Size and checksum of a file as it is on disk."""
    crc = size = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc, size = zlib.crc32(block, crc), size + len(block)
    return FileRecord(size, crc)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it through to the disk, as the last file of the folder."""
    content = {
        "format": FORMAT,
        "step": manifest.step,
        "files": {name: asdict(record) for name, record in sorted(manifest.files.items())},
        "about": dict(manifest.about),
    }
    write_through(folder / MANIFEST, json.dumps(content, indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Raises CheckpointError when there is none or it is not one of ours."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {content['format']}, this mlm reads {FORMAT}: use the mlm that wrote it"
            )
        files = {
            name: FileRecord(int(record["bytes"]), int(record["crc32"]))
            for name, record in content["files"].items()
        }
        return Manifest(int(content["step"]), files, content["about"])
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} is no complete checkpoint (it has no {MANIFEST}): name another"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({type(error).__name__}: {error}): use another checkpoint"
        ) from error


def damage(folder: Path, *, contents: bool = True) -> list[str]:
    """What is wrong with a checkpoint, a sentence each that names the file; [] when it is whole.

    Sizes are compared first, which costs nothing; contents: read every file and compare checksums too.
    """
    try:
        manifest = read_manifest(folder)
    except CheckpointError as error:
        return [str(error)]
    found = [sentence for name, record in manifest.files.items() for sentence in _size(folder / name, record)]
    if found or not contents:
        return found
    names = sorted(manifest.files, key=lambda name: -manifest.files[name].bytes)
    # The checksum releases the interpreter's lock, so threads share the files out over the cores.
    with ThreadPoolExecutor(min(len(names), os.cpu_count() or 1) or 1) as pool:
        checked = pool.map(lambda name: list(_checksum(folder / name, manifest.files[name])), names)
        return [sentence for sentences in checked for sentence in sentences]


def _size(path: Path, record: FileRecord) -> Iterator[str]:
    try:
        size = path.stat().st_size
    except OSError as error:
        yield f"{path} is missing ({error.strerror})"
        return
    if size != record.bytes:
        yield f"{path} has {size:,} bytes instead of {record.bytes:,}"


def _checksum(path: Path, record: FileRecord) -> Iterator[str]:
    try:
        found = record_of(path)
    except OSError as error:
        yield f"{path} cannot be read ({error.strerror})"
        return
    if found != record:
        yield f"{path} has changed since it was written (CRC-32 {found.crc32:08x}, not {record.crc32:08x})"


def write_through(path: Path, text: str) -> FileRecord:
    """Write a small file so that it is on the disk when this returns."""
    data = text.encode()
    with path.open("wb") as file:
        file.write(data)
        sync(file)
    return FileRecord(len(data), zlib.crc32(data))
