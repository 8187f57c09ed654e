"""The tokenizer that lies beside Hugging Face's weights: theirs as one of ours, and ours in their files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mlm.convert.source import FoundTokenizer
from mlm.data.tokenizers import (
    GPT2_FILES,
    GPT2_FOLDER,
    Gpt2Tokenizer,
    HuggingFaceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    gpt2_fingerprint,
)
from mlm.files import write_whole

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


def write_tokenizer(tokenizer: Tokenizer, folder: Path, longest: int) -> str:
    """Write the files by which AutoTokenizer finds it. Returns what is lacking, for people, or nothing.

    longest: tokens that the model takes.
    """
    about: dict[str, object] = {"model_max_length": longest}
    if isinstance(tokenizer, Gpt2Tokenizer):
        for name in GPT2_FILES:
            shutil.copyfile(tokenizer.folder / name, folder / name)
        about |= {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
        if tokenizer.eod is not None:
            end = tokenizer.piece(tokenizer.eod)
            about |= {"bos_token": end, "eos_token": end, "unk_token": end}
    elif isinstance(tokenizer, WordPieceTokenizer):
        shutil.copyfile(tokenizer.path, folder / VOCAB_TXT)
        about |= {"tokenizer_class": "BertTokenizer", "do_lower_case": tokenizer.lowercase}
        about |= {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    elif isinstance(tokenizer, HuggingFaceTokenizer):
        shutil.copyfile(tokenizer.path, folder / TOKENIZER_JSON)
        about |= {"tokenizer_class": "PreTrainedTokenizerFast"}
        names = (("eos", "eod"), *((n, n) for n in ("bos", "unk", "sep", "pad", "cls", "mask")))
        about |= {
            f"{theirs}_token": tokenizer.piece(tokenizer.special[ours])
            for theirs, ours in names
            if ours in tokenizer.special
        }
    else:
        return f"without a tokenizer: there is no class for {tokenizer.kind} tokenizers there"
    write_whole(folder / "tokenizer_config.json", json.dumps(about, indent=2) + "\n")
    return ""


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
