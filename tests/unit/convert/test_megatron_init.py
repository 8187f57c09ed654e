"""init_from and model=from_checkpoint on Megatron-LM trees, as the launcher checks them."""

import pytest
import torch

from mlm.config.compose import compose
from mlm.errors import ConfigError
from mlm.launch.initial_weights import weights_problems
from mlm.launch.training import SPEC
from tests.megatron_tree import Dense, write_tree


def tree(tmp_path, **more):
    return write_tree(Dense(vocab=50257, layers=1), tmp_path, version=0, tp=2, unit=128, **more)


def chosen(*overrides):
    return compose(overrides, (), SPEC)


def test_the_model_comes_from_the_tree_and_typed_numbers_answer_what_it_leaves_open(tmp_path):
    root = tree(tmp_path)
    asked = [f"init_from={root}", "model=from_checkpoint"]
    with pytest.raises(ConfigError, match=r"does not say how many are real: .*model\.vocab_size=N"):
        chosen(*asked)
    config = chosen(*asked, "model.vocab_size=50257")
    model = config.model
    assert (model.num_layers, model.hidden_size, model.num_heads, model.seq_length) == (1, 16, 4, 12)
    assert (model.vocab_size, config.tokenizer.kind) == (50257, "gpt2")
    assert weights_problems(str(root), config, config) == []


def test_a_model_of_another_shape_and_a_damaged_rank_are_refused_before_anything_starts(tmp_path):
    root = tree(tmp_path, tokenizer_type="GPT2BPETokenizer")
    config = chosen(f"init_from={root}", "model=from_checkpoint", "model.hidden_size=32", "model.gelu=erf")
    found = "\n".join(map(str, weights_problems(str(root), config, config)))
    assert "model.hidden_size=32 is 16 in" in found
    assert "model.gelu=erf is tanh in" in found
    path = root / "iter_0000300" / "mp_rank_01" / "model_optim_rng.pt"
    path.write_bytes(path.read_bytes()[:5000])
    config = chosen("model=gpt2_tiny")
    (problem,) = weights_problems(str(root), config, config)
    assert problem.where == str(path)
    assert problem.wrong.startswith("is damaged or no file of torch.save (BadZipFile: ")


def test_a_rank_that_would_run_code_needs_allow_pickle(tmp_path):
    root = tree(tmp_path)
    path = root / "iter_0000300" / "mp_rank_01" / "model_optim_rng.pt"
    content = torch.load(path, weights_only=False)
    content["args"].run = print
    torch.save(content, path)
    asked = [f"init_from={root}", "model=from_checkpoint", "model.vocab_size=50257"]
    with pytest.raises(ConfigError, match=r"asks for print, which is code .* allow_pickle=true"):
        chosen(*asked)
    assert chosen(*asked, "allow_pickle=true").model.num_layers == 1
