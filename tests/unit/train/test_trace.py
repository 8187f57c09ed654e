"""Time by kind from traces that were drawn by hand, on a CPU and on an accelerator."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from mlm.train.trace import StepTimes, step_times

MAIN, GLOO, STREAM, NCCL_STREAM = 1, 2, 7, 20


def event(name: str, start: float, end: float, cat: str = "cpu_op", tid: int = MAIN) -> dict[str, Any]:
    """One bar of the trace, in milliseconds."""
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "pid": 0,
        "tid": tid,
        "ts": start * 1e3,
        "dur": (end - start) * 1e3,
    }


def named(
    name: str, start: float, end: float, cat: str = "user_annotation", tid: int = MAIN
) -> dict[str, Any]:
    return event(name, start, end, cat, tid)


CPU = [
    # A step of 100 ms on the thread that trains; before and after it things happen that are no part of it.
    event("aten::mm", -20, -5),
    named("gloo:all_reduce", -5, 3, tid=GLOO),  # 3 ms of it inside, exposed but for the data's 0
    named("step 12", 0, 100),
    named("data", 3, 8),
    event("aten::to", 4, 7),  # inside data: reading a batch, not computing
    named("forward", 8, 40),
    event("aten::linear", 10, 20),
    event("aten::addmm", 11, 19),  # inside linear: no moment counts twice
    event("_ColumnParallelProduct", 9, 30),  # a Python function around operators is not computing
    event("c10d::allreduce_", 20, 21),
    named("gloo:all_reduce", 20.5, 28, tid=GLOO),
    event("aten::add", 30, 40),
    named("backward", 40, 80),
    event("autograd::engine::evaluate_function: AddBackward0", 40, 80),
    event("torch::autograd::AccumulateGrad", 41, 42),
    event("aten::mm", 45, 60),
    named("gloo:all_reduce", 50, 70, tid=GLOO),  # 10 ms hidden behind the product, 10 not
    event("aten::add_", 62, 66, tid=GLOO),  # another thread's work does not make this one compute
    named("optimizer", 80, 98),
    named("gloo:all_reduce", 82, 84, tid=GLOO),
    event("aten::_fused_adamw_", 85, 95),
    named("validation", 101, 130),  # not the end of the recorded steps
    {"ph": "i", "name": "Record Window End", "ts": 0, "pid": 0, "tid": 0, "s": "g"},
    {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {}},
]

CUDA = [
    # The host issues a step in 30 ms and waits; the device works from 10 to 110 on two streams.
    named("step 7", 0, 30),
    named("data", 0, 5),
    event("aten::mm", 5, 6),  # a launch on the host is not computing
    named("forward", 5, 15),
    named("optimizer", 25, 30),
    named("wait for the device", 30, 112),
    event("Memcpy HtoD (Pinned -> Device)", 2, 4, "gpu_memcpy", STREAM),
    event("ampere_sgemm_128x64_tn", 10, 50, "kernel", STREAM),
    event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 45, 70, "kernel", NCCL_STREAM),  # 5 ms hidden
    named("nccl:all_reduce", 45, 70, "gpu_user_annotation", NCCL_STREAM),
    event("flash_bwd_kernel", 70, 95, "kernel", STREAM),
    named("optimizer", 95, 108, "gpu_user_annotation", STREAM),
    event("multi_tensor_apply_kernel", 96, 108, "kernel", STREAM),
    event("Memset (Device)", 109, 110, "gpu_memset", STREAM),
]


def milliseconds(times: StepTimes) -> list[float]:
    return [value * 1e3 for value in astuple(times)]


def test_on_a_cpu_each_moment_of_a_step_is_counted_as_one_kind() -> None:
    # compute 10-20, 30-40, 45-60; exposed 0-3, 20-28, 60-70, 82-84; data 3-8; optimizer 85-95; other the rest
    times = step_times([CPU], steps=1)
    assert milliseconds(times) == pytest.approx([100, 35, 23, 5, 10, 27], abs=1e-9)


def test_on_an_accelerator_the_kernels_count_and_the_host_only_while_the_device_idles() -> None:
    # span 0-112; compute 2-4, 10-50, 70-95, 109-110; exposed 50-70; data 0-2, 4-5; optimizer 96-108
    times = step_times([CUDA], steps=1)
    assert milliseconds(times) == pytest.approx([112, 68, 20, 3, 12, 9], abs=1e-9)


def test_steps_of_one_trace_or_of_several_are_averaged() -> None:
    second = [e | {"ts": e["ts"] + 100e3} for e in CPU if e["ts"] >= 0]
    in_one = step_times([[*CPU, *second]], steps=2)
    in_two = step_times([CPU, [e for e in CPU if e["ts"] >= 0]], steps=2)
    assert milliseconds(in_two) == pytest.approx([100, 35, 21.5, 5, 10, 28.5], abs=1e-9)
    assert milliseconds(in_one) == pytest.approx(milliseconds(in_two), abs=1e-9)


@pytest.mark.parametrize("trace", [CPU, CUDA])
def test_the_kinds_sum_to_the_step(trace: list[dict[str, Any]]) -> None:
    step, *kinds = astuple(step_times([trace], steps=3))
    assert sum(kinds) == pytest.approx(step, rel=1e-12)


def test_a_trace_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="step"):
        step_times([[event("aten::mm", 0, 1)]], steps=1)
