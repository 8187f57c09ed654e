"""Near-duplicates at known similarities, counted, and against every pair compared by plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from mlm.corpus.cleaning.duplicates import Indices, KeyFiles, buckets, copies, near_duplicates
from mlm.corpus.cleaning.shingles import Hashes, jaccard, shingle_sets, unit_rows
from mlm.corpus.cleaning.signatures import MISSED, Bands, fingerprint

N = 5


def dropped(texts: Sequence[str], threshold: float, folder: Path) -> dict[int, tuple[int, float]]:
    """Document -> (original, similarity), by the module's own steps, copies included."""
    sets = shingle_sets(unit_rows(texts), N)
    bands = Bands.for_threshold(threshold)
    files = KeyFiles(folder, bands)
    files.append(bands.keys(sets))
    prints = np.frombuffer(b"".join(fingerprint(s) for s in sets), dtype="V16")
    first = copies(prints)
    chosen = np.flatnonzero(first == np.arange(len(sets)))

    def compute(documents: Indices) -> Iterator[Hashes]:
        return (sets[document] for document in documents.tolist())

    sizes = np.asarray([len(s) for s in sets], dtype=np.uint32)
    found = near_duplicates(*buckets(files.read(), chosen), sizes, threshold, compute)
    near = {d.document: (d.original, d.similarity) for d in found}
    same = {d: (int(first[d]), 1.0) for d in range(len(sets)) if first[d] != d}
    assert not any(folder.iterdir())
    return near | same


def plainly(texts: Sequence[str], threshold: float) -> set[int]:
    """Every pair compared: dropped is what is too similar to an earlier document that was not dropped."""

    def runs(text: str) -> set[tuple[str, ...]]:
        row = text.split()
        return {tuple(row[i : i + N]) for i in range(len(row) - N + 1)}

    kept: list[set[tuple[str, ...]]] = []
    out = set()
    for number, text in enumerate(texts):
        mine = runs(text)
        if any(len(mine & other) / len(mine | other) > threshold for other in kept):
            out.add(number)
        else:
            kept.append(mine)
    return out


def pair_at(similarity: float, shingle_count: int, name: str) -> tuple[str, str]:
    """Two texts with exactly this Jaccard similarity: a common beginning, and ends of their own.

    Of so many shingles in the union, similarity * count begin in the common part.
    """
    common = round(similarity * shingle_count)
    rest = shingle_count - common
    first = [f"{name}{i}" for i in range(common + N - 1)]
    own = [[f"{name}{side}{i}" for i in range(rest // 2 + (side == "x" and rest % 2))] for side in "xy"]
    return " ".join(first + own[0]), " ".join(first + own[1])


@pytest.mark.parametrize("similarity", [0.5, 0.65, 0.75, 0.9])
def test_constructed_pairs_have_the_similarity_they_are_constructed_for(similarity: float):
    first, second = shingle_sets(unit_rows(pair_at(similarity, 400, "w")), N)
    assert jaccard(first, second) == pytest.approx(similarity, abs=1e-12)


def test_of_pairs_at_known_similarities_those_above_the_threshold_are_dropped_and_no_others(tmp_path: Path):
    texts, expected = [], set()
    for similarity in (0.5, 0.65, 0.7, 0.71, 0.75, 0.9, 1.0):
        for copy in range(25):
            texts += pair_at(similarity, 400, f"s{round(100 * similarity)}c{copy}w")
            if similarity > 0.7:
                expected.add(len(texts) - 1)
    found = dropped(texts, 0.7, tmp_path)
    assert set(found) == expected
    assert len(found) == 100
    for document, (original, similarity) in found.items():
        assert original == document - 1
        assert similarity == pytest.approx((0.71, 0.75, 0.9, 1.0)[document // 50 - 3], abs=1e-12)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.9])
def test_what_is_dropped_is_what_comparing_every_pair_drops(threshold: float, tmp_path: Path):
    generator = random.Random(round(100 * threshold))
    vocabulary = [f"word{i}" for i in range(300)]
    bases = [generator.choices(vocabulary, k=generator.randint(30, 200)) for _ in range(40)]
    texts = []
    for _ in range(400):
        row = list(generator.choice(bases))
        for _ in range(generator.choice((0, 0, 1, 2, 4, 8, 16))):
            row[generator.randrange(len(row))] = generator.choice(vocabulary)
        texts.append(" ".join(row[generator.choice((0, 0, 3, 9)) :]))
    expected = plainly(texts, threshold)
    assert 50 < len(expected) < 380
    assert set(dropped(texts, threshold, tmp_path)) == expected


def test_a_chain_keeps_what_is_similar_only_to_a_dropped_one(tmp_path: Path):
    row = [f"w{i}" for i in range(400)]
    texts = [" ".join(row[shift : shift + 300]) for shift in (0, 40, 80)]
    # 0 and 40 share 256 of 336 shingles (0.76), 0 and 80 share 216 of 376 (0.57).
    assert set(dropped(texts, 0.7, tmp_path)) == {1}


def test_japanese_is_compared_by_runs_of_characters(tmp_path: Path):
    first = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。" * 1
    changed = first.replace("まだ", "未だ")
    other = "親譲りの無鉄砲で小供の時から損ばかりしている。小学校に居る時分学校の二階から飛び降りた。"
    a, b = shingle_sets(unit_rows([first, changed]), N)
    runs = [{t[i : i + N] for i in range(len(t) - N + 1)} for t in (_letters(first), _letters(changed))]
    assert jaccard(a, b) == len(runs[0] & runs[1]) / len(runs[0] | runs[1])
    assert set(dropped([first, other, changed], 0.5, tmp_path)) == {2}


def _letters(text: str) -> str:
    return text.replace("。", "")


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7, 0.8, 0.95])
def test_bands_miss_less_than_one_in_a_thousand_at_the_threshold(threshold: float):
    bands = Bands.for_threshold(threshold)
    assert bands.count * bands.rows <= 128
    assert (1 - threshold**bands.rows) ** bands.count <= MISSED
    longer = Bands(128 // (bands.rows + 1), bands.rows + 1)
    assert longer.missed(threshold) > MISSED or bands.rows == 16


def test_signatures_agree_in_a_place_as_often_as_the_sets_are_similar():
    generator = np.random.default_rng(0)
    places = Bands(128, 1)  # a band a value: keys are equal where signature values are
    for similarity in (0.3, 0.7, 0.9):
        share = []
        for _ in range(200):
            everything = np.unique(generator.integers(0, 2**64, 1000, dtype=np.uint64))
            common, rest = np.split(generator.permutation(everything), [round(1000 * similarity)])
            half = len(rest) // 2
            sets = [np.sort(np.concatenate([common, own])) for own in (rest[:half], rest[half:])]
            first, second = places.keys(sets)
            share.append((first == second).mean())
        # The mean of 200 x 128 places: a standard deviation of 0.003 at most.
        assert np.mean(share) == pytest.approx(similarity, abs=0.012)


def test_no_documents_and_documents_alone_have_no_duplicates(tmp_path: Path):
    assert dropped(["one text of a few words only"], 0.7, tmp_path) == {}
    nothing = buckets([np.empty(0, dtype=np.uint64)], np.empty(0, dtype=np.int64))
    assert [len(part) for part in nothing] == [0, 0]


def test_a_document_is_compared_with_every_kept_one_of_its_bucket():
    sets = [np.arange(100 * n, 100 * n + 50, dtype=np.uint64) for n in (0, 1, 2, 2)]
    together = np.arange(4), np.zeros(4, dtype=np.int64)
    sizes = np.full(4, 50, dtype=np.uint32)
    (found,) = near_duplicates(*together, sizes, 0.7, lambda documents: (sets[d] for d in documents.tolist()))
    assert (found.document, found.original, found.similarity) == (3, 2, 1.0)


def test_kept_documents_beyond_the_cache_are_computed_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mlm.corpus.cleaning.duplicates._CACHE_BYTES", 1000)
    sets = [np.arange(100 * n, 100 * n + 50, dtype=np.uint64) for n in (0, 1, 2, 0, 1, 2)]
    asked: list[int] = []

    def compute(documents: Indices) -> Iterator[Hashes]:
        asked.extend(documents.tolist())
        return (sets[document] for document in documents.tolist())

    together = np.arange(6), np.zeros(6, dtype=np.int64)
    found = list(near_duplicates(*together, np.full(6, 50, dtype=np.uint32), 0.7, compute))
    assert [(d.document, d.original) for d in found] == [(3, 0), (4, 1), (5, 2)]
    assert asked[:6] == list(range(6))
    assert len(asked) > 6


def test_copies_are_told_by_all_sixteen_bytes():
    halves = [b"a" * 8, b"b" * 8]
    prints = [halves[0] + halves[0], halves[0] + halves[1], halves[1] + halves[1], halves[0] + halves[1]]
    assert copies(np.frombuffer(b"".join(prints), dtype="V16")).tolist() == [0, 1, 2, 1]


def test_a_band_agrees_only_where_all_its_values_do():
    generator = np.random.default_rng(1)
    bands, share = Bands(32, 4), []
    for _ in range(200):
        everything = np.unique(generator.integers(0, 2**64, 1000, dtype=np.uint64))
        first, second = bands.keys([everything[:800], everything[200:]])  # 600 of 1,000 in both
        share.append((first == second).mean())
    # 0.6^4; the mean of 200 x 32 bands has a standard deviation of 0.004.
    assert np.mean(share) == pytest.approx(0.6**4, abs=0.02)
