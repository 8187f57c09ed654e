"""The evaluation of fine-tuned checkpoints: scores of each, averaged if there are several, and figures."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from mlm.config.schema import EvalConfig
from mlm.errors import ConfigError, Problem
from mlm.eval.labelled import examples_path, members
from mlm.eval.load import load_for_evaluation
from mlm.eval.predict import predict
from mlm.eval.score import default_batch_tokens
from mlm.finetune.ensemble import averaged
from mlm.finetune.files import write_predictions
from mlm.finetune.prepared import fingerprint_of
from mlm.finetune.tasks import TASKS, Judged
from mlm.parallel.mesh import Mesh

logger = logging.getLogger("mlm")


def evaluate_labelled(
    config: EvalConfig,
    *,
    mesh: Mesh,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    out: Path,
) -> dict[str, Any]:
    """Score the examples by every checkpoint in turn, show the figures and write out/predictions.jsonl.

    Returns what eval.json says of it; collective over all ranks. Raises ConfigError when the members of an
    ensemble of spans have different tokenizers.
    """
    (name,) = config.tasks
    task, asked, first = TASKS[name], members(config), mesh.rank == 0
    path = examples_path(config, asked[0])
    assert path is not None, "the launcher refuses an evaluation without examples"
    read = task.read(path, training=False)
    examples = read.examples[: config.limit]
    began, scores, singles, fingerprints = time.perf_counter(), [], list[Judged](), list[str]()
    for member in asked:
        loaded = load_for_evaluation(member.checkpoint, mesh=mesh, device=device)
        fingerprints.append(loaded.tokenizer.fingerprint)
        if name.startswith("squad") and fingerprints[-1] != fingerprints[0]:
            where, wrong = f"ensemble={member.checkpoint.directory}", "has another tokenizer than the first"
            raise ConfigError(Problem(where, wrong, "use checkpoints with one tokenizer"))
        encoded = task.encode(examples, loaded.tokenizer, member.limit)
        tokens = config.batch_tokens or default_batch_tokens(device)
        batch_size = max(1, tokens // (member.limit * encoded.sequences_per_sample))
        if first:
            logger.info(f"{member.checkpoint.directory}: {encoded.describe_cuts()}")
        scores.append(
            predict(loaded.model, encoded, batch_size=batch_size, mesh=mesh, device=device, autocast=autocast)
        )
        singles.append(task.judge(encoded, scores[-1]))
    judged = singles[0] if len(asked) == 1 else task.judge(encoded, averaged(scores))
    seconds = time.perf_counter() - began
    if first:
        write_predictions(out / "predictions.jsonl", judged.predictions)
        logger.info("\n" + _table(name, judged, singles, config.limit))
        left = f", {read.left_out:,} without an agreed label left out" if read.left_out else ""
        logger.info(f"  {path}: {len(examples):,} examples{left}; 95 % intervals in brackets")
    return {
        "task": name,
        "examples": str(path),
        "n_examples": len(examples),
        "n_left_out": read.left_out,
        "limit": config.limit,
        "examples_sha256": fingerprint_of(examples),
        "checkpoints": [str(member.checkpoint.directory) for member in asked],
        "figures": {key: asdict(figure) for key, figure in judged.figures.items()},
        "values": judged.values,
        "members": [{key: figure.value for key, figure in each.figures.items()} for each in singles],
        "predictions": str(out / "predictions.jsonl"),
        "seconds": seconds,
    }


def _table(name: str, judged: Judged, singles: list[Judged], limit: int | None) -> str:
    """The figures, a column each; of an ensemble its members too."""
    out = io.StringIO()
    console = Console(file=out, width=118, no_color=True, highlight=False, markup=False)
    console.print(name if limit is None else f"{name}, limited to {limit:,}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for key in judged.figures:
        table.add_column(key, justify="right")
    if len(singles) > 1:
        for number, each in enumerate(singles, start=1):
            table.add_row(f"member {number}", *(figure.percent() for figure in each.figures.values()))
    label = f"ensemble of {len(singles)}" if len(singles) > 1 else "this checkpoint"
    table.add_row(label, *(figure.percent() for figure in judged.figures.values()))
    console.print(table)
    for key, value in judged.values.items():
        console.print(f"  {key} {value:.4f}")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
