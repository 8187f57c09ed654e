"""Text to token ids and back.

A tokenizer is described by a small dictionary (and, for some, a file), from which workers, checkpoints and
generation rebuild the same one; a fingerprint shows when it is not the same.

One policy for beginnings and ends: encode adds nothing, documents of a dataset end with eod, and no text of a
document's becomes a control token. `<|endoftext|>` or `[MASK]` in a text is encoded as the characters it is.
"""

from mlm.data.tokenizers.base import Tokenizer, code_points, cut_at_line_ends
from mlm.data.tokenizers.byte_bpe import (
    GPT2_FILES,
    GPT2_FOLDER,
    GPT2_VOCAB_SIZE,
    Gpt2Tokenizer,
    gpt2_fingerprint,
)
from mlm.data.tokenizers.huggingface import HuggingFaceTokenizer
from mlm.data.tokenizers.load import (
    FILE_OF_KIND,
    KINDS,
    SHIPPED,
    SPECS,
    keep_tokenizer,
    kept_files,
    load_tokenizer,
    parse_tokenizer,
)
from mlm.data.tokenizers.plain import BYTE_VOCAB_SIZE, ByteTokenizer, CharTokenizer
from mlm.data.tokenizers.sentencepiece_model import SentencePieceTokenizer
from mlm.data.tokenizers.wordpiece import BERT_VOCAB_SIZE, WordPieceTokenizer

__all__ = [
    "BERT_VOCAB_SIZE",
    "BYTE_VOCAB_SIZE",
    "FILE_OF_KIND",
    "GPT2_FILES",
    "GPT2_FOLDER",
    "GPT2_VOCAB_SIZE",
    "KINDS",
    "SHIPPED",
    "SPECS",
    "ByteTokenizer",
    "CharTokenizer",
    "Gpt2Tokenizer",
    "HuggingFaceTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "code_points",
    "cut_at_line_ends",
    "gpt2_fingerprint",
    "keep_tokenizer",
    "kept_files",
    "load_tokenizer",
    "parse_tokenizer",
]
