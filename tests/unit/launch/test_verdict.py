"""Which of several failures is the cause: what ranks recorded, and how they ended when nobody recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm.failures import Failure
from mlm.launch.verdict import explain, is_consequence

RUN = Path("/runs/x")


def failure(
    rank: int, time_s: float, message: str = "boom", kind: str = "ValueError", **more: bool
) -> Failure:
    traceback = f"Traceback (most recent call last):\n  line of rank {rank}\n{kind}: {message}\n"
    return Failure(rank, "host", time_s, kind, message, traceback, **more)


CLOSED = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:5000"


def test_the_earliest_failure_is_shown_first_with_its_own_traceback() -> None:
    report = explain([failure(2, 1.0), failure(0, 2.0, "later")], {2: 1}, 4, RUN)
    assert (
        report.index("rank 2 on host failed") < report.index("line of rank 2") < report.index("rank 0 then")
    )
    assert "line of rank 0" not in report
    assert "ValueError: later" in report
    assert "/runs/x/errors" in report


def test_a_lost_connection_is_a_consequence_even_when_it_was_seen_first() -> None:
    report = explain([failure(0, 1.0, CLOSED, "RuntimeError"), failure(1, 2.0)], {0: 1}, 2, RUN)
    assert report.startswith("mlm-train: rank 1 on host failed")
    assert "rank 0 then failed with RuntimeError: [gloo" in report


def test_a_rank_killed_without_a_word_is_the_cause_of_lost_connections() -> None:
    report = explain([failure(0, 1.0, CLOSED, "RuntimeError")], {1: -9, 0: 1}, 2, RUN)
    first, second, *_ = report.splitlines()
    assert first.startswith("mlm-train: rank 1 was killed by SIGKILL and left no traceback")
    assert "memory" in first
    assert "rank 0 then failed with RuntimeError" in second


def test_a_real_exception_goes_before_a_silent_death() -> None:
    report = explain([failure(0, 1.0)], {0: 1, 1: -6}, 2, RUN)
    assert report.startswith("mlm-train: rank 0 on host failed")
    assert "rank 1 was killed by SIGABRT" in report


def test_a_rank_that_exits_before_it_can_record_points_to_its_output() -> None:
    report = explain([], {1: 3}, 2, RUN)
    assert report == (
        "mlm-train: rank 1 exited with code 3 and left no traceback: what it printed before is above\n"
    )


def test_only_lost_connections_still_name_the_first() -> None:
    report = explain([failure(1, 1.0, CLOSED, "RuntimeError")], {1: 1}, 2, RUN)
    assert "rank 1 on host failed" in report
    assert "line of rank 1" in report


def test_an_error_made_for_users_is_shown_without_a_traceback() -> None:
    report = explain([failure(1, 1.0, "data is gone", "DataError", user_error=True)], {1: 1}, 2, RUN)
    assert report.startswith("mlm-train: rank 1 stopped the run: data is gone\n")
    assert "Traceback" not in report


def test_nothing_known_is_said_too() -> None:
    assert "left no error files" in explain([], {}, 2, RUN)


@pytest.mark.parametrize(
    ("message", "kind", "expected"),
    [
        (CLOSED, "RuntimeError", True),
        ("Gloo connectFullMesh failed with ...", "DistBackendError", True),
        ("Connection reset by peer", "DistNetworkError", True),
        ("ncclRemoteError: A call failed possibly due to a network error", "DistBackendError", True),
        ("", "KeyboardInterrupt", True),
        ("CUDA out of memory", "OutOfMemoryError", False),
        ("size mismatch", "RuntimeError", False),
    ],
)
def test_what_counts_as_a_consequence(message: str, kind: str, expected: bool) -> None:
    assert is_consequence(failure(0, 0.0, message, kind)) == expected
