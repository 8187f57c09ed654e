"""Where a step first went wrong: its forward and backward passes once more, looked at layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from mlm.train.batches import sample_numbers
from mlm.train.setup import Run


def diagnose(run: Run, step: int, consumed_samples: int, loss_scale: float | None) -> dict[str, Any]:
    """This rank's findings about a step, as JSON values; collective over all ranks.

    consumed_samples: before the step; loss_scale: fp16's in it. The passes are those of the step to the bit,
    for neither parameters nor random numbers have moved since; what stays finite now was no matter of
    arithmetic. `first_bad` is what went wrong first: a parameter, the output of a layer, the loss, the
    gradient of a layer's output or a parameter's gradient. Parameters stay as they are.
    """
    mesh, look = run.mesh, _Look()
    for name, parameter in run.model.named_parameters():
        look("parameter", name, parameter)
    run.rng.begin_step(step)
    run.optimizer.zero_grad()
    losses = []
    factor, numbers = loss_scale or 1.0, sample_numbers(run, consumed_samples)
    for index, micro_batch in enumerate(run.objective.micro_batches(numbers)):
        look.micro_batch = index
        with look.at_layers(run.model):
            with run.autocast():
                loss, _ = micro_batch.loss(run.model, factor)
            look("loss", "", loss)
            loss.backward()
        share = micro_batch.samples / run.config.train.global_batch_size
        losses.append(loss.item() / (factor * share))
        for name, parameter in run.model.named_parameters():
            if parameter.grad is not None:
                look("gradient of parameter", name, parameter.grad)
    run.optimizer.zero_grad()
    return {
        "rank": mesh.rank,
        "tp_rank": mesh.tp.rank,
        "dp_rank": mesh.dp.rank,
        "first_sample": int(numbers[0]),
        "last_sample": int(numbers[-1]),
        "loss_of_micro_batches": [_strict(loss) for loss in losses],
        "first_bad": look.first_bad,
    }


class _Look:
    """Looks at one tensor after the other and remembers the first that is not finite.

    All ranks look at the same things in the same order, so that `look`, a count, tells whose was first.
    """

    def __init__(self) -> None:
        self.first_bad: dict[str, Any] | None = None
        self.micro_batch: int | None = None
        self._looks = 0

    def __call__(self, what: str, name: str, tensor: Tensor) -> None:
        self._looks += 1
        if self.first_bad is None and not tensor.detach().isfinite().all():
            found = {"what": f"{what} {name}".strip(), "micro_batch": self.micro_batch, "look": self._looks}
            self.first_bad = found

    @contextmanager
    def at_layers(self, model: nn.Module) -> Iterator[None]:
        """While it lasts, at the outputs of the model's layers and at their gradients."""

        def watch(name: str) -> Any:
            def output(module: nn.Module, inputs: Any, output: Any) -> None:
                if isinstance(output, Tensor):
                    self("output of", name, output)
                    if output.requires_grad:
                        output.register_hook(lambda grad: self("gradient of the output of", name, grad))

            return output

        hooks = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _strict(value: float) -> float | str:
    """The number, or its name where JSON has none for it."""
    return value if abs(value) < float("inf") else str(value)
