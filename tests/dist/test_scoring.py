"""The scoring engine against one segment at a time, full logits and textbook softmax; and known answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mlm.eval.requests import Scores, Segment
from mlm.eval.score import deal, make_batches, score
from mlm.parallel.collectives import all_gathered
from mlm.parallel.mesh import Mesh
from mlm.parallel.scoring import vocab_parallel_argmax
from tests.dist.meshes import TINY, mesh_of, tiny_model

LAYOUTS = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]


def segments_of_many_lengths() -> list[Segment]:
    """Lengths from 2 tokens to the context and one more, few and all targets scored, in no order."""
    generator = np.random.default_rng(3)
    lengths = [2, 17, 5, 17, 9, 2, 12, 17, 3, 16, 7, 4, 11]
    scored = [1, 16, 2, 3, 8, 1, 1, 16, 1, 15, 4, 3, 10]
    return [
        Segment(generator.integers(0, TINY.vocab_size, n), s) for n, s in zip(lengths, scored, strict=True)
    ]


def run_score(model: nn.Module, segments: Sequence[Segment], mesh: Mesh, batch_tokens: int = 40) -> Scores:
    return score(
        model,
        segments,
        seq_length=TINY.seq_length,
        vocab_size=TINY.vocab_size,
        batch_tokens=batch_tokens,
        mesh=mesh,
        device=torch.device("cpu"),
    )


@torch.no_grad()
def slow_scores(model: nn.Module, segments: Sequence[Segment], mesh: Mesh) -> Scores:
    """One segment at a time, without padding, every logit, softmax and argmax over the real vocabulary."""
    model.eval()
    nll, every, last = [], [], []
    for segment in segments:
        tokens = torch.from_numpy(segment.tokens)
        logits = all_gathered(model(tokens[None, :-1])[0], mesh.tp, dim=1)[:, : TINY.vocab_size]
        log_p = torch.log_softmax(logits, dim=1)[-segment.scored :]
        targets = tokens[-segment.scored :]
        nll.append(-sum(log_p[i, targets[i]].item() for i in range(segment.scored)))
        right = log_p.argmax(dim=1) == targets
        every.append(bool(right.all()))
        last.append(bool(right[-1]))
    return Scores(np.array(nll), np.array(every), np.array(last))


def fast_and_slow(tp: int, dp: int, batch_tokens: int) -> tuple[Scores, Scores]:
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh)
    segments = segments_of_many_lengths()
    segments += followed_by_its_own_favourite(model, segments, mesh)
    return run_score(model, segments, mesh, batch_tokens), slow_scores(model, segments, mesh)


@torch.no_grad()
def followed_by_its_own_favourite(model: nn.Module, segments: Sequence[Segment], mesh: Mesh) -> list[Segment]:
    """Segments whose last target is the model's first choice: a random model is never right by itself."""
    longer = []
    for segment in segments[::2]:
        tokens = torch.from_numpy(segment.tokens[:-1])
        logits = all_gathered(model(tokens[None])[0, -1], mesh.tp, dim=0)[: TINY.vocab_size]
        longer.append(Segment(np.append(segment.tokens[:-1], logits.argmax().item()), segment.scored))
    return longer


@pytest.mark.parametrize("batch_tokens", [1, 40, 10_000])
@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_batched_scores_are_those_of_one_segment_at_a_time_with_full_logits(pool, tp, dp, batch_tokens):
    expected = fast_and_slow_at_one(pool)
    for fast, slow in pool(tp * dp).run(fast_and_slow, tp, dp, batch_tokens):
        for oracle in (slow, expected):
            np.testing.assert_allclose(fast.nll, oracle.nll, rtol=1e-12, atol=0)
            np.testing.assert_array_equal(fast.all_greedy, oracle.all_greedy)
            np.testing.assert_array_equal(fast.last_greedy, oracle.last_greedy)
        assert fast.last_greedy.sum() >= 7
        assert fast.last_greedy.sum() > fast.all_greedy.sum() > 0


def fast_and_slow_at_one(pool) -> Scores:
    (_, slow), *_ = pool(1).run(fast_and_slow, 1, 1, 40)
    return slow


def zero_weight_scores(tp: int, dp: int, segments: list[Segment]) -> Scores:
    mesh = mesh_of(tp, dp)
    return run_score(tiny_model(mesh, init_std=0.0), segments, mesh)


@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_a_model_of_zeros_gives_ln_v_per_token_and_prefers_the_lowest_id_among_equals(pool, tp, dp):
    segments = segments_of_many_lengths()
    segments += [Segment(np.array([5, 0, 0, 0]), 3), Segment(np.array([5, 0, 1, 0]), 3)]
    for scores in pool(tp * dp).run(zero_weight_scores, tp, dp, segments):
        expected = [segment.scored * math.log(TINY.vocab_size) for segment in segments]
        np.testing.assert_allclose(scores.nll, expected, rtol=1e-13)
        for segment, every, last in zip(segments, scores.all_greedy, scores.last_greedy, strict=True):
            targets = segment.tokens[-segment.scored :]
            assert every == (targets == 0).all(), "a model without preferences is not right by luck of ties"
            assert last == (targets[-1] == 0)


def bigram_model(log_p: Tensor, mesh: Mesh) -> nn.Module:
    """A one-layer model whose logits after token a are log_p[a] [vocab, vocab], exactly but for rounding.

    The layer adds nothing, positions are 0, and the embedding of a is a one-hot in `vocab` dimensions whose
    LayerNorm is undone by the output table: LN(onehot) is c on the one and -c/(h-1) elsewhere.
    """
    vocab = log_p.shape[0]
    hidden = 40
    model = tiny_model(
        mesh, num_layers=1, hidden_size=hidden, init_std=0.0, tie_embeddings=False, layernorm_eps=1e-12
    )
    one, rest = 1 - 1 / hidden, -1 / hidden
    deviation = math.sqrt((one**2 + (hidden - 1) * rest**2) / hidden)
    word, table = torch.zeros(40, hidden).double(), torch.zeros(40, hidden).double()
    word[:vocab, :vocab] = torch.eye(vocab)
    # After LayerNorm x = (onehot - 1/h) / deviation; with the mean put back by the final bias only the
    # one-hot remains.
    table[:vocab, :vocab] = deviation * log_p.T
    table[vocab:] = 7.0  # padding with the largest logits of all: it must not be looked at
    with torch.no_grad():
        model.embedding.word.weight.copy_(word[mesh.tp.slice_of(40)])
        model.head.weight.copy_(table[mesh.tp.slice_of(40)])
        model.final_norm.bias.fill_(1 / hidden / deviation)
    return model


def bigram_scores(tp: int, dp: int, log_p: Tensor, segments: list[Segment]) -> Scores:
    mesh = mesh_of(tp, dp)
    return run_score(bigram_model(log_p, mesh), segments, mesh)


@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_a_bigram_of_known_probabilities_gives_its_own_likelihoods_and_choices(pool, tp, dp):
    generator = torch.Generator().manual_seed(2)
    log_p = torch.randn(37, 37, generator=generator, dtype=torch.float64).mul(2).log_softmax(dim=1)
    segments = segments_of_many_lengths()
    favourites = [9]
    while len(favourites) < 10:
        favourites.append(int(log_p[favourites[-1]].argmax()))
    segments += [Segment(np.array(favourites), 9), Segment(np.array([*favourites[:-1], 36]), 9)]
    for scores in pool(tp * dp).run(bigram_scores, tp, dp, log_p, segments):
        for segment, nll, every in zip(segments, scores.nll, scores.all_greedy, strict=True):
            pairs = list(zip(segment.tokens[:-1], segment.tokens[1:], strict=True))[-segment.scored :]
            assert nll == pytest.approx(-sum(log_p[a, b].item() for a, b in pairs), rel=1e-10)
            assert every == all(log_p[a].argmax() == b for a, b in pairs)
        assert scores.all_greedy[-2:].tolist() == [True, favourites[-1] == 36]


@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_a_model_that_always_knows_the_last_word_is_always_right(pool, tp, dp):
    log_p = torch.full((37, 37), -50.0, dtype=torch.float64)
    for token in range(37):
        log_p[token, (5 * token + 1) % 37] = 0.0
    segments = []
    for first in range(20):
        tokens = [first]
        while len(tokens) < 6:
            tokens.append((5 * tokens[-1] + 1) % 37)
        segments.append(Segment(np.array([3, 3, *tokens]), 1 + first % 3))
    for scores in pool(tp * dp).run(bigram_scores, tp, dp, log_p, segments):
        assert scores.all_greedy.all()
        assert scores.last_greedy.all()
        assert scores.nll.max() < 1e-15


def argmax_of(tp: int, full: Tensor, vocab_size: int) -> list[int]:
    mesh = mesh_of(tp, 1)
    return vocab_parallel_argmax(full[:, mesh.tp.slice_of(full.shape[1])], mesh.tp, vocab_size).tolist()


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_argmax_over_ranks_takes_the_lowest_of_equals_and_never_padding(pool, tp):
    generator = torch.Generator().manual_seed(0)
    full = torch.randint(0, 3, (64, 16), generator=generator).double()
    full[:, 9:] = 5.0  # at tp=4 the last rank holds nothing but padding
    expected = full[:, :9].argmax(dim=1).tolist()
    for ids in pool(tp).run(argmax_of, tp, full, 9):
        assert ids == expected


def state_around_scoring(tp: int, training: bool) -> tuple[Scores, bool, bool]:
    mesh = mesh_of(tp, 1)
    model = tiny_model(mesh, dropout=0.5, attention_dropout=0.5)
    model.train(training)
    before = torch.get_rng_state()
    scores = run_score(model, segments_of_many_lengths(), mesh)
    modes = {module.training for module in model.modules()}
    return scores, modes == {training}, torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("tp", [1, 2])
def test_dropout_is_off_and_mode_and_random_numbers_are_as_before(pool, tp):
    (expected, _), *_ = pool(1).run(fast_and_slow, 1, 1, 40)
    for training in (True, False):
        for scores, same_mode, same_random_state in pool(tp).run(state_around_scoring, tp, training):
            np.testing.assert_allclose(scores.nll, expected.nll[:13], rtol=1e-12)
            assert same_mode
            assert same_random_state


def under_autocast(tp: int) -> Scores:
    mesh = mesh_of(tp, 1)
    return score(
        tiny_model(mesh, torch.float32, init_std=0.1),
        segments_of_many_lengths(),
        seq_length=TINY.seq_length,
        vocab_size=TINY.vocab_size,
        batch_tokens=40,
        mesh=mesh,
        device=torch.device("cpu"),
        autocast=lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    )


def in_double(tp: int) -> Scores:
    mesh = mesh_of(tp, 1)
    return run_score(tiny_model(mesh, init_std=0.1), segments_of_many_lengths(), mesh)


@pytest.mark.parametrize("tp", [1, 2])
def test_bf16_autocast_stays_within_bf16_of_double(pool, tp):
    (exact,) = pool(1).run(in_double, 1)
    for scores in pool(tp).run(under_autocast, tp):
        np.testing.assert_allclose(scores.nll, exact.nll, rtol=0.02)
        assert not np.array_equal(scores.nll, exact.nll), "autocast was on"


def progress_calls(tp: int, dp: int) -> list[tuple[int, int]]:
    mesh = mesh_of(tp, dp)
    calls: list[tuple[int, int]] = []
    score(
        tiny_model(mesh),
        segments_of_many_lengths(),
        seq_length=TINY.seq_length,
        vocab_size=TINY.vocab_size,
        batch_tokens=20,
        mesh=mesh,
        device=torch.device("cpu"),
        progress=lambda done, total: calls.append((done, total)),
    )
    return calls


@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_progress_rises_to_the_tokens_of_the_whole_job(pool, tp, dp):
    total = sum(len(segment.tokens) - 1 for segment in segments_of_many_lengths())
    for calls in pool(tp * dp).run(progress_calls, tp, dp):
        done = [d for d, _ in calls]
        assert {t for _, t in calls} == {total}
        assert done == sorted(done)
        assert done[0] > 0
        assert done[-1] == total


def few_segments(tp: int, dp: int, count: int) -> Scores:
    mesh = mesh_of(tp, dp)
    return run_score(tiny_model(mesh), segments_of_many_lengths()[:count], mesh)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_segments_than_ranks_leave_ranks_without_work_but_not_without_result(pool, count):
    for scores in pool(2).run(few_segments, 1, 2, count):
        assert scores.nll.shape == scores.all_greedy.shape == scores.last_greedy.shape == (count,)
        assert (scores.nll > 0).all()


def test_batches_hold_every_segment_once_and_at_most_the_tokens_allowed():
    lengths = np.random.default_rng(1).integers(1, 100, 500)
    batches = make_batches(lengths, 256)
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    padded = [int(lengths[batch].max()) * len(batch) for batch in batches]
    assert max(padded) <= 256
    assert sum(padded) < 1.05 * lengths.sum(), "neighbours by length need little padding"
    alone = make_batches(np.array([700, 3]), 256)
    assert [batch.tolist() for batch in alone] == [[0], [1]]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_dealt_work_differs_between_ranks_by_at_most_one_batch(ranks):
    costs = np.random.default_rng(1).integers(1, 1000, 100).tolist()
    hands = deal(costs, ranks)
    assert sorted(index for hand in hands for index in hand) == list(range(100))
    work = [sum(costs[index] for index in hand) for hand in hands]
    assert max(work) - min(work) <= max(costs)


def too_long(_: int) -> None:
    mesh = mesh_of(1, 1)
    with pytest.raises(AssertionError, match="exceeds the context 16"):
        run_score(tiny_model(mesh), [Segment(np.zeros(18, dtype=np.int64), 1)], mesh)
    with pytest.raises(AssertionError, match="exceed the vocabulary of 37"):
        run_score(tiny_model(mesh), [Segment(np.array([1, 37]), 1)], mesh)


def test_segments_beyond_context_or_vocabulary_are_not_scored_at_all(pool):
    pool(1).run(too_long, 0)
