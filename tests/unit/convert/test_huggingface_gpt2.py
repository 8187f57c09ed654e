"""GPT-2 from transformers' files and into them: the same logits there and here, the same bits on return."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mlm.checkpoint.locate import resolve_checkpoint
from mlm.config.schema import Gelu
from mlm.convert.exporting import outgoing
from mlm.convert.formats import open_source
from mlm.convert.huggingface.export import export
from mlm.convert.importing import import_weights
from mlm.convert.verify import verify
from mlm.data.tokenizers import WordPieceTokenizer
from mlm.errors import ConfigError
from mlm.eval.load import load_for_evaluation
from mlm.parallel.mesh import Mesh
from tests.foreign import GPT2, library, made, saved, words

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with GPT-2's own form of GELU, and beside it a tokenizer that fits its vocabulary."""
    return saved(made("GPT2LMHeadModel"), tmp_path_factory.mktemp("gpt2") / "model")


def imported(folder: Path, out: Path, **how: object) -> Path:
    tokenizer = WordPieceTokenizer(words(folder.parent, GPT2["vocab_size"]) / "vocab.txt")
    return import_weights(open_source(folder), out, tokenizer=tokenizer, **how).run_dir  # type: ignore[arg-type]


def largest_difference(run_dir: Path, theirs: object) -> float:
    ids = torch.randint(0, GPT2["vocab_size"], (3, GPT2["n_positions"]))
    with torch.no_grad():
        expected = theirs(ids).logits  # type: ignore[operator]
        ours = load_for_evaluation(run_dir, mesh=Mesh.single(), device=CPU).model(ids)
    assert expected.std() > 0.5, "logits that say something"
    return float((ours[..., : GPT2["vocab_size"]] - expected).abs().max())


@pytest.mark.parametrize("gelu", list(Gelu))
@pytest.mark.parametrize("change", [{"n_inner": 100}, {"tie_word_embeddings": False}])
def test_an_imported_model_has_the_logits_of_transformers(tmp_path, gelu, change):
    form = {"activation_function": "gelu_new" if gelu is Gelu.tanh else "gelu", "layer_norm_epsilon": 1e-3}
    theirs = made("GPT2LMHeadModel", **form, **change)
    run_dir = imported(saved(theirs, tmp_path / "theirs"), tmp_path / "run", padded_vocab_size=104)
    assert largest_difference(run_dir, theirs) < 1e-5


def test_names_with_and_without_prefix_buffers_shards_and_bin_files_give_the_same_weights(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    forms = {name: tmp_path / name for name in ("bare", "buffers", "bin")}
    for path in forms.values():
        path.mkdir()
        shutil.copy(folder / "config.json", path)
    bare = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    save_file(bare, forms["bare"] / "model.safetensors")
    buffers = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 24, 24) for i in range(2)}
    buffers |= {f"transformer.h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}
    save_file({**weights, **buffers}, forms["buffers"] / "model.safetensors")
    tied = {**weights, "lm_head.weight": weights["transformer.wte.weight"]}
    torch.save(tied, forms["bin"] / "pytorch_model.bin")
    forms["shards"] = saved(made("GPT2LMHeadModel"), tmp_path / "shards", max_shard_size="30KB")
    assert len(list(forms["shards"].glob("*.safetensors"))) > 2
    expected = weights_of(imported(folder, tmp_path / "run"))
    for name, path in forms.items():
        found = weights_of(imported(path, tmp_path / f"run_{name}"))
        assert all(torch.equal(found[key], expected[key]) for key in expected), name


def weights_of(run_dir: Path) -> dict[str, torch.Tensor]:
    sent = outgoing(resolve_checkpoint(run_dir))
    return {name: sent.tensor(name).clone() for name in sent.shapes}


def test_a_round_trip_gives_back_every_bit_and_loads_without_a_word(folder, tmp_path, caplog):
    run_dir = imported(folder, tmp_path / "run", padded_vocab_size=128)
    verdict = verify(run_dir / "checkpoints" / "step_0")
    assert (verdict.wrong, bool(verdict.facts)) == ([], True)
    written = export(tmp_path / "back", outgoing(resolve_checkpoint(run_dir)))
    before, after = (load_file(path / "model.safetensors") for path in (folder, written.folder))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    there = library()
    loaded, about = there.AutoModelForCausalLM.from_pretrained(written.folder, output_loading_info=True)
    assert not any(about[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), about
    assert caplog.records == []
    assert largest_difference(run_dir, loaded.eval()) < 1e-5
    assert there.AutoModel.from_pretrained(written.folder).config.n_layer == 2
    tokenizer = there.AutoTokenizer.from_pretrained(written.folder)
    assert tokenizer.encode("w3 w0", add_special_tokens=False) == [8, 5]


def test_shards_hold_the_same_tensors_as_one_file_in_the_dtype_that_was_asked_for(folder, tmp_path):
    sent = outgoing(resolve_checkpoint(imported(folder, tmp_path / "run")))
    written = export(tmp_path / "shards", sent, dtype="bf16", shard_bytes=20_000)
    index = json.loads((written.folder / "model.safetensors.index.json").read_text())
    assert len(written.files) == len(set(index["weight_map"].values())) > 3
    there = library().AutoModelForCausalLM.from_pretrained(written.folder, dtype="auto").state_dict()
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert torch.equal(there[name], tensor.to(torch.bfloat16)), name


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
        ({"scale_attn_weights": False}, "scale_attn_weights=False"),
        ({"activation_function": "relu"}, "activation_function=relu"),
        ({"embd_pdrop": 0.3}, "embd_pdrop=0.3 differs from resid_pdrop=0.1"),
        ({"model_type": "llama"}, "model_type=llama"),
        ({"n_layer": "two"}, "n_layer=two"),
    ],
)
def test_what_mlm_has_no_like_for_is_refused_by_its_name(folder, tmp_path, change, named):
    content = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, **change}))
    shutil.copy(folder / "model.safetensors", tmp_path)
    with pytest.raises(ConfigError, match=r"config\.json") as error:
        open_source(tmp_path)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "ends before"),
        (lambda path: path.write_bytes(b"what is this"), "is no safetensors file"),
        (lambda path: path.write_bytes((50).to_bytes(8, "little") + b"{" * 60), "cannot be read"),
        (lambda path: path.unlink(), "holds no weights"),
    ],
)
def test_damaged_files_are_refused_with_their_name_and_nothing_is_written(folder, tmp_path, damage, sentence):
    there = shutil.copytree(folder, tmp_path / "there")
    damage(there / "model.safetensors")
    with pytest.raises(ConfigError, match=sentence):
        imported(there, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_lost_a_strange_and_a_misshapen_tensor_are_named_and_nothing_is_written(folder, tmp_path):
    there = shutil.copytree(folder, tmp_path / "there")
    weights = load_file(there / "model.safetensors")
    del weights["transformer.h.1.ln_2.bias"]
    weights |= {"score.weight": torch.ones(2), "transformer.wpe.weight": torch.ones(20, 48)}
    save_file(weights, there / "model.safetensors")
    with pytest.raises(ConfigError) as error:
        imported(there, tmp_path / "run")
    sentences = str(error.value)
    assert "lacks h.1.ln_2.bias (layers.1.mlp_norm.bias)" in sentences
    assert "holds score.weight" in sentences
    assert "transformer.wpe.weight is [20, 48], must be [24, 48]" in sentences
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there", "vocab.txt"]


def test_what_transformers_has_no_word_for_is_refused_and_so_is_a_place_that_is_taken(folder, tmp_path):
    run_dir = imported(folder, tmp_path / "run")
    sent = outgoing(resolve_checkpoint(run_dir))
    sent.model.bias = False
    with pytest.raises(ConfigError) as error:
        export(run_dir, sent)
    assert "exists, and nothing is ever overwritten" in str(error.value)
    assert "model.bias=false cannot be said" in str(error.value)


def test_a_vocabulary_that_the_tokenizer_exceeds_and_too_few_rows_are_refused_together(folder, tmp_path):
    tokenizer = WordPieceTokenizer(words(tmp_path, 98) / "vocab.txt")
    with pytest.raises(ConfigError) as error:
        import_weights(open_source(folder), tmp_path / "run", tokenizer=tokenizer, padded_vocab_size=96)
    assert "has 98 tokens, and the model rows for 97" in str(error.value)
    assert "--padded-vocab-size=96 is less than the 97 tokens" in str(error.value)
