"""Everything that depends on the kind of device; `torch.cuda` stands in no other file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor


def select_device(kind: str, local_rank: int) -> torch.device:
    """The device of this process, made current. kind: cpu or cuda.

    Call it before the process group exists: NCCL binds to the current device. A process that sees a
    single device uses index 0 whatever its local rank.
    """
    if kind == "cpu":
        return torch.device("cpu")
    index = 0 if torch.cuda.device_count() == 1 else local_rank
    torch.cuda.set_device(index)
    torch.cuda.init()  # default_generators is empty until then
    return torch.device("cuda", index)


def backend_for(device: torch.device) -> str:
    """Names of the collective libraries for init_process_group; gloo serves CPU tensors on CUDA runs too."""
    return "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"


def device_name(device: torch.device) -> str:
    """The exact product name by which the table of peaks knows it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that dropout draws from on this device."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


def synchronise(device: torch.device) -> None:
    """Wait for queued kernels, so that a clock read afterwards measures work and not its launch."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory this process has used: allocated on the device, or resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def autocast_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which a product with x is computed: autocast's where it is on, else x's own."""
    kind = x.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return x.dtype


def autocast_for(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """The context of forward passes: bf16 or fp16 autocast over fp32 parameters, or nothing for fp32."""
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return nullcontext if narrow is None else partial(torch.autocast, device.type, dtype=narrow)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Context in which products keep the dtype of their inputs."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def set_matmul_precision(mode: str, device: torch.device) -> str:
    """Choose how fp32 products are computed; returns the mode taken, highest or medium.

    On x86 CPUs "medium" lets torch use oneDNN, up to twice as fast as the default library, and where it
    may also compute in bf16. auto therefore probes: medium is kept only if a product stays within fp32
    error of the float64 one. On CUDA auto means highest.
    """
    if mode == "auto":
        mode = "medium" if device.type == "cpu" and _medium_is_fp32_accurate() else "highest"
    torch.set_float32_matmul_precision(mode)
    return mode


def _medium_is_fp32_accurate() -> bool:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(256, 256, generator=generator)
    b = torch.randn(256, 256, generator=generator)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        error = (a @ b - (a.double() @ b.double())).abs().max().item()
    finally:
        torch.set_float32_matmul_precision(before)
    # Entries are of size sqrt(256) = 16: fp32 errs by some 1e-5, bf16 by some 1e-1.
    return error < 1e-3
