"""Numbers as people read them: units, significant digits, parameter counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

UNKNOWN = "–"
"""For a figure that could not be had."""

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_FLOPS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))


def significant(value: float, digits: int = 3) -> str:
    """12,345 or 1.23 or 0.00123: so many digits that say something, never fewer than the whole number."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def power_of_ten(value: float, digits: int = 3) -> tuple[str, int | None]:
    """(1.23, -6) for what is too small to be written out, else (0.0123, None)."""
    if value == 0 or abs(value) >= 1e-3:
        return significant(value, digits), None
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return mantissa, int(exponent)


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def parameters(count: int) -> str:
    """121 k, 17.3 M, 8.32 B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{significant(count / size)} {unit}"
    return str(count)


def time_unit(seconds: Sequence[float]) -> tuple[float, str]:
    """One unit for all of them, so that they can be compared: (seconds in it, its name)."""
    largest = max(seconds, default=1.0)
    return next(((size, unit) for size, unit in _TIMES if largest >= size), _TIMES[-1])


def flops_unit(flops_per_s: Sequence[float]) -> tuple[float, str]:
    """One unit of throughput for all of them: (FLOP/s in it, its name)."""
    largest = max(flops_per_s, default=1e12)
    return next(((size, unit) for size, unit in _FLOPS if largest >= size), _FLOPS[-1])


def count(number: int, noun: str) -> str:
    """1 run, 3 runs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shorten(text: str, length: int) -> str:
    """The text, its middle left out when it is too long: names differ at their ends."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"
