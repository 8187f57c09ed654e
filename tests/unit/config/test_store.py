"""save_config and load_config: what a worker reads is what the launcher wrote, value and type."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from mlm.config.compose import compose, load_config, save_config
from mlm.config.fields import assemble, flatten, schema_fields
from mlm.config.schema import BlendPart, Decay, Gelu, LayerNormPlacement, TrainConfig
from mlm.errors import ConfigError

TINY = compose(["model=gpt2_tiny"])
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
VALUES = {
    str: TEXT,
    int: st.integers(-(2**63), 2**63),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    Gelu: st.sampled_from(Gelu),
    Decay: st.sampled_from(Decay),
    LayerNormPlacement: st.sampled_from(LayerNormPlacement),
    list[int]: st.lists(st.integers(-(2**63), 2**63), max_size=4),
    list[float]: st.lists(st.floats(allow_nan=False), max_size=4),
    list[str]: st.lists(TEXT, max_size=3),
    list[BlendPart]: st.lists(st.builds(BlendPart, weight=st.floats(allow_nan=False), path=TEXT), max_size=3),
    dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=3),
}


@st.composite
def configurations(draw: st.DrawFn) -> TrainConfig:
    values = {}
    for key, field in schema_fields().items():
        strategy = VALUES[field.kind]
        values[key] = draw(strategy | st.none() if field.optional else strategy)
    return assemble(values)


@settings(max_examples=40, deadline=None)
@given(configurations())
def test_any_configuration_survives_the_file_exactly(
    tmp_path_factory: pytest.TempPathFactory, config: TrainConfig
) -> None:
    path = tmp_path_factory.mktemp("store") / "config.yaml"
    save_config(config, path)
    loaded = load_config(path)
    assert loaded == config
    for key, value in flatten(config).items():
        assert type(flatten(loaded)[key]) is type(value), key


@pytest.mark.parametrize(
    "text", ["1E5", "1e-4", "007", "true", "null", "~", "3.0", ".inf", "a: b", "# c", " x ", "é"]
)
def test_text_that_looks_like_something_else_is_text_for_every_yaml_reader(tmp_path: Path, text: str) -> None:
    config = assemble({**flatten(TINY), "model.name": text})
    save_config(config, tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml").model.name == text
    assert yaml.safe_load((tmp_path / "c.yaml").read_text())["model"]["name"] == text
    assert OmegaConf.load(tmp_path / "c.yaml").model.name == text


def test_small_floats_are_floats_for_every_yaml_reader(tmp_path: Path) -> None:
    save_config(assemble({**flatten(TINY), "optim.lr": 1e-5}), tmp_path / "c.yaml")
    assert yaml.safe_load((tmp_path / "c.yaml").read_text())["optim"]["lr"] == 1e-5
    assert OmegaConf.load(tmp_path / "c.yaml").optim.lr == 1e-5


def test_a_number_written_by_hand_without_a_dot_is_a_number(tmp_path: Path) -> None:
    save_config(TINY, tmp_path / "c.yaml")
    text = (tmp_path / "c.yaml").read_text()
    assert "lr: 0.00015" in text
    (tmp_path / "c.yaml").write_text(text.replace("lr: 0.00015", "lr: 15e-5"))
    assert load_config(tmp_path / "c.yaml").optim.lr == 15e-5


def test_a_damaged_file_is_refused_with_every_problem(tmp_path: Path) -> None:
    save_config(TINY, tmp_path / "c.yaml")
    text = (tmp_path / "c.yaml").read_text().replace("num_layers: 2\n", "num_layers: two\n  extra: 1\n")
    (tmp_path / "c.yaml").write_text(text.replace("  hidden_size: 64\n", ""))
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "c.yaml")
    assert [p.where.split("=")[0].split(" ")[0] for p in caught.value.problems] == [
        "model.num_layers",
        "model.hidden_size",
        "model.extra",
    ]


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError):
        load_config(tmp_path / "c.yaml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "c.yaml")
