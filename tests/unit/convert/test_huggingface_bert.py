"""BERT from transformers' files and into them: hidden states, losses of both tasks, and bits on return."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from mlm.checkpoint.load import load_weights
from mlm.checkpoint.locate import resolve_checkpoint
from mlm.checkpoint.origin import Origin
from mlm.checkpoint.state import TrainingState
from mlm.config.schema import LayerNormPlacement, ObjectiveConfig
from mlm.convert.exporting import outgoing
from mlm.convert.filling import fill_from
from mlm.convert.formats import open_source
from mlm.convert.heads import Heads
from mlm.convert.huggingface.export import export
from mlm.convert.importing import import_weights
from mlm.errors import CheckpointError, ConfigError
from mlm.eval.load import load_for_evaluation
from mlm.models.registry import ENCODER, build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.mesh import Mesh
from mlm.parallel.rng import RngStreams
from mlm.train.resume import begin, draws
from tests.foreign import BERT, library, made, saved, words

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
BATCH, SEQ, SIZE = 3, 20, BERT["vocab_size"]


def imported(theirs: object, out: Path, **how: object) -> Path:
    folder = words(saved(theirs, out.with_name(f"{out.name}_theirs")), SIZE)
    return import_weights(open_source(folder), out, **how).run_dir  # type: ignore[arg-type]


def loaded(run_dir: Path) -> nn.Module:
    return load_for_evaluation(run_dir, mesh=Mesh.single(), device=torch.device("cpu")).model


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids, segments and real, with other numbers of padding at the end of each row."""
    ids = torch.randint(5, SIZE, (BATCH, SEQ))
    segments = (torch.arange(SEQ) > 8).long().expand(BATCH, SEQ)
    real = torch.arange(SEQ) < torch.tensor([[SEQ], [13], [4]])
    return ids, segments, real


@pytest.mark.parametrize(
    "change", [{}, {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "type_vocab_size": 3}]
)
def test_an_imported_encoder_has_the_hidden_states_of_transformers(tmp_path, change):
    theirs = made("BertModel", **change)
    model = loaded(imported(theirs, tmp_path / "run", padded_vocab_size=96))
    ids, segments, real = batch()
    with torch.no_grad():
        expected = theirs(ids, attention_mask=real.long(), token_type_ids=segments)
        hidden = model.hidden_states(ids, segments, real)
        pooled = model.pooled(hidden)
    assert expected.last_hidden_state.std() > 0.5
    torch.testing.assert_close(hidden[real], expected.last_hidden_state[real], rtol=0, atol=1e-5)
    torch.testing.assert_close(pooled, expected.pooler_output, rtol=0, atol=1e-5)


def test_an_imported_model_of_both_tasks_has_the_losses_of_transformers(tmp_path):
    theirs = made("BertForPreTraining")
    model = loaded(imported(theirs, tmp_path / "run", padded_vocab_size=96))
    ids, segments, real = batch()
    masked_at = torch.tensor([[1, 5, 9], [2, 3, 12], [0, 1, 2]])
    masked_ids, swapped = torch.randint(0, SIZE, (BATCH, 3)), torch.tensor([1, 0, 1])
    with torch.no_grad():
        there = theirs(ids, attention_mask=real.long(), token_type_ids=segments)
        logits = there.prediction_logits[torch.arange(BATCH)[:, None], masked_at]
        masked = F.cross_entropy(logits.flatten(0, 1), masked_ids.flatten(), reduction="sum")
        order = F.cross_entropy(there.seq_relationship_logits, swapped, reduction="sum")
        one = torch.ones(BATCH, 3, dtype=torch.float64)
        loss, figures = model(ids, segments, real, masked_at, masked_ids, one, swapped, one[:, 0])
    torch.testing.assert_close(figures[:2].float(), torch.stack([masked, order]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, masked + order, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model_class", ["BertModel", "BertForPreTraining"])
def test_a_round_trip_gives_back_every_bit_and_loads_without_a_word(tmp_path, model_class, caplog):
    run_dir = imported(made(model_class), tmp_path / "run", padded_vocab_size=128)
    written = export(tmp_path / "back", outgoing(resolve_checkpoint(run_dir)))
    folder = tmp_path / "run_theirs"
    before, after = (load_file(path / "model.safetensors") for path in (folder, written.folder))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    there = library()
    _, about = getattr(there, model_class).from_pretrained(written.folder, output_loading_info=True)
    assert not any(about[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), about
    tokenizer = there.AutoTokenizer.from_pretrained(written.folder)
    assert tokenizer("W3 [MASK] nope").input_ids == [2, 8, 4, 1, 3]
    assert caplog.records == []


def test_names_of_old_files_and_copies_of_the_decoder_are_understood(tmp_path):
    folder = words(saved(made("BertForPreTraining"), tmp_path / "theirs"), SIZE)
    weights = load_file(folder / "model.safetensors")
    old = {
        n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): t
        for n, t in weights.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(24)[None]
    old["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    there = tmp_path / "old"
    shutil.copytree(folder, there)
    save_file(old, there / "model.safetensors")
    runs = [
        import_weights(open_source(each), tmp_path / f"run_{each.name}").run_dir for each in (folder, there)
    ]
    new, from_old = (outgoing(resolve_checkpoint(run)) for run in runs)
    assert all(torch.equal(new.tensor(name), from_old.tensor(name)) for name in new.shapes)


def test_heads_that_the_files_lack_are_drawn_only_where_it_is_asked_for(tmp_path):
    folder = words(saved(made("BertForMaskedLM"), tmp_path / "theirs"), SIZE)
    with pytest.raises(ConfigError) as error:
        import_weights(open_source(folder), tmp_path / "run")
    named = "lacks pooler.dense.weight (pooler.weight), pooler.dense.bias (pooler.bias), cls.seq_relationship"
    assert named in str(error.value)
    assert "--fresh" in str(error.value)
    heads = ("pooler.", "order_head.")
    runs = [import_weights(open_source(folder), tmp_path / name, fresh=heads, seed=7) for name in ("a", "b")]
    assert runs[0].fresh == ("pooler.weight", "pooler.bias", "order_head.weight", "order_head.bias")
    drawn = [outgoing(resolve_checkpoint(run.run_dir)).tensor("pooler.weight") for run in runs]
    assert torch.equal(*drawn)
    assert 0.01 < float(drawn[0].std()) < 0.03, "with the model's init_std of 0.02"


def test_a_training_takes_heads_from_nowhere_only_where_its_objective_lets_it(tmp_path):
    """The same from the foreign files themselves and from the run that they were imported to."""
    run_dir = imported(made("BertModel"), tmp_path / "run")
    checkpoint = resolve_checkpoint(run_dir)
    sent, mesh = outgoing(checkpoint), Mesh.single()
    rng = RngStreams(11, mesh, torch.device("cpu"))
    tasks = replace(sent.config, objective=ObjectiveConfig(name="masked_lm"), seed=11)
    encoder = replace(tasks, objective=ObjectiveConfig(name=ENCODER))
    for place in (checkpoint.directory, tmp_path / "run_theirs"):
        origin = Origin(weights=str(place))
        assert (draws(origin, tasks), draws(origin, encoder)) == (True, False)
        model, untouched = (
            build_model(sent.model, tp=mesh.tp, rng=rng, seed=11, objective="masked_lm") for _ in range(2)
        )
        optimizer = AdamW(parameter_groups(model, 0.0), beta1=0.9, beta2=0.999, eps=1e-8)
        assert begin(origin, model, optimizer, mesh, tasks) == TrainingState()
        before = dict(untouched.named_parameters())
        for name, parameter in model.named_parameters():
            there = sent.tensor(name) if name in sent.shapes else before[name]
            assert torch.equal(parameter, there), name
        with pytest.raises((CheckpointError, ConfigError), match="lm_head"):
            begin(origin, model, optimizer, mesh, replace(tasks, objective=ObjectiveConfig(name="other")))


def test_heads_that_a_model_has_no_place_for_are_left_out_only_where_it_is_allowed(tmp_path):
    checkpoint = resolve_checkpoint(imported(made("BertForPreTraining"), tmp_path / "run"))
    sent, mesh = outgoing(checkpoint), Mesh.single()
    rng, heads = RngStreams(11, mesh, torch.device("cpu")), Heads(dropped=("lm_head.", "order_head."))
    source = open_source(tmp_path / "run_theirs")
    model = build_model(sent.model, tp=mesh.tp, rng=rng, seed=11, objective=ENCODER)
    assert load_weights(checkpoint.directory, model, mesh, dropped=heads.dropped) == ()
    assert torch.equal(model.pooler.weight, sent.tensor("pooler.weight"))
    with pytest.raises(CheckpointError, match="which this model does not have"):
        load_weights(checkpoint.directory, model, mesh, dropped=("lm_head.",))
    assert "cls.seq_relationship.bias" in fill_from(source, sent.model, model, mesh.tp, heads).dropped
    with pytest.raises(ConfigError, match=r"holds cls\.seq_relationship\.bias"):
        fill_from(source, sent.model, model, mesh.tp, Heads(dropped=("lm_head.",)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_act": "relu"}, "hidden_act=relu"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type=relative_key"),
        ({"is_decoder": True}, "is_decoder=True"),
    ],
)
def test_what_mlm_has_no_like_for_is_refused_by_its_name(tmp_path, change, named):
    folder = saved(made("BertModel"), tmp_path / "theirs")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(ConfigError, match=named):
        open_source(folder)


def test_a_model_with_its_layernorms_before_the_layers_is_not_exported(tmp_path):
    sent = outgoing(resolve_checkpoint(imported(made("BertModel"), tmp_path / "run")))
    pre = replace(sent.config, model=replace(sent.model, layernorm=LayerNormPlacement.pre))
    with pytest.raises(ConfigError, match=r"model\.layernorm=pre has no class there"):
        export(tmp_path / "out", replace(sent, config=pre))
    assert not (tmp_path / "out").exists()
