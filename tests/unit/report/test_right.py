"""What a run of masked_lm got right, as a figure of its report."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mlm.report.build import build
from mlm.report.gather import gather
from mlm.report.right import right
from tests.unit.report.written import write_run


def with_figures(run: Path) -> Path:
    """The same run, its records with the figures that masked_lm has."""
    lines = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] in ("train", "valid"):
            record |= {"masked_accuracy": 0.2, "order_accuracy": 0.6}
        if record["kind"] == "valid":
            record["unigram_accuracy"] = 0.078
        lines.append(json.dumps(record))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return run


def figure_ids(run: Path) -> list[str]:
    page = build(gather([run], baseline=None, warmup_steps=None)).files["index.html"]
    assert isinstance(page, str)
    return re.findall(r'<figure id="(\w+)"', page)


def test_a_run_of_masked_lm_shows_what_it_gets_right_beside_guessing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", windows=[(1, 9.0), *[(5, 1.0)] * 5], valid=[(26, 4.5)])
    assert figure_ids(run) == ["throughput", "loss"]
    assert figure_ids(with_figures(run)) == ["throughput", "loss", "right"]
    (group,) = gather([run], baseline=None, warmup_steps=None)
    drawn = right(group.points[0], "right")
    assert drawn is not None
    for label in ("masked tokens", "order of segments", "always the most frequent token, 7.8 %"):
        assert f"<!-- {label} -->" in drawn.svg or label in drawn.svg
