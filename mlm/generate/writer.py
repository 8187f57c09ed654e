"""Prompts to finished texts: tokenizer, engine and stop strings brought together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mlm.data.tokenizers import Tokenizer
from mlm.generate.continuation import Continuation
from mlm.generate.engine import Engine, Limits, Text
from mlm.generate.prompts import first_ids
from mlm.generate.sampling import Sampling


@dataclass(frozen=True)
class Written:
    """A finished text, without its prompt. prompt, sample: their numbers, from 0.

    new_tokens: all that were drawn, with those of a stop string or an end of document.
    """

    prompt: int
    sample: int
    text: str
    finish_reason: str
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class Writer:
    """Writes texts with an engine; the same on every tp rank."""

    engine: Engine
    tokenizer: Tokenizer
    sampling: Sampling
    limits: Limits
    stop: tuple[str, ...] = ()

    def write(
        self,
        prompts: Sequence[str],
        samples: int = 1,
        *,
        first: int = 0,
        tell: Callable[[str], None] | None = None,
    ) -> Iterator[Written]:
        """`samples` texts of each prompt, each as soon as it is finished; collective.

        first: number of the first prompt. tell: hears the pieces of the texts as they become certain. Raises
        BadData for a prompt that cannot be encoded, CheckpointError when the model's logits are no numbers.
        """
        texts, continuations = [], {}
        for number, prompt in enumerate(prompts, first):
            ids = first_ids(self.tokenizer, prompt)
            for sample in range(samples):
                hear = Continuation(self.tokenizer, ids, self.stop, tell or _nobody)
                continuations[number, sample] = hear
                texts.append(Text(list(ids), number, sample, hear))
        for text in self.engine.run(texts, self.sampling, self.limits):
            assert text.finish_reason is not None, "it has ended"
            yield Written(
                text.prompt,
                text.sample,
                continuations.pop((text.prompt, text.sample)).finish(),
                text.finish_reason,
                text.prompt_tokens,
                text.new_tokens,
            )


def _nobody(piece: str) -> None:
    return
