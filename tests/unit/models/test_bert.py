"""BERT against somebody else's, against its published sizes, and against what padding must not change."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mlm.config.compose import compose
from mlm.config.schema import LayerNormPlacement, ModelConfig
from mlm.finetune.tasks import TASKS
from mlm.models.bert import BertForPretraining
from mlm.models.registry import build_model
from mlm.parallel.mesh import Mesh
from mlm.parallel.parameter import count_parameters, named_declarations
from mlm.parallel.rng import RngStreams
from mlm.plan.parameters import count_parameters as planned
from mlm.plan.parameters import count_real_parameters

BATCH, SEQ, PLACES = 3, 16, 4


def config(layernorm: str = "post", **changes: object) -> ModelConfig:
    words = [f"model.{key}={value}" for key, value in changes.items()]
    small = [
        "model.num_layers=2",
        "model.hidden_size=32",
        "model.num_heads=4",
        "model.vocab_size=50",
        "model.padded_vocab_size=56",
        "model.seq_length=16",
        f"model.layernorm={layernorm}",
    ]
    return compose(["model=bert_tiny", *small, *words]).model


def build(
    model: ModelConfig, objective: str = "masked_lm", dtype: torch.dtype = torch.float64
) -> BertForPretraining:
    mesh = Mesh.single()
    rng = RngStreams(1, mesh, torch.device("cpu"))
    built = build_model(model, tp=mesh.tp, rng=rng, seed=1, objective=objective, dtype=dtype)
    return built.eval()  # type: ignore[return-value]


def batch(vocab: int = 50) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    lengths = torch.tensor([SEQ, 9, 12])
    return {
        "ids": torch.randint(vocab, (BATCH, SEQ), generator=draw),
        "segments": (torch.arange(SEQ) >= 6).long().expand(BATCH, -1),
        "real": torch.arange(SEQ) < lengths[:, None],
        "masked_at": torch.tensor([[1, 4, 9, 15], [2, 3, 8, 0], [5, 11, 0, 0]]),
        "masked_ids": torch.randint(vocab, (BATCH, PLACES), generator=draw),
        "masked_weights": torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.float64) / 9,
        "swapped": torch.tensor([0, 1, 1]),
        "order_weights": torch.full((BATCH,), 1 / 3, dtype=torch.float64),
    }


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("bert_336m", 336_226_108),  # Megatron-LM's paper, section 4.3, with both heads
        ("bert_4b", 3_869_081_404),
        ("bert_1b", 1_280_595_772),
    ],
)
def test_sizes_of_the_paper(name: str, real: int) -> None:
    model = compose([f"model={name}"]).model
    assert count_real_parameters(model).total == real
    with torch.device("meta"):
        mesh = Mesh.single()
        built = build_model(
            model, tp=mesh.tp, rng=RngStreams(1, mesh, torch.device("cpu")), seed=1, device="meta"
        )
    padding = (model.padded_vocab_size or 0) - model.vocab_size
    assert count_parameters(built)[0] == planned(model).total == real + padding * (model.hidden_size + 1)


@pytest.mark.parametrize("task", [*TASKS])
def test_a_plan_counts_the_heads_of_a_fine_tuning_in_place_of_those_of_pre_training(task: str) -> None:
    model = config()
    built = build(model, objective=task)
    assert count_parameters(built)[0] == planned(model, task=task).total
    assert planned(model, task=task).total - count_real_parameters(model, task).total == (56 - 50) * 32


def test_bert_base_has_the_published_number_of_parameters() -> None:
    """109,482,240: the encoder of bert-base-uncased with its pooler."""
    model = compose(["model=bert_110m", "model.layernorm=post", "model.padded_vocab_size=30522"]).model
    mesh = Mesh.single()
    rng = RngStreams(1, mesh, torch.device("cpu"))
    built = build_model(model, tp=mesh.tp, rng=rng, seed=1, objective="encoder", device="meta")
    assert count_parameters(built)[0] == 109_482_240


@pytest.mark.parametrize("layernorm", ["pre", "post"])
def test_without_initial_weights_the_losses_are_those_of_guessing(layernorm: str) -> None:
    loss, figures = build(config(layernorm, init_std=0.0))(**batch())
    assert figures[0].item() == pytest.approx(math.log(50), abs=1e-12)
    assert figures[1].item() == pytest.approx(math.log(2), abs=1e-12)
    assert loss.item() == pytest.approx(math.log(50) + math.log(2), abs=1e-12)


@pytest.mark.parametrize("layernorm", ["pre", "post"])
def test_what_stands_in_the_padding_changes_nothing(layernorm: str) -> None:
    model, inputs = build(config(layernorm)), batch()
    first = model(**inputs)
    other = torch.where(inputs["real"], inputs["ids"], (inputs["ids"] + 7) % 50)
    assert (other != inputs["ids"]).any()
    second = model(**{**inputs, "ids": other})
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_figures_are_the_weighted_nll_and_hits_of_the_dense_logits() -> None:
    model, inputs = build(config("pre")), batch()
    loss, figures = model(**inputs)
    hidden = model.hidden_states(inputs["ids"], inputs["segments"], inputs["real"])
    rows = torch.arange(BATCH)[:, None]
    head = model.lm_head
    x = head.norm(torch.nn.functional.gelu(head.dense(hidden[rows, inputs["masked_at"]])))
    logits = (x @ model.embedding.word.weight.T + head.bias)[..., :50]
    nll = -logits.log_softmax(-1).gather(-1, inputs["masked_ids"][..., None])[..., 0]
    weights = inputs["masked_weights"]
    assert figures[0].item() == pytest.approx((nll * weights).sum().item(), rel=1e-12)
    assert figures[2].item() == pytest.approx(
        ((logits.argmax(-1) == inputs["masked_ids"]).double() * weights).sum().item(), abs=1e-15
    )
    assert loss.item() == pytest.approx((figures[0] + figures[1]).item(), rel=1e-12)


def test_post_norm_equals_transformers_bert() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=16,
            layer_norm_eps=1e-5,
        )
    ).eval()
    ours = build(config("post"), "encoder", torch.float32)
    their_weights = theirs.state_dict()
    layer_names = {
        "attention.projection": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "mlp.expand": "intermediate.dense",
        "mlp.contract": "output.dense",
        "mlp_norm": "output.LayerNorm",
    }
    whole = {
        "embedding.word.weight": "embeddings.word_embeddings.weight",
        "embedding.position.weight": "embeddings.position_embeddings.weight",
        "embedding.segment.weight": "embeddings.token_type_embeddings.weight",
        "embedding.norm.weight": "embeddings.LayerNorm.weight",
        "embedding.norm.bias": "embeddings.LayerNorm.bias",
        "pooler.weight": "pooler.dense.weight",
        "pooler.bias": "pooler.dense.bias",
    }
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for value in their_weights.values():
            if value.is_floating_point():
                value.copy_(torch.randn(value.shape, generator=draw) * 0.3)
        for name, parameter, _ in named_declarations(ours):
            if name in whole:
                value = their_weights[whole[name]]
                parameter[: len(value)] = value
                continue
            _, number, rest = name.split(".", 2)
            module, kind = rest.rsplit(".", 1)
            prefix = f"encoder.layer.{number}."
            if module == "attention.qkv":
                parts = [
                    their_weights[f"{prefix}attention.self.{p}.{kind}"] for p in ("query", "key", "value")
                ]
                by_head = [part.view(4, 8, -1) for part in parts]
                parameter.copy_(torch.stack(by_head, dim=1).reshape(parameter.shape))
            else:
                parameter.copy_(their_weights[f"{prefix}{layer_names[module]}.{kind}"])
    inputs = batch()
    expected = theirs(
        input_ids=inputs["ids"], token_type_ids=inputs["segments"], attention_mask=inputs["real"].long()
    )
    hidden = ours.hidden_states(inputs["ids"], inputs["segments"], inputs["real"])
    real = inputs["real"]
    torch.testing.assert_close(hidden[real], expected.last_hidden_state[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.pooled(hidden), expected.pooler_output, atol=1e-5, rtol=0)


def test_the_two_forms_differ_where_the_norms_stand() -> None:
    pre, post = (dict(build(config(form), "encoder").named_parameters()) for form in ("pre", "post"))
    assert set(pre) - set(post) == {"final_norm.weight", "final_norm.bias"}
    assert set(post) - set(pre) == {"embedding.norm.weight", "embedding.norm.bias"}
    assert config("post").layernorm is LayerNormPlacement.post
