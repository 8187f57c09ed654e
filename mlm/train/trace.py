"""Where the time of a step goes, read from a trace of torch's profiler. Plain Python, no torch.

A trace is a list of events in the Chrome format: name, category `cat`, process and thread, start `ts` and
duration `dur` in microseconds, all on one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from mlm.train.intervals import Interval, difference, intersection, length, union

STEP, DATA, FORWARD, BACKWARD, OPTIMIZER = "step", "data", "forward", "backward", "optimizer"
"""Ranges of a training step as they are named in the trace; a step's carries its number, `step 12`."""
WAIT = "wait for the device"
"""The range behind the last recorded step in which the host waits for what the steps have queued."""

Event = Mapping[str, Any]

_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_COMMUNICATION_LIBRARIES = ("gloo", "nccl", "mpi", "ucc", "xccl")
# Operators of these namespaces are the host's bookkeeping around operators of others.
_NOT_COMPUTE = ("autograd", "torch", "profiler", "c10d", "_c10d_functional")


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one rank's average recorded step, each moment counted once: the kinds sum to step_s."""

    step_s: float
    compute_s: float
    """Forward and backward."""
    exposed_communication_s: float
    """Communication during which this rank computes nothing, waiting for the other ranks included."""
    data_s: float
    """The host prepares the batch, and the device computes and communicates nothing."""
    optimizer_s: float
    """Computing the gradient norm, clipping and updating."""
    other_s: float
    """None of these: Python, launching kernels, waiting for them to start."""

    @staticmethod
    def of(values: Iterable[float]) -> StepTimes:
        """From the values in the order of the fields."""
        return StepTimes(*values)

    def values(self) -> list[float]:
        return list(astuple(self))


def step_times(traces: Iterable[Iterable[Event]], steps: int) -> StepTimes:
    """The mean over `steps` steps that were recorded in one trace or in several.

    On a CPU computing is what runs on the thread that trains, and communication what the threads of gloo
    report; on an accelerator it is the device's kernels, those of NCCL being the communication.
    Raises ValueError when a trace holds no step.
    """
    sums = [0.0] * 6
    for events in traces:
        for index, value in enumerate(_kinds(_Recording(events))):
            sums[index] += value / 1e6 / steps
    return StepTimes.of(sums)


class _Recording:
    """The sets of moments in one trace."""

    def __init__(self, events: Iterable[Event]):
        complete = [event for event in events if event.get("ph") == "X"]
        steps = [event for event in complete if _is_range(event) and event["name"].startswith(f"{STEP} ")]
        if not steps:
            raise ValueError(f"the trace has no range named `{STEP} <number>`")
        thread = _thread(steps[0])
        host = [event for event in complete if _thread(event) == thread]
        ranges = [event for event in host if _is_range(event)]
        ends = steps + [event for event in ranges if event["name"] == WAIT]
        start = min(event["ts"] for event in steps)
        self.span: list[Interval] = [(start, max(event["ts"] + event["dur"] for event in ends))]
        self.data = self._named(ranges, DATA)
        kernels = [event for event in complete if event.get("cat") in _DEVICE_WORK]
        if kernels:
            # The profiler draws each range of the host again where the kernels it launched run.
            drawn = [event for event in complete if event.get("cat") == "gpu_user_annotation"]
            self.optimizer = self._named(drawn, OPTIMIZER)
            self.communication = self._within(e for e in kernels if e["name"].lower().startswith("nccl"))
            self.compute = self._within(e for e in kernels if not e["name"].lower().startswith("nccl"))
        else:
            self.optimizer = self._named(ranges, OPTIMIZER)
            self.communication = self._within(e for e in complete if _communicates(e))
            self.compute = difference(self._within(e for e in host if _computes(e)), self.data)

    def _named(self, events: Iterable[Event], name: str) -> list[Interval]:
        return self._within(event for event in events if event["name"] == name)

    def _within(self, events: Iterable[Event]) -> list[Interval]:
        return intersection(((e["ts"], e["ts"] + e["dur"]) for e in events), self.span)


def _kinds(recording: _Recording) -> list[float]:
    """Microseconds in the order of StepTimes' fields."""
    computing = recording.compute
    exposed = difference(recording.communication, computing)
    data = difference(recording.data, computing, exposed)
    optimizer = intersection(computing, recording.optimizer)
    kinds = [difference(computing, optimizer), exposed, data, optimizer]
    other = difference(recording.span, union(*kinds))
    return [length(recording.span), *(length(kind) for kind in [*kinds, other])]


def _is_range(event: Event) -> bool:
    return event.get("cat") == "user_annotation"


def _thread(event: Event) -> tuple[Any, Any]:
    return event["pid"], event["tid"]


def _communicates(event: Event) -> bool:
    """Whether a host's event is a transfer of the communication library, or the issuing of one."""
    library, separator, _ = event["name"].partition(":")
    return bool(separator) and (
        library in _COMMUNICATION_LIBRARIES if _is_range(event) else library == "c10d"
    )


def _computes(event: Event) -> bool:
    """Whether a host's event is an operator on tensors: aten::mm, or one of another library."""
    namespace, separator, _ = event["name"].partition("::")
    return event.get("cat") == "cpu_op" and bool(separator) and namespace not in _NOT_COMPUTE
