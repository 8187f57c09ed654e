"""Megatron-LM trees that independent code wrote are read as the dense model they were made from."""

import argparse
from pathlib import Path

import pytest
import torch

from mlm.config.schema import Gelu
from mlm.convert.declared import declarations
from mlm.convert.formats import open_source, recognised
from mlm.convert.source import Reading
from mlm.convert.walk import check_copies, match, tensors
from mlm.errors import ConfigError
from mlm.models.registry import build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from tests.megatron_tree import Dense, expected_parameters, hidden_states, write_tree


def read(root, **reading):
    """Name -> tensor of all that the tree holds, and its source."""
    source = open_source(root, Reading(**{"vocab_size": 45} | reading))
    found = match(source, source.model, {n: d.shape for n, d in declarations(source.model).items()})
    check_copies(source, found)
    return dict(tensors(source, source.model, found)), source


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    differing = [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)]
    assert not differing


def change(root, change, rank="mp_rank_00"):
    """Rewrite a rank's file with what change makes of its content."""
    path = root / "iter_0000300" / rank / "model_optim_rng.pt"
    content = torch.load(path, weights_only=False)
    change(content)
    torch.save(content, path)


def problems(root, **reading):
    with pytest.raises(ConfigError) as refused:
        read(root, **reading)
    return "\n".join(map(str, refused.value.problems))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_a_tree_of_any_version_and_degree_gives_exactly_the_dense_tensors(tmp_path, version, tp, pp):
    dense = Dense()
    found, source = read(write_tree(dense, tmp_path, version=version, tp=tp, pp=pp))
    assert_equal(found, expected_parameters(dense))
    model = source.model
    assert (model.num_layers, model.num_heads, model.hidden_size) == (2, 4, 16)
    assert (model.ffn_hidden_size, model.seq_length, model.vocab_size) == (24, 12, 45)
    assert (model.gelu, model.layernorm_eps, model.name) == (Gelu.tanh, 1e-5, tmp_path.name)


def filled(source, found):
    """The model in float64 with what was read, in evaluation."""
    mesh = Mesh.single()
    rng = RngStreams(0, mesh, torch.device("cpu"))
    model = build_model(source.model, tp=mesh.tp, rng=rng, seed=0, dtype=torch.float64).eval()
    tied = {"head.weight": found["embedding.word.weight"]} if "head.weight" in model.state_dict() else {}
    model.load_state_dict({**found, **tied})
    return model


@pytest.mark.parametrize("version", [0, 1, 2])
def test_logits_equal_those_of_the_dense_mathematics(tmp_path, version):
    dense = Dense()
    found, source = read(write_tree(dense, tmp_path, version=version, tp=2))
    ids = torch.randint(45, (3, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = filled(source, found)(ids)
    expected = hidden_states(dense, ids) @ dense.tensors["word"].double().T
    assert (logits - expected).abs().max() < 1e-10


@pytest.mark.parametrize(("version", "tp", "pp"), [(0, 2, 1), (1, 4, 1), (2, 1, 1), (3, 2, 2)])
def test_bert_gives_the_dense_tensors_and_their_hidden_states_and_pooled_vector(tmp_path, version, tp, pp):
    dense = Dense(bert=True)
    found, source = read(write_tree(dense, tmp_path, version=version, tp=tp, pp=pp))
    assert_equal(found, expected_parameters(dense))
    ids = torch.randint(45, (3, 12), generator=torch.Generator().manual_seed(1))
    segments = (torch.arange(12) > 6).long().expand(3, -1)
    model = filled(source, found)
    with torch.no_grad():
        hidden = model.hidden_states(ids, segments, torch.ones(3, 12, dtype=torch.bool))
        pooled = model.pooled(hidden)
    expected = hidden_states(dense, ids, segments)
    assert (hidden - expected).abs().max() < 1e-10
    weight, bias = dense.tensors["pooler.weight"].double(), dense.tensors["pooler.bias"].double()
    assert (pooled - torch.tanh(expected[:, 0] @ weight.T + bias)).abs().max() < 1e-10


def test_a_bert_with_two_forms_of_gelu_says_so(tmp_path):
    root = write_tree(Dense(bert=True), tmp_path, version=2, tp=1)
    assert read(root)[1].cautions == ()
    change(root, lambda content: setattr(content["args"], "bias_gelu_fusion", True))
    assert "erf form in its masked-token head" in read(root)[1].cautions[0]


def test_a_tree_an_iteration_and_a_file_are_recognised_by_looking(tmp_path):
    root = write_tree(Dense(), tmp_path / "tree", version=2, tp=2)
    rank = root / "iter_0000300" / "mp_rank_00"
    for path in (root, root / "iter_0000300", rank / "model_optim_rng.pt"):
        assert recognised(path) == "megatron"
        assert read(path)[1].model.name == "tree"
    assert recognised(tmp_path) is None
    assert recognised(Path("tests")) is None


def test_a_release_tree_without_args_asks_for_heads_and_vocabulary_and_takes_them(tmp_path):
    dense = Dense(hidden=64, vocab=50257, layers=1)
    root = write_tree(dense, tmp_path, version=0, tp=1, unit=128)
    (root / "iter_0000300").rename(root / "release")
    (root / "latest_checkpointed_iteration.txt").write_text("release\n")
    path = root / "release" / "mp_rank_00" / "model_optim_rng.pt"
    content = torch.load(path, weights_only=False)
    del content["args"]
    torch.save(content, path)
    asked = problems(root, vocab_size=None)
    assert "does not say how many attention heads" in asked
    assert "--heads N" in asked
    assert "has 50304 rows of tokens, padding included" in asked
    assert "50257 for GPT-2's tokenizer" in asked
    found, source = read(root, vocab_size=50257, num_heads=4)
    assert_equal(found, expected_parameters(dense))
    assert source.model.gelu is Gelu.tanh
    assert source.model.layernorm_eps == 1e-5
    assert source.tokenizer.kind == "gpt2"


def test_a_known_tokenizer_that_pads_to_just_these_rows_answers_for_the_vocabulary(tmp_path):
    root = write_tree(
        Dense(vocab=50257, layers=1), tmp_path, version=3, tp=2, unit=128, tokenizer_type="GPT2BPETokenizer"
    )
    found, source = read(root, vocab_size=None)
    assert source.model.vocab_size == 50257
    assert len(found["embedding.word.weight"]) == 50257


@pytest.mark.parametrize("tp", [1, 2])
def test_a_deleted_and_an_added_tensor_are_refused_by_name_both_at_once(tmp_path, tp):
    root = write_tree(Dense(), tmp_path, version=2, tp=tp)

    def spoil(content):
        stack = content["model"]["language_model"]["transformer"]
        del stack["final_layernorm.bias"]
        stack["layers.1.mlp.router.weight"] = torch.zeros(2)

    for rank in range(tp):
        change(root, spoil, f"mp_rank_{rank:02d}")
    found = problems(root)
    assert "lacks language_model.transformer.final_layernorm.bias (final_norm.bias)" in found
    assert "holds language_model.transformer.layers.1.mlp.router.weight" in found


def test_a_layer_that_is_gone_and_other_contradictions_of_the_args_are_all_named(tmp_path):
    root = write_tree(Dense(), tmp_path, version=2, tp=1, swiglu=True, num_experts=8, kv_channels=8)

    def spoil(content):
        stack = content["model"]["language_model"]["transformer"]
        for name in [name for name in stack if name.startswith("layers.1.")]:
            del stack[name]

    change(root, spoil)
    found = problems(root)
    assert "says num_layers=2 in its args and holds tensors of num_layers=1" in found
    assert "swiglu=True" in found
    assert "num_experts=8" in found
    assert "has heads of 8, 4 of which are not its hidden_size=16" in found


def test_ranks_of_different_checkpoints_are_refused(tmp_path):
    root = write_tree(Dense(), tmp_path, version=2, tp=2)
    change(root, lambda content: content.update(checkpoint_version=3.0), "mp_rank_01")
    assert "has checkpoint_version 3, mp_rank_00 has 2" in problems(root)
    change(root, lambda content: content.update(checkpoint_version=2.0), "mp_rank_01")

    def later(content):
        content["model"]["language_model"]["transformer"]["layers.0.input_layernorm.bias"] += 1e-6

    change(root, later, "mp_rank_01")
    assert "ranks that differ in language_model.transformer.layers.0.input_layernorm.bias" in problems(root)


def test_parts_of_other_shapes_are_refused_by_name(tmp_path):
    root = write_tree(Dense(), tmp_path, version=2, tp=2)

    def cut(content):
        stack = content["model"]["language_model"]["transformer"]
        stack["layers.0.mlp.dense_h_to_4h.weight"] = torch.zeros(5, 16)
        stack["layers.1.attention.dense.weight"] = torch.zeros(5)

    change(root, cut, "mp_rank_01")
    found = problems(root)
    assert (
        "ranks with language_model.transformer.layers.0.mlp.dense_h_to_4h.weight of shapes [12, 16] and"
        in found
    )
    assert "layers.1.attention.dense.weight of shapes [16, 8] and [5]" in found
    change(root, cut, "mp_rank_00")
    assert "layers.1.attention.dense.weight of shape [5], too few dimensions" in problems(root)
    root = write_tree(Dense(), tmp_path / "b", version=2, tp=1)
    change(root, cut)
    change(
        root, lambda content: content["model"]["language_model"]["transformer"].pop("final_layernorm.bias")
    )
    assert "layers.1.attention.dense.weight of shape [5], too few dimensions" in problems(root)


def test_ranks_that_are_missing_are_named(tmp_path):
    root = write_tree(Dense(), tmp_path, version=2, tp=4)
    folder = root / "iter_0000300"
    (folder / "mp_rank_01").rename(tmp_path / "away")
    assert "has ranks up to 3 and lacks rank 1" in problems(root)
    (tmp_path / "away").rename(folder / "mp_rank_01")
    (folder / "mp_rank_03" / "model_optim_rng.pt").unlink()
    assert "mp_rank_03 has no model_optim_rng.pt" in problems(root)


def test_the_last_rank_missing_is_told_by_the_args(tmp_path):
    root = write_tree(Dense(), tmp_path, version=2, tp=2, tensor_model_parallel_size=2)
    for path in sorted((root / "iter_0000300" / "mp_rank_01").iterdir()):
        path.unlink()
    (root / "iter_0000300" / "mp_rank_01").rmdir()
    assert "says tensor_model_parallel_size=2" in problems(root)


def test_interleaved_pipelines_other_trackers_and_unknown_classes_are_refused_by_name(tmp_path):
    root = write_tree(Dense(), tmp_path, version=2, tp=1)
    tracker = root / "latest_checkpointed_iteration.txt"
    tracker.write_text("newest")
    assert "says 'newest' where an iteration" in problems(root)
    tracker.write_text("400")
    assert "names iter_0000400, which holds no mp_rank_* folder" in problems(root)
    tracker.write_text("300")
    change(root, lambda content: content.update(model0=content.pop("model")))
    assert "interleaved pipeline" in problems(root)


def test_no_megatron_class_is_needed_and_one_in_the_args_needs_leave(tmp_path):
    import sys
    import types

    module = types.ModuleType("megatron_enums")
    module.ModelType = type("ModelType", (), {"__module__": "megatron_enums"})
    sys.modules["megatron_enums"] = module
    try:
        root = write_tree(Dense(), tmp_path, version=2, tp=1, model_type=module.ModelType())
    finally:
        del sys.modules["megatron_enums"]
    assert "asks for megatron_enums.ModelType" in problems(root)
    found, _ = read(root, allow_pickle=True)
    assert_equal(found, expected_parameters(Dense()))


def test_options_in_a_dictionary_and_heads_that_contradict_are_seen(tmp_path):
    root = write_tree(Dense(), tmp_path, version=2, tp=1)
    change(root, lambda content: content.update(args=vars(content["args"])))
    assert read(root)[1].model.num_heads == 4
    assert "has 4 attention heads, not 2" in problems(root, num_heads=2)
    assert "so no vocabulary of 49" in problems(root, vocab_size=49)
    change(root, lambda content: content["args"].update(vocab_size=45))
    assert read(root, vocab_size=None)[1].model.vocab_size == 45
    assert "has a vocabulary of 45 tokens, not 44" in problems(root, vocab_size=44)
    change(root, lambda content: content.update(args=argparse.Namespace(num_attention_heads=3)))
    assert "cannot have 3 attention heads at hidden_size=16" in problems(root)
