"""Texts for lm_eval's generate_until, from the engine that mlm-generate uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from mlm.eval.load import Loaded
from mlm.generate.continuation import Continuation
from mlm.generate.engine import Engine, Limits, Text
from mlm.generate.sampling import Sampling
from mlm.harness.messages import Generate
from mlm.parallel.mesh import Mesh

LEAST_ROWS = 8
"""Texts in the making at once, also where batch_tokens is less: eight tokens cost little more than one."""


def generate(
    request: Generate,
    loaded: Loaded,
    mesh: Mesh,
    device: torch.device,
    *,
    batch_tokens: int,
    autocast: Callable[[], AbstractContextManager[object]],
    report: Callable[[int, int], None] | None = None,
) -> dict[int, str]:
    """{number: text} of this replica's share of the prompts; equal on its tp ranks, collective over them.

    A text depends neither on tp nor on the other prompts, and at a temperature on its number and the seed.
    report(done, total): called after each text, with texts of the whole job as far as this rank can tell.
    """
    drawing, tokenizer, total = request.drawing, loaded.tokenizer, len(request.prompts)
    engine = Engine(
        model=loaded.model,
        seq_length=loaded.config.seq_length,
        vocab_size=min(loaded.config.vocab_size, tokenizer.vocab_size),
        tp=mesh.tp,
        device=device,
        rows=max(LEAST_ROWS, batch_tokens // loaded.config.seq_length),
        autocast=autocast,
    )
    sampling = Sampling(
        temperature=drawing.temperature, top_k=drawing.top_k, top_p=drawing.top_p, seed=request.seed
    )
    limits = Limits(new_tokens=drawing.max_tokens, eod=tokenizer.eod)
    share = request.prompts[mesh.dp.rank :: mesh.dp.size]
    heard = {p.number: Continuation(tokenizer, p.tokens.tolist(), drawing.until) for p in share}
    texts = [Text(p.tokens.tolist(), prompt=p.number, hear=heard[p.number]) for p in share]
    done: dict[int, str] = {}
    for text in engine.run(texts, sampling, limits):
        done[text.prompt] = heard[text.prompt].finish()
        if report is not None:
            report(min(total, len(done) * mesh.dp.size), total)
    return done
