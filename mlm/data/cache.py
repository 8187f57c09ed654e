"""Folders computed once and kept: made aside, renamed when complete, made again when damaged."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlm.data.bad_data import BadData

INFO = "info.json"


def cache_root(cache_dir: str | None) -> Path:
    """data.cache_dir, else $MLM_CACHE, else $XDG_CACHE_HOME/mlm, else ~/.cache/mlm."""
    if chosen := cache_dir or os.environ.get("MLM_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "mlm"


def cache_key(**parts: Any) -> str:
    """A folder name that differs whenever a part does."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def cached(root: Path, key: str, build: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """The folder root/key and its information, from the cache or by build(folder).

    build fills the folder it is given with plain files and returns JSON values. Whoever finds a finished
    entry uses it: of two launches that build at once, the second to finish discards its own. An entry
    whose files do not have the checksums they were stored with counts as absent and is replaced.
    Raises BadData when the cache cannot be written.
    """
    target = root / key
    info = _read(target)
    if info is not None:
        return target, info
    aside = root / f".{key}.{os.getpid()}-{secrets.token_hex(4)}"
    try:
        aside.mkdir(parents=True)
        _write(aside, build(aside))
        return target, _publish(aside, target)
    except OSError as error:
        raise BadData(
            f"the cache {root}",
            f"cannot be written ({error.strerror})",
            "set data.cache_dir or MLM_CACHE to a folder that can",
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(folder: Path, info: dict[str, Any]) -> None:
    entry = {"info": info, "files": {path.name: sha256_file(path) for path in sorted(folder.iterdir())}}
    with open(folder / INFO, "x", encoding="utf-8") as file:
        json.dump({**entry, "checksum": cache_key(**entry)}, file)
        file.flush()
        os.fsync(file.fileno())


def _read(folder: Path) -> dict[str, Any] | None:
    """The information of a whole entry; None when there is none or anything in it has changed."""
    try:
        entry = json.loads((folder / INFO).read_bytes())
        checksum = entry.pop("checksum")
        whole = checksum == cache_key(**entry) and all(
            sha256_file(folder / name) == digest for name, digest in entry["files"].items()
        )
        return entry["info"] if whole else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _publish(aside: Path, target: Path) -> dict[str, Any]:
    """Give a finished folder its name, unless a whole entry has it by now; the information of that entry."""
    built = _read(aside)
    assert built is not None, f"the entry just written to {aside} does not read back"
    for _ in range(100):
        try:
            aside.rename(target)
            return built
        except OSError as error:
            # Something stood there at that moment; by now another launch may have taken it away.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        info = _read(target)
        if info is not None:
            return info
        _remove_if_damaged(target)
    raise OSError(errno.EEXIST, "another process keeps putting a damaged entry there", str(target))


def _remove_if_damaged(target: Path) -> None:
    """Take a damaged entry away. Seized before it is judged: another launch may have replaced it just now."""
    seized = target.with_name(f".{target.name}.damaged-{secrets.token_hex(4)}")
    try:
        target.rename(seized)
    except FileNotFoundError:
        return  # another launch saw the damage too
    if _read(seized) is not None:
        with contextlib.suppress(OSError):  # a third launch has put an equal entry there meanwhile
            seized.rename(target)
    shutil.rmtree(seized, ignore_errors=True)
