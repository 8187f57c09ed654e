"""Evaluation tasks on the model that is being trained, by the code of mlm-eval."""

from __future__ import annotations

from typing import Any

from mlm.data.tokenizers import load_tokenizer
from mlm.eval.report import as_json, lines, metric_values, table
from mlm.eval.run import evaluate, prepare_task
from mlm.train.log import logger
from mlm.train.loggers import Metrics
from mlm.train.setup import Run


class Evaluations:
    """The tasks of eval.tasks, read and cut once for the whole run; no tasks, nothing done."""

    def __init__(self, run: Run):
        """Raises DataError when a file is not what it has to be."""
        config = run.config.eval
        self.run, self.interval = run, config.interval
        self.tasks = []
        if not config.tasks:
            return
        tokenizer = load_tokenizer(run.data.tokenizer, run.run_dir)
        for name in config.tasks:
            self.tasks.append(
                prepare_task(
                    name,
                    config.task_paths,
                    tokenizer,
                    context=run.config.model.seq_length,
                    limit=config.limit,
                )
            )

    def due(self, step: int) -> bool:
        """Whether the interval asks for an evaluation after this step."""
        return bool(self.tasks) and self.interval > 0 and step % self.interval == 0

    def __call__(self, metrics: Metrics, step: int) -> list[dict[str, Any]]:
        """Evaluate the model as it is, log the figures and write the metrics; collective over all ranks.

        Training goes on afterwards as if nothing had happened. Returns the results as JSON values.
        """
        if not self.tasks:
            return []
        run = self.run
        results = evaluate(
            run.model,
            self.tasks,
            vocab_size=run.config.model.vocab_size,
            batch_tokens=run.config.eval.batch_tokens,
            mesh=run.mesh,
            device=run.device,
            autocast=run.autocast,
        )
        metrics.write("eval", step, metric_values(results))
        for result in results:
            if step == run.config.train.steps:
                logger.info("\n" + table(result) + "\n")
            else:
                for line in lines(result):
                    logger.info(f"step {step:>6}  {line}")
        return as_json(results)
