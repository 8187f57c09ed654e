"""mlm-data inspect: what a token dataset holds, one of its documents, or one of its samples, as text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlm.corpus.progress import TextProgress
from mlm.data.bad_data import BadData
from mlm.data.dataset_checks import describe
from mlm.data.indexed import CHUNK, IndexedDataset, bin_path
from mlm.data.metadata import read_metadata
from mlm.data.prepared import PreparedDataset
from mlm.data.reading import samples_of
from mlm.data.split import parts_problem, split_dataset, split_problem
from mlm.data.tokenizers import Tokenizer, load_tokenizer, parse_tokenizer
from mlm.errors import ConfigError

# Ids that are counted for the use of the vocabulary; of a larger dataset, spread over the file.
COUNTED = 1 << 28
STEP = 1 << 24
SHOWN_TOKENS = 8
BAR = 40
# A vocabulary larger than this would be counted wrong ids and all: an array of ids that large is no use.
MOST_IDS = 1 << 24


class Inspected:
    """A dataset with its record and, where it is known, its tokenizer.

    tokenizer: as --tokenizer names it; None: the recorded one. Raises BadData when a file is not what it
    has to be, or the tokenizer is not the one that made the dataset.
    """

    def __init__(self, prefix: Path, tokenizer: str | None):
        self.dataset = IndexedDataset(prefix)
        self.record = read_metadata(prefix)
        recorded = (self.record or {}).get("tokenizer")
        self.tokenizer: Tokenizer | None = None
        self.without_text = ""
        if tokenizer is not None:
            self.tokenizer = parse_tokenizer(tokenizer)
            if recorded and recorded["fingerprint"] != self.tokenizer.fingerprint:
                raise BadData(
                    f"--tokenizer {tokenizer}",
                    f"is {describe(self.tokenizer.describe())}, and {prefix} was encoded with "
                    f"{describe(recorded)}",
                    "leave it out to use the recorded one",
                )
        elif recorded is None:
            self.without_text = (
                "which tokenizer made it is not recorded: --tokenizer gpt2 (or another) shows text"
            )
        else:
            try:
                self.tokenizer = load_tokenizer(recorded, prefix.parent)
            except BadData as error:
                self.without_text = f"{error}: --tokenizer names it where it is now"

    def document(self, number: int) -> Iterator[str]:
        """Lines about document `number` (from the end when negative), and its text or ids."""
        count = self.dataset.num_documents
        at = _from_end(number, count, "--doc", "documents")
        start, stop = self.dataset.document_start(at), self.dataset.document_start(at + 1)
        yield f"document {at:,} of {count:,}: {stop - start:,} tokens, from position {start:,}"
        yield from self._shown(self.dataset.document(at))

    def window(self, number: int, seq_length: int) -> Iterator[str]:
        """Tokens [number * seq_length, +seq_length + 1) in the file's order, as lines."""
        total = len(self.dataset.tokens)
        count = (total - 1) // seq_length
        if count < 1:
            wrong = f"takes {seq_length + 1:,} tokens, and the dataset has {total:,}"
            raise BadData(
                f"--seq-length {seq_length}", wrong, f"use --seq-length {max(1, total - 1)} or less"
            )
        at = _from_end(number, count, "--sample", f"samples of {seq_length:,} tokens")
        start = at * seq_length
        yield f"sample {at:,} of {count:,}, in the file's order: {seq_length + 1:,} tokens from {start:,} on"
        yield from self._shown(self.dataset.tokens[start : start + seq_length + 1])

    def training_sample(
        self, number: int, seq_length: int, seed: int, split: list[float], shuffle_documents: bool
    ) -> Iterator[str]:
        """Sample `number` of a training run on this dataset alone, document by document, as lines."""
        if found := split_problem(split):
            raise ConfigError(found)
        parts = split_dataset(self.dataset, split)
        if found := parts_problem(parts, split, seq_length, self.dataset):
            raise ConfigError(found)
        prefix = str(self.dataset.prefix)
        samples = samples_of(
            PreparedDataset.of_parts("", prefix, parts),
            seq_length,
            seed,
            shuffle_documents=shuffle_documents,
            packed=True,
        )
        ids, starts = (array[0] for array in samples.packed([number]))
        yield f"training sample {number:,} with seed={seed}: {seq_length + 1:,} tokens"
        begins = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(ids)]
        for index, (first, stop) in enumerate(pairwise(begins)):
            began = "from its beginning" if index or starts[0] > 0 else "begun before or here"
            yield f"-- tokens {first:,} to {stop - 1:,}: a document, {began}"
            yield from self._shown(ids[first:stop], note=False)
        if self.without_text:
            yield self.without_text

    def overview(self) -> Iterator[str]:
        """Sizes, record, lengths of documents and use of the vocabulary, as lines."""
        dataset = self.dataset
        size = bin_path(dataset.prefix).stat().st_size
        sequences = f" in {len(dataset):,} sequences" if len(dataset) != dataset.num_documents else ""
        yield str(dataset.prefix)
        yield f"  documents   {dataset.num_documents:,}{sequences}"
        yield f"  tokens      {len(dataset.tokens):,}, {dataset.dtype.name}, {size:,} bytes"
        yield from self._record_lines()
        yield from _length_lines(dataset)
        yield from self._vocabulary_lines()

    def _record_lines(self) -> Iterator[str]:
        record = self.record
        if record is None:
            yield f"  tokenizer   not recorded: there is no {self.dataset.prefix.name}.json"
            return
        eod = record.get("eod")
        yield f"  tokenizer   {describe(record['tokenizer'])}"
        yield f"              documents end with {'nothing of their own' if eod is None else f'the id {eod}'}"
        text = record.get("bytes_of_text")
        if text:
            yield f"  text        {text:,} bytes, {text / len(self.dataset.tokens):.3f} bytes per token"
        skipped = {reason: number for reason, number in (record.get("skipped") or {}).items() if number}
        if skipped:
            yield f"  skipped     {', '.join(f'{number:,} {reason}' for reason, number in skipped.items())}"

    def _vocabulary_lines(self) -> Iterator[str]:
        counts, counted, wild = _count(self.dataset)
        total = len(self.dataset.tokens)
        of = "" if counted == total else f", of {counted:,} tokens spread over the file"
        used, highest = int((counts > 0).sum()), int(np.flatnonzero(counts)[-1]) if counts.any() else -1
        size = self.tokenizer.vocab_size if self.tokenizer else None
        known = (self.record or {}).get("tokenizer")
        size = size or (known["vocab_size"] if known else None)
        share = f" of {size:,} ({used / size:.1%})" if size else ""
        yield f"  vocabulary  {used:,} ids{share} occur, the highest is {highest:,}{of}"
        if wild:
            yield f"  {wild:,} ids are below 0 or from {MOST_IDS:,} on: mlm-data verify says more"
        if size and highest >= size:
            yield f"  ids from {size:,} on are not in that vocabulary: mlm-data verify says more"
        for token in np.argsort(-counts, kind="stable")[: min(SHOWN_TOKENS, used)].tolist():
            text = "" if self.tokenizer is None else f"  {self._name(token)}"
            yield f"{token:>26}  {counts[token] / counted:7.2%}{text}"

    def _name(self, token: int) -> str:
        assert self.tokenizer is not None
        return "end of document" if token == self.tokenizer.eod else repr(self.tokenizer.decode([token]))

    def _shown(self, ids: NDArray[Any], *, note: bool = True) -> Iterator[str]:
        if self.tokenizer is None:
            if note:
                yield self.without_text
            yield " ".join(map(str, ids.tolist()))
            return
        # decode writes nothing for an end of document, which here is what one looks for.
        eod = self.tokenizer.eod
        ends: list[int] = [] if eod is None else np.flatnonzero(ids == eod).tolist()
        stretches = np.split(ids, ends)
        texts = (self.tokenizer.decode(stretch) for stretch in stretches)
        yield "<end of document>".join(_printable(text) for text in texts)


def _length_lines(dataset: IndexedDataset) -> Iterator[str]:
    """Least, mean and greatest length of documents, and how many there are of each order of size."""
    least, greatest, bins = 1 << 62, 0, np.zeros(64, dtype=np.int64)
    for first in range(0, dataset.num_documents, CHUNK):
        documents = np.arange(first, min(first + CHUNK, dataset.num_documents))
        lengths = dataset.document_starts(documents + 1) - dataset.document_starts(documents)
        least, greatest = min(least, int(lengths.min())), max(greatest, int(lengths.max()))
        # frexp's exponent of n is the number of its bits: 0 for 0, 1 for 1, 2 for 2 and 3, ...
        bins += np.bincount(np.frexp(lengths.astype(np.float64))[1], minlength=64)[:64]
    mean = len(dataset.tokens) / dataset.num_documents
    yield f"  lengths     {least:,} to {greatest:,} tokens a document, {mean:,.1f} on average"
    used = np.flatnonzero(bins)
    for bits in range(int(used[0]), int(used[-1]) + 1):
        low, high = (0, 0) if bits == 0 else (1 << (bits - 1), (1 << bits) - 1)
        label = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        bar = "#" * round(BAR * bins[bits] / bins.max()) or ("." if bins[bits] else "")
        yield f"{label:>26}  {bins[bits]:>11,}  {bar}".rstrip()


def _count(dataset: IndexedDataset) -> tuple[NDArray[np.int64], int, int]:
    """(how often each id occurs, tokens counted, ids that are none)."""
    total = len(dataset.tokens)
    starts = list(range(0, total, STEP))
    if total > COUNTED:
        starts = np.linspace(0, total - STEP, COUNTED // STEP).astype(np.int64).tolist()
    counts, counted, wild = np.zeros(0, dtype=np.int64), 0, 0
    size = min(total, len(starts) * STEP) * dataset.dtype.itemsize
    with TextProgress("counting ids", size) as progress:
        for start in starts:
            ids = dataset.tokens[start : start + STEP]
            sound = ids[(ids >= 0) & (ids < MOST_IDS)]
            counted, wild = counted + len(ids), wild + len(ids) - len(sound)
            found = np.bincount(sound, minlength=len(counts))
            found[: len(counts)] += counts
            counts = found
            progress.update(counted * dataset.dtype.itemsize, ids.nbytes, f"{counted:,} tokens")
    return counts, counted, wild


def _from_end(number: int, count: int, option: str, what: str) -> int:
    """number, or counted from the end when negative. Raises BadData outside of what there is."""
    if not -count <= number < count:
        raise BadData(f"{option} {number}", f"there are {count:,} {what}", f"use 0 to {count - 1}, or -1")
    return number % count


def _printable(text: str) -> str:
    """The text without control characters: what a dataset holds must not reprogram the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
