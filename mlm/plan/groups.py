"""Which ranks share a layer (tp), follow each other (pp) or average gradients (dp): plain arithmetic."""

from __future__ import annotations


def tp_groups(tp: int, pp: int, dp: int) -> list[list[int]]:
    """The tensor-parallel groups, each of tp consecutive ranks, so that a group stays inside one machine.

    Rank = (stage * dp + replica) * tp + shard: the grid is [pp, dp, tp] with tp fastest. Eight ranks with
    tp=2, pp=2, dp=2 (paper, section 5.1, has the same picture for 8-way groups):

        tp_groups(2, 2, 2) -> [[0, 1], [2, 3], [4, 5], [6, 7]]     share a layer
        dp_groups(2, 2, 2) -> [[0, 2], [1, 3], [4, 6], [5, 7]]     hold the same parameters
        pp_groups(2, 2, 2) -> [[0, 4], [1, 5], [2, 6], [3, 7]]     pass activations on
    """
    return [[_rank(p, d, t, tp, dp) for t in range(tp)] for p in range(pp) for d in range(dp)]


def dp_groups(tp: int, pp: int, dp: int) -> list[list[int]]:
    """The data-parallel groups, each of dp ranks tp apart; they hold the same parameters."""
    return [[_rank(p, d, t, tp, dp) for d in range(dp)] for p in range(pp) for t in range(tp)]


def pp_groups(tp: int, pp: int, dp: int) -> list[list[int]]:
    """The pipelines, each of pp ranks tp * dp apart."""
    return [[_rank(p, d, t, tp, dp) for p in range(pp)] for d in range(dp) for t in range(tp)]


def _rank(stage: int, replica: int, shard: int, tp: int, dp: int) -> int:
    return (stage * dp + replica) * tp + shard
