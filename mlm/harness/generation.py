"""Texts for lm_eval's generate_until, from the engine that mlm-generate uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from mlm.data.tokenizers import Tokenizer
from mlm.eval.load import Loaded
from mlm.generate.engine import Engine, Limits, Text
from mlm.generate.sampling import Sampling
from mlm.harness.messages import Drawing, Generate, Prompt
from mlm.harness.requests import cut
from mlm.parallel.mesh import Mesh

LEAST_ROWS = 8
"""Texts in the making at once, also where batch_tokens is less: eight tokens cost little more than one."""
_SPARE_TOKENS = 8
"""Read before the place where a stop string could begin: the first of them may lack a space or a byte."""


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
    drawing, total = request.drawing, len(request.prompts)
    engine = Engine(
        model=loaded.model,
        seq_length=loaded.config.seq_length,
        vocab_size=loaded.config.vocab_size,
        tp=mesh.tp,
        device=device,
        rows=max(LEAST_ROWS, batch_tokens // loaded.config.seq_length),
        autocast=autocast,
    )
    sampling = Sampling(
        temperature=drawing.temperature, top_k=drawing.top_k, top_p=drawing.top_p, seed=request.seed
    )
    limits = Limits(new_tokens=drawing.max_tokens, eod=loaded.tokenizer.eod)
    share = request.prompts[mesh.dp.rank :: mesh.dp.size]
    texts: dict[int, str] = {}
    for text in engine.run([_text(prompt, drawing, loaded.tokenizer) for prompt in share], sampling, limits):
        texts[text.prompt] = cut(loaded.tokenizer.decode(text.ids[text.prompt_tokens :]), drawing.until)
        if report is not None:
            report(min(total, len(texts) * mesh.dp.size), total)
    return texts


def _text(prompt: Prompt, drawing: Drawing, tokenizer: Tokenizer) -> Text:
    text = Text(prompt.tokens.tolist(), prompt=prompt.number)
    if drawing.until:
        text.hear = lambda token: _ends(text, drawing.until, tokenizer)
    return text


def _ends(text: Text, until: Sequence[str], tokenizer: Tokenizer) -> bool:
    """Whether the newest token has completed one of the strings."""
    # A string of n bytes has at most n tokens, and only its last one is new.
    tail = max(len(stop.encode()) for stop in until) + _SPARE_TOKENS
    end = tokenizer.decode(text.ids[max(text.prompt_tokens, len(text.ids) - tail) :])
    return any(stop in end for stop in until)
