"""What it is trained on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class TokenizerConfig:
    """How text becomes token ids."""

    kind: str
    """gpt2, sentencepiece, char, byte, wordpiece or hf."""
    path: str | None = None
    """SentencePiece's .model, a folder of vocab.json and merges.txt (gpt2), a vocab.txt (wordpiece) or a
    tokenizer.json (hf); null: the shipped files of GPT-2 or BERT (uncased), or a SentencePiece model trained
    at first use, cached."""
    vocab_size: int | None = None
    """Pieces to train; null: model.vocab_size. Only for kind=sentencepiece without a path."""


@dataclass(kw_only=True)
class BlendPart:
    """One dataset of a blend."""

    weight: float
    """Its share of the samples, relative to the other weights; 0: none."""
    path: str
    """PREFIX of PREFIX.bin and PREFIX.idx."""


@dataclass(kw_only=True)
class DataConfig:
    """The training text."""

    name: str
    """Shown in the start-up table."""
    path: str | None = None
    """PREFIX of PREFIX.bin and PREFIX.idx, or a .txt file; null: the embedded text (tinyshakespeare)."""
    blend: list[BlendPart] | None = None
    """Several datasets in place of one path, each with the weight that decides its share of the samples."""
    split: list[float]
    """Relative sizes of train, validation and test, in text order (969,30,1 is common)."""
    shuffle_documents: bool = True
    """Pack the documents of a .bin/.idx dataset in a new order in every epoch; false: in the file's order."""
    reset_positions: bool = False
    """Count positions from 0 again where a document of a packed sample begins."""
    reset_attention: bool = False
    """Let no token of a packed sample attend to a document before its own."""
    cache_dir: str | None = None
    """Where trained tokenizers and encoded text are kept; null: $MLM_CACHE or ~/.cache/mlm."""
