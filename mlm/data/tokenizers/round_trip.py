"""What a tokenizer makes of texts, counted: tokens, unknown ones, and what does not come back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mlm.data.tokenizers.base import Tokenizer


@dataclass
class RoundTrip:
    """Counts over the texts added so far.

    characters_changed: characters that the decoded text lacks, or has too many of; where only the order
    differs, none. So at least that many are not what they were.
    """

    texts: int = 0
    texts_changed: int = 0
    characters: int = 0
    characters_changed: int = 0
    bytes: int = 0
    tokens: int = 0
    unknown: int = 0

    def add(self, tokenizer: Tokenizer, text: str) -> None:
        ids = tokenizer.encode(text)
        back = tokenizer.decode(ids)
        self.texts += 1
        self.characters += len(text)
        self.bytes += len(text.encode())
        self.tokens += len(ids)
        if (unknown := tokenizer.special.get("unk")) is not None:
            self.unknown += int((ids == unknown).sum())
        if back != text:
            self.texts_changed += 1
            before, after = Counter(text), Counter(back)
            self.characters_changed += max((before - after).total(), (after - before).total())

    @property
    def is_exact(self) -> bool:
        return self.texts_changed == 0

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / self.tokens if self.tokens else 0.0

    def sentence(self) -> str:
        """The result for people."""
        if self.is_exact:
            return "text -> ids -> text is exact"
        what = (
            f"{self.texts_changed:,} of {self.texts:,} texts change" if self.texts > 1 else "the text changes"
        )
        share = 100 * self.characters_changed / self.characters
        return f"text -> ids -> text is not exact: {what}, at least {share:.3g} % of the characters"

    def unknown_sentence(self) -> str:
        """The share of unknown tokens for people."""
        share = 100 * self.unknown / self.tokens if self.tokens else 0.0
        return f"{self.unknown:,} of {self.tokens:,} tokens ({share:.3g} %)"
