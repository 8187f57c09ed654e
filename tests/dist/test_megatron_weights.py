"""A training at any tp starts from a Megatron-LM tree of any other with exactly the tree's weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mlm.convert.filling import fill_from
from mlm.convert.formats import open_source
from mlm.convert.heads import Heads
from mlm.convert.source import Reading
from mlm.models.registry import build_model
from mlm.parallel.rng import RngStreams
from tests.dist.meshes import mesh_of, whole_parameters
from tests.megatron_tree import Dense, expected_parameters, hidden_states, write_tree

CASES = [(False, 0, 4), (False, 1, 2), (True, 2, 1)]  # (bert, version, tp of the tree)


def fill(roots: list[Path], tp: int):
    """Of each tree the whole parameters of a model at this tp, and GPT's loss on fixed ids."""
    mesh, found = mesh_of(tp, 1), []
    for root, (bert, _, _) in zip(roots, CASES, strict=True):
        source = open_source(root, Reading(vocab_size=45))
        config = replace(source.model, padded_vocab_size=48, dropout=0.0, attention_dropout=0.0)
        rng = RngStreams(0, mesh, torch.device("cpu"))
        model = build_model(config, tp=mesh.tp, rng=rng, seed=0, dtype=torch.float64)
        assert not fill_from(source, config, model, mesh.tp, Heads()).fresh
        ids = torch.arange(24).view(2, 12)
        weights = torch.full((2, 12), 1 / 24, dtype=torch.float64)
        loss = None if bert else model(ids, ids + 1, weights).item()
        found.append((whole_parameters(model, mesh), loss))
    return found


@pytest.mark.parametrize("tp", [1, 2])
def test_every_rank_takes_its_slices_of_a_tree_of_another_degree(tp, pool, tmp_path):
    roots = [
        write_tree(Dense(bert=bert), tmp_path / str(number), version=version, tp=degree)
        for number, (bert, version, degree) in enumerate(CASES)
    ]
    for found in pool(tp).run(fill, roots, tp):
        for (parameters, loss), (bert, _, _) in zip(found, CASES, strict=True):
            dense = Dense(bert=bert)
            expected = expected_parameters(dense)
            assert parameters.keys() == expected.keys()
            for name, tensor in expected.items():
                assert torch.equal(parameters[name][: len(tensor)], tensor.double()), name
                assert not parameters[name][len(tensor) :].any(), f"rows of padding of {name}"
            if loss is not None:
                ids = torch.arange(24).view(2, 12)
                logits = hidden_states(dense, ids) @ dense.tensors["word"].double().T
                right = torch.nn.functional.cross_entropy(logits.flatten(0, 1), (ids + 1).flatten())
                assert abs(loss - right.item()) < 1e-12
