"""Heads of fine-tuning against those of transformers with the same weights, and against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlm.convert.filling import fill_from
from mlm.convert.formats import open_source
from mlm.convert.heads import allowed_heads
from mlm.convert.source import Reading
from mlm.models.registry import build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from tests.foreign import made, saved

SEQ = 16


def with_trunk_of(theirs: Any, folder: Path, objective: str) -> nn.Module:
    """Our model of that objective, in eval mode, its encoder that of a transformers model."""
    source = open_source(saved(theirs.bert, folder), Reading())
    mesh = Mesh.single()
    rng = RngStreams(1, mesh, torch.device("cpu"))
    ours = build_model(source.model, tp=mesh.tp, rng=rng, seed=1, objective=objective)
    fresh = fill_from(source, source.model, ours, mesh.tp, allowed_heads(objective))
    assert sorted(fresh) == ["task_head.bias", "task_head.weight"]
    return ours.eval()


def copy_head(ours: nn.Module, theirs: nn.Linear) -> None:
    with torch.no_grad():
        ours.task_head.weight.copy_(theirs.weight)
        ours.task_head.bias.copy_(theirs.bias)


def sequences(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """ids, segments and real, of different lengths."""
    draw = torch.Generator().manual_seed(5)
    lengths = torch.tensor([SEQ, 9, 12, 7, 14, 10, 16, 8])[:count]
    ids = torch.randint(5, 90, (count, SEQ), generator=draw)
    return ids, (torch.arange(SEQ) >= 5).long().expand(count, -1), torch.arange(SEQ) < lengths[:, None]


def test_choice_is_that_of_transformers_multiple_choice(tmp_path: Path):
    theirs = made("BertForMultipleChoice")
    ours = with_trunk_of(theirs, tmp_path, "race")
    copy_head(ours, theirs.classifier)
    ids, segments, real = sequences(8)
    labels = torch.tensor([2, 0])
    expected = theirs(
        input_ids=ids.view(2, 4, SEQ),
        token_type_ids=segments.reshape(2, 4, SEQ),
        attention_mask=real.view(2, 4, SEQ).long(),
        labels=labels,
    )
    scores = ours.scores(ids, segments, real)
    torch.testing.assert_close(scores, expected.logits, atol=1e-5, rtol=0)
    loss, hits = ours(ids, segments, real, labels, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)
    assert hits.tolist() == [(expected.logits.argmax(1) == labels).double().mean().item()]


@pytest.mark.parametrize(("objective", "classes"), [("mnli", 3), ("qqp", 2)])
def test_classes_are_those_of_transformers_sequence_classification(
    tmp_path: Path, objective: str, classes: int
):
    theirs = made("BertForSequenceClassification", num_labels=classes)
    ours = with_trunk_of(theirs, tmp_path, objective)
    copy_head(ours, theirs.classifier)
    ids, segments, real = sequences(4)
    labels = torch.tensor([1, 0, 1, classes - 1])
    expected = theirs(input_ids=ids, token_type_ids=segments, attention_mask=real.long(), labels=labels)
    torch.testing.assert_close(ours.scores(ids, segments, real), expected.logits, atol=1e-5, rtol=0)
    loss, _ = ours(ids, segments, real, labels, torch.full((4,), 0.25))
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)


def test_spans_are_those_of_transformers_question_answering_where_one_may_stand(tmp_path: Path):
    theirs = made("BertForQuestionAnswering")
    ours = with_trunk_of(theirs, tmp_path, "squad_v1")
    copy_head(ours, theirs.qa_outputs)
    ids, segments, real = sequences(4)
    expected = theirs(input_ids=ids, token_type_ids=segments, attention_mask=real.long())
    logits = torch.stack((expected.start_logits, expected.end_logits), dim=-1)
    answerable = real & (segments == 1)
    answerable[:, 0] = True
    scores = ours.scores(ids, segments, real, answerable)
    torch.testing.assert_close(scores[answerable], logits[answerable], atol=1e-5, rtol=0)
    assert (scores[~answerable] == torch.finfo(torch.float32).min).all()
    # With every position allowed the loss is theirs, the mean of beginning and end.
    targets = torch.tensor([[5, 7], [6, 6], [0, 0], [5, 6]])
    loss, hits = ours(
        ids, segments, real, torch.ones_like(real), targets, torch.full((4,), 0.25, dtype=torch.float64)
    )
    theirs_loss = theirs(
        input_ids=ids,
        token_type_ids=segments,
        attention_mask=real.long(),
        start_positions=targets[:, 0],
        end_positions=targets[:, 1],
    ).loss
    torch.testing.assert_close(loss, theirs_loss, atol=1e-5, rtol=0)
    assert hits.item() == (logits.argmax(1) == targets).all(1).double().mean().item()


@pytest.mark.parametrize(("objective", "options"), [("race", 4), ("mnli", 3), ("qqp", 2), ("squad_v2", 11)])
def test_without_initial_weights_every_answer_is_equally_likely(objective: str, options: int, tmp_path: Path):
    model = open_source(saved(made("BertModel"), tmp_path), Reading()).model
    mesh = Mesh.single()
    rng = RngStreams(1, mesh, torch.device("cpu"))
    shape = replace(model, init_std=0.0)
    built = build_model(shape, tp=mesh.tp, rng=rng, seed=1, objective=objective, dtype=torch.float64)
    ids, segments, real = sequences(4)
    extra: list[Tensor] = []
    labels = torch.tensor([0] if objective == "race" else [0] * 4)
    if objective == "squad_v2":
        answerable = torch.zeros_like(real)
        answerable[:, :options] = True
        extra, labels = [answerable], torch.zeros(4, 2, dtype=torch.int64)
    weights = torch.full((len(labels),), 1 / len(labels), dtype=torch.float64)
    loss, _ = built(ids, segments, real, *extra, labels, weights)
    assert loss.item() == pytest.approx(math.log(options), abs=1e-12)
