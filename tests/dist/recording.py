"""What a piece of code really communicates and computes, seen from below: torch's dispatcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Call:
    """One operator: its name (`all_reduce`, `mm`, ...) and the elements it got or gave."""

    name: str
    numel: int


@dataclass
class Recorder(TorchDispatchMode):
    """Records collectives and matrix products in the order of their issue."""

    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        if func.namespace == "c10d":
            tensors = args[0] if isinstance(args[0], list | tuple) else [args[0]]
            self.calls.append(Call(name.rstrip("_"), sum(t.numel() for t in tensors)))
        elif name in ("mm", "addmm", "bmm"):
            self.calls.append(Call(name, out.numel()))
        return out

    def collectives(self) -> list[Call]:
        return [c for c in self.calls if not c.name.endswith("mm")]


def elements(calls: list[Call]) -> list[int]:
    return [c.numel for c in calls]
