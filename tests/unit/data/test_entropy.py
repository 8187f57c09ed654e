from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from mlm.data.entropy import text_entropies


def by_counting(text: str, n: int) -> float:
    """H(last of n characters | the n - 1 before) from the definition, -sum p(block) ln p(last | before)."""
    blocks = Counter(text[i : i + n] for i in range(len(text) - n + 1))
    before: Counter[str] = Counter()
    for block, count in blocks.items():
        before[block[:-1]] += count
    total = sum(blocks.values())
    return -sum(c / total * math.log(c / before[b[:-1]]) for b, c in blocks.items())


def test_the_embedded_text_has_the_entropies_known_of_it(shakespeare: str):
    entropies = text_entropies(shakespeare)
    assert entropies["alphabet"] == math.log(65)
    rounded = {name: round(value, 2) for name, value in entropies.items()}
    assert rounded == {"alphabet": 4.17, "unigram": 3.31, "bigram": 2.45, "trigram": 1.91}


@pytest.mark.parametrize("alphabet", [" ab", "".join(map(chr, range(0x4E00, 0x4E00 + 900)))])
def test_entropies_equal_their_definition(alphabet: str):
    text = "".join(random.Random(0).choices(alphabet, k=20_000))
    entropies = text_entropies(text)
    for n, name in enumerate(("unigram", "bigram", "trigram"), start=1):
        assert entropies[name] == pytest.approx(by_counting(text, n), abs=2e-3), name


def test_a_text_that_repeats_itself_is_known_from_the_character_before():
    entropies = text_entropies("ab" * 5000)
    assert entropies["unigram"] == pytest.approx(math.log(2))
    assert entropies["bigram"] == pytest.approx(0, abs=1e-3)
    assert text_entropies("a")["trigram"] == 0
