"""The scaling figures of the paper (arXiv 1909.08053 v4), to stand beside one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

PAPER_MACHINE = "DGX-2H servers of 16 V100 32 GB each, fp16"
"""What all tables below were measured on (section 5.1); another machine's figures are no target."""


@dataclass(frozen=True)
class PublishedTable:
    """One figure or table of the paper: a value for each key."""

    name: str
    caption: str
    """Where it stands and what was varied, in one sentence."""
    quantity: Literal["efficiency", "speed-up"]
    """efficiency: share of the baseline's rate per device, 1 is perfect; speed-up: times the baseline's."""
    key: Literal["tp", "processes", "heads"]
    """What the keys of values count."""
    values: Mapping[int, float]
    baseline: str
    """What the values are relative to."""
    machine: str = PAPER_MACHINE


def _table(
    name: str,
    quantity: Literal["efficiency", "speed-up"],
    key: Literal["tp", "processes", "heads"],
    values: dict[int, float],
    *,
    caption: str,
    baseline: str,
) -> tuple[str, PublishedTable]:
    return name, PublishedTable(name, caption, quantity, key, MappingProxyType(values), baseline)


_ONE_V100 = "1.2 billion parameters on one device, 39 TFLOP/s"

PUBLISHED: Mapping[str, PublishedTable] = dict(
    [
        _table(
            "figure5_tp",
            "efficiency",
            "tp",
            {1: 1.00, 2: 0.95, 4: 0.82, 8: 0.77},
            caption="Figure 5: weak scaling by tensor parallelism, 1.2 to 8.3 billion parameters, batch 8",
            baseline=_ONE_V100,
        ),
        _table(
            "figure5_tp_dp",
            "efficiency",
            "processes",
            {64: 0.96, 128: 0.83, 256: 0.79, 512: 0.74},
            caption="Figure 5: weak scaling by tensor and 64-way data parallelism, batch 512",
            baseline=_ONE_V100,
        ),
        _table(
            "table7",
            "efficiency",
            "heads",
            {16: 0.82, 24: 0.80, 32: 0.77},
            caption="Table 7: attention heads of the 8.3 billion model, tensor-parallel over 8 devices",
            baseline=_ONE_V100,
        ),
        _table(
            "table8",
            "speed-up",
            "tp",
            {1: 1.00, 2: 1.64, 4: 2.34, 8: 2.98},
            caption="Table 8: strong scaling of 1.2 billion parameters by tensor parallelism, batch 8",
            baseline="the same model on one device",
        ),
    ]
)
"""By name, as a study's `published:` has it."""
