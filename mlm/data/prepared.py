"""What preparation hands to the workers: where the tokens lie and what is known of them, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from mlm.data.samples import samples_per_epoch, validation_samples


@dataclass(frozen=True)
class PreparedData:
    """The data of a run. Dictionaries by split have the keys train, valid and test."""

    source: str
    """What is trained on, for people."""
    embedded: bool
    """Whether that is the text shipped with this package."""
    prefix: str
    """PREFIX of the .bin and .idx that hold the token stream, absolute."""
    tokenizer: dict[str, Any]
    """What tokenizers.load_tokenizer takes."""
    seq_length: int
    ranges: dict[str, tuple[int, int]]
    """[start, stop) of each split in the token stream; empty where the split is."""
    documents: dict[str, int]
    """Documents of each split."""
    fingerprint: str
    """sha256 of the token file and of where it is cut, whatever its place and name."""
    ln_vocab: float
    """ln(model.vocab_size), nats per token: the loss of a model that knows nothing."""
    characters: dict[str, int] | None = None
    """Characters of each split; None when only ids are known."""
    valid_characters_scored: int | None = None
    """Characters that validation tokens stand for, all but the first one, which nothing predicts."""
    entropies: dict[str, float] | None = None
    """Nats per character of the whole text: alphabet (ln of its size), unigram, bigram, trigram."""

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each split."""
        return {name: stop - start for name, (start, stop) in self.ranges.items()}

    @property
    def samples_per_epoch(self) -> int:
        """Training samples in one pass over the training split."""
        return samples_per_epoch(self.tokens["train"], self.seq_length)

    @property
    def valid_samples(self) -> int:
        """Samples of one whole validation; 0 when there is no validation split."""
        return validation_samples(self.tokens["valid"], self.seq_length)

    @property
    def valid_characters_per_token(self) -> float | None:
        """Characters per scored validation token: divides nats per token into nats per character."""
        if not self.valid_characters_scored:
            return None
        return self.valid_characters_scored / (self.tokens["valid"] - 1)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PreparedData:
        fields = json.loads(text)
        ranges = {name: (start, stop) for name, (start, stop) in fields.pop("ranges").items()}
        return cls(ranges=ranges, **fields)
