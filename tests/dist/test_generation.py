"""The engine: kept keys and values change no token, nor does the batch or the tensor-parallel degree."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mlm.generate.engine import PREFILL_TOKENS, Engine, Limits, Text, first_in_sight
from mlm.generate.sampling import Sampling
from tests.dist.meshes import TINY, mesh_of, tiny_model, whole_parameters
from tests.transformers_gpt2 import as_transformers

SEQ, VOCAB = TINY.seq_length, TINY.vocab_size
PROMPTS = [[1, 2, 3], [4], list(range(5, 5 + SEQ)), [9, 8], [7, 7, 7, 7, 7, 7], [30], [2, 31, 2]]
"""Ragged, one of them as long as the context."""

CASES: dict[str, tuple[Sampling, Limits]] = {
    "greedy": (Sampling(temperature=0), Limits(new_tokens=9)),
    "greedy, sliding": (Sampling(temperature=0), Limits(new_tokens=2 * SEQ, slides=True)),
    "sampled": (Sampling(seed=5, temperature=1.3), Limits(new_tokens=9)),
    "sampled, sliding": (Sampling(seed=5, top_k=20, top_p=0.9), Limits(new_tokens=2 * SEQ, slides=True)),
    "ends of documents": (Sampling(seed=6, temperature=2.0), Limits(new_tokens=24, eod=11, slides=True)),
}


def engine(tp: int, rows: int, use_cache: bool) -> Engine:
    # Padding of 160 - 37 ids: drawn from, some would surely appear.
    mesh = mesh_of(tp, 1)
    return Engine(
        model=model_of(tp),
        seq_length=SEQ,
        vocab_size=VOCAB,
        tp=mesh.tp,
        device=torch.device("cpu"),
        rows=rows,
        use_cache=use_cache,
    )


@functools.cache
def model_of(tp: int) -> torch.nn.Module:
    return tiny_model(mesh_of(tp, 1), padded_vocab_size=160)


Generated = dict[int, tuple[list[int], str | None]]


def generated(case: str, tp: int, rows: int, use_cache: bool, prompts: list[int]) -> Generated:
    """Ids and reason of each of these prompts, by its number."""
    sampling, limits = CASES[case]
    texts = [Text(list(PROMPTS[number]), prompt=number) for number in prompts]
    ended = list(engine(tp, rows, use_cache).run(texts, sampling, limits))
    assert sorted(text.prompt for text in ended) == sorted(prompts)
    return {text.prompt: (text.ids, text.finish_reason) for text in ended}


def every_way(tp: int) -> dict[str, Any]:
    """Each case: anew and cached, in a batch of all, of some at a time, and each alone.

    At tp > 1, where every collective costs, only what differs most.
    """
    everyone = list(range(len(PROMPTS)))
    found: dict[str, Any] = {}
    for case in CASES if tp == 1 else ("greedy", "sampled, sliding", "ends of documents"):
        ways = {"cached, three rows": generated(case, tp, 3, True, everyone)}
        if tp == 1 or case == "greedy":
            ways["anew, all rows"] = generated(case, tp, 8, False, everyone)
        if tp == 1:
            ways["cached, all rows"] = generated(case, tp, 8, True, everyone)
            ways["cached, backwards"] = generated(case, tp, 2, True, everyone[::-1])
            alone = [generated(case, tp, 1, False, [number]) for number in everyone]
            ways["anew, alone"] = {number: text for one in alone for number, text in one.items()}
        found[case] = ways
    return found


def test_cache_batch_and_tensor_parallel_degree_change_no_token(pool):
    expected = {case: ways["anew, alone"] for case, ways in pool(1).run(every_way, 1)[0].items()}
    for tp in (1, 2, 4):
        for rank, found in enumerate(pool(tp).run(every_way, tp)):
            for case, ways in found.items():
                for way, texts in ways.items():
                    assert texts == expected[case], f"{case}, {way}, tp={tp}, rank {rank}"
    reasons = {case: {reason for _, reason in texts.values()} for case, texts in expected.items()}
    assert reasons["greedy"] == {"length", "context"}
    assert reasons["greedy, sliding"] == {"length"}
    assert reasons["ends of documents"] == {"length", "eod"}
    for texts in expected.values():
        for number, (ids, _) in texts.items():
            assert ids[: len(PROMPTS[number])] == PROMPTS[number]
            assert max(ids) < VOCAB
    assert len({token for ids, _ in expected["sampled, sliding"].values() for token in ids}) > 20
    # The one that fills the context is given the one token that can still be predicted.
    assert len(expected["greedy"][2][0]) == SEQ + 1


def test_greedy_tokens_are_the_argmax_of_the_models_own_logits_over_the_window_in_sight():
    (ids, _) = generated("greedy, sliding", 1, 1, True, [0])[0]
    windows = []
    for end in range(3, len(ids)):
        # Full at 16 tokens, then at 16 again each time another half of them is complete.
        start = 0 if end <= SEQ else (end - SEQ + SEQ // 2 - 1) // (SEQ // 2) * (SEQ // 2)
        windows.append(end - start)
        with torch.no_grad():
            logits = model_of(1)(torch.tensor([ids[start:end]]))[0, -1, :VOCAB]
        assert ids[end] == logits.argmax().item(), end
    assert max(windows) == SEQ
    assert min(windows[SEQ:]) == SEQ // 2 + 1


def test_a_window_moves_by_half_of_it_when_it_is_full():
    assert [first_in_sight(n, 8) for n in (1, 8, 9, 12, 13, 16, 17, 800)] == [0, 0, 4, 4, 8, 8, 12, 792]
    assert [first_in_sight(n, 1) for n in (1, 2, 3)] == [0, 1, 2]
    for seq in (1, 2, 3, 7, 16):
        assert all(0 < n - first_in_sight(n, seq) <= seq for n in range(1, 100))


def test_frequencies_of_drawn_tokens_are_the_model_s_probabilities():
    samples = 4000
    texts = [Text([3, 1], sample=number) for number in range(samples)]
    ended = engine(1, 500, True).run(texts, Sampling(seed=1), Limits(new_tokens=1))
    found = np.bincount([text.ids[-1] for text in ended], minlength=VOCAB)
    with torch.no_grad():
        logits = model_of(1)(torch.tensor([[3, 1]]))[0, -1, :VOCAB]
    expected = samples * logits.softmax(0).numpy()
    # 99.99 % of chi-squared with 36 degrees of freedom are below 78.
    assert ((found - expected) ** 2 / expected).sum() < 78


def test_what_hears_a_token_can_end_its_text_and_no_other():
    texts = [Text([1, 2], prompt=n, hear=(lambda token: True) if n == 1 else None) for n in range(3)]
    ended = {t.prompt: t for t in engine(1, 3, True).run(texts, Sampling(seed=3), Limits(new_tokens=4))}
    assert {n: (t.new_tokens, t.finish_reason) for n, t in ended.items()} == {
        0: (4, "length"),
        1: (1, "stop"),
        2: (4, "length"),
    }


def test_the_model_is_left_in_the_mode_in_which_it_was():
    model = model_of(1)
    for training in (True, False):
        model.train(training)
        list(engine(1, 1, True).run([Text([1])], Sampling(), Limits(new_tokens=2)))
        assert model.training is training


def test_prompts_of_many_tokens_are_computed_in_several_passes(monkeypatch):
    sizes = []
    tiny = model_of(1)
    original = tiny.hidden_states

    def counted(ids, **rest):
        sizes.append(ids.numel())
        return original(ids, **rest)

    monkeypatch.setattr(tiny, "hidden_states", counted)
    count = 2 * PREFILL_TOKENS // SEQ + 3
    texts = [Text([5] * SEQ, prompt=number) for number in range(count)]
    list(engine(1, count, True).run(texts, Sampling(temperature=0), Limits(new_tokens=1)))
    assert sum(sizes) == count * SEQ
    assert max(sizes) == PREFILL_TOKENS


def test_greedy_text_equals_that_of_transformers_generate():
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    mesh = mesh_of(1, 1)
    model = tiny_model(mesh, torch.float32, seq_length=64)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    theirs = as_transformers(replace(TINY, seq_length=64), whole_parameters(model, mesh))
    expected = {}
    for number, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt])
        (expected[number],) = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30, pad_token_id=0
        ).tolist()
    assert len({tuple(ids[-30:]) for ids in expected.values()}) > 3
    for use_cache in (True, False):
        ours = Engine(
            model=model,
            seq_length=64,
            vocab_size=VOCAB,
            tp=mesh.tp,
            device=torch.device("cpu"),
            use_cache=use_cache,
        )
        texts = [Text(list(prompt), prompt=number) for number, prompt in enumerate(PROMPTS)]
        ended = ours.run(texts, Sampling(temperature=0), Limits(new_tokens=30))
        assert {text.prompt: text.ids for text in ended} == expected, f"use_cache={use_cache}"
