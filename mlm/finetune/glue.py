"""MNLI and QQP in GLUE's layout: tab-separated files, read by the names of their columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlm.data.bad_data import BadData
from mlm.finetune.examples import Damage, PairExample

MNLI_LABELS = ("contradiction", "entailment", "neutral")
QQP_LABELS = ("different", "duplicate")
_RECORD_LINES = 50
"""Lines that a quoted field may run over; a quotation mark without a partner must not swallow the file."""


@dataclass(frozen=True)
class Columns:
    """Where a task keeps its texts and its class. labels: what the column says, by class number."""

    first: str
    second: str
    label: str
    labels: tuple[str, ...]
    id: str
    no_label: str | None = None
    """What stands where annotators did not agree: such pairs are left out."""
    quoted: bool = False
    """Whether fields may be quoted as in CSV, with line ends and tabs inside them."""


MNLI = Columns("sentence1", "sentence2", "gold_label", MNLI_LABELS, "pairID", no_label="-")
QQP = Columns("question1", "question2", "is_duplicate", ("0", "1"), "id", quoted=True)


def read_mnli(path: Path, *, training: bool) -> tuple[list[PairExample], int]:
    """The pairs of MNLI and how many were left out because they have no agreed label.

    path: a .tsv file, or GLUE's folder: its train.tsv, or its dev_matched.tsv and dev_mismatched.tsv, whose
    pairs have the parts matched and mismatched. Raises BadData or ConfigError, as read_tsv.
    """
    names = (
        {"train.tsv": None}
        if training
        else {"dev_matched.tsv": "matched", "dev_mismatched.tsv": "mismatched"}
    )
    if not path.is_dir():
        return read_tsv(path, MNLI, names.get(path.name))
    both = [read_tsv(path / name, MNLI, part) for name, part in names.items()]
    return [example for examples, _ in both for example in examples], sum(count for _, count in both)


def read_qqp(path: Path, *, training: bool) -> tuple[list[PairExample], int]:
    """The pairs of QQP; path: a .tsv file, or GLUE's folder with train.tsv and dev.tsv. As read_mnli."""
    return read_tsv(path / ("train.tsv" if training else "dev.tsv") if path.is_dir() else path, QQP, None)


def read_tsv(path: Path, columns: Columns, part: str | None) -> tuple[list[PairExample], int]:
    """The pairs of one file and how many have no label.

    Raises BadData when the file cannot be read or lacks a column, ConfigError naming file and line of every
    damaged record.
    """
    remedy = "give GLUE's .tsv file, the names of its columns in the first line"
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise BadData(str(path), f"cannot be read ({error.strerror})", remedy) from None
    except UnicodeDecodeError:
        raise BadData(str(path), "is not UTF-8", remedy) from None
    header = lines[0].rstrip("\r").split("\t")
    missing = [name for name in (columns.first, columns.second, columns.label) if name not in header]
    if missing:
        raise BadData(f"{path}, line 1", f"has no column {' and none '.join(missing)}", remedy)
    at = {name: header.index(name) for name in (columns.first, columns.second, columns.label)}
    id_at = header.index(columns.id) if columns.id in header else None
    damage, examples, left_out = Damage(), [], 0

    def is_sound(fields: list[str]) -> bool:
        return len(fields) == len(header) and fields[at[columns.label]] in columns.labels

    for number, fields in _records(lines, is_sound, columns.quoted):
        where = f"{path}, line {number:,}"
        if len(fields) != len(header):
            wrong = f"has {len(fields)} fields, not the {len(header)} of line 1"
            damage.add(where, wrong, "mend it, or leave it out")
            continue
        first, second, label = (fields[at[n]] for n in (columns.first, columns.second, columns.label))
        if label == columns.no_label:
            left_out += 1
            continue
        if label not in columns.labels:
            wrong = f"has {columns.label} {label!r}, not {', '.join(columns.labels)}"
            damage.add(where, wrong, "mend it, or leave it out")
            continue
        name = str(number) if id_at is None else fields[id_at]
        examples.append(PairExample(name, first, second, columns.labels.index(label), part))
    damage.refuse(str(path))
    if not examples:
        raise BadData(str(path), "holds no pair", remedy)
    return examples, left_out


def _records(
    lines: Sequence[str], is_sound: Callable[[list[str]], bool], quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, fields) of each record.

    A line that is a sound record by itself is one, whatever marks are in it. Only where it is not can a
    quoted field hold tabs or line ends, and only if that gives a sound record.
    """
    after = 1
    while after < len(lines):
        line, start, after = lines[after].rstrip("\r"), after, after + 1
        fields = line.split("\t")
        if not line.strip():
            continue
        if quoted and is_sound(fields):
            fields = [_unquoted(field) for field in fields]
        elif quoted:
            for stop in range(after, min(after + _RECORD_LINES, len(lines) + 1)):
                found = _parsed("\n".join([line, *lines[start + 1 : stop]]))
                if found is not None and is_sound(found):
                    fields, after = found, stop
                    break
        yield start + 1, fields


def _unquoted(field: str) -> str:
    """The text of a field that is quoted as CSV has it; any other field as it is."""
    if not field.startswith('"'):
        return field
    parsed = _parsed(field)
    return parsed[0] if parsed is not None and len(parsed) == 1 else field


def _parsed(record: str) -> list[str] | None:
    """The fields of one record of quoted, tab-separated text; None when it is not exactly one."""
    try:
        rows = list(csv.reader(io.StringIO(record, newline=""), delimiter="\t", strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None
