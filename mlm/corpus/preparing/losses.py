"""What a tokenizer that does not keep every text loses of the documents at hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from mlm.corpus.reading.blocks import Cutting
from mlm.corpus.reading.documents import documents
from mlm.corpus.reading.inputs import STDIN, Source
from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.data.tokenizers.round_trip import RoundTrip

DOCUMENTS = 1_000
# Of documents that are books, fewer: the look is to take seconds.
CHARACTERS = 4_000_000


def losses(tokenizer: Tokenizer, sources: Sequence[Source], cutting: Cutting) -> str:
    """A sentence on what changes, counted on the first documents; nothing when every text comes back.

    Standard input can be read only once, so of it nothing is counted.
    """
    if tokenizer.lossless:
        return ""
    counts = RoundTrip()
    files = [source for source in sources if source.path != STDIN]
    with suppress(BadData):  # what cannot be read is reported by whoever reads all of it
        for document in islice(documents(files, cutting, lambda *_: None), DOCUMENTS):
            for text in document.texts:
                counts.add(tokenizer, text)
            if counts.characters >= CHARACTERS:
                break
    beginning = f"the tokenizer ({tokenizer.name}) does not keep every text: {tokenizer.loss}"
    if not counts.characters:
        return beginning
    unknown = f", unknown {counts.unknown_sentence()}" if counts.unknown else ""
    return f"{beginning}; of the first {counts.texts:,} texts, {counts.sentence()}{unknown}"
