"""From prepared data to the samples that a worker reads: one dataset or a blend."""

from __future__ import annotations

from dataclasses import dataclass

from mlm.data.indexed import IndexedDataset
from mlm.data.masked_lm.masking import Masking, MaskingRule
from mlm.data.masked_lm.prepare import chunks_of
from mlm.data.masked_lm.samples import BlendedMasked, ChunkSamples, MaskedSamples, MaskedValidation
from mlm.data.masked_lm.vocabulary import Vocabulary
from mlm.data.prepared import PreparedData, PreparedDataset
from mlm.data.reading import of_all
from mlm.data.tokenizers import load_tokenizer


@dataclass(frozen=True)
class MaskedValidationSet:
    """The validation split of one dataset. weight: its part of the mean loss; those of a run sum to 1."""

    name: str
    weight: float
    samples: MaskedValidation


def masked_samples(data: PreparedData, rule: MaskingRule, seed: int) -> MaskedSamples:
    """The training samples of a run. Raises BadData when the tokenizer has no control tokens for them."""
    masking = masking_of(data, rule)

    def of_one(dataset: PreparedDataset, own_seed: int) -> MaskedSamples:
        chunks = chunks_of(dataset, "train")
        return ChunkSamples(IndexedDataset(dataset.prefix), chunks, masking, own_seed)

    return of_all(data, seed, of_one, BlendedMasked)


def masked_validation_sets(data: PreparedData, rule: MaskingRule) -> list[MaskedValidationSet]:
    """The validation splits that there are, in the order of the datasets."""
    used = [dataset for dataset in data.datasets if dataset.weight and dataset.valid_samples(data.seq_length)]
    masking, weights = masking_of(data, rule), sum(dataset.weight for dataset in used)
    return [
        MaskedValidationSet(
            dataset.name,
            dataset.weight / weights,
            MaskedValidation(IndexedDataset(dataset.prefix), chunks_of(dataset, "valid"), masking),
        )
        for dataset in used
    ]


def masking_of(data: PreparedData, rule: MaskingRule) -> Masking:
    """How the run's tokenizer and configuration mask a sample."""
    return Masking(Vocabulary.of(load_tokenizer(data.tokenizer)), rule, data.seq_length)
