"""The paper's scaling figures, against the numbers as printed there."""

from __future__ import annotations

import pytest

from mlm.plan.published import PUBLISHED

PERCENT = {
    "figure5_tp": {1: 100, 2: 95, 4: 82, 8: 77},
    "figure5_tp_dp": {64: 96, 128: 83, 256: 79, 512: 74},
    "table7": {16: 82, 24: 80, 32: 77},
}
SPEED_UP = {"table8": {1: 1.00, 2: 1.64, 4: 2.34, 8: 2.98}}


def test_there_are_no_other_tables():
    assert set(PUBLISHED) == set(PERCENT) | set(SPEED_UP)
    assert all(name == table.name for name, table in PUBLISHED.items())


@pytest.mark.parametrize(("name", "printed"), PERCENT.items())
def test_efficiencies_are_the_printed_percentages(name, printed):
    table = PUBLISHED[name]
    assert table.quantity == "efficiency"
    assert {key: round(100 * value, 9) for key, value in table.values.items()} == printed


@pytest.mark.parametrize(("name", "printed"), SPEED_UP.items())
def test_speed_ups_are_the_printed_factors(name, printed):
    assert PUBLISHED[name].quantity == "speed-up"
    assert dict(PUBLISHED[name].values) == printed


def test_each_table_says_what_its_keys_are_where_it_stands_and_on_which_machine():
    keys = {"figure5_tp": "tp", "figure5_tp_dp": "processes", "table7": "heads", "table8": "tp"}
    assert {name: table.key for name, table in PUBLISHED.items()} == keys
    for name, table in PUBLISHED.items():
        assert ("Figure 5" if "figure" in name else f"Table {name[-1]}") in table.caption
        assert "DGX-2H" in table.machine
        assert "V100" in table.machine


def test_a_published_value_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        PUBLISHED["table8"].values[2] = 2.0  # type: ignore[index]
