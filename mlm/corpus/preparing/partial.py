"""A dataset in the making: files aside, a journal of what is safely in them, names given at the very end.

PREFIX.partial/ holds per dataset the ids (.bin) and the lengths of sequences and documents, and
journal.jsonl, whose last whole line says how far all of them are good. Whoever opens it again cuts the files
back to there and goes on. The datasets appear under their names only when all of them are complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mlm.corpus.preparing.encode import Part
from mlm.corpus.preparing.index_file import write_index
from mlm.data.bad_data import BadData
from mlm.data.indexed import bin_path, idx_path
from mlm.data.metadata import metadata_path, write_metadata
from mlm.files import sync, sync_folder, write_whole

FILES = (".bin", ".lengths", ".documents")
JOURNAL, PLAN = "journal.jsonl", "plan.json"


@dataclass
class State:
    """What the journal says: where reading goes on, how long the files are, what was counted so far."""

    source: int = 0
    offset: int = 0
    units: int = 0
    """Units of the current source in the blocks before, for the numbers in messages."""
    consumed: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    complete: bool = False


def partial_folder(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".partial")


def last_state(folder: Path, plan: dict[str, Any]) -> State | None:
    """Where a prepare of this plan got to; None when it has to begin anew."""
    if _plan(folder) != plan:
        return None
    try:
        lines = (folder / JOURNAL).read_bytes().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        checksum, _, text = line.partition(b" ")
        if checksum != _checksum(text):
            continue  # the kill came while it was written
        state = State(**json.loads(text))
        if state.complete or all(_size(folder / file) >= size for file, size in state.sizes.items()):
            return state
    return None


class Partial:
    """PREFIX.partial, locked: of two processes, the second is refused.

    plan: whatever decides the bytes; what another plan left is removed. state: where to go on.
    Raises BadData when the folder cannot be made or another process works in it.
    """

    def __init__(self, prefix: Path, names: list[str], plan: dict[str, Any]):
        self.prefix = prefix
        self.folder = partial_folder(prefix)
        self.names = names
        self._lock = _lock(self.folder, prefix)
        self.state = State()
        self.left_by_another = False
        self._files: dict[str, BinaryIO] = {}
        self._sums = {name: hashlib.sha256() for name in names}
        try:
            self._begin(plan)
        except BaseException:
            self.close()
            raise

    def _begin(self, plan: dict[str, Any]) -> None:
        if (state := last_state(self.folder, plan)) is not None:
            self.state = state
        else:
            self.left_by_another = _plan(self.folder) not in (None, plan)
            for left in self.folder.iterdir():
                left.unlink()
            write_whole(self.folder / PLAN, json.dumps(plan), durable=True)
        self.resumed = self.state != State()
        if not self.state.complete:
            self._open()

    def _open(self) -> None:
        for name in self.names:
            for suffix in FILES:
                path = self.folder / (name + suffix)
                size = self.state.sizes.get(name + suffix, 0)
                file = open(path, "ab")  # noqa: SIM115 - closed by close
                file.truncate(size)
                file.seek(size)
                self._files[name + suffix] = file
            with open(self.folder / (name + ".bin"), "rb") as written:
                while chunk := written.read(1 << 22):
                    self._sums[name].update(chunk)

    def append(self, name: str, part: Part) -> None:
        """The sequences of one more block."""
        for suffix, data in zip(FILES, (part.ids, part.lengths, part.documents), strict=True):
            self._files[name + suffix].write(data)
        self._sums[name].update(part.ids)

    def commit(self) -> None:
        """Make what was appended, and state, outlive a power cut."""
        for file in self._files.values():
            sync(file)
        self.state.sizes = {file: self._files[file].tell() for file in self._files}
        text = json.dumps(asdict(self.state)).encode()
        with open(self.folder / JOURNAL, "ab") as journal:
            journal.write(b"\n" + _checksum(text) + b" " + text + b"\n")
            sync(journal)

    def finish(self, dtype: np.dtype[Any], records: dict[str, dict[str, Any]]) -> None:
        """Write the indices and give every dataset its name. records: what PREFIX.json is to say, by name."""
        if not self.state.complete:
            for name in self.names:
                base = self.folder / name
                lengths, documents = (base.with_name(name + suffix) for suffix in FILES[1:])
                index = base.with_name(name + ".idx")
                write_index(index, dtype, lengths, documents)
                with open(index, "rb") as file:
                    sums = {
                        "bin": self._sums[name].hexdigest(),
                        "idx": hashlib.file_digest(file, "sha256").hexdigest(),
                    }
                write_metadata(base, {**records[name], "sha256": sums})
            self.state.complete = True
            self.commit()
        for name in self.names:
            base, target = self.folder / name, self.prefix.with_name(name)
            if base.with_name(name + ".idx").exists():
                # A dataset that is being replaced ends here: never a new .bin beside an old .idx.
                idx_path(target).unlink(missing_ok=True)
                for place in (bin_path, metadata_path, idx_path):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(place(base), place(target))
        sync_folder(self.folder.parent)
        self.remove()

    def remove(self) -> None:
        """Take the folder away."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Leave the folder as it is, for whoever goes on."""
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk, once more
                file.close()
        self._files = {}
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _plan(folder: Path) -> Any:
    try:
        return json.loads((folder / PLAN).read_bytes())
    except (OSError, ValueError):
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)


def _lock(folder: Path, prefix: Path) -> int | None:
    """A descriptor that locks the folder until it is closed, by us or by the end of this process."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise BadData(
                str(folder), f"cannot be made ({error.strerror})", "write to another PREFIX"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            wrong = "is being written by another mlm-data prepare"
            raise BadData(str(prefix), wrong, "wait for it, or write to another PREFIX") from None
        # The other one may have finished and removed the folder between opening and locking it.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        os.close(descriptor)
