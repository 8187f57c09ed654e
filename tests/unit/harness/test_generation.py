"""Texts for generate_until: shared out among replicas, and the same however they are."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from mlm.eval.load import load_for_evaluation
from mlm.harness.generation import generate
from mlm.harness.messages import Drawing, Generate, Prompt
from mlm.parallel.mesh import Axis, Mesh
from tests.random_run import write_run

PROMPTS = [
    Prompt(10 + n, np.frombuffer(text.encode(), np.uint8).astype(np.int64)) for n, text in enumerate("abcde")
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    run_dir = write_run(tmp_path_factory.mktemp("runs") / "first")
    return load_for_evaluation(run_dir, mesh=Mesh.single(), device=torch.device("cpu"))


def made(loaded, prompts, drawing, *, seed=0, dp=(0, 1), report=None):
    mesh = replace(Mesh.single(), dp=Axis("dp", *dp))
    request = Generate(prompts, drawing, seed)
    cpu = torch.device("cpu")
    return generate(request, loaded, mesh, cpu, batch_tokens=64, autocast=nullcontext, report=report)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_replicas_share_the_prompts_and_make_the_texts_that_one_makes(loaded, temperature):
    drawing, told = Drawing(12, temperature=temperature), []
    whole = made(loaded, PROMPTS, drawing, report=lambda done, total: told.append((done, total)))
    shares = [made(loaded, PROMPTS, drawing, dp=(rank, 2)) for rank in (0, 1)]
    assert sorted(whole) == [10, 11, 12, 13, 14]
    assert shares[0].keys() == {10, 12, 14}
    assert shares[0] | shares[1] == whole
    assert told == [(n, 5) for n in range(1, 6)]
    assert len(set(whole.values())) > 1


def test_a_text_depends_on_its_number_and_the_seed_alone(loaded):
    drawing = Drawing(12, temperature=1.0)
    whole = made(loaded, PROMPTS, drawing)
    assert made(loaded, PROMPTS[3:4], drawing) == {13: whole[13]}
    assert made(loaded, PROMPTS, drawing, seed=1) != whole
    assert made(loaded, [replace(PROMPTS[3], number=1)], drawing)[1] != whole[13]


def test_a_text_ends_before_the_first_of_its_stop_strings(loaded):
    whole = made(loaded, PROMPTS[:1], Drawing(30))[10]
    late, early = whole[9:11], whole[4:6]
    until = (late, early, "not in it")
    first = min(whole.find(late), whole.find(early))
    assert made(loaded, PROMPTS[:1], Drawing(30, until))[10] == whole[:first]
