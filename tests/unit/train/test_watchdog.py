"""What a hang is called: who waits in which collective, and who has not come to it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mlm.errors import HangError
from mlm.failures import read_failures
from mlm.parallel import waiting
from mlm.parallel.mesh import Axis
from mlm.parallel.waiting import Position, in_collective
from mlm.train import watchdog
from mlm.train.watchdog import Report, Watchdog, watch

TP = Axis("tp", 0, 2)
TIMED_OUT = RuntimeError(
    "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 6000ms for recv operation"
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Position()
    monkeypatch.setattr(waiting, "position", fresh)
    monkeypatch.setattr(watchdog, "position", fresh)
    monkeypatch.setattr(watchdog, "_phase", ["the start"])


def rank(monkeypatch: pytest.MonkeyPatch, run_dir: Path, number: int, of: int, **more: object) -> Watchdog:
    monkeypatch.setenv("RANK", str(number))
    monkeypatch.setenv("WORLD_SIZE", str(of))
    return Watchdog(run_dir, 100.0, **more)


def say(run_dir: Path, report: Report) -> None:
    (run_dir / "heartbeats").mkdir(exist_ok=True)
    (run_dir / "heartbeats" / f"rank_{report.rank}.json").write_text(json.dumps(asdict(report)))


ASLEEP = Report(1, "step 3", 80.0, "load (data.py:7)", {"tp": 4}, None, "", [])


def stuck(dog: Watchdog, clock: Clock, entered: int = 5) -> str:
    """The explanation after 90 s in the fifth collective over tp."""
    watch("step 3")
    for _ in range(entered - 1):
        with in_collective("all-reduce", TP):
            pass
    try:
        with dog, in_collective("all-reduce", TP):
            dog.look()
            clock.now += 90
            raise TIMED_OUT
    except HangError as hang:
        return str(hang)


def test_the_rank_that_has_entered_fewer_collectives_is_named_with_its_place(monkeypatch, tmp_path):
    clock = Clock()
    say(tmp_path, ASLEEP)
    text = stuck(rank(monkeypatch, tmp_path, 0, 2, clock=clock), clock)
    assert text == (
        "all-reduce number 5 over tp (ranks 0, 1) in step 3 has taken 90 s (launch.timeout_s=100) and waits "
        "for rank 1, for 80 s at load (data.py:7) in step 3"
    )


def test_a_rank_that_waits_itself_is_followed_to_the_one_that_does_not(monkeypatch, tmp_path):
    clock = Clock()
    waits = replace(ASLEEP, collective="all-gather", axis="dp", members=[1, 3], entered={"tp": 4, "dp": 2})
    say(tmp_path, waits)
    say(tmp_path, replace(ASLEEP, rank=3, entered={"tp": 4, "dp": 1}, place="sleep (x.py:1)"))
    monkeypatch.setattr(watchdog, "_members", lambda collective, size: [0, 1])
    text = stuck(rank(monkeypatch, tmp_path, 0, 4, clock=clock), clock)
    assert text.endswith(
        "waits for rank 1, for 80 s at load (data.py:7) in step 3, where it waits for "
        "rank 3, for 80 s at sleep (x.py:1) in step 3"
    )


def test_a_rank_that_is_silent_and_a_network_that_is_broken_are_told_apart(monkeypatch, tmp_path):
    clock = Clock()
    text = stuck(rank(monkeypatch, tmp_path, 0, 2, clock=clock), clock)
    assert "waits for rank 1, which does not say where it is" in text
    say(tmp_path, replace(ASLEEP, entered={"tp": 10}, collective="all-reduce", axis="tp", members=[0, 1]))
    text = stuck(rank(monkeypatch, tmp_path, 0, 2, clock=clock), clock)
    assert "though all its ranks have come" in text


def test_a_lost_peer_is_no_hang(monkeypatch, tmp_path):
    dog = rank(monkeypatch, tmp_path, 0, 2)
    with pytest.raises(RuntimeError, match="closed by peer"), dog, in_collective("all-reduce", TP):
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1")


def test_nothing_is_written_while_a_rank_moves_and_its_place_when_it_does_not(monkeypatch, tmp_path):
    clock = Clock()
    dog = rank(monkeypatch, tmp_path, 1, 2, clock=clock)
    for _ in range(20):
        watch("step 7")
        dog.look()
        clock.now += dog.warn_s * 0.9
        dog.look()
    assert not (tmp_path / "heartbeats").exists()
    clock.now += dog.warn_s * 0.2
    elsewhere = threading.Thread(target=dog.look)
    elsewhere.start()
    elsewhere.join()
    report = json.loads((tmp_path / "heartbeats" / "rank_1.json").read_text())
    assert report["phase"] == "step 7"
    assert report["place"].startswith("test_nothing_is_written_while"), "where the watched thread is"
    assert report["collective"] is None


def test_a_collective_that_never_gives_up_is_ended_from_outside_and_recorded(monkeypatch, tmp_path):
    clock, codes = Clock(), []
    say(tmp_path, replace(ASLEEP, entered={}))
    dog = rank(monkeypatch, tmp_path, 0, 2, clock=clock, end=codes.append)
    monkeypatch.setattr(watchdog, "POLL_S", 0.01)
    monkeypatch.setenv("MLM_LAUNCHER_PID", "1")
    watch("step 3")
    with in_collective("all-reduce", TP):
        dog.look()
        clock.now = 100.0 + watchdog.OVERTIME_S
        dog.look()
        assert codes == [], "the process group's own limit comes first"
        clock.now += 1
        dog.look()
    assert codes == [1]
    (failure,) = read_failures(tmp_path)
    assert (failure.type, failure.rank) == ("HangError", 0)
    assert "waits for rank 1" in failure.message


def test_the_cost_of_noting_a_collective_is_a_microsecond_or_so():
    began = time.perf_counter()
    for _ in range(20_000):
        with in_collective("all-reduce", TP):
            pass
    assert (time.perf_counter() - began) / 20_000 < 50e-6  # 0.7 us on a quiet machine
