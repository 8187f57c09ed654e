"""The one walker: tensors of a source matched with parameters by a table of names, and read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mlm.config.schema import ModelConfig
from mlm.convert.forms import FORMS, Shape
from mlm.convert.source import Source
from mlm.errors import ConfigError, Problem
from mlm.models.names import Entry, Table

NAMED = 12
"""Names of a list that a message gives in full; of more, it says how many."""


@dataclass(frozen=True)
class Match:
    """Every parameter's place in a source.

    entries: our name -> its entry, with theirs as the source's files write them. fresh: parameters of ours
    that the source lacks and that are to be drawn. dropped: tensors of the source that have a place in the
    table and none in this model. copies: (name, of which other) in the source's writing.
    """

    entries: Mapping[str, Entry]
    fresh: tuple[str, ...]
    dropped: tuple[str, ...]
    copies: tuple[tuple[str, str], ...]


def match(
    source: Source,
    model: ModelConfig,
    needed: Mapping[str, Shape],
    *,
    fresh: tuple[str, ...] = (),
    dropped: tuple[str, ...] = (),
    remedy: str = "use files that hold the whole model",
) -> Match:
    """Find every needed parameter (our name -> full shape) in the source, and a use for all it holds.

    fresh: beginnings of our names that the source may lack, all of one entry or nothing. dropped: beginnings
    of our names that the source may hold though the model has no such parameter. remedy: for what is missing.
    Raises ConfigError, naming everything that is missing, left over, there twice or of another shape.
    """
    table, problems = source.table, list[Problem]()
    written: dict[str, str] = {}
    for name in source.shapes:
        canonical = table.canonical(name)
        if canonical is None:
            continue
        if canonical in written:
            wrong = f"holds the same tensor as {written[canonical]} and as {name}"
            problems.append(Problem(str(source.path), wrong, "take one of them out"))
        written[canonical] = name
    for copy, of in table.copies.items():
        if of not in written and copy in written:
            written[of] = written.pop(copy)  # the file holds the one under the name of the other
    known = table.of_layers(model.num_layers)
    entries, drawn, missing, other_shape = {}, list[str](), list[str](), list[str]()
    used: set[str] = set()
    for ours, shape in needed.items():
        entry = known.get(ours)
        if entry is None and ours.startswith(fresh):
            drawn.append(ours)
            continue
        if entry is None:
            missing.append(f"{ours} (which this format has no name for)")
            continue
        used.update(written[name] for name in entry.theirs if name in written)
        absent = [name for name in entry.theirs if name not in written]
        if absent:
            if ours.startswith(fresh) and len(absent) == len(entry.theirs):
                drawn.append(ours)
            else:
                missing += [f"{name} ({ours})" for name in absent]
            continue
        entries[ours] = Entry(ours, tuple(written[name] for name in entry.theirs), entry.form)
        expected = FORMS[entry.form].their_shapes(shape, model)
        for name, right in zip(entries[ours].theirs, expected, strict=True):
            if source.shapes[name] != right:
                other_shape.append(f"{name} is {list(source.shapes[name])}, must be {list(right)}")
    copies = [
        (written[copy], written[of])
        for copy, of in table.copies.items()
        if copy in written and written[copy] not in used and of in written
    ]
    spare = {
        n for ours, e in known.items() if ours not in needed and ours.startswith(dropped) for n in e.theirs
    }
    rest = [c for c, n in written.items() if n not in used and n not in {copy for copy, _ in copies}]
    left_over = [written[canonical] for canonical in rest if canonical not in spare]
    problems += _refusals(source, missing, left_over, other_shape, remedy)
    if problems:
        raise ConfigError(problems)
    unused = tuple(written[canonical] for canonical in rest)
    return Match(entries, tuple(drawn), unused, tuple(copies))


def _refusals(
    source: Source, missing: list[str], left_over: list[str], other: list[str], remedy: str
) -> list[Problem]:
    where, what = str(source.path), source.format
    found = []
    if missing:
        found.append(Problem(where, f"lacks {listed(missing)}", remedy))
    if left_over:
        wrong = f"holds {listed(left_over)}, for which a {what} model as described has no place"
        found.append(Problem(where, wrong, "take out what is not part of the model"))
    if other:
        remedy = "use the configuration that belongs to these files"
        found.append(Problem(where, f"has tensors of other shapes: {listed(other)}", remedy))
    return found


def listed(names: list[str]) -> str:
    """Names for a message."""
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def check_copies(source: Source, found: Match) -> None:
    """Raises ConfigError for tensors that should repeat another one and do not. Reads their elements."""
    problems = [
        Problem(str(source.path), f"has {copy}, which is not the same as {of}", "this model shares the two")
        for copy, of in found.copies
        if not torch.equal(source.tensor(copy), source.tensor(of))
    ]
    if problems:
        raise ConfigError(problems)


def tensors(source: Source, model: ModelConfig, found: Match) -> Iterator[tuple[str, Tensor]]:
    """(Our name, our full tensor) of all matched parameters; none is kept when the next is asked for."""
    for ours, entry in found.entries.items():
        yield ours, one(source, model, entry)


def one(source: Source, model: ModelConfig, entry: Entry) -> Tensor:
    """Our full tensor of a matched entry; a view where no element has to move."""
    return FORMS[entry.form].to_ours([source.tensor(name) for name in entry.theirs], model)


def outgoing(table: Table, model: ModelConfig, ours: Mapping[str, Shape]) -> list[tuple[Entry, list[Shape]]]:
    """Of every parameter of ours (name -> full shape) its entry and their shapes, in the table's order.

    Raises ConfigError with all parameters that the format has no name for.
    """
    known = table.of_layers(model.num_layers)
    nameless = [name for name in ours if name not in known]
    if nameless:
        raise ConfigError(Problem(listed(nameless), "has no name in this format", "it cannot be exported"))
    return [
        (entry, FORMS[entry.form].their_shapes(ours[name], model))
        for name, entry in known.items()
        if name in ours
    ]
