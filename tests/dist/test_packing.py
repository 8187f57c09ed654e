"""Documents packed into one sample, with positions and attention that begin anew: each is as if alone."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from mlm.data.documents import DocumentStream
from mlm.data.indexed import IndexedDataset, IndexedWriter
from mlm.data.reading import ValidationSet
from mlm.data.samples import ValidationWindows
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.collectives import all_gathered, all_reduced
from mlm.parallel.data_parallel import replicate
from mlm.train.objectives.next_token import TokenBatch, TokenScorer, token_result
from mlm.train.packing import Packing
from mlm.train.step import train_step
from mlm.train.validate import HeldOut, validate
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_gradients

# Lengths of the documents in each sample of 16 tokens.
LENGTHS = [[16], [5, 11], [1, 6, 1, 8], [6, 10]]


def samples() -> tuple[Tensor, Tensor]:
    """(ids [4, 17], document_starts [4, 16])."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, TINY.vocab_size, (4, TINY.seq_length + 1), generator=generator)
    starts = [[sum(each[:d]) for d, n in enumerate(each) for _ in range(n)] for each in LENGTHS]
    return ids, torch.tensor(starts)


def packed_and_alone(tp: int, reset_positions: bool, reset_attention: bool) -> dict[str, Any]:
    mesh = mesh_of(tp, 1)
    model = tiny_model(mesh)
    ids, starts = samples()
    packing = Packing.of(starts, reset_positions=reset_positions, reset_attention=reset_attention)

    def logits(ids: Tensor, **documents: Tensor | None) -> Tensor:
        return all_gathered(model(ids, **documents).detach(), mesh.tp, 2)[..., : TINY.vocab_size]

    with torch.no_grad():
        packed = logits(ids[:, :-1], positions=packing.positions, first_key=packing.first_key)
        alone = torch.zeros_like(packed)
        for row, lengths in enumerate(LENGTHS):
            at = 0
            for length in lengths:
                alone[row, at : at + length] = logits(ids[row : row + 1, at : at + length])[0]
                at += length
        plain = logits(ids[:, :-1])
    return {"packed": packed, "alone": alone, "plain": plain}


@pytest.mark.parametrize("tp", [1, 2])
def test_logits_of_a_document_inside_a_sample_are_those_of_the_document_alone(pool, tp):
    for found in pool(tp).run(packed_and_alone, tp, True, True):
        torch.testing.assert_close(found["packed"], found["alone"], rtol=1e-12, atol=1e-12)
        later = found["plain"][1:, 6:] - found["packed"][1:, 6:]
        assert later.abs().max() > 1e-3, "without the resets the logits are others"


@pytest.mark.parametrize(("positions", "attention"), [(True, False), (False, True)])
def test_one_reset_alone_is_not_both_and_leaves_the_first_document_as_it_is(pool, positions, attention):
    (found,) = pool(1).run(packed_and_alone, 1, positions, attention)
    torch.testing.assert_close(found["packed"][1, :5], found["alone"][1, :5], rtol=1e-12, atol=1e-12)
    for other in ("alone", "plain"):
        assert (found["packed"][1, 6:] - found[other][1, 6:]).abs().max() > 1e-3


def step(tp: int, dp: int, micro: int) -> tuple[float, float, dict[str, Tensor]]:
    """Loss, norm and gradients of one training step on the packed samples."""
    mesh = mesh_of(tp, dp)
    model = tiny_model(mesh)
    replica = replicate(model, mesh.dp)
    ids, starts = samples()
    mine = slice(mesh.dp.rank * 4 // dp, (mesh.dp.rank + 1) * 4 // dp)
    batches = [
        TokenBatch(part, ids[:, 1:].numel(), Packing.of(begun, reset_positions=True, reset_attention=True))
        for part, begun in zip(ids[mine].split(micro), starts[mine].split(micro), strict=True)
    ]
    share, norm, _ = train_step(
        replica,
        AdamW(parameter_groups(model, 0.0), beta1=0.9, beta2=0.95, eps=1e-8),
        batches,
        lr=0.0,
        clip_grad_norm=None,
        mesh=mesh,
        autocast=nullcontext,
    )
    return all_reduced(share, mesh.dp).item(), norm.item(), whole_gradients(model, mesh)


def test_a_step_on_packed_samples_is_the_same_at_every_layout(pool):
    loss, norm, gradients = pool(1).run(step, 1, 1, 4)[0]
    for tp, dp, micro in [(1, 1, 1), (2, 1, 4), (1, 2, 1), (2, 2, 2)]:
        for other_loss, other_norm, other in pool(tp * dp).run(step, tp, dp, micro):
            assert other_loss == pytest.approx(loss, rel=1e-12)
            assert other_norm == pytest.approx(norm, rel=1e-12)
            for name, gradient in gradients.items():
                torch.testing.assert_close(other[name], gradient, rtol=1e-9, atol=1e-13, msg=name)


def validation(dp: int, prefix: str, micro: int) -> tuple[float, float, dict[str, float]]:
    mesh = mesh_of(1, dp)
    model = tiny_model(mesh)
    dataset = IndexedDataset(prefix)
    documents = DocumentStream(dataset, 0, dataset.num_documents, 0, shuffle=False)
    windows = ValidationWindows(dataset.tokens, 0, len(dataset.tokens), TINY.seq_length, documents)
    sets = [ValidationSet("a", 0.25, windows), ValidationSet("b", 0.75, windows)]
    score = TokenScorer(torch.device("cpu"), nullcontext, reset_positions=True, reset_attention=True)
    alone = [ValidationSet("a", 1.0, windows)]
    held_out = [HeldOut(each.weight, len(windows), partial(score, model, windows)) for each in sets]
    one = validate(model, held_out[:1], samples=None, micro_batch_size=micro, mesh=mesh)
    both = validate(model, held_out, samples=3, micro_batch_size=micro, mesh=mesh)
    found = token_result(alone, one)
    return found.values["nll"], found.loss, token_result(sets, both).values


def test_validation_scores_each_document_as_if_it_were_alone(pool, tmp_path):
    generator = torch.Generator().manual_seed(4)
    # Windows end at 16 and 32, where documents end too: alone, each has the context that it has there.
    texts = [torch.randint(0, TINY.vocab_size, (n,), generator=generator) for n in (7, 4, 5, 16, 9)]
    with IndexedWriter(tmp_path / "d", TINY.vocab_size) as writer:
        for text in texts:
            writer.add_document(text.numpy())
    stream = torch.cat(texts)
    model = tiny_model(mesh_of(1, 1))
    expected = 0.0
    with torch.no_grad():
        at = 0
        for text in texts:
            logits = model(text[None])[0, :, : TINY.vocab_size]
            targets = stream[at + 1 : at + len(text) + 1]
            expected += torch.nn.functional.cross_entropy(
                logits[: len(targets)], targets, reduction="sum"
            ).item()
            at += len(text)
    for dp, micro in [(1, 1), (1, 3), (2, 1)]:
        for nll, loss, blend in pool(dp).run(validation, dp, str(tmp_path / "d"), micro):
            assert nll == pytest.approx(expected, rel=1e-12)
            assert loss == pytest.approx(expected / (len(stream) - 1), rel=1e-12)
            mean = 0.25 * blend["loss_a"] + 0.75 * blend["loss_b"]
            assert blend["loss"] == pytest.approx(mean, rel=1e-13)
            assert blend["tokens"] == 16 + 2 * 16, "one window of a, two of b"
