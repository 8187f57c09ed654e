"""Sampling gives the same text at every tensor-parallel degree."""

from __future__ import annotations

import torch

from mlm.generate.sample import sample
from tests.dist.meshes import TINY, mesh_of, tiny_model


def generated(tp: int, top_k: int | None) -> list[int]:
    mesh = mesh_of(tp, 1)
    # Padding of 160 - 37 ids: drawn from, some would surely appear.
    model = tiny_model(mesh, padded_vocab_size=160)
    ids = sample(
        model,
        torch.tensor([1, 2, 3]),
        new_tokens=40,
        seq_length=TINY.seq_length,
        vocab_size=TINY.vocab_size,
        tp=mesh.tp,
        top_k=top_k,
        seed=5,
    )
    return ids.tolist()


def test_every_degree_draws_the_same_ids_and_never_padding(pool):
    one = pool(1).run(generated, 1, None)[0]
    assert one[:3] == [1, 2, 3]
    assert len(one) == 43
    assert max(one) < TINY.vocab_size
    assert len(set(one)) > 5
    for tp in (2, 4):
        assert all(ids == one for ids in pool(tp).run(generated, tp, None))


def test_top_1_is_the_argmax_of_the_models_own_logits(pool):
    ids = pool(2).run(generated, 2, 1)[0]
    model = tiny_model(mesh_of(1, 1), padded_vocab_size=160)
    for end in range(3, len(ids)):
        logits = model(torch.tensor([ids[max(0, end - TINY.seq_length) : end]]))[0, -1, : TINY.vocab_size]
        assert ids[end] == logits.argmax().item()
