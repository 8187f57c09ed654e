"""Studies and run directories as tests need them, written by hand."""

from __future__ import annotations

import json
from pathlib import Path

from mlm.config.compose import compose
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.config.store import save_config
from mlm.studies.identity import asked, config_hash
from mlm.studies.record import Point, RunState, Study


def as_run(config: TrainConfig, run_dir: Path, *, threads: int = 2) -> TrainConfig:
    """What a launcher on a CPU machine makes of a composed configuration."""
    processes, precision = config.tp * (config.dp or 1), config.precision.name
    return resolved(
        config,
        device="cpu",
        processes=processes,
        threads=config.launch.threads or threads,
        precision="fp32" if precision == "auto" else precision,
        run_dir=run_dir,
    )


def finish(run_dir: Path, overrides: list[str]) -> None:
    """Leave what a finished run of these overrides leaves, as far as a study asks."""
    run_dir.mkdir(parents=True, exist_ok=True)
    save_config(as_run(compose(overrides), run_dir), run_dir / "config.yaml")
    (run_dir / "summary.json").write_text(json.dumps({"steps": 1}))


def planned(folder: Path, *points: list[str], repeats: int = 1, name: str = "mine") -> Study:
    """A study of these points before anything of it has run."""
    study = Study(
        folder=folder, name=name, title="Mine", command=["mlm-train", "-m", "study=mine"], repeats=repeats
    )
    for overrides in points:
        config, label = compose(overrides), overrides[-1]
        runs = [
            RunState(
                dir=f"{label}/r{number}",
                hash=config_hash(config),
                asked=asked(config),
                command=["mlm-train", *overrides, f"run_dir={folder / label / f'r{number}'}"],
            )
            for number in range(1, repeats + 1)
        ]
        study.points.append(Point(label=label, overrides=overrides, runs=runs))
    return study
