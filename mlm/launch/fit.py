"""Does the model fit: what one rank holds for the whole run against a device, or all ranks against memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mlm.config.schema import ModelConfig, TrainConfig
from mlm.errors import Problem
from mlm.launch.machine import Machine
from mlm.plan.memory import static_memory
from mlm.plan.parameters import count_parameters

GIB = 1 << 30
_FP32_BYTES = 4
_CPU_MODELS = {"gpt2": ("gpt2_small_cpu", "gpt2_tiny"), "bert": ("bert_small_cpu", "bert_tiny")}
"""Shipped models that a machine without accelerators can train, by architecture and larger first: fitting
alone is not enough."""
_HEADROOM = 0.6
"""Share of the memory that a suggested model may hold for good; its activations need the rest."""


def rank_bytes(model: ModelConfig, tp: int) -> int | None:
    """Static bytes of one rank, or None when tp does not divide the model (which is refused elsewhere)."""
    try:
        return static_memory(model, tp).total_bytes
    except (ValueError, ZeroDivisionError):
        return None


def problems(config: TrainConfig, device: str, local_processes: int, machine: Machine) -> list[Problem]:
    """The problem of a model too large for this machine, with one that is not, or nothing."""
    needed = rank_bytes(config.model, config.tp)
    if needed is None:
        return []
    available = available_bytes(device, machine)
    if device == "cuda":
        device_name = machine.accelerators[0].name if machine.accelerators else "device"
        wrong = (
            f"needs {gib(needed)} per device for weights, gradients and optimizer state, "
            f"one {device_name} has {gib(available)}"
        )
    else:
        each = needed
        needed *= local_processes
        ranks = f" ({local_processes} ranks of {gib(each)})" if local_processes > 1 else ""
        wrong = (
            f"needs {gib(needed)} for weights, gradients and optimizer state{ranks}, "
            f"this machine has {gib(available)} available"
        )
    if needed <= available:
        return []
    remedies = [] if config.launch.mode == "dry_run" else ["launch=dry_run shows the plan"]
    larger = _sufficient_tp(config, available) if device == "cuda" else None
    if larger is not None:
        remedies.append(f"tp={larger} would fit on such devices")
    smaller = _suggestion(config.model.architecture, device, machine)
    if smaller is not None:
        remedies.append(f"{smaller} fits here")
    remedies = remedies or ["use a larger machine"]
    return [Problem(f"{config.model.name} at tp={config.tp}", wrong, "; ".join(remedies))]


def weight_problems(
    model: ModelConfig, tp: int, device: str, local_processes: int, machine: Machine, cache_bytes: int = 0
) -> list[Problem]:
    """The problem of fp32 weights, and a cache of so many bytes a rank, that do not fit this machine."""
    try:
        needed = _FP32_BYTES * count_parameters(model, tp).total + cache_bytes
    except ValueError:
        return []  # a tp that does not divide is refused elsewhere
    if device == "cpu":
        needed *= local_processes
    available = available_bytes(device, machine)
    if needed <= available:
        return []
    where = "one device" if device == "cuda" else "this machine"
    beside = f" and {gib(cache_bytes)} of keys and values a rank" if cache_bytes else ""
    wrong = f"needs {gib(needed)} for its weights{beside}, {where} has {gib(available)}"
    smaller = "use a smaller batch_size, " if cache_bytes else "use "
    return [Problem(f"{model.name} at tp={tp}", wrong, f"{smaller}a larger tp, or a larger machine")]


def available_bytes(device: str, machine: Machine) -> int:
    """Memory of one device, or of this machine for all ranks on CPU."""
    if device == "cuda":
        return min((a.memory_bytes for a in machine.accelerators), default=0)
    return machine.memory_bytes


def gib(size: int) -> str:
    """Bytes as text: 15.6 GiB, or MiB below one."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / (1 << 20):,.1f} MiB"


def _sufficient_tp(config: TrainConfig, available: int) -> int | None:
    """The smallest larger tp at which one rank leaves room for activations on a device."""
    for tp in range(config.tp + 1, config.model.num_heads + 1):
        needed = rank_bytes(config.model, tp)
        if needed is not None and needed <= _HEADROOM * available:
            return tp
    return None


def _suggestion(architecture: str, device: str, machine: Machine) -> str | None:
    """Overrides that run here: the largest shipped model that fits, at the smallest tp that makes it fit."""
    models = {model.name: model for model in shipped_models() if model.architecture == architecture}
    if device == "cpu":
        tp = 2 if machine.cores >= 2 else 1
        for name in _CPU_MODELS.get(architecture, ()):
            needed = rank_bytes(models[name], tp) if name in models else None
            if needed is not None and tp * needed <= _HEADROOM * machine.memory_bytes:
                return f"model={name} tp={tp}"
        return None
    degrees = [tp for tp in (1, 2, 4, 8, 16) if tp <= len(machine.accelerators)]
    available = min((a.memory_bytes for a in machine.accelerators), default=0)
    for model in sorted(models.values(), key=lambda m: rank_bytes(m, 1) or 0, reverse=True):
        for tp in degrees:
            needed = rank_bytes(model, tp)
            if needed is not None and needed <= _HEADROOM * available:
                return f"model={model.name} tp={tp}"
    return None


def shipped_models() -> Sequence[ModelConfig]:
    """The models of configs/model, read without composing: only their sizes matter here."""
    import yaml

    from mlm.config.compose import describe_groups
    from mlm.config.from_checkpoint import MARK

    names = {field.name for field in dataclasses.fields(ModelConfig)}
    group = next(group for group in describe_groups() if group.name == "model")
    models = []
    for option in (each for each in group.options if each.name != MARK):
        loaded = yaml.safe_load(option.path.read_text())
        # An option of ours is named by its file; `name:` inside may be shared or missing.
        values = {key: value for key, value in loaded.items() if key in names} | {"name": option.name}
        models.append(ModelConfig(**values))
    return models
