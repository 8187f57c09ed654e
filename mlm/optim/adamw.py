"""AdamW over torch's fused kernel, with the paper's two parameter groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share a weight decay."""

    name: str
    weight_decay: float
    parameters: dict[str, nn.Parameter]

    @property
    def num_elements(self) -> int:
        return sum(p.numel() for p in self.parameters.values())


def parameter_groups(model: nn.Module, weight_decay: float) -> list[ParameterGroup]:
    """Matrices decay, biases and LayerNorms do not (section 4.2). Told apart by dimension, never by name."""
    named = dict(model.named_parameters())  # a tied parameter appears once
    matrices = {n: p for n, p in named.items() if p.dim() >= 2}
    vectors = {n: p for n, p in named.items() if p.dim() < 2}
    return [
        ParameterGroup("decay", weight_decay, matrices),
        ParameterGroup("no decay", 0.0, vectors),
    ]


class AdamW:
    """AdamW with decoupled weight decay: p -= lr (m_hat / (sqrt(v_hat) + eps) + weight_decay p).

    Calls torch's functional form: constructing torch.optim.AdamW imports the compiler, most of a second at
    every start. State has the dtype and the layout of its parameter.
    """

    def __init__(self, groups: list[ParameterGroup], *, beta1: float, beta2: float, eps: float):
        self.groups = groups
        self.beta1, self.beta2, self.eps = beta1, beta2, eps
        self._first: dict[str, Tensor] = {}
        self._second: dict[str, Tensor] = {}
        self._steps: dict[str, Tensor] = {}
        for name, parameter in self._named_parameters():
            self._first[name] = torch.zeros_like(parameter, requires_grad=False)
            self._second[name] = torch.zeros_like(parameter, requires_grad=False)
            self._steps[name] = torch.zeros((), dtype=torch.float32, device=parameter.device)

    def step(self, lr: float, skip: Tensor | None = None) -> None:
        """One update of every parameter that has a gradient.

        skip: an fp32 scalar on the device; where it is 1 rather than 0, parameters, moments and the count of
        updates stay as they are, whatever the gradients hold. The host does not wait for it.
        """
        for group in self.groups:
            named = {n: p for n, p in group.parameters.items() if p.grad is not None}
            if not named:
                continue
            parameters: list[Tensor] = list(named.values())
            with torch.no_grad():
                adamw(
                    parameters,
                    [p.grad for p in parameters if p.grad is not None],
                    [self._first[n] for n in named],
                    [self._second[n] for n in named],
                    [],
                    [self._steps[n] for n in named],
                    fused=True,
                    amsgrad=False,
                    beta1=self.beta1,
                    beta2=self.beta2,
                    lr=lr,
                    weight_decay=group.weight_decay,
                    eps=self.eps,
                    maximize=False,
                    found_inf=skip,
                )

    def zero_grad(self) -> None:
        """Forget all gradients; the next backward makes them anew."""
        for _, parameter in self._named_parameters():
            parameter.grad = None

    def named_moments(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(parameter name, first moment, second moment), each with its parameter's local shape."""
        for name in self._first:
            yield name, self._first[name], self._second[name]

    def set_updates(self, updates: int) -> None:
        """Take it that so many updates have been made, which is what the bias correction counts."""
        for steps in self._steps.values():
            steps.fill_(updates)

    def _named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for group in self.groups:
            yield from group.parameters.items()
