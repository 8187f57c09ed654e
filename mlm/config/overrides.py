"""What was typed after a command: each `key=value` parsed, judged and sorted into groups and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlm.config.fields import Field, find_field, schema_fields, sections
from mlm.config.locate import Group
from mlm.config.names import alternatives, nearest
from mlm.errors import Problem


@dataclass(frozen=True)
class Assignment:
    """One value override: the text as typed after the `=`, and the value Hydra's grammar gives it."""

    text: str
    value: Any


@dataclass(frozen=True)
class Known:
    """What a command can be told. command: its name; schema: its dataclass; groups: its choices by name."""

    command: str
    schema: type
    groups: Mapping[str, Group]

    def __contains__(self, key: str) -> bool:
        return key in self.groups or self.field(key) is not None

    def field(self, key: str) -> Field | None:
        return find_field(key, self.schema)

    def nullable(self, key: str) -> bool:
        field = self.field(key)
        return field is not None and field.optional

    @property
    def can_sweep(self) -> bool:
        """Whether the command takes -m."""
        return self.command == "mlm-train"

    @property
    def help(self) -> str:
        return f"{self.command} --help shows what can be set"


@dataclass
class Judged:
    """Overrides that can be applied, and the problems of those that cannot.

    verbatim: assignments that no ${...} is looked for in.
    """

    choices: dict[str, str] = field(default_factory=dict)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    verbatim: dict[str, Assignment] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, where: str, wrong: str, remedy: str) -> None:
        self.problems.append(Problem(where, wrong, remedy))


def judge(overrides: Sequence[str], known: Known) -> Judged:
    """Sorts overrides into group choices and assignments; everything else becomes a problem.

    Hydra itself stops at its first error, lets `+key` invent keys and takes the last element of a list
    given to a group, so nothing reaches it unread.
    """
    judged = Judged()
    for text in overrides:
        _judge_one(text, known, judged)
    return judged


def _judge_one(text: str, known: Known, judged: Judged) -> None:
    typed, equals, right = text.partition("=")
    prefix = typed[: len(typed) - len(typed.lstrip("+~"))]
    key = typed[len(prefix) :].strip()
    if key.split(".")[0].split("/")[0] == "hydra":
        judged.refuse(text, "would configure Hydra, which only composes here", "leave it out")
        return
    if prefix.startswith("~"):
        judged.refuse(text, "would delete a key, and every key is needed", _instead_of_deleting(key, known))
        return
    if key not in known:
        if equals:
            judged.refuse(text, *_unknown(key, right, known))
        else:
            judged.refuse(text, "is not key=value", f"write key=value, as tp=2; {known.help}")
        return
    if prefix:
        remedy = f"drop the {prefix}: {key}={right or 'VALUE'}"
        judged.refuse(text, "would add a key that exists already", remedy)
        return
    if not equals:
        judged.refuse(text, "gives no value", f"write {key}=VALUE")
        return
    field = known.field(key)
    verbatim = field is not None and field.verbatim
    if not right.strip() and not (verbatim and field is not None and field.kind is str):
        null = f", or {key}=null" if known.nullable(key) else ""
        judged.refuse(text, "gives no value", f"write {key}=VALUE{null}")
        return
    if key in judged.choices or key in judged.assignments or key in judged.verbatim:
        judged.refuse(text, f"gives {key} a second time", "keep one of them")
        return
    if verbatim:
        _judge_verbatim(text, key, right, known, judged)
        return
    _judge_value(text, key, right, known, judged)


def _judge_verbatim(text: str, key: str, right: str, known: Known, judged: Judged) -> None:
    """Text that is no grammar's: what a prompt says, or strings listed as YAML does, which knows \\n."""
    import yaml

    field = known.field(key)
    assert field is not None, "only a key that there is gets here"
    value: Any = right
    if field.is_list:
        try:
            value = yaml.safe_load(right)
        except yaml.YAMLError:
            judged.refuse(text, "cannot be read as a list", f'write it as \'{key}=["A","B"]\'')
            return
    judged.verbatim[key] = Assignment(right, value)


def _judge_value(text: str, key: str, right: str, known: Known, judged: Judged) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    field = known.field(key)
    wants_text = field is not None and field.kind is str
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        if wants_text and not set(right) & set("'\"$"):
            # ~/texts and C:/a(1) are text as they stand; Hydra's grammar would want them quoted.
            judged.assignments[key] = Assignment(right, right)
            return
        if field is not None and field.kind == list[str] and (parts := _plain_list(right)) is not None:
            # runs/a=1,b=2 is the directory of a sweep's run: such paths too are text as they stand.
            judged.assignments[key] = Assignment(right, parts)
            return
        wrong = "cannot be read, for its brackets, quotes or special characters"
        remedy = f"quote it twice, for the shell and for us: \"{key}='...'\""
        if field is not None and field.kind == list[str]:
            remedy = f"quote each entry as well: \"{key}=['...', '...']\""
        if field is not None and field.holds_records:
            remedy = f"quote each path as well: \"{key}=[{{weight: 1, path: '...'}}, ...]\""
        judged.refuse(text, wrong, remedy)
        return
    several = override.is_sweep_override()
    if key in known.groups:
        _judge_choice(text, right, None if several else override.value(), known.groups[key], judged)
        return
    if several:
        listed = field is not None and field.is_list
        remedy = f"write a list: '{key}=[{right}]'" if listed else f"choose one: {key}={_first(right)}"
        remedy += ", or add -m for a run with each" if known.can_sweep else ""
        judged.refuse(text, "gives several values, and one run takes one", remedy)
        return
    value = override.value()
    if wants_text and isinstance(value, (bool, int, float)):
        # A run named 1E5 or 007 is named as it was typed, whatever number the grammar makes of it.
        value = right
    judged.assignments[key] = Assignment(right, value)


def _plain_list(right: str) -> list[str] | None:
    """The entries of [A,B] in which nothing is quoted or nested; None for anything else."""
    inner = right[1:-1]
    if not (right.startswith("[") and right.endswith("]")) or set(inner) & set("'\"$[]{}"):
        return None
    parts = [part.strip() for part in inner.split(",")]
    return parts if all(parts) else None


def _judge_choice(text: str, right: str, value: Any, group: Group, judged: Judged) -> None:
    names = [option.name for option in group.options]
    if value is None and right == "null" and group.default is None:
        return
    if value is None or isinstance(value, (list, dict)):
        wrong = f"is not one option of the group {group.name}, and one run takes one"
        judged.refuse(text, wrong, f"choose from {', '.join(names)}")
    elif group.option(right) is None:
        close = nearest(right, names)
        hint = f"use {group.name}={alternatives(close)}; " if close else ""
        judged.refuse(text, f"is no option of the group {group.name}", f"{hint}there is {', '.join(names)}")
    else:
        judged.choices[group.name] = right


def _unknown(key: str, right: str, known: Known) -> tuple[str, str]:
    """What is wrong with a key that does not exist, and the nearest that do."""
    fields = schema_fields(known.schema)
    inside = [name for name in fields if name.startswith(f"{key}.")]
    if inside:
        return "is a section, not a value", f"set what is in it: {', '.join(inside)}"
    close = nearest(key, [*known.groups, *fields])
    if close:
        return "is no such key", f"use {alternatives([f'{name}={right}' for name in close])}"
    section, _, entry = key.rpartition(".")
    mappings = nearest(section, [name for name, field in fields.items() if field.is_mapping], limit=1)
    if entry and mappings:
        return "is no such key", f"use {mappings[0]}.{entry}={right}"
    section = key.partition(".")[0]
    if section in sections(known.schema):
        there = [name.partition(".")[2] for name in fields if name.startswith(f"{section}.")]
        return "is no such key", f"{section} has {', '.join(there)}"
    return "is no such key", known.help


def _instead_of_deleting(key: str, known: Known) -> str:
    key = key.partition("=")[0]
    if known.nullable(key):
        return f"write {key}=null"
    return f"choose another option of {key}" if key in known.groups else "give it another value"


def _first(right: str) -> str:
    return right.removeprefix("choice(").partition(",")[0].strip() or "VALUE"
