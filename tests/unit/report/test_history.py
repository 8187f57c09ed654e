"""The steps of a run that was continued, told from its records alone."""

from __future__ import annotations

from typing import Any

from mlm.report.history import unbroken


def step(number: int, attempt: int, **values: Any) -> dict[str, Any]:
    return {"kind": "train", "step": number, "attempt": attempt, "step_time_s": 1.0, **values}


def resume(number: int, attempt: int) -> dict[str, Any]:
    return {"kind": "resume", "step": number, "attempt": attempt}


def train(records: list[Any]) -> list[tuple[int, int]]:
    return [(r["step"], r["attempt"]) for r in records if r["kind"] == "train"]


def test_records_without_a_resume_are_as_they_were():
    records = [step(n, 1) for n in (1, 2, 3)]
    assert unbroken(records) == records


def test_what_was_recorded_behind_the_checkpoint_is_taken_back():
    records = [step(n, 1) for n in (1, 2, 3, 4)]
    records += [resume(2, 2), step(3, 2), step(4, 2), step(5, 2), resume(4, 3), step(5, 3)]
    records.insert(3, {"kind": "valid", "step": 3, "loss": 1.0})
    found = unbroken(records)
    assert train(found) == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)]
    assert [r for r in found if r["kind"] != "train"] == []


def test_an_attempt_at_step_0_takes_everything_back():
    assert train(unbroken([step(1, 1), step(2, 1), resume(0, 2), step(1, 2)])) == [(1, 2)]


def test_steps_that_the_next_attempt_has_not_reached_are_taken_back_too():
    assert train(unbroken([step(1, 1), step(2, 1), step(3, 1), resume(1, 2)])) == [(1, 1)]


def test_the_first_window_of_new_processes_has_no_time_and_the_others_keep_theirs():
    found = unbroken([step(1, 1), step(2, 1), resume(2, 2), step(3, 2), step(4, 2)])
    assert [r["step_time_s"] for r in found] == [1.0, 1.0, None, 1.0]
