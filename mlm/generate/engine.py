"""Texts continued token by token, several at a time: whole prompts first, then one token of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mlm.generate.sampling import Sampling, Stream, not_finite
from mlm.models.cache import KeyValueCache, LayerCache
from mlm.parallel.collectives import all_gathered
from mlm.parallel.cross_entropy import vocab_parallel_argmax
from mlm.parallel.mesh import Axis

PREFILL_TOKENS = 4096
"""Tokens, padding included, of one forward pass of prompts: bounds the memory that long prompts take."""


@dataclass
class Text:
    """A text in the making. ids: its prompt and the tokens after it, equal on all tp ranks.

    prompt, sample: the numbers that its random numbers belong to. hear: told each new token; True ends the
    text. finish_reason: why it ended, None before: eod (the end-of-document token came), stop (hear said so),
    length (it has all new tokens that it may have), context (the model sees no further).
    """

    ids: list[int]
    prompt: int = 0
    sample: int = 0
    hear: Callable[[int], bool] | None = None
    finish_reason: str | None = None
    prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.ids)

    @property
    def new_tokens(self) -> int:
        return len(self.ids) - self.prompt_tokens


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where texts end. eod: the token that ends a document, None: none does.

    slides: go on when seq_length tokens are full, the oldest half of them out of sight; otherwise end there.
    """

    new_tokens: int
    eod: int | None = None
    slides: bool = False


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A model to generate with, on one tp axis.

    vocab_size: tokens that exist; ids from there on are never drawn. rows: texts in the making at once.
    use_cache: false computes every token of every text anew for each further one; the same texts, slowly.
    """

    model: nn.Module
    seq_length: int
    vocab_size: int
    tp: Axis
    device: torch.device
    rows: int = 8
    use_cache: bool = True
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext

    def run(self, texts: Iterable[Text], sampling: Sampling, limits: Limits) -> Iterator[Text]:
        """Continue every text and yield each when it has ended; collective, in one order on all tp ranks.

        A text that has ended leaves its row to the next one that waits. Raises CheckpointError when the
        model's logits are no numbers.
        """
        was_training = self.model.training
        self.model.eval()
        try:
            yield from _Run(self, deque(texts), sampling, limits).texts()
        finally:
            self.model.train(was_training)


def first_in_sight(tokens: int, seq_length: int) -> int:
    """Number of the first of `tokens` tokens that the model sees when it predicts the next one.

    All are seen up to seq_length. Beyond, the window moves on by half of it each time it is full, because
    positions count from its beginning and all it holds has to be computed anew: of every seq_length / 2
    tokens one costs a pass over the window, the others one token each.
    """
    step = max(1, seq_length // 2)
    return -(-max(0, tokens - seq_length) // step) * step


@dataclass
class _Row:
    """A text at work. start: its first token in sight; held: tokens from there on that the cache holds."""

    text: Text
    stream: Stream
    start: int = 0
    held: int = 0

    @property
    def in_sight(self) -> list[int]:
        return self.text.ids[self.start :]


class _Run:
    def __init__(self, engine: Engine, waiting: deque[Text], sampling: Sampling, limits: Limits):
        self.engine, self.waiting, self.sampling, self.limits = engine, waiting, sampling, limits
        self.active: list[_Row] = []
        longest = max((len(text.ids) for text in waiting), default=0) + limits.new_tokens
        self.cache = KeyValueCache(
            layers=len(engine.model.layers),  # type: ignore[arg-type]
            rows=min(engine.rows, max(1, len(waiting))),
            capacity=min(engine.seq_length, longest),
        )

    def texts(self) -> Iterator[Text]:
        while self.waiting or self.active:
            while self.waiting and len(self.active) < self.engine.rows:
                text = self.waiting.popleft()
                stream = self.sampling.stream(text.prompt, text.sample, text.ids)
                self.active.append(_Row(text, stream))
            yield from self._advance()

    @torch.inference_mode()
    def _advance(self) -> list[Text]:
        """One more token for each text whose window begins anew, or where there is none, for every text.

        Returns those that have ended.
        """
        begun = []
        for number, row in enumerate(self.active):
            start = first_in_sight(len(row.text.ids), self.engine.seq_length)
            if row.held == 0 or row.start != start or not self.engine.use_cache:
                row.start = start
                begun.append(number)
        for group in self._alike(begun):
            self._draw([self.active[n] for n in group], self._begin(group))
        if not begun:
            self._draw(self.active, self._go_on())
        return self._ended()

    def _alike(self, numbers: list[int]) -> Iterator[list[int]]:
        """The rows by length, in groups of at most PREFILL_TOKENS after padding."""
        group: list[int] = []
        for number in sorted(numbers, key=lambda n: (len(self.active[n].in_sight), n)):
            if group and (len(group) + 1) * len(self.active[number].in_sight) > PREFILL_TOKENS:
                yield group
                group = []
            group.append(number)
        if group:
            yield group

    def _begin(self, numbers: list[int]) -> Tensor:
        """The logits after all that these rows have in sight, [rows, padded_vocab/tp]."""
        sights = [self.active[n].in_sight for n in numbers]
        longest = max(map(len, sights))
        ids = torch.tensor([sight + [0] * (longest - len(sight)) for sight in sights])  # [rows, longest]
        at = torch.tensor([place * longest + len(sight) - 1 for place, sight in enumerate(sights)])
        for number, sight in zip(numbers, sights, strict=True):
            self.active[number].held = len(sight)
        return self._logits(ids, at, None, self.cache.filled(numbers) if self.engine.use_cache else None)

    def _go_on(self) -> Tensor:
        """The logits after the newest token of every row, [rows, padded_vocab/tp]."""
        held = [row.held for row in self.active]
        ids = torch.tensor([[row.text.ids[-1]] for row in self.active])  # [rows, 1]
        for row in self.active:
            row.held += 1
        at = torch.arange(len(held))
        return self._logits(ids, at, torch.tensor(held)[:, None], self.cache.extended(held))

    def _logits(
        self, ids: Tensor, at: Tensor, positions: Tensor | None, caches: Sequence[LayerCache] | None
    ) -> Tensor:
        device, model = self.engine.device, self.engine.model
        if positions is not None:
            positions = positions.to(device)
        with self.engine.autocast():
            hidden = model.hidden_states(  # type: ignore[operator]
                ids.to(device), at=at.to(device), positions=positions, caches=caches
            )
            logits: Tensor = model.head(hidden)  # type: ignore[operator]
        return logits

    def _draw(self, rows: Sequence[_Row], logits: Tensor) -> None:
        """Give each row its next token; logits [rows, padded_vocab/tp]."""
        for row, token in zip(rows, self._chosen(rows, logits), strict=True):
            row.text.ids.append(token)
            row.text.finish_reason = self._reason(row.text, token)

    def _chosen(self, rows: Sequence[_Row], logits: Tensor) -> list[int]:
        """Equal on all tp ranks, which compute the same from the same gathered numbers."""
        tp, vocab_size = self.engine.tp, self.engine.vocab_size
        if self.sampling.is_greedy:
            if torch.isnan(logits).any():
                raise not_finite()
            return vocab_parallel_argmax(logits, tp, vocab_size).tolist()
        whole = all_gathered(logits, tp, dim=1)[:, :vocab_size].double().cpu().numpy()  # [rows, vocab]
        return [
            self.sampling.choose(own, row.stream, row.text.new_tokens)
            for own, row in zip(whole, rows, strict=True)
        ]

    def _reason(self, text: Text, token: int) -> str | None:
        if token == self.limits.eod:
            return "eod"
        if text.hear is not None and text.hear(token):
            return "stop"
        if text.new_tokens >= self.limits.new_tokens:
            return "length"
        if len(text.ids) > self.engine.seq_length and not self.limits.slides:
            return "context"
        return None

    def _ended(self) -> list[Text]:
        """Take out the texts that have ended; the last rows fill their places."""
        ended = [row.text for row in self.active if row.text.finish_reason is not None]
        for number in reversed(range(len(self.active))):
            if self.active[number].text.finish_reason is None:
                continue
            last = self.active.pop()
            if number < len(self.active):
                self.active[number] = last
                if self.engine.use_cache:
                    self.cache.move(len(self.active), number, last.held)
        return ended
