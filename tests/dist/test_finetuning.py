"""Fine-tuning at every layout: the heads' losses, gradients and predictions are those of one process."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlm.config.schema import Gelu, LayerNormPlacement
from mlm.data.tokenizers import WordPieceTokenizer
from mlm.eval.predict import Encoded, on_device, predict
from mlm.finetune.examples import Answer, ChoiceExample, PairExample, SpanExample
from mlm.finetune.tasks import TASKS
from mlm.models.registry import build_model
from mlm.optim.adamw import AdamW, parameter_groups
from mlm.parallel.data_parallel import replicate
from mlm.parallel.rng import RngStreams
from mlm.train.metrics import Window
from mlm.train.objectives.finetuning import LabelledMicroBatch
from mlm.train.step import train_step
from tests.dist.meshes import TINY, mesh_of, whole_gradients, whole_parameters

STEPS, GLOBAL_BATCH, LIMIT = 5, 8, 16
BERT = replace(
    TINY,
    architecture="bert",
    segments=2,
    layernorm=LayerNormPlacement.post,
    gelu=Gelu.erf,
    num_heads=4,
    vocab_size=37,
    padded_vocab_size=40,
)

# (tp, dp, micro batch)
LAYOUTS = [(2, 1, 8), (1, 2, 4), (2, 2, 2), (4, 1, 4)]
F64 = {"losses": 1e-11, "tensors": 1e-9, "scores": 1e-10}
F32 = {"losses": 1e-5, "tensors": 5e-4, "scores": 1e-4}

WITHOUT_EFFECT = {
    "race": ("task_head.bias",),
    "squad_v2": ("task_head.bias", "layers.1.mlp_norm.bias"),
}
"""What adds the same to every option's score, or to every position's (as the keys' third of qkv.bias does to
every key's), changes no probability: the true gradient is zero, and Adam divides what rounding leaves of it
by its own size.
"""


def vocabulary(folder: Path) -> Path:
    """[PAD], [UNK], [CLS], [SEP], [MASK] and w0 to w31."""
    path = folder / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(32))]
    path.write_text("".join(f"{token}\n" for token in tokens))
    return path


def examples(task: str) -> list[Any]:
    """Of different lengths, some too long."""
    draw = random.Random(3)

    def text(most: int) -> str:
        return " ".join(f"w{draw.randrange(32)}" for _ in range(draw.randint(1, most)))

    found: list[Any] = []
    for number in range(11):
        if task == "race":
            options = tuple(text(3) for _ in range(4))
            found.append(ChoiceExample(str(number), text(14), text(3), options, number % 4))
        elif task in ("mnli", "qqp"):
            found.append(PairExample(str(number), text(9), text(9), number % 2))
        else:
            context = text(20)
            answers = (Answer(context.split()[0], 0),) if number % 3 else ()
            found.append(SpanExample(str(number), context, text(3), answers))
    return found


def micro_batches(encoded: Encoded, step: int, rank: int, of: int, micro: int) -> list[LabelledMicroBatch]:
    numbers = [(step * GLOBAL_BATCH + place) % len(encoded) for place in range(GLOBAL_BATCH)]
    mine = numbers[rank * GLOBAL_BATCH // of : (rank + 1) * GLOBAL_BATCH // of]
    found = []
    for start in range(0, len(mine), micro):
        batch = encoded.batch(mine[start : start + micro])
        inputs = on_device(batch, torch.device("cpu"))
        found.append(LabelledMicroBatch(inputs, torch.from_numpy(batch.targets), GLOBAL_BATCH))
    return found


def trained(tp: int, dp: int, micro: int, task: str, dtype: torch.dtype, vocab: str) -> dict[str, Any]:
    mesh, device = mesh_of(tp, dp), torch.device("cpu")
    encoded = TASKS[task].encode(examples(task), WordPieceTokenizer(vocab), LIMIT)
    model = build_model(
        BERT, tp=mesh.tp, rng=RngStreams(7, mesh, device), seed=7, objective=task, dtype=dtype
    )
    initial = whole_parameters(model, mesh)
    replica = replicate(model, mesh.dp)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    window = Window(mesh, device, tokens=1, flops=1.0, hardware_flops=1.0, peak=None)
    for step in range(STEPS):
        share, norm, figures = train_step(
            replica,
            optimizer,
            micro_batches(encoded, step, mesh.dp.rank, mesh.dp.size, micro),
            lr=1e-3,
            clip_grad_norm=0.1,
            mesh=mesh,
            autocast=nullcontext,
        )
        window.add(step + 1, 1e-3, share, norm, figures=figures)
    records, _ = window.close()
    return {
        "initial": initial,
        "losses": [record.loss for record in records],
        "figures": [record.figures[0] for record in records],
        "tensors": whole_gradients(model, mesh) | whole_parameters(model, mesh),
        "scores": predict(model, encoded, batch_size=micro, mesh=mesh, device=device),
        "training": model.training,
    }


@pytest.mark.parametrize(
    ("task", "dtype"),
    [("race", torch.float64), ("mnli", torch.float64), ("squad_v2", torch.float64), ("race", torch.float32)],
)
def test_heads_train_and_predict_the_same_at_every_layout(pool, tmp_path: Path, task: str, dtype):
    vocab, bounds = str(vocabulary(tmp_path)), F64 if dtype == torch.float64 else F32
    one = pool(1).run(trained, 1, 1, GLOBAL_BATCH, task, dtype, vocab)[0]
    assert one["training"], "a prediction leaves the model in its mode"
    for tp, dp, micro in LAYOUTS:
        for rank, other in enumerate(pool(tp * dp).run(trained, tp, dp, micro, task, dtype, vocab)):
            who = f"{task} tp={tp} dp={dp} micro={micro} rank={rank}"
            for name, tensor in one["initial"].items():
                assert torch.equal(tensor, other["initial"][name]), f"{who}: initial {name} differs"
            for a, b in zip(one["losses"], other["losses"], strict=True):
                assert abs(a - b) <= bounds["losses"] * abs(a), f"{who}: losses {a!r} and {b!r}"
            assert one["figures"] == pytest.approx(other["figures"], abs=1e-9), who
            for name, a in one["tensors"].items():
                if name.endswith("qkv.bias") or name in WITHOUT_EFFECT.get(task, ()):
                    continue
                error = (a - other["tensors"][name]).abs().max().item() / a.abs().max().item()
                assert error <= bounds["tensors"], f"{who}: {name}, relative error {error:.1e}"
            for number, (a, b) in enumerate(zip(one["scores"], other["scores"], strict=True)):
                assert a.shape == b.shape, f"{who}: sample {number}"
                finite = np.abs(a) < 1e30  # where a span may not stand is the lowest number
                assert (finite == (np.abs(b) < 1e30)).all(), f"{who}: sample {number}"
                np.testing.assert_allclose(a[finite], b[finite], rtol=0, atol=bounds["scores"], err_msg=who)
