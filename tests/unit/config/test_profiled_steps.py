"""Which steps are recorded when nobody says, and which choices are refused."""

from __future__ import annotations

import pytest

from mlm.config.checks import check
from mlm.config.compose import compose
from mlm.config.resolve import resolved
from mlm.config.schema import TrainConfig
from mlm.errors import Problem


def configured(*words: str) -> TrainConfig:
    """Twelve steps unless words say otherwise."""
    steps = [] if any(word.startswith("train.steps=") for word in words) else ["train.steps=12"]
    return compose(["model=gpt2_tiny", "optim.warmup_steps=0", *steps, *words])


def problems(*words: str) -> list[Problem]:
    return check(configured(*words))


def recorded(*words: str) -> list[int] | None:
    done = resolved(configured(*words), device="cpu", processes=1, threads=1, precision="fp32", run_dir="r")
    return done.profile_steps


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["profile=true"], [10, 11, 12]),
        (["profile=true", "train.steps=10"], [8, 9, 10]),
        (["profile=true", "train.steps=7"], [6, 7]),
        (["profile=true", "train.steps=1"], [1]),
        (["profile=true", "profile_steps=[2,9]"], [2, 9]),
        ([], None),
    ],
)
def test_the_last_steps_are_recorded_unless_others_are_named(
    words: list[str], steps: list[int] | None
) -> None:
    assert problems(*words) == []
    assert recorded(*words) == steps


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["profile_steps=[3]"], "is for profile=true"),
        (["profile=true", "profile_steps=[]"], "names no step"),
        (["profile=true", "profile_steps=[3,5,3]"], "names a step twice"),
        (["profile=true", "profile_steps=[0]"], "names step 0, which is not in 1 to train.steps=12"),
        (["profile=true", "profile_steps=[12,13]"], "names step 13"),
        (["profile=true", "profile_steps=[1,2,3,4,5,6,7,8,9,10,11]"], "is 11 steps, more than 10"),
    ],
)
def test_a_choice_that_cannot_be_recorded_is_one_problem_whose_remedy_works(
    words: list[str], wrong: str
) -> None:
    (problem,) = problems(*words)
    assert problem.where.startswith("profile_steps=[")
    assert wrong in problem.wrong
    if "profile=true" in words:
        remedy = next(word.strip(",") for word in problem.remedy.split() if word.startswith("profile_steps="))
        assert problems("profile=true", remedy) == []
