"""Every tensor finds its place and every parameter its tensor, or each is named: nothing is skipped."""

from __future__ import annotations

import pytest
import torch

from mlm.config.schema import ModelConfig
from mlm.convert.walk import Match, check_copies, match, tensors
from mlm.errors import ConfigError
from mlm.models.names import Entry, Form, Table
from tests.unit.convert.sources import InMemory

MODEL = ModelConfig(name="m", num_layers=2, hidden_size=4, num_heads=2, seq_length=3, vocab_size=5)
TABLE = Table(
    entries=(
        Entry("word", ("wte",), Form.VOCABULARY_ROWS),
        Entry("layers.{i}.qkv", ("h.{i}.q", "h.{i}.k", "h.{i}.v"), Form.QKV_PARTS),
        Entry("norm", ("ln.weight",)),
        Entry("head.weight", ("lm_head",)),
    ),
    prefixes=("model.",),
    renames={"ln.gamma": "ln.weight"},
    ignored=(r"h\.\d+\.mask",),
    copies={"lm_head": "wte"},
)
NEEDED = {"word": (5, 4), "layers.0.qkv": (12, 4), "layers.1.qkv": (12, 4), "norm": (4,)}


def good() -> dict[str, torch.Tensor]:
    parts = {f"h.{i}.{part}": torch.randn(4, 4) for i in range(2) for part in "qkv"}
    return {"wte": torch.randn(5, 4), **parts, "ln.weight": torch.randn(4)}


def matched(
    found: dict[str, torch.Tensor], needed: dict[str, tuple[int, ...]] = NEEDED, **how: object
) -> Match:
    return match(InMemory(found, MODEL, TABLE), MODEL, needed, **how)  # type: ignore[arg-type]


def refusal(found: dict[str, torch.Tensor], **how: object) -> list[str]:
    with pytest.raises(ConfigError) as error:
        matched(found, **how)  # type: ignore[arg-type]
    return [str(problem) for problem in error.value.problems]


def test_prefixes_old_names_and_buffers_are_no_obstacle():
    found = good()
    found["ln.gamma"] = found.pop("ln.weight")
    found = {f"model.{name}": tensor for name, tensor in found.items()}
    found["model.h.0.mask"] = torch.ones(3, 3)
    source = InMemory(found, MODEL, TABLE)
    ours = dict(tensors(source, MODEL, match(source, MODEL, NEEDED)))
    assert set(ours) == set(NEEDED)
    assert torch.equal(ours["norm"], found["model.ln.gamma"])


def test_what_is_missing_left_over_or_of_another_shape_is_named_all_at_once():
    found = good()
    del found["h.1.k"], found["ln.weight"]
    found |= {"stranger": torch.ones(1), "h.2.q": torch.ones(4, 4), "h.0.v": torch.ones(4, 3)}
    lacks, holds, shapes = refusal(found)
    assert "lacks h.1.k (layers.1.qkv), ln.weight (norm)" in lacks
    assert "holds stranger, h.2.q" in holds
    assert "h.0.v is [4, 3], must be [4, 4]" in shapes


def test_a_tensor_that_is_there_under_two_names_is_refused():
    assert "as wte and as model.wte" in refusal({**good(), "model.wte": torch.ones(5, 4)})[0]


def test_only_whole_parameters_that_are_allowed_to_be_fresh_may_be_missing():
    found = good()
    del found["ln.weight"]
    assert matched(found, fresh=("norm",)).fresh == ("norm",)
    assert "ln.weight" in refusal(found, fresh=("word", "layers."))[0]
    partly = good()
    del partly["h.0.q"]
    assert "h.0.q" in refusal(partly, fresh=("layers.",))[0]


def test_only_parameters_that_may_be_dropped_may_be_left_over():
    needed = {name: shape for name, shape in NEEDED.items() if name != "norm"}
    assert matched(good(), needed, dropped=("norm",)).dropped == ("ln.weight",)
    assert "holds ln.weight" in refusal(good(), needed=needed)[0]


def test_a_shared_output_layer_has_to_be_the_embedding_table_and_an_own_one_is_a_parameter():
    found = good()
    found["lm_head"] = found["wte"].clone()
    source = InMemory(found, MODEL, TABLE)
    check_copies(source, match(source, MODEL, NEEDED))
    source.tensors["lm_head"][4, 3] += 1
    with pytest.raises(ConfigError, match="has lm_head, which is not the same as wte"):
        check_copies(source, match(source, MODEL, NEEDED))
    own = match(source, MODEL, {**NEEDED, "head.weight": (5, 4)})
    assert own.copies == ()
    assert torch.equal(dict(tensors(source, MODEL, own))["head.weight"], found["lm_head"])


def test_a_table_that_is_there_only_under_the_name_of_its_copy_is_found():
    found = good()
    found["lm_head"] = found.pop("wte")
    assert matched(found).entries["word"].theirs == ("lm_head",)


def test_one_parameter_is_in_memory_at_a_time():
    source = InMemory(good(), MODEL, TABLE)
    for _, tensor in tensors(source, MODEL, match(source, MODEL, NEEDED)):
        del tensor
    assert source.most == 3, "Q, K and V of one layer are one parameter"
