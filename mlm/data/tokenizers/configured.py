"""The tokenizer of a training configuration: its size before it is loaded, its key in the cache, itself."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlm.config.schema import TokenizerConfig
from mlm.data.cache import sha256_file
from mlm.data.sentencepiece_training import OPTIONS
from mlm.data.tokenizers.base import Tokenizer
from mlm.data.tokenizers.byte_bpe import GPT2_FOLDER, GPT2_VOCAB_SIZE, Gpt2Tokenizer, gpt2_fingerprint
from mlm.data.tokenizers.byte_bpe import read_vocabulary as read_gpt2
from mlm.data.tokenizers.huggingface import huggingface_fingerprint, read_json, vocabulary_size
from mlm.data.tokenizers.load import from_file
from mlm.data.tokenizers.plain import BYTE_VOCAB_SIZE, ByteTokenizer, CharTokenizer
from mlm.data.tokenizers.wordpiece import (
    BERT_VOCAB,
    BERT_VOCAB_SIZE,
    WordPieceTokenizer,
    read_tokens,
    wordpiece_fingerprint,
)

TRAINED_MODEL = "tokenizer.model"
"""File name of the SentencePiece model that is trained when kind=sentencepiece has no path."""


def vocab_size_of(config: TokenizerConfig) -> int | None:
    """Tokens of the configured tokenizer, read without its library; None where only loading tells.

    Raises BadData when its file is not what it has to be.
    """
    path = model_path(config)
    match config.kind:
        case "byte":
            return BYTE_VOCAB_SIZE
        case "gpt2" if path is None:
            return GPT2_VOCAB_SIZE
        case "gpt2" if path is not None:
            return 1 + max(read_gpt2(path).values())
        case "wordpiece" if path is None:
            return BERT_VOCAB_SIZE
        case "wordpiece" if path is not None:
            return len(read_tokens(path))
        case "hf" if path is not None:
            return vocabulary_size(read_json(path))
    return None


def recipe(config: TokenizerConfig, pieces: int) -> dict[str, Any]:
    """What decides the ids of a text, without loading the tokenizer; part of the cache's key.

    pieces: how many are trained where kind=sentencepiece has no path.
    """
    path, kind = model_path(config), config.kind
    match kind:
        case "gpt2":
            files = gpt2_fingerprint(path or GPT2_FOLDER)
            return {"kind": kind, "files": files, "library": version("tokenizers")}
        case "sentencepiece" if path is None:
            library = version("sentencepiece")
            return {"kind": kind, "pieces": pieces, "options": OPTIONS, "library": library}
        case "sentencepiece" if path is not None:
            return {"kind": kind, "model": sha256_file(path), "library": version("sentencepiece")}
        case "wordpiece":
            file = wordpiece_fingerprint(path or BERT_VOCAB)
            return {"kind": kind, "file": file, "library": version("tokenizers")}
        case "hf" if path is not None:
            return {"kind": kind, "file": huggingface_fingerprint(path), "library": version("tokenizers")}
    return {"kind": kind}


def build(config: TokenizerConfig, text: str, folder: Path) -> Tokenizer:
    """The tokenizer itself. text: char's alphabet is its characters; folder: where a trained model lies."""
    path = model_path(config)
    match config.kind:
        case "char":
            return CharTokenizer.of_text(text)
        case "byte":
            return ByteTokenizer()
        case "gpt2" if path is None:
            return Gpt2Tokenizer()
        case "wordpiece" if path is None:
            return WordPieceTokenizer()
    return from_file(config.kind, path or folder / TRAINED_MODEL)


def model_path(config: TokenizerConfig) -> Path | None:
    """tokenizer.path, absolute."""
    return None if config.path is None else Path(config.path).expanduser().absolute()
