"""Initial values, closed forms and the two dropout streams."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mlm.data.samples import ValidationWindows
from mlm.parallel.parameter import initialise, named_declarations
from mlm.parallel.rng import RngStreams
from mlm.train.objectives.next_token import TokenScorer
from mlm.train.validate import HeldOut, validate
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_parameters


def closed_form(tp: int, padded: int) -> float:
    model = tiny_model(mesh_of(tp, 1), init_std=0.0, padded_vocab_size=padded)
    ids = torch.arange(2 * TINY.seq_length).view(2, -1) % TINY.vocab_size
    weights = torch.full(ids.shape, 1.0 / ids.numel(), dtype=torch.float64)
    return model(ids, ids, weights).item()


# 37 is prime, so that tp > 1 needs padding; 160 leaves three of four ranks with nothing but padding.
@pytest.mark.parametrize(("tp", "padded"), [(1, 37), (1, 40), (2, 40), (4, 40), (2, 160), (4, 160)])
def test_without_initial_weights_the_loss_is_exactly_ln_of_the_real_vocabulary(pool, tp, padded):
    for loss in pool(tp).run(closed_form, tp, padded):
        assert loss == pytest.approx(math.log(TINY.vocab_size), rel=1e-14)


def initial(tp: int, seed: int) -> dict[str, torch.Tensor]:
    mesh = mesh_of(tp, 1)
    return whole_parameters(tiny_model(mesh, torch.float32, seed=seed, tie_embeddings=False), mesh)


def test_initial_parameters_are_bit_identical_at_every_degree_and_differ_between_seeds(pool):
    one = pool(1).run(initial, 1, 7)[0]
    for tp in (2, 4):
        for other in pool(tp).run(initial, tp, 7):
            assert all(torch.equal(one[name], other[name]) for name in one)
    reseeded = pool(1).run(initial, 1, 8)[0]
    assert not torch.equal(one["head.weight"], reseeded["head.weight"])
    assert not torch.equal(one["layers.0.mlp.expand.weight"], one["layers.1.mlp.expand.weight"])


def test_initial_weights_have_the_papers_deviations():
    model = tiny_model(mesh_of(1, 1), init_std=0.02, hidden_size=128)
    for name, parameter, declaration in named_declarations(model):
        if name.endswith("norm.weight"):
            assert (parameter == 1).all(), name
        elif parameter.dim() == 1:
            assert (parameter == 0).all(), name
        else:
            before_residual = "projection" in name or "contract" in name
            expected = 0.02 / math.sqrt(2 * TINY.num_layers) if before_residual else 0.02
            drawn = parameter[: declaration.drawn_rows]
            # The sample deviation of n draws is within 5 / sqrt(2n) of the true one but for 1 in 10^6.
            assert drawn.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * drawn.numel())), name


def test_padding_rows_start_at_zero_and_do_not_move_the_others():
    small = tiny_model(mesh_of(1, 1), padded_vocab_size=37).embedding.word.weight
    large = tiny_model(mesh_of(1, 1), padded_vocab_size=64).embedding.word.weight
    assert torch.equal(small, large[:37])
    assert (large[37:] == 0).all()


def masks(tp: int, dp: int) -> dict[str, Any]:
    """What the two streams draw on this rank, in two consecutive calls."""
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh, attention_dropout=0.5, dropout=0.5)
    rng = model.layers[0].attention.rng
    outside, inside = [], []
    for _ in range(2):
        with rng.tensor_parallel_region():
            inside.append(F.dropout(torch.ones(256), 0.5))
        outside.append(F.dropout(torch.ones(256), 0.5))
    ids = torch.zeros(1, TINY.seq_length, dtype=torch.long)
    return {
        "dp": mesh.dp.rank,
        "tp": mesh.tp.rank,
        "in": inside,
        "out": outside,
        "y": model.embedding(ids).detach(),
    }


def test_dropout_masks_agree_outside_and_differ_inside_the_split_regions(pool):
    ranks = pool(4).run(masks, 2, 2)
    for a in ranks:
        assert not torch.equal(a["out"][0], a["out"][1]), "the outer stream moves on"
        assert not torch.equal(a["in"][0], a["in"][1]), "the inner stream moves on"
        for b in ranks:
            if a is b:
                continue
            same_replica = a["dp"] == b["dp"]
            for call in (0, 1):
                assert torch.equal(a["out"][call], b["out"][call]) == same_replica
                assert not torch.equal(a["in"][call], b["in"][call])
            assert torch.equal(a["y"], b["y"]) == same_replica, "the residual stream of a replica is one"


def draws(tp: int, dp: int, seed: int, steps: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What both streams draw at the beginning of each of the steps, in that order."""
    rng = RngStreams(seed, mesh_of(tp, dp), torch.device("cpu"))
    drawn = []
    for step in steps:
        rng.begin_step(step)
        with rng.tensor_parallel_region():
            inside = torch.rand(64)
        drawn.append((torch.rand(64), inside))
        torch.rand(step)  # as many more as it likes
    return drawn


def test_what_a_step_draws_follows_from_seed_step_and_rank_alone(pool):
    here = pool(4).run(draws, 2, 2, 5, [1, 2, 3])
    again = pool(4).run(draws, 2, 2, 5, [3, 7, 1])
    for rank in range(4):
        for kind in (0, 1):
            assert torch.equal(here[rank][0][kind], again[rank][2][kind]), "step 1, after others"
            assert torch.equal(here[rank][2][kind], again[rank][0][kind]), "step 3, before others"
    other_seed = pool(4).run(draws, 2, 2, 6, [1, 2, 3])
    # Outside, tp ranks 0 and 1 of a replica draw alike: two streams a step; inside, four.
    for kind, streams in ((0, 2), (1, 4)):
        drawn = {tuple(step[kind].tolist()) for rank in (*here, *other_seed) for step in rank}
        assert len(drawn) == 2 * 3 * streams


def dropped_and_not(tp: int) -> tuple[float, float, float, float]:
    model = tiny_model(mesh_of(tp, 1), attention_dropout=0.5, dropout=0.5)
    ids = torch.arange(TINY.seq_length).view(1, -1) % TINY.vocab_size
    weights = torch.full(ids.shape, 1.0 / ids.numel(), dtype=torch.float64)
    model.train()
    first, second = model(ids, ids, weights).item(), model(ids, ids, weights).item()
    model.eval()
    return first, second, model(ids, ids, weights).item(), model(ids, ids, weights).item()


def test_dropout_acts_in_training_only_and_alike_on_all_ranks(pool):
    (first, second, third, fourth), other = pool(2).run(dropped_and_not, 2)
    assert (first, second, third, fourth) == other, "the loss is one number, whatever each rank drops"
    assert first != second
    assert third == fourth
    assert third == pytest.approx(pool(1).run(dropped_and_not, 1)[0][2], rel=1e-12)


def validated(tp: int, dp: int, batch: int, samples: int | None) -> tuple[float, int]:
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, TINY.vocab_size, (6 * TINY.seq_length + 6,), generator=generator).numpy()
    windows = ValidationWindows(tokens, 0, len(tokens), TINY.seq_length)
    state = torch.get_rng_state()
    score = partial(TokenScorer(torch.device("cpu"), nullcontext), model, windows)
    held_out = [HeldOut(1.0, len(windows), score)]
    ((nll, scored),) = validate(model, held_out, samples=samples, micro_batch_size=batch, mesh=mesh)
    assert torch.equal(state, torch.get_rng_state()), "validation draws no random numbers"
    assert model.training, "validation leaves the mode as it was"
    return nll / scored, round(scored)


@pytest.mark.parametrize("samples", [None, 5])
def test_validation_loss_does_not_depend_on_batch_size_or_layout(pool, samples):
    expected, tokens = pool(1).run(validated, 1, 1, 1, samples)[0]
    assert tokens == (6 * TINY.seq_length + 5 if samples is None else 5 * TINY.seq_length)
    for tp, dp, batch in [(1, 1, 2), (1, 1, 4), (1, 1, 7), (2, 1, 3), (1, 2, 2), (2, 2, 3), (1, 4, 5)]:
        for loss, count in pool(tp * dp).run(validated, tp, dp, batch, samples):
            assert count == tokens
            assert loss == pytest.approx(expected, rel=1e-13), f"tp={tp} dp={dp} batch={batch}"


def test_initialise_is_repeatable_in_place():
    model = tiny_model(mesh_of(1, 1))
    before = [p.clone() for p in model.parameters()]
    initialise(model, 7, mesh_of(1, 1).tp)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
