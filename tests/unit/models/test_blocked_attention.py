"""CPU attention against torch's scaled_dot_product_attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

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
