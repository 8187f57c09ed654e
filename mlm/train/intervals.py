"""Sets of moments as sorted, disjoint intervals, and the arithmetic on them. Plain Python."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]
"""(start, end) of [start, end); empty where end <= start."""


def union(*sets: Iterable[Interval]) -> list[Interval]:
    """All moments of any of the sets, whose intervals may overlap and stand in any order."""
    joined: list[Interval] = []
    for start, end in sorted(interval for each in sets for interval in each):
        if end <= start:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def intersection(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """The moments that are in both."""
    first, second = union(a), union(b)
    common: list[Interval] = []
    i = j = 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if start < end:
            common.append((start, end))
        # The one that ends first meets nothing more.
        if first[i][1] <= second[j][1]:
            i += 1
        else:
            j += 1
    return common


def difference(a: Iterable[Interval], *others: Iterable[Interval]) -> list[Interval]:
    """The moments of a that are in none of the others."""
    first, removed = union(a), union(*others)
    left: list[Interval] = []
    j = 0
    for start, end in first:
        while j < len(removed) and removed[j][1] <= start:
            j += 1
        k = j
        while k < len(removed) and removed[k][0] < end:
            if start < removed[k][0]:
                left.append((start, removed[k][0]))
            start = max(start, removed[k][1])
            k += 1
        if start < end:
            left.append((start, end))
    return left


def length(a: Iterable[Interval]) -> float:
    """How long the set is, in the unit of its intervals."""
    return sum(end - start for start, end in union(a))
