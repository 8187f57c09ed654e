from __future__ import annotations

from pathlib import Path

import pytest

from mlm.cli.arguments import parse
from mlm.errors import Problem
from mlm.launch.refusal import format_problems

TWO = [
    Problem("model.num_heads=15", "is not a multiple of tp=4", "use tp=1, 3, 5 or 15"),
    Problem("data.path=/data/wiki", "no such dataset (wiki.bin, wiki.idx)", "mlm-data prepare writes one"),
]


def test_problems_stand_in_aligned_columns() -> None:
    assert format_problems("mlm-train", TWO, width=120) == (
        "mlm-train: 2 problems, nothing was started\n"
        "  model.num_heads=15    is not a multiple of tp=4             use tp=1, 3, 5 or 15\n"
        "  data.path=/data/wiki  no such dataset (wiki.bin, wiki.idx)  mlm-data prepare writes one\n"
    )


def test_in_a_narrow_terminal_the_remedy_has_its_own_line() -> None:
    assert format_problems("mlm-train", TWO[:1], width=60) == (
        "mlm-train: 1 problem, nothing was started\n"
        "  model.num_heads=15  is not a multiple of tp=4\n"
        "    -> use tp=1, 3, 5 or 15\n"
    )


def test_one_problem_found_twice_is_said_once() -> None:
    assert "1 problem," in format_problems("mlm-train", [*TWO[:1], *TWO[:1]], width=120)


def test_overrides_flags_and_config_dirs_are_told_apart() -> None:
    given = parse(["tp=2", "--config-dir", "a", "model.num_heads=4", "--config-dir=b"])
    assert given.overrides == ["tp=2", "model.num_heads=4"]
    assert given.config_dirs == [Path("a"), Path("b")]
    assert given.problems == []
    assert parse(["-h"]).help
    assert parse(["--help"]).help
    assert parse(["--version"]).version


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("--explain", "explain=VALUE"),
        ("--tensor-parallel=2", "tensor_parallel=2"),
        ("--local-rank=0", "local_rank=0"),
        ("-5", "key=value"),
        ("--config-dir", "--config-dir DIR"),
    ],
)
def test_other_flags_are_refused_with_a_hint(word: str, remedy: str) -> None:
    (problem,) = parse([word]).problems
    assert problem.where == word
    assert remedy in problem.remedy


@pytest.mark.parametrize("word", ["-m", "--multirun"])
def test_a_command_without_sweeps_says_so(word: str) -> None:
    given = parse([word, "tp=1,2"])
    assert given.multirun
    given.refuse_sweeps(can_sweep=False)
    (problem,) = given.problems
    assert (problem.where, problem.remedy) == ("-m", "give one value of each key")


def test_a_study_without_m_is_told_to_add_it() -> None:
    given = parse(["study=weak_scaling_cpu", "tp=2"])
    given.refuse_sweeps(can_sweep=True)
    (problem,) = given.problems
    assert problem.remedy == "add -m: mlm-train -m study=weak_scaling_cpu"
    assert given.overrides == ["tp=2"]
