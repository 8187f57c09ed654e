"""The page: what each section of index.html says, handed to the template as plain values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlm
from mlm.report import losses, words
from mlm.report.cautions import cautions
from mlm.report.curves import loss_unit
from mlm.report.differences import Difference, config_differences, environment_differences, grouped
from mlm.report.points import Attempt, Group, Point
from mlm.report.rows import Row, efficiencies_agree
from mlm.report.seeds import spreads
from mlm.report.style import Picture, css_variables

GENERATOR = "mlm-report"
"""In the page's head: how an earlier report of ours is told from a stranger's folder."""
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Section:
    """One group with everything that is shown of it."""

    group: Group
    rows: Sequence[Row]
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Fact:
    """One figure of the headline."""

    value: str
    what: str


def render(title: str, sections: Sequence[Section], files: Sequence[str]) -> str:
    """index.html. files: names of what lies beside the page."""
    import jinja2

    # Everything is escaped but what is marked safe in the template: our own style and drawings.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["words"] = words
    points = [point for section in sections for point in section.group.points]
    runs = [run for point in points for run in (point.runs or point.readable)]
    many = len(sections) > 1
    names = [name for section in sections for name in _run_names(section.group, with_group=many)]
    common, differing = environment_differences(runs)
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        title=title,
        generator=f"{GENERATOR} {mlm.__version__}",
        style=style.replace("LIGHT_PALETTE", css_variables(False)).replace(
            "DARK_PALETTE", css_variables(True)
        ),
        sections=[_section(section) for section in sections],
        many=many,
        cautions=[
            f"{section.group.title}: {caution}" if many else caution
            for section in sections
            for caution in cautions(section.group, section.rows)
        ],
        amiss=amiss(points),
        amiss_title=amiss_title(points),
        common=common,
        differing=_by_value(differing, names),
        commands=_commands(sections),
        files=files,
    )


def _coloured(style: str) -> str:
    for name, dark in (("LIGHT_PALETTE", False), ("DARK_PALETTE", True)):
        style = style.replace(name, css_variables(dark))
    return style


def amiss(points: Sequence[Point]) -> list[tuple[Point, Attempt]]:
    """Runs of which something is to be said: not finished, not readable, or damaged in a part."""
    return [(point, attempt) for point in points for attempt in point.attempts if attempt.reason is not None]


def amiss_title(points: Sequence[Point]) -> str:
    """What heads the table of those runs."""
    diverged = any(losses.has_diverged(point) for point in points)
    return f"Unfinished, failed{', diverged' if diverged else ''} and damaged runs"


def headline(section: Section) -> list[Fact]:
    """The few figures to read first."""
    group, rows = section.group, section.rows
    if group.compare is not None:
        return [Fact(value, what) for value, what in losses.facts(group, rows)]
    facts = []
    if len(rows) > 1:
        runs = sum(len(row.point.runs) for row in rows)
        facts.append(Fact(f"{len(rows):,}", f"points, {words.count(runs, 'run')}"))
    relative = [(row, row.relative) for row in rows if row.relative is not None and not row.is_baseline]
    if relative and group.scaling == "strong":
        row, best = max(relative, key=lambda entry: entry[1].speed_up.middle)
        facts.append(Fact(f"{best.speed_up.middle:.2f} ×", f"largest speed-up: {row.label}"))
    elif relative:
        row, best = max(relative, key=lambda entry: entry[1].by_flops.middle)
        what = "best efficiency by FLOPs" if group.scaling else "highest rate per device"
        facts.append(Fact(words.percent(best.by_flops.middle), f"{what}: {row.label}"))
    measured = [(row, row.pflops, row.tokens_per_s) for row in rows if row.pflops and row.tokens_per_s]
    if measured:
        row, flops, tokens = max(measured, key=lambda entry: entry[1].middle)
        size, unit = words.flops_unit([flops.middle * 1e15])
        what = f"{unit} of the whole job" + (f": {row.label}" if len(rows) > 1 else "")
        facts.append(Fact(words.significant(flops.middle * 1e15 / size), what))
        if len(rows) == 1:
            facts.append(Fact(words.significant(tokens.middle), "tokens/s"))
    if len(rows) == 1 and rows[0].point.readable:
        run = rows[0].point.readable[0]
        last = run.valid[-1] if run.valid else run.train[-1]
        kind = "validation" if run.valid else "training"
        facts.append(Fact(f"{last['loss']:.4f}", f"{kind} loss, {loss_unit([run])}, step {last['step']:,}"))
        planned = run.config.train.steps
        facts.append(
            Fact(f"{run.last_step:,}", f"steps of {planned:,}" if run.last_step < planned else "steps")
        )
    return facts


def _section(section: Section) -> dict[str, Any]:
    group, rows = section.group, section.rows
    times = [row.timing.q3_s for row in rows if row.timing is not None]
    size, unit = words.time_unit(times)
    compared, differences = config_differences(group.points)
    return {
        "group": group,
        "title": group.title,
        "facts": headline(section),
        "losses": None if group.compare is None else losses.loss_table(group, rows),
        "baseline": group.baseline,
        "rows": rows,
        "pictures": section.pictures,
        "scores": spreads(group.points),
        "time_unit": unit,
        "time": lambda seconds: words.significant(seconds / size),
        "has_series": any(row.point.series for row in rows),
        "has_relative": any(row.relative is not None for row in rows),
        "warmup_steps": group.points[0].warmup_steps,
        "efficiencies_agree": efficiencies_agree(rows),
        "has_published": group.published is not None and any(row.published is not None for row in rows),
        "has_heads": len({p.readable[0].config.model.num_heads for p in group.points if p.readable}) > 1,
        "compared": [point.label for point in compared],
        "differences": differences,
        "is_repeated": any(len(row.point.attempts) > 1 for row in rows),
    }


def _run_names(group: Group, with_group: bool) -> list[str]:
    """A name for each run of the group that could be read."""
    names = []
    for point in group.points:
        runs = point.runs or point.readable
        label = f"{group.name}: {point.label}" if with_group else point.label
        names += [f"{label} (run {n})" if len(runs) > 1 else label for n, _ in enumerate(runs, 1)]
    return names


def _by_value(
    differing: Sequence[Difference], names: Sequence[str]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """(key, [(value, which runs)]) of what differs; more than a few runs are counted, not named."""
    found = []
    for difference in differing:
        groups = grouped(difference.values, names)
        values = [
            (value or "not set", ", ".join(who) if len(who) <= 4 else words.count(len(who), "run"))
            for value, who in groups
        ]
        found.append((difference.key, values))
    return found


def _commands(sections: Sequence[Section]) -> list[tuple[str, str]]:
    """(what it runs, what is typed); a point's repeats are lines of one block."""
    found: list[tuple[str, str]] = []
    for section in sections:
        group = section.group
        if group.command:
            found.append((f"all of it: {group.title}", shlex.join(group.command)))
        for point in group.points:
            lines = dict.fromkeys(shlex.join(map(str, a.command)) for a in point.attempts if a.command)
            if lines:
                found.append((point.label, "\n".join(lines)))
    return found
