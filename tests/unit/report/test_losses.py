"""A study that compares losses: its table recomputed from metrics.jsonl, its panels, every kind of end."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlm.cli.report import main
from mlm.report.build import Report, build
from mlm.report.gather import gather
from mlm.report.outcome import rise
from tests.unit.report.written import write_run, write_study

STEPS = 60
DEPTHS, RATES, PLACEMENTS = ("2", "12"), ("0.001", "0.004"), ("pre", "post")
LABELS = [f"num_layers={d},lr={r},layernorm={p}" for d in DEPTHS for r in RATES for p in PLACEMENTS]
DIVERGED, STOPPED, FAILED = LABELS[-1], LABELS[-3], LABELS[-4]
ABOUT = {
    "compare": "masked_loss",
    "panels": ["model.num_layers", "optim.lr"],
    "curves": "model.layernorm",
    "warmup_steps": 0,
}


def write_point(folder: Path, rng: np.random.Generator, *, steps: int, end: str) -> None:
    """A run of so many of STEPS steps; end: finished, diverged (the last 3 are no numbers) or stopped."""
    write_run(folder, windows=[(10, 1.0)] * (STEPS // 10), finished=end == "finished")
    lines: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        bad = end == "diverged" and step > steps - 3
        masked = math.nan if bad else float(10 / step**0.3 + rng.normal(0, 0.2))
        norm = math.inf if bad else float(rng.uniform(0.5, 9))
        record = {"kind": "train", "step": step, "loss": masked + 0.7, "masked_loss": masked}
        record |= {"grad_norm": norm, "skipped": "not_finite" if bad or rng.random() < 0.1 else None}
        record |= {"step_time_s": 1.0, "window_steps": 10, "mfu": None, "hfu": None}
        lines.append(record)
        if rng.random() < 0.1:
            lines.append({"kind": "spike", "step": step, "loss": 9.0, "median": 3.0, "bound": 4.0})
        if step % 20 == 0:
            valid = {"masked_loss": float(rng.uniform(3, 6)), "order_loss": 0.6}
            shares = {"masked_accuracy": float(rng.random()), "order_accuracy": float(rng.random())}
            total = valid["masked_loss"] + 0.6
            lines.append({"kind": "valid", "step": step, "loss": total, **valid, **shares})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight points, of which one diverged, one was stopped and one failed before its first step."""
    folder, rng, points = tmp_path_factory.mktemp("study") / "norms", np.random.default_rng(3), []
    for label in LABELS:
        status, message = "finished", None
        if label == DIVERGED:
            write_point(folder / label / "r1", rng, steps=37, end="diverged")
            status, message = "diverged", "step 35: loss=nan grad_norm=inf is not finite"
        elif label == STOPPED:
            write_point(folder / label / "r1", rng, steps=31, end="stopped")
            status, message = "unfinished", "killed by SIGKILL"
        elif label == FAILED:
            status, message = "failed", "rank 0: ValueError: boom"
        else:
            write_point(folder / label / "r1", rng, steps=STEPS, end="finished")
        sections = dict(zip(("num_layers", "lr", "layernorm"), ("model", "optim", "model"), strict=True))
        overrides = [f"{sections[part.split('=')[0]]}.{part}" for part in label.split(",")]
        points.append({"label": label, "overrides": overrides, "runs": [(f"{label}/r1", status, message)]})
    return write_study(folder, points, **ABOUT)


@pytest.fixture(scope="module")
def built(study: Path) -> Report:
    return build(gather([study], baseline=None, warmup_steps=None))


def records(study: Path, label: str, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (study / label / "r1" / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def root(built: Report) -> ElementTree.Element:
    page = built.files["index.html"]
    assert isinstance(page, str)
    return ElementTree.fromstring(page.replace("<!DOCTYPE html>", ""))


def words(element: ElementTree.Element | None) -> str:
    assert element is not None
    return " ".join(" ".join(element.itertext()).split())


def shown(built: Report) -> tuple[list[str], dict[str, list[str]]]:
    """Heads and cells of the page's table, by the label of the point."""
    (table,) = [t for t in root(built).iter("table") if t.get("class") == "points"]
    head, *lines = table.iter("tr")
    cells = {re.sub(", ", ",", words(tr[0])).split(" ")[0]: [words(td) for td in tr[1:]] for tr in lines}
    return [words(th) for th in head[1:]], cells


@pytest.mark.parametrize("label", [label for label in LABELS if label not in (DIVERGED, STOPPED, FAILED)])
def test_every_figure_follows_from_the_lines_of_metrics_jsonl(study, built, label):
    (row,) = [r for r in csv.DictReader(io.StringIO(str(built.files["table.csv"]))) if r["point"] == label]
    train, valid = records(study, label, "train"), records(study, label, "valid")
    for name in ("loss", "masked_loss", "masked_accuracy", "order_loss", "order_accuracy"):
        assert float(row[f"valid_{name}"]) == valid[-1][name]
    assert float(row["largest_grad_norm"]) == np.max([r["grad_norm"] for r in train])
    assert float(row["spikes"]) == len(records(study, label, "spike"))
    assert float(row["skipped_steps"]) == sum(r["skipped"] == "not_finite" for r in train)
    parts = np.array([r["masked_loss"] for r in train]).reshape(20, 3).mean(axis=1)
    assert float(row["train_rise"]) == pytest.approx(parts[-1] - parts.min(), abs=1e-12)
    heads, cells = shown(built)
    assert heads[:5] == ["masked loss nats", "loss nats", "tokens right", "order loss nats", "orders right"]
    assert cells[label][0] == f"{valid[-1]['masked_loss']:.4f}"
    assert cells[label][4] == f"{100 * valid[-1]['order_accuracy']:.1f} %"


def test_a_rise_is_counted_from_the_lowest_part_and_unknown_for_fewer_steps_than_parts():
    falling = [10 - 0.1 * n for n in range(40)]
    assert rise(falling) == 0
    assert rise([*falling[:-2], 9.0, 9.0]) == pytest.approx(9.0 - (falling[-4] + falling[-3]) / 2)
    assert rise(falling[:19]) is None


def test_the_lowest_of_each_panel_is_bold_and_only_it(study, built):
    (table,) = [t for t in root(built).iter("table") if t.get("class") == "points"]
    bold = [words(tr[0]).replace(", ", ",") for tr in table.iter("tr") if tr.find("td/b") is not None]
    ends = {label: records(study, label, "valid")[-1]["masked_loss"] for label in LABELS[:4]}
    assert bold == [min(pair, key=lambda label: ends[label]) for pair in (LABELS[:2], LABELS[2:4])]


def test_a_point_that_diverged_says_so_with_its_last_step_and_is_no_gap_in_the_table(study, built):
    heads, cells = shown(built)
    line = dict(zip(heads, cells[DIVERGED], strict=True))
    assert line["masked loss nats"] == "diverged after step 34"
    assert (line["orders right"], line["steps"]) == ("–", "34")
    skipped = sum(record["skipped"] is not None for record in records(study, DIVERGED, "train"))
    assert line["skipped steps"] == str(skipped)
    assert skipped >= 3
    facts = words(root(built).find(".//dl[@class='facts']"))
    assert f"diverged: {DIVERGED}" in facts
    assert f"{DIVERGED} at step 34" in words(root(built).find(".//figure/figcaption"))


def test_what_was_stopped_or_failed_is_named_and_has_no_figures(built):
    _, cells = shown(built)
    assert set(cells[STOPPED]) == set(cells[FAILED]) == {"–"}
    caption = words(root(built).find(".//figure/figcaption"))
    assert f"Not drawn: {FAILED} (failed), {STOPPED} (unfinished)." in caption
    amiss = words(root(built).find(".//section[@id='amiss']"))
    assert amiss.startswith("Unfinished, failed, diverged and damaged runs")
    for message in ("killed by SIGKILL", "ValueError: boom", "loss=nan"):
        assert message in amiss
    assert "No figures for" in words(root(built).find(".//aside"))


def test_every_panel_has_the_same_colour_for_the_same_placement(built):
    (figure,) = root(built).iter("figure")
    assert [words(figure.find("h3")), list(built.files)[-1]] == ["Losses", "losses.png"]
    found = {}
    for axes in figure.iter("g"):
        if not re.fullmatch(r"losses-axes_\d+", axes.get("id") or ""):
            continue
        title = next(t for t in axes.iter("text") if "num_layers" in words(t))
        curves = [g for g in axes if re.fullmatch(r"losses-line2d_\d+", g.get("id") or "")]
        # A curve of training is a path without a fill; dots and crosses are drawn by reference.
        paths = [path for g in curves for path in g.findall("path")]
        found[words(title)] = [re.findall(r"stroke: var\(--(\w+)\)", p.get("style") or "")[0] for p in paths]
    both = ["blue", "orange"]
    assert found == {
        "num_layers=2, lr=0.001": both,
        "num_layers=12, lr=0.001": [],
        "num_layers=2, lr=0.004": both,
        "num_layers=12, lr=0.004": both,
    }
    legend = words(figure)
    for text in ("layernorm=pre", "layernorm=post", "validation", "diverged: the run ended"):
        assert text in legend


def test_the_command_reports_on_it_and_says_what_diverged(study, tmp_path, capsys):
    assert main([str(study), f"out={tmp_path / 'out'}"]) == 0
    said = capsys.readouterr().out
    assert "diverged after step 34" in said
    assert "unfinished, failed, diverged or damaged:" in said
    assert "quartiles" not in said, "nobody asks how fast these runs were"
