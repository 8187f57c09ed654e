"""The libraries that turn texts to ids for GPT-2's vocabulary, fastest first; every one gives the same ids.

gigatoken (optional), tiktoken, tokenizers. The first differs from the others for characters that its newer
Unicode tables know and theirs do not: texts with such characters go to tiktoken, and before it is used at
all, its ids are compared with tiktoken's around every other character.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.cache import cache_key, cache_root, cached
from mlm.data.tokenizers import GPT2_FILES, GPT2_FOLDER, Gpt2Tokenizer, Tokenizer, gpt2_fingerprint

Encode = Callable[[str], NDArray[Any]]
NAMES = ("gigatoken", "tiktoken", "tokenizers")
# GPT-2's own pattern, as tiktoken's own copy of it had it first.
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Letters of the BMP that Unicode 15 to 17 added: a Python that knows them does not mean that every library
# does. The other planes, of which only emoji are common, are left out altogether but for those.
NEWER = "\u088f\u0c5c\u0cdc\u1c89\u1c8a\ua7cb-\ua7cf\ua7d2\ua7d4\ua7da-\ua7dc\ua7f1"
EMOJI = ((0x1F300, 0x1F64F), (0x1F680, 0x1F6C5), (0x1F900, 0x1F9FF))


def unsafe_characters() -> re.Pattern[str]:
    """Finds a character that libraries of different Unicode versions may take for different kinds."""
    unassigned = [c for c in range(0x80, 0x10000) if unicodedata.category(chr(c)) == "Cn"]
    ranges: list[list[int]] = []
    previous = -2
    for code in unassigned:
        if code == previous + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
        previous = code
    start = 0x10000
    for first, last in EMOJI:
        ranges.append([start, first - 1])
        start = last + 1
    ranges.append([start, 0x10FFFF])
    return re.compile("[" + NEWER + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]")


def engine_names(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The engines that know a tokenizer and are installed, fastest first; the tokenizer's own comes last."""
    if not isinstance(tokenizer, Gpt2Tokenizer):
        return (tokenizer.kind,)
    shipped = tokenizer.folder == GPT2_FOLDER
    names = [name for name in NAMES[:-1] if shipped and _installed(name)]
    return (*names, NAMES[-1])


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def choose(tokenizer: Tokenizer, wanted: str | None = None) -> str:
    """The engine to use: the fastest whose ids are those of the others on this machine, or the one wanted.

    Raises BadData when the one wanted does not know the tokenizer, or is not installed.
    """
    names = engine_names(tokenizer)
    if wanted and wanted not in names:
        known = wanted in NAMES and isinstance(tokenizer, Gpt2Tokenizer)
        wrong = "is not installed" if known else f"does not encode for {tokenizer.name}"
        raise BadData(f"--engine={wanted}", wrong, f"use {' or '.join(names)}, or leave it out")
    usable = [name for name in names if name != "gigatoken" or _agrees_here()]
    if wanted and wanted not in usable:
        wrong = "does not give the ids of the other libraries here"
        raise BadData(f"--engine={wanted}", wrong, f"use {' or '.join(usable)}, or leave it out")
    return wanted or usable[0]


def build(name: str, tokenizer: Callable[[], Tokenizer]) -> Encode:
    """The function from a text to its ids (of any integer type). name: what choose returned.

    tokenizer: loads the tokenizer, for what the engine does not do itself.
    """
    if name == "gigatoken":
        return _gigatoken(tokenizer)
    if name == "tiktoken":
        return _tiktoken(tokenizer)
    return tokenizer().encode


def _tiktoken(tokenizer: Callable[[], Tokenizer]) -> Encode:
    encoding = tiktoken_encoding()
    careful: Encode | None = None

    def encode(text: str) -> NDArray[Any]:
        try:
            # Nothing is special here: what a text says stays text.
            return encoding.encode_to_numpy(text, disallowed_special=())
        except ValueError:
            # Its pattern gives up on hundreds of thousands of spaces in a row.
            nonlocal careful
            careful = careful or tokenizer().encode
            return careful(text)

    return encode


def tiktoken_encoding() -> Any:
    """tiktoken's encoding of the two shipped files; nothing is downloaded or cached, no token is special."""
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    vocab, merges = (str(GPT2_FOLDER / file) for file in GPT2_FILES)
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = ""  # else it keeps copies of local files in a temporary folder
    try:
        ranks = data_gym_to_mergeable_bpe_ranks(merges, vocab)
    finally:
        del os.environ["TIKTOKEN_CACHE_DIR"]
        if before is not None:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def _gigatoken(tokenizer: Callable[[], Tokenizer]) -> Encode:
    fast = gigatoken_encode()
    unsafe = unsafe_characters()
    careful: Encode | None = None

    def encode(text: str) -> NDArray[Any]:
        if text.isascii() or unsafe.search(text) is None:
            return fast(text)
        nonlocal careful
        if careful is None:
            careful = _tiktoken(tokenizer)
        return careful(text)

    return encode


def gigatoken_encode() -> Encode:
    """gigatoken's function for the two shipped files; no token is special."""
    from gigatoken.gigatoken_rs import load_hf_json

    vocab, merges = (GPT2_FOLDER / file for file in GPT2_FILES)
    pairs = [
        line for line in merges.read_text(encoding="utf-8").splitlines() if not line.startswith("#version")
    ]
    pipeline = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": json.loads(vocab.read_bytes()), "merges": pairs},
    }
    encode: Encode = load_hf_json(json.dumps(pipeline)).encode
    return encode


def _agrees_here() -> bool:
    """_agrees, asked once for each set of versions."""
    versions = {name: version(name) for name in ("gigatoken", "tiktoken", "mlm")}
    key = cache_key(engines=versions, unicode=unicodedata.unidata_version, files=gpt2_fingerprint())
    try:
        _, info = cached(cache_root(None), key, lambda _: {"agrees": _agrees()})
    except BadData:  # no cache here: ask each time
        return _agrees()
    return bool(info["agrees"])


def _agrees() -> bool:
    """Whether gigatoken gives tiktoken's ids around every character for which it would be used."""
    try:
        fast, exact, text = gigatoken_encode(), tiktoken_encoding(), probe()
        return bool(np.array_equal(fast(text), exact.encode_to_numpy(text, disallowed_special=())))
    except Exception:  # a version with another interface is one that is not used
        return False


def probe() -> str:
    """Every character that counts as safe, beside a letter, a number, a space and itself."""
    unsafe = unsafe_characters()
    planes = [(0, 0xD7FF), (0xE000, 0xFFFF), *EMOJI]
    characters = (chr(code) for first, last in planes for code in range(first, last + 1))
    return "".join(f"a{c}1 {c}{c}'s " for c in characters if not unsafe.match(c))
