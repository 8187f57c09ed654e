"""One logical layout: every parameter is declared once by its full shape and how tp divides it.

Initialisation, gradient norms, checkpoints and parity tests read this declaration and nothing else, so
none of them depends on the degree a run happens to use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlm.errors import ConfigError, Problem
from mlm.parallel.mesh import Axis


@dataclass(frozen=True)
class Declaration:
    """One parameter of the full model.

    shape: its full shape, as at tp=1. split_dim: the dimension that tp divides; None: every rank holds
    all of it. init: standard deviation of the normal distribution it starts from, or the constant it is
    filled with. drawn_rows: rows that are drawn, the rest starts at 0 (padding of a vocabulary).
    """

    shape: tuple[int, ...]
    split_dim: int | None = None
    init_std: float | None = None
    init_constant: float = 0.0
    drawn_rows: int | None = None

    def local_shape(self, tp: Axis) -> tuple[int, ...]:
        """Shape of this rank's part; ConfigError when tp does not divide the split dimension."""
        if self.split_dim is None:
            return self.shape
        full = self.shape[self.split_dim]
        if full % tp.size:
            raise ConfigError(
                Problem(
                    f"dimension {self.split_dim} of a parameter of shape {list(self.shape)}",
                    f"is not a multiple of tp={tp.size}",
                    "choose sizes that tp divides",
                )
            )
        local = list(self.shape)
        local[self.split_dim] = full // tp.size
        return tuple(local)

    def local_part(self, full: Tensor, tp: Axis) -> Tensor:
        """This rank's slice of a tensor of the full shape (a view)."""
        if self.split_dim is None:
            return full
        part = self.shape[self.split_dim] // tp.size
        return full.narrow(self.split_dim, tp.rank * part, part)


class DeclaringModule(nn.Module):
    """A module that declares each of its own parameters by calling `declare`."""

    def __init__(self, tp: Axis):
        super().__init__()
        self.tp = tp
        self.declarations: dict[str, Declaration] = {}

    def declare(self, name: str, declaration: Declaration, dtype: torch.dtype) -> nn.Parameter:
        """Register parameter `name` with this rank's local shape; values come from `initialise`."""
        parameter = nn.Parameter(torch.empty(declaration.local_shape(self.tp), dtype=dtype))
        self.register_parameter(name, parameter)
        self.declarations[name] = declaration
        return parameter


def named_declarations(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, Declaration]]:
    """Every parameter of the model with its full name and declaration, each shared parameter once."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            assert isinstance(module, DeclaringModule), f"{prefix}.{name} is declared by no module"
            yield (f"{prefix}.{name}" if prefix else name), parameter, module.declarations[name]


@torch.no_grad()
def initialise(model: nn.Module, seed: int, tp: Axis) -> None:
    """Fill every parameter as its declaration says, identically for every layout.

    The full tensor is drawn on the CPU in fp32 from a generator that only (seed, parameter name) determine,
    then this rank's slice is kept: tp=1, 2, 4, ... start from the same bits. Peak extra memory: one full
    tensor.
    """
    for name, parameter, declaration in named_declarations(model):
        if parameter.is_meta:
            continue
        if not declaration.init_std:  # nothing to draw: a constant, or a deviation of exactly 0
            parameter.fill_(declaration.init_constant)
            continue
        parameter.copy_(declaration.local_part(initial_value(name, declaration, seed), tp))


def initial_value(name: str, declaration: Declaration, seed: int) -> Tensor:
    """The full tensor that a parameter of that name starts with, in fp32 on the CPU."""
    if not declaration.init_std:
        return torch.full(declaration.shape, declaration.init_constant, dtype=torch.float32)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    full = torch.zeros(declaration.shape, dtype=torch.float32)
    full[: declaration.drawn_rows].normal_(0.0, declaration.init_std, generator=generator)
    return full


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Numbers of parameters: (of the full model, held by this rank)."""
    full = local = 0
    for _, parameter, declaration in named_declarations(model):
        full += torch.Size(declaration.shape).numel()
        local += parameter.numel()
    return full, local
