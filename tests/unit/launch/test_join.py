from __future__ import annotations

from typing import Any

from mlm.errors import Problem
from mlm.launch.join import _objection, _statement
from mlm.launch.step import Step
from tests.unit.launch.machines import config

STEP = Step("torchrun", 3, 4, 1, 2)


def objection(own: dict[str, Any], lead: dict[str, Any]) -> str | None:
    return _objection(STEP, {**own, "host": "b"}, {**lead, "host": "a"})


def test_equal_compositions_agree() -> None:
    assert objection(_statement(config(tp=2), []), _statement(config(tp=2), [])) is None


def test_a_different_composition_names_both_hosts_and_values() -> None:
    said = objection(_statement(config(tp=2), []), _statement(config(tp=4, dp=2), []))
    assert said is not None
    for part in ("rank 3 on b", "rank 0 on a", "tp=2 against 4", "dp=None against 2"):
        assert part in said, said


def test_another_version_of_the_code_names_both() -> None:
    lead = _statement(config(), []) | {"version": "0.1.0+aaa"}
    said = objection(_statement(config(), []) | {"version": "0.1.0+bbb"}, lead)
    assert said is not None
    assert "rank 3 on b runs mlm 0.1.0+bbb" in said
    assert "0.1.0+aaa" in said


def test_a_problem_of_one_machine_is_said_with_its_name() -> None:
    own = _statement(config(), [Problem("data.path=/x", "no such dataset", "copy it there")])
    said = objection(own, _statement(config(), []))
    assert said is not None
    assert "rank 3 on b cannot run this" in said
    assert "data.path=/x no such dataset: copy it there" in said
