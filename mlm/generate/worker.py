"""One worker process of mlm-generate: `python -m mlm.generate.worker FOLDER/config.yaml`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mlm.config.schema import GenerateConfig
from mlm.config.store import load_config
from mlm.failures import LAUNCHER_PID
from mlm.generate.prompts import Prompt
from mlm.launch.generation import PROMPTS
from mlm.launch.worker import leave, listen, place_of, work

if TYPE_CHECKING:
    from mlm.generate.writer import Writer


def main(config_path: str | Path) -> int:
    """Generate as the resolved configuration says; returns the process's exit code, 0 or 1."""
    listen(orderly=False)
    folder = Path(config_path).parent
    config = load_config(config_path, GenerateConfig)
    code = work(lambda: _watched(config, folder), folder, "mlm-generate")
    if code == 0 and LAUNCHER_PID not in os.environ and int(os.environ.get("RANK", 0)) == 0:
        # Our own launcher does that itself.
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _watched(config: GenerateConfig, folder: Path) -> None:
    from mlm.train.watchdog import Watchdog, watch

    with Watchdog(folder, config.launch.timeout_s, nccl=config.launch.device == "cuda"):
        watch("generation")
        _generate(config, folder)


def _generate(config: GenerateConfig, folder: Path) -> None:
    from mlm.eval.load import load_for_evaluation
    from mlm.eval.locate import resolve_checkpoint
    from mlm.generate.engine import Engine, Limits
    from mlm.generate.output import note
    from mlm.generate.sampling import Sampling
    from mlm.generate.writer import Writer
    from mlm.parallel.device import autocast_for, device_name

    assert config.checkpoint is not None
    place = place_of(config)
    loaded = load_for_evaluation(resolve_checkpoint(config.checkpoint), mesh=place.mesh, device=place.device)
    if place.mesh.rank == 0:
        note(
            f"{loaded.config.name}, step {loaded.description['step']}, {loaded.tokenizer.name}, context "
            f"{loaded.config.seq_length:,}; tp={config.tp} on {device_name(place.device)}, "
            f"{config.precision.name}"
        )
    engine = Engine(
        model=loaded.model,
        seq_length=loaded.config.seq_length,
        vocab_size=min(loaded.config.vocab_size, loaded.tokenizer.vocab_size),
        tp=place.mesh.tp,
        device=place.device,
        rows=config.batch_size,
        use_cache=config.cache,
        autocast=autocast_for(config.precision.name, place.device),
    )
    sampling = Sampling(
        temperature=config.temperature, top_k=config.top_k, top_p=config.top_p, seed=config.seed
    )
    limits = Limits(new_tokens=config.max_new_tokens, eod=loaded.tokenizer.eod, slides=config.slide)
    writer = Writer(engine, loaded.tokenizer, sampling, limits, stop=tuple(config.stop))
    if config.interactive:
        from mlm.generate.terminal import converse

        converse(writer, place.mesh.tp, echo=config.echo)
    else:
        prompts = [Prompt(**prompt) for prompt in json.loads((folder / PROMPTS).read_text("utf-8"))]
        _write_all(config, writer, prompts, is_first=place.mesh.rank == 0)


def _write_all(config: GenerateConfig, writer: Writer, prompts: list[Prompt], *, is_first: bool) -> None:
    from mlm.generate.output import Output, note, opened

    began = time.perf_counter()
    texts = [prompt.text for prompt in prompts]
    with opened(None if config.out is None or not is_first else Path(config.out)) as file:
        output = Output(
            file,
            texts,
            config.samples,
            as_json=config.out is not None or config.prompts is not None,
            echo=config.echo,
            enabled=is_first,
        )
        # Texts of several prompts come at the same time: only one by itself can be shown as it grows.
        tell = output.piece if len(texts) * config.samples == 1 else None
        for written in writer.write(texts, config.samples, tell=tell):
            output.text(written)
    if is_first:
        seconds = time.perf_counter() - began
        tokens = output.tokens
        where = "" if config.out is None else f"; {config.out}"
        speed = f"{tokens:,} tokens in {seconds:,.1f} s, {tokens / seconds:,.0f} tokens/s"
        note(f"{output.summary()}; {speed}{where}")


if __name__ == "__main__":
    leave(main(sys.argv[1]))
