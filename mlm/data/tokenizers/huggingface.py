"""tokenizer.json, the file of Hugging Face's tokenizers, held to the rule that text stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers.base import (
    PIECE_CHARACTERS,
    Tokenizer,
    cut_at_line_ends,
    joined,
    joined_offsets,
    sha256,
)
from mlm.data.tokenizers.byte_bpe import byte_characters, visible_bytes
from mlm.data.tokenizers.names import NAMES, is_control, special_ids

NOT_PROVEN = "its steps are not known to keep every text (mlm-data tokenizer show counts on a text of yours)"


class HuggingFaceTokenizer(Tokenizer):
    """Any tokenizer.json, its model and text steps as they are, with three differences.

    Nothing is added at the ends of a text (post-processor), nothing is cut off or filled up (truncation,
    padding), and control tokens are given by no text: those that the file marks as special, added tokens
    written as one word in <> or [], and the usual names of NAMES. What they say is encoded like other text.
    Raises BadData when the file is missing or no tokenizer.
    """

    kind = "hf"

    def __init__(self, path: str | Path):
        from tokenizers import Regex, pre_tokenizers
        from tokenizers import Tokenizer as Pipeline

        self.path = Path(path)
        content = read_json(self.path)
        controls = _controls(content)
        for added in content["added_tokens"]:
            added["special"] = added["content"] in controls
        try:
            # This library's errors are plain Exceptions.
            self._pipeline = Pipeline.from_str(json.dumps(content))
        except Exception as error:
            raise BadData(str(path), f"is not accepted ({error})", NO_TOKENIZER_JSON) from None
        self._pipeline.no_truncation()
        self._pipeline.no_padding()
        self._pipeline.encode_special_tokens = True
        if cut := _cuts(content, controls):
            # The model itself has pieces that read like control tokens: no word may hold one whole.
            split = pre_tokenizers.Split(Regex(cut), "isolated")
            own = self._pipeline.pre_tokenizer
            self._pipeline.pre_tokenizer = split if own is None else pre_tokenizers.Sequence([own, split])

        self.vocab_size = vocabulary_size(content)
        id_of = {name: self._pipeline.token_to_id(name) for name in controls}
        self.special = special_ids(id_of.get)
        self.eod = self.special.get("eod")
        self._never = {number: name for name, number in id_of.items() if number is not None}
        self._never.pop(self.special.get("unk", -1), None)
        self._never_ids = np.asarray(sorted(self._never), dtype=np.int32)
        self.fingerprint = huggingface_fingerprint(self.path)
        self._cuts_at_line_ends = content.get("normalizer") is None and _is_gpt2s(content)
        self._added = {added["id"] for added in content["added_tokens"]}
        self._is_byte_level = _types(content.get("decoder")) == ["ByteLevel"]
        self.loss = "" if self._is_exact(content) else NOT_PROVEN
        self.lossless = not self.loss

    def encode(self, text: str) -> NDArray[np.int32]:
        """Raises BadData when a step of this file makes a control token of the text all the same."""
        return self._checked(joined(encoded.ids for _, encoded in self._encoded(text)))

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """As the base class; offsets are the library's. Raises BadData as encode."""
        ids, offsets = joined_offsets(
            (length, each.ids, each.offsets) for length, each in self._encoded(text)
        )
        return self._checked(ids), offsets

    def _encoded(self, text: str) -> Iterator[tuple[int, Any]]:
        """The length of each piece of a text and what the library makes of it."""
        for piece in cut_at_line_ends(text, PIECE_CHARACTERS) if self._cuts_at_line_ends else [text]:
            yield len(piece), self._pipeline.encode(piece, add_special_tokens=False)

    def _checked(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        found = np.flatnonzero(np.isin(ids, self._never_ids))
        if len(found):
            raise BadData(
                str(self.path),
                f"makes the control token {self._never[int(ids[found[0]])]} of text",
                "take that text out, or use another tokenizer",
            )
        return ids

    def _decode(self, ids: list[int]) -> str:
        return str(self._pipeline.decode(ids, skip_special_tokens=False))

    def piece(self, token: int) -> str:
        name = self._pipeline.id_to_token(token) or ""
        return visible_bytes(name) if self._is_byte_level and token not in self._added else name

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "path": str(self.path.absolute())}

    def _is_exact(self, content: dict[str, Any]) -> bool:
        """Whether it is a BPE that sees each byte of a text once and writes it back: GPT-2's way."""
        model, steps = content["model"], _steps(content.get("pre_tokenizer"))
        vocab = model.get("vocab")
        if model.get("type") != "BPE" or content.get("normalizer") is not None or not steps:
            return False
        *splits, last = steps
        plain = not any(
            model.get(name) for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
        )
        added = [a for a in content["added_tokens"] if not a["special"]]
        return (
            plain
            and last["type"] == "ByteLevel"
            and not last.get("add_prefix_space", True)
            and all(s["type"] in ("Split", "Digits") and s.get("behavior") != "Removed" for s in splits)
            and self._is_byte_level
            and all(character in vocab for character in byte_characters())
            and not any(a.get("lstrip") or a.get("rstrip") for a in added)
            and all(self._decode([a["id"]]) == a["content"] for a in added)
        )


NO_TOKENIZER_JSON = "give the tokenizer.json of Hugging Face's tokenizers"


def read_json(path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json. Raises BadData when it is none."""
    where = str(path)
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BadData(where, f"cannot be read ({error.strerror})", NO_TOKENIZER_JSON) from None
    except ValueError:
        raise BadData(where, "is no JSON", NO_TOKENIZER_JSON) from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise BadData(where, "holds no model", NO_TOKENIZER_JSON)
    content["added_tokens"] = content.get("added_tokens") or []
    return content


def vocabulary_size(content: dict[str, Any]) -> int:
    """One more than the greatest id, that of added tokens included: ids need not be without gaps."""
    vocab = content["model"].get("vocab") or {}
    own = max(vocab.values(), default=-1) if isinstance(vocab, dict) else len(vocab) - 1
    return 1 + max([own, *(added["id"] for added in content["added_tokens"])])


def huggingface_fingerprint(path: Path) -> str:
    """Fingerprint of the HuggingFaceTokenizer of a file, without loading it."""
    return sha256(b"hf", path.read_bytes())


def _controls(content: dict[str, Any]) -> set[str]:
    added = {a["content"] for a in content["added_tokens"] if a.get("special") or is_control(a["content"])}
    usual = {name for names in NAMES.values() for name in names}
    return added | (usual & _model_tokens(content))


def _model_tokens(content: dict[str, Any]) -> set[str]:
    vocab = content["model"].get("vocab") or {}
    return set(vocab) if isinstance(vocab, dict) else {token for token, _ in vocab}


def _cuts(content: dict[str, Any], controls: set[str]) -> str:
    """A pattern for the first character of each control token and byte piece that the model itself knows."""
    inside = sorted(name for name in controls & _model_tokens(content) if len(name) > 1)
    found = [f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in inside]
    if content["model"].get("byte_fallback"):
        found.append("<(?=0x[0-9A-Fa-f]{2}>)")
    return "|".join(found)


def _steps(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A step of the file, or the steps of a sequence of them."""
    if step is None:
        return []
    inner = step.get("pretokenizers") or step.get("decoders")
    return [step] if inner is None else [s for each in inner for s in _steps(each)]


def _types(step: dict[str, Any] | None) -> list[str]:
    return [each["type"] for each in _steps(step)]


def _is_gpt2s(content: dict[str, Any]) -> bool:
    """Whether words are cut by GPT-2's pattern, which never reaches from a non-space over a newline."""
    steps = _steps(content.get("pre_tokenizer"))
    return (
        [each["type"] for each in steps] == ["ByteLevel"]
        and steps[0].get("use_regex", True)
        and not steps[0].get("add_prefix_space", True)
    )
