"""The nulls of a configuration, filled once by the launcher so that every worker reads the same numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlm.config.profiled_steps import default_steps
from mlm.config.schema import TrainConfig
from mlm.errors import ConfigError, Problem


def resolved(
    config: TrainConfig, *, device: str, processes: int, threads: int, precision: str, run_dir: Path | str
) -> TrainConfig:
    """A copy of config in which nothing is left to be decided by a worker.

    device (cuda or cpu), processes (of the whole job), threads (per worker), precision (fp32 or bf16) and
    run_dir are the launcher's findings; dp, decay_steps, ffn_hidden_size, padded_vocab_size, the pieces of
    a SentencePiece model still to be trained and the steps to profile follow from the rest. A null that
    means "no limit" (clip_grad_norm, eval_samples, final_eval_samples, data.path, data.cache_dir) stays.
    Raises ConfigError when processes is no multiple of tp x pp, or not tp x pp x dp.
    """
    per_replica = config.tp * config.pp
    dp, left = divmod(processes, per_replica)
    if left or dp == 0 or config.dp not in (None, dp):
        layout = f"tp={config.tp} x pp={config.pp}" + (f" x dp={config.dp}" if config.dp is not None else "")
        wrong = f"cannot be laid out as {layout}"
        start = per_replica * (config.dp or max(dp, 1))
        raise ConfigError(Problem(f"{processes} processes", wrong, f"start {start}, or change tp or dp"))
    model, tokenizer, optim = config.model, config.tokenizer, config.optim
    ffn = 4 * model.hidden_size if model.ffn_hidden_size is None else model.ffn_hidden_size
    rows = model.vocab_size if model.padded_vocab_size is None else model.padded_vocab_size
    pieces = tokenizer.vocab_size
    if tokenizer.kind == "sentencepiece" and tokenizer.path is None and pieces is None:
        pieces = model.vocab_size
    profile_steps = config.profile_steps
    if config.profile and profile_steps is None:
        profile_steps = default_steps(config.train.steps)
    decay_steps = config.train.steps if optim.decay_steps is None else optim.decay_steps
    return replace(
        config,
        model=replace(model, ffn_hidden_size=ffn, padded_vocab_size=rows),
        tokenizer=replace(tokenizer, vocab_size=pieces),
        optim=replace(optim, decay_steps=decay_steps),
        precision=replace(config.precision, name=precision),
        launch=replace(config.launch, device=device, threads=threads),
        dp=dp,
        profile_steps=profile_steps,
        run_dir=str(run_dir),
    )
