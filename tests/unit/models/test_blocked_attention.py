"""CPU attention against torch's scaled_dot_product_attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mlm.models.attention import fused_causal_attention
from mlm.models.blocked_attention import BLOCK, blocked_causal_attention


@pytest.mark.parametrize("seq", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_blocked_attention_and_its_gradients_equal_the_fused_kernel(seq):
    torch.manual_seed(0)
    # Views into one tensor, strided as the model hands them over.
    qkv = torch.randn(3, 2, seq, 4, 8, dtype=torch.float64)
    ours = [t.transpose(1, 2).detach().requires_grad_() for t in qkv.unbind(0)]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    grad = torch.randn(2, seq, 4, 8, dtype=torch.float64).transpose(1, 2)
    mine = blocked_causal_attention(*ours)
    reference = F.scaled_dot_product_attention(*theirs, is_causal=True)
    torch.testing.assert_close(mine, reference, rtol=1e-12, atol=1e-12)
    mine.backward(grad)
    reference.backward(grad)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-12)


def test_no_query_sees_a_later_key():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 2 * BLOCK, 4, dtype=torch.float64).unbind(0)
    before = blocked_causal_attention(q, k, v)
    for position in (5, BLOCK, BLOCK + 9):
        changed_k, changed_v = k.clone(), v.clone()
        changed_k[:, :, position:] += 100.0
        changed_v[:, :, position:] -= 100.0
        after = blocked_causal_attention(q, changed_k, changed_v)
        assert torch.equal(before[:, :, :position], after[:, :, :position])
        assert not torch.equal(before[:, :, position], after[:, :, position])


@pytest.mark.parametrize("attention", [blocked_causal_attention, fused_causal_attention])
@pytest.mark.parametrize("seq", [1, 7, BLOCK, BLOCK + 1, 2 * BLOCK + 37])
def test_attention_from_a_first_key_on_and_its_gradients_equal_a_masked_softmax(seq, attention):
    generator = torch.Generator().manual_seed(seq)
    batch, heads, head_dim = 3, 2, 8
    qkv = torch.randn(3, batch, seq, heads, head_dim, dtype=torch.float64, generator=generator)
    ours = [t.transpose(1, 2).detach().requires_grad_() for t in qkv.unbind(0)]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    # Documents of any length, one of a single token; the second sample has one document only.
    begins = torch.rand(batch, seq, generator=generator) < 0.05
    begins[0, seq // 2 :] |= torch.arange(seq - seq // 2) < 2
    begins[1], begins[:, 0] = False, True
    first_key = torch.where(begins, torch.arange(seq), 0).cummax(dim=1).values

    q, k, v = theirs
    seen = torch.zeros(batch, 1, seq, seq, dtype=torch.bool)
    for b in range(batch):
        for i in range(seq):
            seen[b, 0, i, int(first_key[b, i]) : i + 1] = True
    scores = (q @ k.transpose(2, 3) / head_dim**0.5).masked_fill(~seen, float("-inf"))
    reference = scores.softmax(-1) @ v
    mine = attention(*ours, first_key)
    torch.testing.assert_close(mine, reference, rtol=1e-12, atol=1e-12)
    grad = torch.randn(reference.shape, dtype=torch.float64, generator=generator)
    mine.backward(grad)
    reference.backward(grad)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("attention", [blocked_causal_attention, fused_causal_attention])
def test_documents_that_begin_with_the_sample_change_nothing(attention):
    q, k, v = torch.randn(3, 2, 2, BLOCK + 9, 4, generator=torch.Generator().manual_seed(1)).unbind(0)
    whole = attention(q, k, v)
    torch.testing.assert_close(attention(q, k, v, torch.zeros(2, BLOCK + 9, dtype=torch.long)), whole)
