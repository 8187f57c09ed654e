"""What preparation hands to the workers: where the tokens lie and what is known of them, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mlm.data.blend import Blend
from mlm.data.samples import samples_per_epoch, validation_samples
from mlm.data.split import NAMES, Part


@dataclass(frozen=True)
class PreparedDataset:
    """One token dataset of a run. Dictionaries by split have the keys train, valid and test."""

    name: str
    """What it is called in tables and metrics; no two datasets of a run share one."""
    prefix: str
    """PREFIX of the .bin and .idx that hold the token stream, absolute."""
    ranges: dict[str, tuple[int, int]]
    """[start, stop) of each split in the token stream; empty where the split is."""
    documents: dict[str, int]
    """Documents of each split."""
    first_documents: dict[str, int | None]
    """Number of the first of them; None where a split is not whole documents."""
    weight: float = 1.0
    """Its share of the training samples: the weights of a run sum to 1."""
    chunks: dict[str, dict[str, int]] | None = None
    """For masked_lm, what came of the sentences of train and valid (masked_lm.chunks.ChunkCounts)."""
    samples: dict[str, int] | None = None
    """For fine-tuning, whose samples are no stretches of text: how many each split has."""
    chunk_folder: str | None = None
    """Where train.npy and valid.npy of masked_lm lie, absolute."""

    @classmethod
    def of_parts(cls, name: str, prefix: str, parts: Sequence[Part], weight: float = 1.0) -> PreparedDataset:
        return cls(
            name=name,
            prefix=prefix,
            ranges={part.name: (part.start, part.stop) for part in parts},
            documents={part.name: part.documents for part in parts},
            first_documents={part.name: part.first_document for part in parts},
            weight=weight,
        )

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each split."""
        return {name: stop - start for name, (start, stop) in self.ranges.items()}

    def samples_per_epoch(self, seq_length: int) -> int:
        """Training samples in one pass over the training split."""
        if self.samples is not None:
            return self.samples["train"]
        if self.chunks is not None:
            return self.chunks["train"]["chunks"]
        return samples_per_epoch(self.tokens["train"], seq_length)

    def valid_samples(self, seq_length: int) -> int:
        """Samples of one whole validation; 0 when there is no validation split."""
        if self.samples is not None:
            return self.samples["valid"]
        if self.chunks is not None:
            return self.chunks["valid"]["chunks"]
        return validation_samples(self.tokens["valid"], seq_length)


@dataclass(frozen=True)
class PreparedData:
    """The data of a run: one dataset, or several that are blended."""

    source: str
    """What is trained on, for people."""
    embedded: bool
    """Whether that is the text shipped with this package."""
    datasets: tuple[PreparedDataset, ...]
    """At least one; in the order of data.blend."""
    tokenizer: dict[str, Any]
    """What tokenizers.load_tokenizer takes."""
    seq_length: int
    fingerprint: str
    """sha256 of the token files, where they are cut and their weights, whatever their place and name."""
    ln_vocab: float
    """ln(model.vocab_size), nats per token: the loss of a model that knows nothing."""
    characters: dict[str, int] | None = None
    """Characters of each split; None when only ids are known."""
    valid_characters_scored: int | None = None
    """Characters that validation tokens stand for, all but the first one, which nothing predicts."""
    entropies: dict[str, float] | None = None
    """Nats per character of the whole text: alphabet (ln of its size), unigram, bigram, trigram."""

    @property
    def prefix(self) -> str:
        """PREFIX of the first dataset, which is the only one unless data.blend names more."""
        return self.datasets[0].prefix

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """[start, stop) of each split of the first dataset."""
        return self.datasets[0].ranges

    @property
    def documents(self) -> dict[str, int]:
        """Documents of each split, over all datasets."""
        return {name: sum(dataset.documents[name] for dataset in self.datasets) for name in NAMES}

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each split, over all datasets."""
        return {name: sum(dataset.tokens[name] for dataset in self.datasets) for name in NAMES}

    @property
    def samples_per_epoch(self) -> int:
        """Training samples in one pass over the training splits."""
        return sum(dataset.samples_per_epoch(self.seq_length) for dataset in self.datasets)

    @property
    def valid_samples(self) -> int:
        """Samples of one whole validation; 0 when there is no validation split."""
        return sum(dataset.valid_samples(self.seq_length) for dataset in self.datasets)

    @property
    def valid_characters_per_token(self) -> float | None:
        """Characters per scored validation token: divides nats per token into nats per character."""
        if not self.valid_characters_scored:
            return None
        return self.valid_characters_scored / (self.tokens["valid"] - 1)

    @property
    def blend(self) -> Blend:
        """Which dataset each training sample comes from."""
        return Blend([dataset.weight for dataset in self.datasets])

    def consumed(self, samples: int) -> list[int]:
        """How many of the first `samples` training samples each dataset gives."""
        return self.blend.counts(samples)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PreparedData:
        fields = json.loads(text)
        datasets = []
        for dataset in fields.pop("datasets"):
            ranges = {name: (start, stop) for name, (start, stop) in dataset.pop("ranges").items()}
            datasets.append(PreparedDataset(ranges=ranges, **dataset))
        return cls(datasets=tuple(datasets), **fields)
