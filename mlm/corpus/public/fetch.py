"""Public data sets onto this disk, each file checked before it gets its name: from the hub or from a file.

Files for evaluation go where mlm-eval looks: $MLM_DATA/NAME, else the folder `eval` of the cache. Others go
to $MLM_DATA/NAME, else `datasets/NAME` of the cache. --to names another folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlm.config.names import alternatives, nearest
from mlm.corpus.public.catalogue import SETS, PublicSet, Wanted
from mlm.corpus.public.hub import Standing, Unreachable, ask, download, library_problems
from mlm.data.cache import cache_root, sha256_file
from mlm.errors import ConfigError, Problem
from mlm.eval.files import FOLDER_VARIABLE

Say = Callable[[str], None]

CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Outcome:
    """What became of a data set. missing: required files that are not there, with what to do about each."""

    folder: Path
    there: list[Path]
    missing: list[str]


def public_set(name: str) -> PublicSet:
    """The set of that name. Raises ConfigError with the nearest ones."""
    if name in SETS:
        return SETS[name]
    close = nearest(name, SETS, limit=1) or list(SETS)
    raise ConfigError(Problem(f"mlm-data fetch {name}", "is no known data set", f"use {alternatives(close)}"))


def target_folder(public: PublicSet, to: Path | None) -> Path:
    """Where the files of a set go."""
    if to is not None:
        return to.expanduser().absolute()
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder).expanduser().absolute() / public.name
    cache = cache_root(None)
    return cache / "eval" if public.for_evaluation else cache / "datasets" / public.name


def fetch(public: PublicSet, to: Path | None, say: Say) -> Outcome:
    """Every file of a set that is not there yet, from the hub. say: called with a line a file.

    Raises ConfigError when a file of another content has its name, or a library is missing.
    """
    folder = target_folder(public, to)
    absent = _absent(public, folder, say)
    sought = [file for file in absent if file.hub]
    if sought:
        problems = library_problems(any(file.convert for file in sought))
        if problems:
            raise ConfigError(problems)
    missing = []
    with _aside(folder, public, keep=True) as aside:
        for number, file in enumerate(sought):
            try:
                _fetch_one(file, folder, aside, say)
            except Unreachable as error:
                say(str(error))
                # One answer is enough: without a network every further file costs seconds to say the same.
                rest = [f for f in sought[number:] if f.published.required or f is file]
                missing = [_instruction(public, f, folder) for f in rest]
                break
    for file in absent:
        if not file.hub:
            say(
                f"{file.published.name} (optional) is not on the hub; it is in {file.by_hand}, then --from it"
            )
    there = [folder / file.published.name for file in public.files]
    return Outcome(folder, [path for path in there if path.is_file()], missing)


def register(public: PublicSet, sources: Sequence[Path], to: Path | None, say: Say) -> Outcome:
    """Files that a person has got by other ways, put in their places after they have been checked.

    A file is told by its content, whatever its name: the published one, or the hub's form of it where the
    hub states its size in our table. Raises ConfigError with every file that is none of the set's.
    """
    folder = target_folder(public, to)
    problems, found = [], []
    for source in sources:
        path = source.expanduser().absolute()
        if not path.is_file():
            wrong = "is a folder, not a file" if path.is_dir() else "is no such file"
            problems.append(Problem(f"--from {source}", wrong, f"give a file of {public.name}"))
            continue
        match = _identify(public, path)
        if match is None:
            problems.append(Problem(f"--from {source}", *_not_among(public, path)))
        else:
            found.append((path, match))
    if problems:
        raise ConfigError(problems)
    _absent(public, folder, lambda line: None)
    with _aside(folder, public, keep=False) as aside:
        for path, (file, is_hub_form) in found:
            target = folder / file.published.name
            if target.is_file():
                say(f"{target} is there already")
                continue
            copy = aside / f"register-{secrets.token_hex(4)}"
            if is_hub_form and file.convert:
                _convert(file, path, copy)
            else:
                shutil.copyfile(path, copy)
            wrong = _difference(copy, file.published.size, file.published.sha256)
            if wrong:
                raise ConfigError(Problem(f"--from {path}", wrong, "fetch it again"))
            _place(copy, target)
            say(f"{target} ({target.stat().st_size:,} bytes, checked)")
    there = [folder / file.published.name for file in public.files]
    return Outcome(folder, [path for path in there if path.is_file()], [])


def _absent(public: PublicSet, folder: Path, say: Say) -> list[Wanted]:
    """The files that are not there. Raises ConfigError when other files have their names."""
    absent, problems = [], []
    for file in public.files:
        path, known = folder / file.published.name, file.published
        if not path.exists():
            absent.append(file)
            continue
        wrong = _difference(path, known.size, known.sha256)
        if wrong:
            problems.append(Problem(str(path), wrong, "move it away and fetch again"))
        else:
            say(f"{path} is there, {'the published file' if known.sha256 else 'its checksum is not known'}")
    if problems:
        raise ConfigError(problems)
    return absent


def _fetch_one(file: Wanted, folder: Path, aside: Path, say: Say) -> None:
    assert file.hub is not None, f"{file.published.name} is on the hub"
    standing = ask(file.hub)
    size = standing.size or file.hub.size
    say(f"{file.published.name}: {size:,} bytes of {file.hub.repository}")
    arrived = download(file.hub, aside)
    stated = Standing(file.hub.size or standing.size, file.hub.sha256 or standing.sha256)
    _check_arrived(arrived, file.hub.url, stated.size, stated.sha256, folder)
    result = arrived
    if file.convert:
        result = aside / f"{file.published.name}.converted"
        _convert(file, arrived, result)
        _check_arrived(result, file.hub.url, file.published.size, file.published.sha256, folder)
    target = folder / file.published.name
    _place(result, target)
    checked = (
        "checked against the published sha256"
        if file.published.sha256
        else "checked against the sha256 that the hub states"
        if stated.sha256
        else "its checksum is stated nowhere"
    )
    say(f"{target} ({target.stat().st_size:,} bytes, {checked})")


def _check_arrived(path: Path, url: str, size: int, sha256: str, folder: Path) -> None:
    """What came is what was asked for; otherwise it is kept under another name and nothing uses it."""
    wrong = _difference(path, size, sha256)
    if wrong:
        kept = folder / f"{path.name.removesuffix('.converted')}.rejected"
        os.replace(path, kept)
        raise Unreachable(f"{url} gave something that {wrong}; it is kept as {kept} and not used")


def _convert(file: Wanted, source: Path, out: Path) -> None:
    assert file.convert is not None, f"{file.published.name} has a conversion"
    problems = library_problems(needs_parquet=True)
    if problems:
        raise ConfigError(problems)
    file.convert(source, out)


def _identify(public: PublicSet, path: Path) -> tuple[Wanted, bool] | None:
    """Which of the set's files this is, and whether in the hub's form; None when it is none of them."""
    size, sha256 = path.stat().st_size, sha256_file(path)
    for file in public.files:
        if file.published.sha256 and (size, sha256) == (file.published.size, file.published.sha256):
            return file, False
    for file in public.files:
        # The hub's form: converted, and checked as the published file then.
        if file.convert and file.hub and size == file.hub.size:
            return file, True
        unstated = not file.published.sha256 and file.published.size in (0, size)
        parts = Path(file.published.name).parts
        # Without a checksum only the name tells them apart, with the folder where the set has folders.
        if unstated and path.parts[-len(parts) :] == parts:
            return file, False
    return None


def _not_among(public: PublicSet, path: Path) -> tuple[str, str]:
    known = [file.published for file in public.files if file.published.sha256]
    same = next((file for file in known if file.name == path.name), None)
    if same:
        wrong = _difference(path, same.size, same.sha256) or "is another file"
        return wrong, f"get it again; {public.name} has {same.origin}"
    names = ", ".join(file.published.name for file in public.files)
    return f"is no file of {public.name} (sha256 {sha256_file(path)})", f"it consists of {names}"


def _difference(path: Path, size: int, sha256: str) -> str:
    """What makes this another file than the one described, empty when nothing does; 0 and "" are unknown."""
    actual = path.stat().st_size
    if size and actual != size:
        return f"has {actual:,} bytes, not {size:,}"
    if sha256:
        found = sha256_file(path)
        if found != sha256:
            return f"has the sha256 {found}, not {sha256}"
    return ""


def _instruction(public: PublicSet, file: Wanted, folder: Path) -> str:
    """What to get from where and where to put it, when the hub cannot be reached."""
    known = file.published
    identity = f"{known.size:,} bytes, sha256 {known.sha256}" if known.sha256 else "checksum not known"
    lines = [f"{known.name} ({identity})"]
    if file.hub:
        size = f" ({file.hub.size:,} bytes)" if file.hub.size else ""
        lines.append(f"    get   {file.hub.url}{size}")
    if file.by_hand:
        lines.append(f"    {'or    ' if file.hub else 'get   '}{file.by_hand}")
    lines.append(f"    then  mlm-data fetch {public.name} --from FILE    checks it and puts it to")
    lines.append(f"          {folder / known.name}")
    return "\n".join(lines)


def _place(path: Path, target: Path) -> None:
    """Give a finished file its name, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    os.replace(path, target)


@contextlib.contextmanager
def _aside(folder: Path, public: PublicSet, keep: bool) -> Iterator[Path]:
    """A folder beside the target for unfinished files. keep: leave them when broken off, to be resumed."""
    aside = folder / f".{public.name}.partial"
    try:
        aside.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = f"cannot be written ({error.strerror})"
        raise ConfigError(
            Problem(str(folder), wrong, f"set {FOLDER_VARIABLE} or --to to a folder that can")
        ) from None
    try:
        yield aside
    except BaseException:
        if not keep:
            shutil.rmtree(aside, ignore_errors=True)
        raise
    # Broken downloads stay for the next try; a folder without any goes.
    if not keep or not any(aside.rglob("*.incomplete")):
        shutil.rmtree(aside, ignore_errors=True)


def listing(to: Path | None) -> str:
    """Every set with its files, sizes, and whether they are there."""
    lines = []
    for public in SETS.values():
        folder = target_folder(public, to)
        lines += [f"{public.name}: {public.summary}; {public.licence}", f"  {folder}"]
        for file in public.files:
            known, path = file.published, folder / file.published.name
            size = known.size or (file.hub.size if file.hub else 0)
            there = "there" if path.is_file() else "-"
            amount = f"{size:,} bytes" if size else "size not known"
            lines.append(f"    {there:6}{known.name:42}{amount:>18}")
    return "\n".join(lines)
