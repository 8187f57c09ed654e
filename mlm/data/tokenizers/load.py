"""From a description, a kind and its file, or what a user typed, to the tokenizer."""

from __future__ import annotations

import shutil
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mlm.data.bad_data import BadData
from mlm.data.tokenizers.base import Tokenizer
from mlm.data.tokenizers.byte_bpe import GPT2_FILES, Gpt2Tokenizer
from mlm.data.tokenizers.huggingface import HuggingFaceTokenizer
from mlm.data.tokenizers.plain import ByteTokenizer, CharTokenizer
from mlm.data.tokenizers.sentencepiece_model import SentencePieceTokenizer
from mlm.data.tokenizers.wordpiece import WordPieceTokenizer

KINDS = ("gpt2", "sentencepiece", "char", "byte", "wordpiece", "hf")
SPECS = (
    "gpt2",
    "wordpiece",
    "byte",
    "sentencepiece:FILE.model",
    "wordpiece:vocab.txt",
    "hf:tokenizer.json",
    "gpt2:DIR",
)
"""What parse_tokenizer takes. char is not among them: its alphabet is that of one text."""
FILE_OF_KIND = {
    "gpt2": "the folder of a vocab.json and a merges.txt",
    "sentencepiece": "a SentencePiece .model file",
    "wordpiece": "BERT's vocab.txt",
    "hf": "a tokenizer.json",
}
SHIPPED = ("gpt2", "wordpiece")
"""Kinds of FILE_OF_KIND whose usual file comes with mlm."""
# What a file is called in a run's folder.
_KEPT = {"sentencepiece": "tokenizer.model", "wordpiece": "vocab.txt", "hf": "tokenizer.json"}


def from_file(kind: str, path: Path) -> Tokenizer:
    """The tokenizer of a kind of FILE_OF_KIND and its file. Raises BadData when the file does not fit."""
    match kind:
        case "gpt2":
            return Gpt2Tokenizer(path)
        case "sentencepiece":
            return SentencePieceTokenizer(path)
        case "wordpiece":
            return WordPieceTokenizer(path)
        case "hf":
            return HuggingFaceTokenizer(path)
    raise AssertionError(f"a {kind} tokenizer has no file")


def load_tokenizer(description: dict[str, Any], folder: Path | None = None) -> Tokenizer:
    """The tokenizer that describe() described; a relative path in it is taken from `folder`.

    Raises BadData when its file is missing or is not the one described.
    """
    tokenizer: Tokenizer
    match description["kind"]:
        case kind if kind not in KINDS:
            raise BadData(f"tokenizer kind {kind!r}", "is not known", f"known are {', '.join(KINDS)}")
        case "char":
            tokenizer = CharTokenizer(description["alphabet"])
        case "byte":
            tokenizer = ByteTokenizer()
        case "gpt2" if "path" not in description:
            tokenizer = Gpt2Tokenizer()
        case "wordpiece" if "path" not in description:
            tokenizer = WordPieceTokenizer()
        case kind:
            tokenizer = from_file(kind, (folder or Path()) / description["path"])
    if tokenizer.fingerprint != description["fingerprint"]:
        raise BadData(
            f"the tokenizer {description.get('path', tokenizer.kind)}",
            "has changed since the data was encoded with it",
            "bring the former file back, or prepare the data again",
        )
    return tokenizer


def keep_tokenizer(description: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Copy the files of a description, if any, into `folder`; the description with its path relative to it.

    For a run and its checkpoints, which have to outlive the cache and the places files came from.
    """
    if "path" not in description:
        return description
    source = Path(description["path"])
    if description["kind"] == "gpt2":
        (folder / "tokenizer").mkdir(exist_ok=True)
        for file in GPT2_FILES:
            shutil.copyfile(source / file, folder / "tokenizer" / file)
        return {**description, "path": "tokenizer"}
    name = _KEPT[description["kind"]]
    shutil.copyfile(source, folder / name)
    return {**description, "path": name}


def kept_files(description: dict[str, Any]) -> list[str]:
    """What keep_tokenizer has put into the folder for it, relative to the folder."""
    if "path" not in description:
        return []
    if description["kind"] == "gpt2":
        return [f"{description['path']}/{file}" for file in GPT2_FILES]
    return [description["path"]]


def parse_tokenizer(spec: str, option: str = "--tokenizer") -> Tokenizer:
    """The tokenizer that a command line names, as one of SPECS, or by its file alone where that is enough.

    option: what to call it in an error. Raises BadData.
    """
    kind, _, rest = spec.partition(":")
    if spec == "gpt2":
        return Gpt2Tokenizer()
    if spec == "wordpiece":
        return WordPieceTokenizer()
    if spec == "byte":
        return ByteTokenizer()
    where = f"{option}={spec}" if option else spec
    if spec == "char":
        raise BadData(where, "takes its alphabet from a text, and there is none to take it from", "use byte")
    if kind in FILE_OF_KIND:
        if not rest:
            raise BadData(where, f"needs {FILE_OF_KIND[kind]}", f"type {_spec_of(kind)}")
        return from_file(kind, Path(rest).expanduser())
    path = Path(spec).expanduser()
    if path.exists() and (found := _kind_of_file(path)):
        return from_file(found, path)
    near = get_close_matches(kind, [each.partition(":")[0] for each in SPECS], n=1, cutoff=0.5)
    remedy = f"did you mean {_spec_of(near[0])}?" if near else f"use {', '.join(SPECS[:-1])} or {SPECS[-1]}"
    raise BadData(where, "is no tokenizer that is known", remedy)


def _spec_of(kind: str) -> str:
    return next(spec for spec in reversed(SPECS) if spec.partition(":")[0] == kind)


def _kind_of_file(path: Path) -> str | None:
    if path.is_dir():
        return "gpt2" if all((path / file).is_file() for file in GPT2_FILES) else None
    return {".model": "sentencepiece", ".json": "hf", ".txt": "wordpiece"}.get(path.suffix)
