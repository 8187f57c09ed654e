"""Each rearrangement of elements, against where an element has to go by the definition of the two orders."""

from __future__ import annotations

import pytest
import torch

from mlm.config.schema import ModelConfig
from mlm.convert.forms import FORMS
from mlm.models.names import Form

HEADS, DIM, WIDTH, REAL, ROWS = 3, 2, 5, 7, 10
MODEL = ModelConfig(
    name="m",
    num_layers=1,
    hidden_size=HEADS * DIM,
    num_heads=HEADS,
    seq_length=4,
    vocab_size=REAL,
    padded_vocab_size=ROWS,
)
QKV = (3 * HEADS * DIM, WIDTH)
OURS = {
    Form.PLAIN: (4, WIDTH),
    Form.TRANSPOSED: (4, WIDTH),
    Form.QKV_BLOCKS: QKV,
    Form.QKV_BLOCKS_TRANSPOSED: QKV,
    Form.QKV_PARTS: QKV,
    Form.VOCABULARY_ROWS: (ROWS, WIDTH),
}


def numbered(form: Form) -> torch.Tensor:
    shape = OURS[form]
    tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
    if form is Form.VOCABULARY_ROWS:
        tensor[REAL:] = 0.0
    return tensor


@pytest.mark.parametrize("form", list(Form))
def test_a_form_is_a_bijection_between_the_shapes_that_it_names(form):
    ours = numbered(form)
    theirs = FORMS[form].to_theirs(ours, MODEL)
    assert [tuple(each.shape) for each in theirs] == FORMS[form].their_shapes(OURS[form], MODEL)
    assert torch.equal(FORMS[form].to_ours(theirs, MODEL), ours)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("head", range(HEADS))
def test_q_k_and_v_of_each_head_stand_where_the_two_orders_say(head, part):
    """Ours: rows [heads, 3, head_dim]; theirs: [3, heads, head_dim], as columns, or as three tensors."""
    for element in range(DIM):
        here, there = (head * 3 + part) * DIM + element, (part * HEADS + head) * DIM + element
        row = numbered(Form.QKV_BLOCKS)[here]
        assert torch.equal(FORMS[Form.QKV_BLOCKS].to_theirs(numbered(Form.QKV_BLOCKS), MODEL)[0][there], row)
        columns = FORMS[Form.QKV_BLOCKS_TRANSPOSED].to_theirs(numbered(Form.QKV_BLOCKS), MODEL)[0]
        assert torch.equal(columns[:, there], row)
        parts = FORMS[Form.QKV_PARTS].to_theirs(numbered(Form.QKV_BLOCKS), MODEL)
        assert torch.equal(parts[part][head * DIM + element], row)


def test_the_bias_of_q_k_and_v_moves_as_their_rows_do():
    bias = torch.arange(float(QKV[0]))
    matrix = bias[:, None].expand(QKV)
    for form in (Form.QKV_BLOCKS, Form.QKV_PARTS):
        moved = FORMS[form].to_theirs(bias, MODEL)
        rows = FORMS[form].to_theirs(matrix, MODEL)
        assert all(torch.equal(v, m[:, 0]) for v, m in zip(moved, rows, strict=True))


def test_rows_of_padding_are_dropped_on_the_way_out_and_zeros_on_the_way_in():
    theirs = torch.ones(REAL, WIDTH)
    ours = FORMS[Form.VOCABULARY_ROWS].to_ours([theirs], MODEL)
    assert torch.equal(ours[:REAL], theirs)
    assert torch.equal(ours[REAL:], torch.zeros(ROWS - REAL, WIDTH))
    assert FORMS[Form.VOCABULARY_ROWS].to_theirs(ours + 1, MODEL)[0].shape == (REAL, WIDTH)
