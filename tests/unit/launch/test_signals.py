"""What counts as a first signal, a second one, and the same one again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from mlm.launch import signals
from mlm.launch.signals import Signals

INT, TERM, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1
SOON, LATER = signals.SAME_S / 2, signals.SAME_S * 2


@pytest.mark.parametrize(
    ("coming", "first", "second"),
    [
        ([(0, INT)], INT, None),
        ([(0, INT), (LATER, INT)], INT, INT),
        ([(0, TERM), (LATER, INT)], TERM, INT),
        # `timeout` sends a signal to the command and to its process group.
        ([(0, TERM), (SOON, TERM)], TERM, None),
        ([(0, TERM), (SOON, TERM), (LATER, TERM)], TERM, TERM),
        # Slurm sends --signal=USR1@120 first and SIGTERM when the time is over: the save goes on.
        ([(0, USR1), (LATER, TERM)], USR1, None),
        ([(0, USR1), (LATER, TERM), (2 * LATER, TERM)], USR1, TERM),
        ([(0, TERM), (LATER, USR1)], TERM, None),
        ([(0, USR1), (LATER, USR1), (2 * LATER, USR1)], USR1, None),
    ],
)
def test_a_second_signal_is_one_that_a_person_has_sent_twice(monkeypatch, coming, first, second):
    now = [0.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    asked, insisted = [], []
    heard = Signals(asked.append, insisted.append)
    for at, number in coming:
        now[0] = 100 + at
        heard.hear(number)
    assert (heard.first, heard.second) == (first, second)
    assert (asked, insisted) == ([first], [] if second is None else [second])
    assert heard.first_at == 100


WORKER = """
import signal, sys, time
from mlm.launch import signals
time.sleep(0.3)  # as an interpreter that still loads
heard = signals.Signals()
heard.listen()
signals.let_through()
while heard.first is None:
    time.sleep(0.01)
print(heard.first.name)
"""


def test_a_signal_before_a_worker_listens_is_not_lost_and_not_deadly():
    with signals.held_back():
        worker = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
    worker.send_signal(TERM)
    out, _ = worker.communicate(timeout=30)
    assert (worker.returncode, out.strip()) == (0, "SIGTERM")


def test_what_nohup_has_set_to_be_ignored_stays_ignored():
    before = {number: signal.getsignal(number) for number in signals.STOP}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        heard = Signals()
        heard.listen()
        os.kill(os.getpid(), signal.SIGHUP)
        assert heard.first is None
        os.kill(os.getpid(), TERM)
        assert heard.first == TERM
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
