"""What can be said against token datasets before training: files, sizes, splits, weights, the tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mlm.config.schema import DataConfig, TokenizerConfig
from mlm.data.bad_data import BadData
from mlm.data.blend import blend_problem
from mlm.data.indexed import IndexedDataset, bin_path, idx_path
from mlm.data.metadata import read_metadata
from mlm.data.sources import Named, named_datasets
from mlm.data.split import parts_problem, split_dataset
from mlm.data.tokenizers import Tokenizer
from mlm.data.tokenizers.configured import build
from mlm.errors import Problem


def dataset_problems(
    data: DataConfig, tokenizer: TokenizerConfig, seq_length: int, *, split_is_sound: bool
) -> Iterator[Problem]:
    """Every problem that is visible without reading tokens."""
    if data.blend is not None:
        if data.path is not None:
            remedy = "leave one of them out: data=blend is for data.blend alone"
            yield Problem(f"data.path={data.path}", "is given beside data.blend", remedy)
        if found := blend_problem([part.weight for part in data.blend]):
            yield found
    for named in named_datasets(data):
        yield from _problems(named, data, seq_length, split_is_sound)
    yield from _tokenizer_problems(named_datasets(data), tokenizer)


def _problems(named: Named, data: DataConfig, seq_length: int, split_is_sound: bool) -> Iterator[Problem]:
    prefix = named.prefix
    missing = [file.name for file in (bin_path(prefix), idx_path(prefix)) if not file.is_file()]
    if missing:
        key = named.where.partition("=")[0]
        yield Problem(named.where, f"no such dataset ({', '.join(missing)})", _nearby(prefix, key))
        return
    try:
        dataset = IndexedDataset(prefix)
    except BadData as error:
        yield error.problem
        return
    # A dataset without weight is not trained on; it only has to be there.
    if split_is_sound and named.weight != 0:
        of = "" if data.blend is None else f" of {named.path}"
        short = parts_problem(split_dataset(dataset, data.split), data.split, seq_length, dataset, of)
        if short:
            yield short


def _nearby(prefix: Path, key: str) -> str:
    """What could have been meant: a suffix too many, a .txt too few, or another dataset beside it."""
    if prefix.suffix in (".bin", ".idx") and idx_path(prefix.with_suffix("")).is_file():
        return f"leave the {prefix.suffix} out: {key}={prefix.with_suffix('')}"
    if prefix.is_file():
        return "a text has to be called .txt; a dataset is named by its PREFIX without .bin or .idx"
    if prefix.parent.is_dir():
        others = [path.name[: -len(".idx")] for path in sorted(prefix.parent.glob("*.idx"))]
        if near := get_close_matches(prefix.name, others, n=1):
            return f"did you mean {prefix.parent / near[0]}?"
    return "give the PREFIX of PREFIX.bin and PREFIX.idx, or a .txt file"


def _tokenizer_problems(datasets: list[Named], config: TokenizerConfig) -> Iterator[Problem]:
    """Datasets whose record names another tokenizer than the run's."""
    tokenizer: Tokenizer | None = None
    for named in datasets:
        try:
            recorded = (read_metadata(named.prefix) or {}).get("tokenizer")
        except BadData as error:
            yield error.problem
            continue
        if not recorded:
            continue
        if tokenizer is None:
            if config.kind == "char" or (config.kind == "sentencepiece" and config.path is None):
                return  # it takes a text to make one, which is a problem of its own
            try:
                tokenizer = build(config, "", Path())
            except (BadData, AssertionError):
                return  # reported for tokenizer.*
        if recorded["fingerprint"] != tokenizer.fingerprint:
            yield Problem(
                named.where,
                f"was encoded with {describe(recorded)}, and the run's tokenizer is "
                f"{describe(tokenizer.describe())}",
                f"use {_choice(recorded)}, or encode the text again",
            )


def describe(tokenizer: dict[str, Any]) -> str:
    """A described tokenizer for people: `gpt2, 50,257 tokens, fingerprint 1a2b3c4d`."""
    return (
        f"{tokenizer['kind']}, {tokenizer['vocab_size']:,} tokens, fingerprint {tokenizer['fingerprint'][:8]}"
    )


def _choice(tokenizer: dict[str, Any]) -> str:
    """The overrides that choose a described tokenizer."""
    path = f" tokenizer.path={tokenizer['path']}" if "path" in tokenizer else ""
    return f"tokenizer={tokenizer['kind']}{path}"
