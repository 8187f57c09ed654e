"""Median and spread over seeds, from what runs left."""

from __future__ import annotations

from dataclasses import replace

from mlm.config.compose import compose
from mlm.report.points import Attempt, Point
from mlm.report.run import Run
from mlm.report.seeds import spreads


def point(seed: int, score: float | None, lr: float = 1e-4) -> Point:
    config = compose(["model=bert_tiny", f"seed={seed}", f"optim.lr={lr}", f"run_dir=runs/{seed}"])
    config = replace(config, finetune=replace(config.finetune, task="race"))
    best = None if score is None else {"step": 3, "figure": "accuracy", "value": score}
    work, folder = None, None
    run = Run(folder, config, work, [], [], {"best": best}, {}, None)  # type: ignore[arg-type]
    return Point(str(seed), [Attempt(folder, "finished", None, (), run, True)])  # type: ignore[arg-type]


def test_runs_that_differ_in_their_seed_alone_have_one_median():
    points = [point(1, 0.8), point(2, 0.84), point(3, 0.81), point(1, 0.5, lr=1e-5), point(4, None)]
    said = [spread.said() for spread in spreads(points)]
    assert said == [
        "race, accuracy: median 81.0 % of 3 seeds (80.0 to 84.0 %)",
        "race, accuracy: 50.0 % (seed 1)",
    ]
