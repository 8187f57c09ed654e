"""Trees that mlm writes are, tensor by tensor, those that independent code makes of the same dense model."""

import dataclasses
import weakref

import pytest
import torch

from mlm.checkpoint.locate import resolve_checkpoint
from mlm.config.schema import Gelu, LayerNormPlacement, ModelConfig
from mlm.convert.declared import declarations
from mlm.convert.exporting import outgoing
from mlm.convert.formats import open_source
from mlm.convert.importing import import_weights
from mlm.convert.megatron.export import export as megatron_export
from mlm.convert.megatron.tree import Tree
from mlm.convert.source import Reading
from mlm.convert.walk import match, tensors
from mlm.errors import CheckpointError, ConfigError
from tests.megatron_tree import Dense, expected_parameters, write_tree

RANK = "mp_rank_{:02d}/model_optim_rng.pt"


def config(dense, **other):
    return ModelConfig(
        name="dense",
        architecture="bert" if dense.bert else "gpt2",
        num_layers=dense.layers,
        hidden_size=dense.hidden,
        num_heads=dense.heads,
        ffn_hidden_size=dense.inner,
        seq_length=dense.positions,
        vocab_size=dense.vocab,
        segments=2 if dense.bert else 0,
        **other,
    )


def tree_of(model, weights, **other):
    arguments = {"dtype": torch.float32, "tp": 1, "version": 3} | other
    return Tree(model=model, shapes={n: tuple(t.shape) for n, t in weights.items()}, **arguments)


def export(folder, weights, tree):
    tree.check()
    folder.mkdir()
    tree.write(folder, weights.__getitem__, step=0)
    return folder


def flattened(content, name=""):
    if not isinstance(content, dict):
        return {name: content}
    return {k: v for key, value in content.items() for k, v in flattened(value, f"{name}/{key}").items()}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize(("tp", "bert"), [(1, False), (2, True), (4, False), (4, True)])
def test_every_rank_holds_what_the_format_says_with_rows_of_padding_as_zeros(tmp_path, version, tp, bert):
    dense = Dense(bert=bert)
    root = write_tree(dense, tmp_path / "theirs", version=version, tp=tp, unit=128)
    weights = expected_parameters(dense)
    out = export(tmp_path / "ours", weights, tree_of(config(dense), weights, tp=tp, version=version))
    assert (out / "latest_checkpointed_iteration.txt").read_text() == "release"
    written = 0
    for rank in range(tp):
        right = torch.load(root / "iter_0000300" / RANK.format(rank), weights_only=False)
        found = torch.load(out / "release" / RANK.format(rank), weights_only=False)
        assert found["checkpoint_version"] == version
        said = {k: v for k, v in vars(right["args"]).items() if k != "make_vocab_size_divisible_by"}
        assert said.items() <= vars(found["args"]).items()
        model, right_model = flattened(found["model"]), flattened(right["model"])
        assert model.keys() == right_model.keys()
        for name, tensor in right_model.items():
            if name.endswith(("word_embeddings/weight", "lm_head/bias")):
                tensor[max(0, dense.vocab - rank * len(tensor)) :] = 0  # 7 there: padding may be anything
            assert torch.equal(model[name], tensor), name
            written += model[name].nbytes
    assert written == tree_of(config(dense), weights, tp=tp, version=version).bytes


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("tp", "bert"), [(1, False), (2, False), (4, True)])
def test_in_and_out_and_in_again_is_bit_equal(tmp_path, version, tp, bert):
    dense = Dense(bert=bert)
    weights = expected_parameters(dense)

    def read(root):
        source = open_source(root, Reading(vocab_size=dense.vocab))
        declared = {n: d.shape for n, d in declarations(source.model).items()}
        return dict(tensors(source, source.model, match(source, source.model, declared))), source

    found, source = read(write_tree(dense, tmp_path / "a", version=version, tp=tp))
    out = export(tmp_path / "b", found, tree_of(source.model, found, tp=tp, version=version))
    again, last = read(out)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    assert dataclasses.replace(last.model, name="a") == source.model


@pytest.mark.parametrize(("version", "tp"), [(0, 2), (2, 1)])
def test_a_tree_becomes_a_run_and_the_run_the_same_tree_again(tmp_path, version, tp):
    dense = Dense(vocab=50257, layers=1)
    weights = expected_parameters(dense)
    root = write_tree(dense, tmp_path / "theirs", version=version, tp=tp, unit=128)
    source = open_source(root, Reading(vocab_size=50257))
    written = import_weights(source, tmp_path / "run", padded_vocab_size=51200)
    assert written.parameters == sum(t.numel() for t in weights.values()) + (51200 - 50257) * dense.hidden
    sent = outgoing(resolve_checkpoint(tmp_path / "run"))
    found = megatron_export(tmp_path / "out", sent, tp=tp, version=version)
    assert found.elements == sum(t.numel() for t in weights.values())
    assert found.rows == {1: 50304, 2: 50432}[tp]
    for rank in range(tp):
        right = torch.load(root / "iter_0000300" / RANK.format(rank), weights_only=False)["model"]
        content = torch.load(tmp_path / "out" / "release" / RANK.format(rank), weights_only=False)
        assert content["args"].tokenizer_type == "GPT2BPETokenizer"
        mine, theirs = flattened(content["model"]), flattened(right)
        assert mine.keys() == theirs.keys()
        for name, tensor in theirs.items():
            real = len(tensor)
            if name.endswith("word_embeddings/weight"):
                real = min(real, dense.vocab - rank * real)
            assert torch.equal(mine[name][:real], tensor[:real]), name


def test_no_tensor_is_held_when_the_next_one_is_asked_for(tmp_path):
    dense = Dense(bert=True)
    weights = expected_parameters(dense)
    given = []

    def tensor(name):
        assert all(each() is None for each in given), f"something is still held when {name} is asked for"
        copy = weights[name].clone()
        given.append(weakref.ref(copy))
        return copy

    tree = tree_of(config(dense), weights, tp=4, version=0)
    (tmp_path / "a").mkdir()
    tree.write(tmp_path / "a", tensor, step=0)
    assert len(given) == len(weights)


def test_a_failure_on_the_way_leaves_nothing(tmp_path):
    dense = Dense(vocab=50257, layers=1)
    source = open_source(
        write_tree(dense, tmp_path / "theirs", version=2, tp=1, unit=128), Reading(vocab_size=50257)
    )
    source._parts["language_model.transformer.final_layernorm.bias"][0][0] = 1e30
    import_weights(source, tmp_path / "run")
    sent = outgoing(resolve_checkpoint(tmp_path / "run"))
    with pytest.raises(CheckpointError, match="beyond what fp16 can"):
        megatron_export(tmp_path / "out", sent, dtype="fp16")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run", "theirs"]


def test_an_own_output_layer_goes_out_and_comes_in_from_version_2_on(tmp_path):
    dense = Dense()
    weights = expected_parameters(dense)
    weights["head.weight"] = torch.randn(45, 16)
    model = config(dense, tie_embeddings=False, gelu=Gelu.erf)
    out = export(tmp_path / "a", weights, tree_of(model, weights, tp=2, version=2))
    source = open_source(out, Reading())
    assert (source.model.tie_embeddings, source.model.gelu) == (False, Gelu.erf)
    assert torch.equal(source.tensor("language_model.output_layer.weight"), weights["head.weight"])
    with pytest.raises(ConfigError, match="has no place in version 1"):
        tree_of(model, weights, version=1).check()


def test_everything_that_has_no_place_there_is_named_at_once():
    dense = Dense(bert=True)
    model = config(dense, bias=False, layernorm=LayerNormPlacement.post)
    with pytest.raises(ConfigError) as refused:
        tree_of(model, expected_parameters(dense), tp=3, version=4).check()
    found = "\n".join(map(str, refused.value.problems))
    for part in (
        "version 4 is unknown",
        "model.num_heads=4 is not a multiple of tp=3: use tp 1, 2, 4",
        "model.bias=false has no place",
        "model.layernorm=post has no place",
    ):
        assert part in found


def test_a_half_precision_tree_refuses_what_it_cannot_hold(tmp_path):
    dense = Dense()
    weights = expected_parameters(dense)
    out = export(tmp_path / "a", weights, tree_of(config(dense), weights, dtype=torch.bfloat16))
    content = torch.load(out / "release" / RANK.format(0), weights_only=False)
    assert {t.dtype for t in flattened(content["model"]).values()} == {torch.bfloat16}
    assert content["args"].params_dtype is torch.bfloat16
    weights["final_norm.bias"] = torch.full((16,), 1e6)
    with pytest.raises(CheckpointError, match=r"final_layernorm\.bias holds 1e\+06"):
        export(tmp_path / "b", weights, tree_of(config(dense), weights, dtype=torch.float16))
