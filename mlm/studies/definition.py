"""A study as its YAML file defines it: pairs of overrides, what is fixed beside them, its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlm.config.locate import Option, find_options, search_dirs, unreadable
from mlm.config.names import alternatives, nearest
from mlm.errors import ConfigError, Problem
from mlm.studies.values import typed

GROUP = "study"
"""Studies lie in configs/study and in DIR/study of every --config-dir DIR."""

PROCESSES = "processes"
"""A published_key that is no override: how many processes a point has."""

COMPARED = ("loss", "masked_loss", "order_loss")
"""What a study can compare its points by, as metrics.jsonl calls it; the parts are those of masked_lm."""


@dataclass(frozen=True)
class Pairs:
    """One point: the overrides that belong together, by key, each as it would be typed after the `=`."""

    values: Mapping[str, str]
    series: str | None
    where: str
    """File, line and number, for problems."""

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.values.items()]


@dataclass(frozen=True)
class Definition:
    """A study before it is composed; the baseline is among the points, first when it is none of them."""

    name: str
    title: str
    path: Path
    points: tuple[Pairs, ...]
    fixed: Mapping[str, str]
    scaling: str | None
    baseline: Pairs | None
    published: str | None
    published_key: str | None
    repeats: int
    warmup_steps: int
    compare: str | None
    """What of a run is compared in place of its speed: one of COMPARED."""
    panels: tuple[str, ...]
    """Keys of the points that a figure has panels for: one for its columns, a second one for its rows."""
    curves: str | None
    """Key of the points whose values are the curves of a panel, each with its colour in all of them."""
    adds_baseline: bool
    """Whether the baseline is not one of the points that the study lists."""


def find_studies(config_dirs: Sequence[Path | str] = ()) -> list[Option]:
    """Every study with its description, the user's directories first."""
    return list(find_options(GROUP, search_dirs(config_dirs)))


def read_definition(name: str, config_dirs: Sequence[Path | str] = ()) -> Definition:
    """The study of that name. Raises ConfigError with everything that its file has wrong by itself."""
    studies = find_studies(config_dirs)
    found = next((option for option in studies if option.name == name), None)
    if found is None:
        close = nearest(name, [option.name for option in studies])
        hint = f"use study={alternatives(close)}; " if close else ""
        there = ", ".join(option.name for option in studies)
        raise ConfigError(Problem(f"study={name}", "is no study", f"{hint}there is {there}"))
    reader = _Reader(found.path)
    definition = reader.read()
    if reader.problems or definition is None:
        raise ConfigError(reader.problems)
    return definition


class _Reader:
    """Reads one file and remembers what is wrong with it."""

    def __init__(self, path: Path):
        self.path = path
        self.problems: list[Problem] = []
        try:
            text = path.read_text(encoding="utf-8")
            self.root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.content = yaml.safe_load(text)
        except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(unreadable(path, error)) from None
        if not isinstance(self.content, dict):
            raise ConfigError(Problem(str(path), "is not a mapping", "give it name, title and points"))
        self._duplicates(self.root)

    def read(self) -> Definition | None:
        content = self.content
        for key in content:
            if key not in _KEYS:
                close = nearest(str(key), _KEYS)
                remedy = f"use {alternatives(close)}" if close else f"a study has {', '.join(_KEYS)}"
                self._refuse(str(key), "is no key of a study", remedy)
        fixed = self._values(content.get("fixed", {}), "fixed", self._at("fixed"))
        steps = self._count("steps", None)
        if steps is not None and "train.steps" in fixed:
            self._refuse("steps", "is the same as fixed train.steps, which is there too", "keep one of them")
        points = self._points()
        baseline = self._baseline(points)
        adds_baseline = baseline is not None and not any(point is baseline for point in points)
        if baseline is not None and adds_baseline:
            points = [baseline, *points]
        warmup_steps = self._count("warmup_steps", 0, least=0)
        repeats = self._count("repeats", 1)
        name, title = self._text("name", self.path.stem), self._text("title", None)
        scaling = self._text("scaling", None)
        if scaling not in (None, "weak", "strong"):
            self._refuse(f"scaling: {scaling}", "is neither weak, strong nor null", "use one of them")
        published, published_key = self._published(points)
        compare, panels, curves = self._compared(points)
        if self.problems:
            return None
        assert name is not None, "it has a default"
        assert warmup_steps is not None, "it has a default"
        assert repeats is not None, "it has a default"
        return Definition(
            name=name,
            title=title or name,
            path=self.path,
            points=tuple(points),
            fixed=fixed if steps is None else {**fixed, "train.steps": str(steps)},
            scaling=scaling,
            baseline=baseline,
            published=published,
            published_key=published_key,
            repeats=repeats,
            warmup_steps=warmup_steps,
            compare=compare,
            panels=panels,
            curves=curves,
            adds_baseline=adds_baseline,
        )

    def _points(self) -> list[Pairs]:
        listed = self.content.get("points")
        if not isinstance(listed, list) or not listed:
            self._refuse("points", "is not a list of points", "write each as `- {model: gpt2_1b, tp: 1}`")
            return []
        node = self._node("points")
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        points: list[Pairs] = []
        for number, (entry, item) in enumerate(zip(listed, items, strict=True), 1):
            point = self._pairs(entry, f"{self.path}:{item.start_mark.line + 1} point {number}")
            if point is None:
                continue
            twin = next((p for p in points if (p.values, p.series) == (point.values, point.series)), None)
            if twin is not None:
                self.problems.append(Problem(point.where, "is there already", f"keep one, {twin.where}"))
            points.append(point)
        return points

    def _baseline(self, points: Sequence[Pairs]) -> Pairs | None:
        given = self.content.get("baseline")
        if given is None:
            return None
        baseline = self._pairs(given, f"{self._at('baseline')} baseline")
        if baseline is None:
            return None
        return next((p for p in points if dict(p.values) == dict(baseline.values)), baseline)

    def _pairs(self, entry: Any, where: str) -> Pairs | None:
        if not isinstance(entry, dict) or not entry:
            remedy = "write overrides, as {model: gpt2_1b, tp: 1}"
            self.problems.append(Problem(where, "is not a mapping of overrides", remedy))
            return None
        series = entry.get("series")
        if series is not None and not isinstance(series, str):
            self.problems.append(Problem(where, f"has series: {series}, which is no text", "name a curve"))
            series = None
        return Pairs(
            self._values({k: v for k, v in entry.items() if k != "series"}, "", where), series, where
        )

    def _values(self, given: Any, what: str, where: str) -> dict[str, str]:
        if not isinstance(given, dict):
            remedy = "write dotted keys, as train.global_batch_size: 8"
            self.problems.append(Problem(f"{where} {what}", "is not a mapping of overrides", remedy))
            return {}
        values = {}
        for key, value in given.items():
            if key in _NOT_A_STUDY_S:
                wrong = f"sets {key}, which only the command line can"
                self.problems.append(Problem(where, wrong, "leave it out"))
            elif isinstance(value, dict):
                inner = ", ".join(f"{key}.{name}: {inside}" for name, inside in value.items())
                self.problems.append(Problem(where, f"nests {key}", f"write dotted keys: {inner}"))
            else:
                values[str(key)] = typed(value)
        return values

    def _published(self, points: Sequence[Pairs]) -> tuple[str | None, str | None]:
        figure, key = self._text("published", None), self._text("published_key", None)
        if (figure is None) != (key is None):
            self._refuse("published", "and published_key belong together", "give both or neither")
        elif key not in (None, PROCESSES) and not any(key in point.values for point in points):
            remedy = f"use {PROCESSES}, or a key of the points"
            self._refuse(f"published_key: {key}", "is set by no point", remedy)
        return figure, key

    def _compared(self, points: Sequence[Pairs]) -> tuple[str | None, tuple[str, ...], str | None]:
        """compare, panels and curves."""
        compare, curves = self._text("compare", None), self._text("curves", None)
        listed = self.content.get("panels") or []
        panels = [listed] if isinstance(listed, str) else listed
        if not isinstance(panels, list) or not all(isinstance(key, str) for key in panels) or len(panels) > 2:
            remedy = "name the key of the columns, or [columns, rows]"
            self._refuse(f"panels: {typed(listed)}", "is neither a key nor two of them", remedy)
            panels = []
        if compare not in (None, *COMPARED):
            self._refuse(f"compare: {compare}", "is nothing to compare by", f"use {alternatives(COMPARED)}")
        for what, key in [*(("panels", key) for key in panels), *([("curves", curves)] if curves else [])]:
            if compare is None:
                self._refuse(
                    f"{what}: {key}", "is for a study that compares losses", "give compare: loss too"
                )
            elif not all(key in point.values for point in points):
                self._refuse(f"{what}: {key}", "is not set by every point", "set it in each, or leave it out")
        for key in ("scaling", "baseline", "published"):
            if compare is not None and self.content.get(key) is not None:
                self._refuse(key, "is for a study that compares speed", "leave it out, or leave out compare")
        return compare, tuple(panels), curves

    def _count(self, key: str, default: int | None, least: int = 1) -> int | None:
        value = self.content.get(key, default)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            self._refuse(
                f"{key}: {value}", f"is not a whole number of at least {least}", f"use {key}: {least}"
            )
            return default
        return value

    def _text(self, key: str, default: str | None) -> str | None:
        value = self.content.get(key, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self._refuse(f"{key}: {value}", "is not text", "write text, in quotes if it looks like a number")
            return default
        return value

    def _refuse(self, what: str, wrong: str, remedy: str) -> None:
        self.problems.append(Problem(f"{self._at(what.partition(':')[0])} {what}", wrong, remedy))

    def _node(self, key: str) -> yaml.Node | None:
        pairs = self.root.value if isinstance(self.root, yaml.MappingNode) else []
        return next((value for name, value in pairs if name.value == key), None)

    def _at(self, key: str) -> str:
        pairs = self.root.value if isinstance(self.root, yaml.MappingNode) else []
        line = next((name.start_mark.line + 1 for name, _ in pairs if name.value == key), None)
        return str(self.path) if line is None else f"{self.path}:{line}"

    def _duplicates(self, node: yaml.Node | None) -> None:
        """YAML itself keeps the last of two equal keys without a word."""
        if isinstance(node, yaml.SequenceNode):
            for child in node.value:
                self._duplicates(child)
        if not isinstance(node, yaml.MappingNode):
            return
        seen: set[str] = set()
        for name, child in node.value:
            if name.value in seen:
                where = f"{self.path}:{name.start_mark.line + 1} {name.value}"
                self.problems.append(Problem(where, "is there a second time", "keep one of them"))
            seen.add(str(name.value))
            self._duplicates(child)


_KEYS = (
    "name",
    "title",
    "scaling",
    "baseline",
    "published",
    "published_key",
    "compare",
    "panels",
    "curves",
    "repeats",
    "steps",
    "warmup_steps",
    "fixed",
    "points",
)
_NOT_A_STUDY_S = ("run_dir", "sweep_dir", "study")
