"""The tokenizer that lies beside Hugging Face's weights, as one of ours."""

from __future__ import annotations

import json
from pathlib import Path

from mlm.convert.source import FoundTokenizer
from mlm.data.tokenizers import GPT2_FILES, GPT2_FOLDER, gpt2_fingerprint

TOKENIZER_JSON, VOCAB_TXT = "tokenizer.json", "vocab.txt"


def tokenizer_of(folder: Path, architecture: str) -> FoundTokenizer | None:
    """Of the files in a folder: GPT-2's pair, BERT's vocab.txt, else tokenizer.json; None without any.

    A pair with the bytes of the shipped one is the shipped one, so that its kind alone names it.
    """
    if architecture == "gpt2" and all((folder / name).is_file() for name in GPT2_FILES):
        same = gpt2_fingerprint(folder) == gpt2_fingerprint()
        return FoundTokenizer("gpt2", None if same else folder)
    if architecture == "gpt2" and _is_shipped(folder / TOKENIZER_JSON):
        return FoundTokenizer("gpt2", None)
    if architecture == "bert" and (folder / VOCAB_TXT).is_file():
        return FoundTokenizer("wordpiece", folder / VOCAB_TXT)
    if (folder / TOKENIZER_JSON).is_file():
        return FoundTokenizer("hf", folder / TOKENIZER_JSON)
    return None


def _is_shipped(path: Path) -> bool:
    """Whether a tokenizer.json holds GPT-2's own vocabulary and merges, and cuts words as GPT-2 does."""
    try:
        content = json.loads(path.read_bytes())
        model, before = content["model"], content["pre_tokenizer"]
        merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if before.get("type") != "ByteLevel" or before.get("add_prefix_space") or content.get("normalizer"):
        return False
    if any(added["content"] not in model["vocab"] for added in content.get("added_tokens") or []):
        return False
    shipped = (GPT2_FOLDER / GPT2_FILES[1]).read_text(encoding="utf-8").splitlines()
    vocab = json.loads((GPT2_FOLDER / GPT2_FILES[0]).read_bytes())
    return merges == [line for line in shipped if not line.startswith("#version")] and model["vocab"] == vocab
