"""Public data sets onto this disk, each file checked before it gets its name: from the network or a file.

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
from itertools import groupby
from pathlib import Path

from mlm.config.names import alternatives, nearest
from mlm.corpus.public.catalogue import SETS, PublicSet, Wanted, WebFile
from mlm.corpus.public.download import Standing, Unreachable, ask, download, library_problems
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
    """Every file of a set that is not there yet, from the network. say: called with a line a file.

    Raises ConfigError when a file of another content has its name, or a library is missing.
    """
    folder = target_folder(public, to)
    absent = _absent(public, folder, say)
    sought = [file for file in absent if file.source]
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
                by_source = groupby(rest, lambda f: f.source)
                missing = [_instruction(public, list(files), folder) for _, files in by_source]
                break
    for file in absent:
        if not file.source:
            say(f"{file.published.name} (optional) is in {file.by_hand}; get it there, then --from it")
    there = [folder / file.published.name for file in public.files]
    return Outcome(folder, [path for path in there if path.is_file()], missing)


def register(public: PublicSet, sources: Sequence[Path], to: Path | None, say: Say) -> Outcome:
    """Files that a person has got by other ways, put in their places after they have been checked.

    A file is told by its content, whatever its name: the published one, or the form in which it is offered
    where our table has that one's size; an archive gives all that is wanted of it. Raises ConfigError with
    every file that is none of the set's.
    """
    folder = target_folder(public, to)
    problems, found = [], []
    for source in sources:
        path = source.expanduser().absolute()
        if not path.is_file():
            wrong = "is a folder, not a file" if path.is_dir() else "is no such file"
            problems.append(Problem(f"--from {source}", wrong, f"give a file of {public.name}"))
            continue
        matches = _identify(public, path)
        if not matches:
            problems.append(Problem(f"--from {source}", *_not_among(public, path)))
        found += [(path, file, is_source) for file, is_source in matches]
    if problems:
        raise ConfigError(problems)
    _absent(public, folder, lambda line: None)
    with _aside(folder, public, keep=False) as aside:
        for path, file, is_source in found:
            target = folder / file.published.name
            if target.is_file():
                say(f"{target} is there already")
                continue
            copy = aside / f"register-{secrets.token_hex(4)}"
            if is_source:
                _make(file, path, copy, f"--from {path}")
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
    source = file.source
    assert source is not None, f"{file.published.name} has a source"
    standing = ask(source)
    size = standing.size or source.size
    say(f"{file.published.name}: {'out of ' if file.member else ''}{size:,} bytes of {source.place}")
    arrived = download(source, aside)
    stated = Standing(source.size or standing.size, source.sha256 or standing.sha256)
    _check_arrived(arrived, source.url, stated.size, stated.sha256, folder)
    result = arrived
    if file.is_made:
        result = aside / f"{file.published.name}.made"
        result.parent.mkdir(parents=True, exist_ok=True)
        _make(file, arrived, result, source.url)
        _check_arrived(result, source.url, file.published.size, file.published.sha256, folder)
    target = folder / file.published.name
    _place(result, target)
    checked = (
        "checked against the published sha256"
        if file.published.sha256
        else f"checked against the sha256 of {source.name}"
        if isinstance(source, WebFile)
        else "checked against the sha256 that the hub states"
        if stated.sha256
        else "its checksum is stated nowhere"
    )
    say(f"{target} ({target.stat().st_size:,} bytes, {checked})")


def _check_arrived(path: Path, url: str, size: int, sha256: str, folder: Path) -> None:
    """What came is what was asked for; otherwise it is kept under another name and nothing uses it."""
    wrong = _difference(path, size, sha256)
    if wrong:
        kept = folder / f"{path.name.removesuffix('.made')}.rejected"
        os.replace(path, kept)
        raise Unreachable(f"{url} gave something that {wrong}; it is kept as {kept} and not used")


def _make(file: Wanted, source: Path, out: Path, where: str) -> None:
    if file.convert and (problems := library_problems(needs_parquet=True)):
        raise ConfigError(problems)
    try:
        file.make(source, out)
    except ValueError as error:
        raise ConfigError(Problem(where, str(error), "get it again")) from None


def _identify(public: PublicSet, path: Path) -> list[tuple[Wanted, bool]]:
    """Which of the set's files this is, and whether in the form that is offered; [] when it is none."""
    size, sha256 = path.stat().st_size, sha256_file(path)
    for file in public.files:
        if file.published.sha256 and (size, sha256) == (file.published.size, file.published.sha256):
            return [(file, False)]
    # The form that is offered, by its checksum where we know it, else by the one of what is made of it.
    offered = [
        (file, True)
        for file in public.files
        if file.is_made
        and file.source
        and file.source.size == size > 0
        and file.source.sha256 in ("", sha256)
    ]
    if offered:
        return offered
    for file in public.files:
        unstated = not file.published.sha256 and file.published.size in (0, size)
        parts = Path(file.published.name).parts
        # Without a checksum only the name tells them apart, with the folder where the set has folders.
        if unstated and path.parts[-len(parts) :] == parts:
            return [(file, False)]
    return []


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


def _instruction(public: PublicSet, files: Sequence[Wanted], folder: Path) -> str:
    """What to get from where and where to put it, when the source of these files cannot be reached."""
    first = files[0]
    source, known = first.source, first.published
    lines = [", ".join(file.published.name for file in files)]
    if not first.member:
        lines[0] += f" ({_size_and_sha256(known.size, known.sha256) or 'checksum not known'})"
    if source:
        stated = _size_and_sha256(source.size, source.sha256) if first.is_made else ""
        lines.append(f"    get   {source.url}{f' ({stated})' if stated else ''}")
    if first.by_hand:
        lines.append(f"    {'or    ' if source else 'get   '}{first.by_hand}")
    pronoun, place = ("it", folder / known.name) if len(files) == 1 else ("them", f"{folder}/")
    lines.append(f"    then  mlm-data fetch {public.name} --from FILE    checks it and puts {pronoun} to")
    lines.append(f"          {place}")
    return "\n".join(lines)


def _size_and_sha256(size: int, sha256: str) -> str:
    """Size and checksum as far as known."""
    return ", ".join([*([f"{size:,} bytes"] if size else []), *([f"sha256 {sha256}"] if sha256 else [])])


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
            size = known.size or (file.source.size if file.source else 0)
            there = "there" if path.is_file() else "-"
            amount = f"{size:,} bytes" if size else "size not known"
            if file.member and isinstance(file.source, WebFile):
                amount = f"{amount} ({file.source.name})"
            lines.append(f"    {there:6}{known.name:42}{amount:>18}")
    return "\n".join(lines)
