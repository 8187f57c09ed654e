"""The samples of BERT's pre-training: sentence pairs with masked words, a pure function of their number."""

from mlm.data.masked_lm.masking import Masking, MaskingRule
from mlm.data.masked_lm.reading import (
    MaskedValidationSet,
    masked_samples,
    masked_validation_sets,
    masking_of,
)
from mlm.data.masked_lm.samples import MaskedBatch, MaskedSamples, MaskedValidation

__all__ = [
    "MaskedBatch",
    "MaskedSamples",
    "MaskedValidation",
    "MaskedValidationSet",
    "Masking",
    "MaskingRule",
    "masked_samples",
    "masked_validation_sets",
    "masking_of",
]
