"""The same weights in another library's GPT-2 give the same logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mlm.config.schema import Gelu
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_parameters
from tests.transformers_gpt2 import as_transformers


@pytest.mark.parametrize("gelu", list(Gelu))
def test_logits_equal_those_of_transformers_gpt2_to_1e_5(gelu):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    mesh = mesh_of(1, 1)
    model = tiny_model(mesh, torch.float32, gelu=gelu)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too, or their order could not be wrong
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    theirs = as_transformers(replace(TINY, gelu=gelu), whole_parameters(model, mesh))
    ids = torch.randint(0, TINY.vocab_size, (3, TINY.seq_length), generator=generator)
    with torch.no_grad():
        ours = model.eval()(ids)[..., : TINY.vocab_size]
        expected = theirs(ids).logits
    assert expected.std() > 0.5, "logits that say something"
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)
