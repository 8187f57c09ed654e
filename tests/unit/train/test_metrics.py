"""Throughput windows: what they count and when they wait."""

from __future__ import annotations

import pytest
import torch

from mlm.parallel.mesh import Mesh
from mlm.train import metrics
from mlm.train.metrics import Window, readable_flops, readable_time


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves, and the number of times the device was waited for."""
    state = {"now": 100.0, "waits": 0}

    def wait(device: torch.device) -> None:
        state["waits"] += 1

    monkeypatch.setattr(metrics.time, "perf_counter", lambda: state["now"])
    monkeypatch.setattr(metrics, "synchronise", wait)
    return state


def window(peak: float | None = None) -> Window:
    device = torch.device("cpu")
    return Window(Mesh.single(), device, tokens=512, flops=3e12, hardware_flops=4e12, peak=peak)


def test_a_window_waits_for_the_device_once_and_counts_the_whole_job(clock):
    w = window(peak=6e12)
    before = clock["waits"]
    for step in (1, 2, 3, 4):
        w.add(step, 0.1 * step, torch.tensor(float(step)), torch.tensor(2.0))
        clock["now"] += 0.5
    assert clock["waits"] == before
    records, speed = w.close()
    assert clock["waits"] == before + 1
    assert [(r.step, r.loss, r.grad_norm) for r in records] == [(s, float(s), 2.0) for s in (1, 2, 3, 4)]
    assert speed.step_time_s == pytest.approx(0.5)
    assert speed.tokens_per_s == pytest.approx(512 / 0.5)
    assert speed.throughput_pflops == pytest.approx(3e12 / 0.5 / 1e15)
    assert speed.mfu == pytest.approx(1.0)
    assert speed.hfu == pytest.approx(4 / 3), "what is recomputed counts for the hardware alone"


def test_figures_of_a_step_come_with_its_loss(clock):
    w = window()
    for step in (1, 2):
        figures = torch.tensor([step + 0.25, step + 0.5], dtype=torch.float64)
        w.add(step, 0.1, torch.tensor(float(step)), torch.tensor(2.0), figures=figures)
        clock["now"] += 0.5
    records, _ = w.close()
    assert [(r.loss, r.figures) for r in records] == [(1.0, (1.25, 1.5)), (2.0, (2.25, 2.5))]
    w.add(3, 0.1, torch.tensor(9.0), torch.tensor(2.0), figures=torch.ones(2, dtype=torch.float64))
    clock["now"] += 0.5
    assert [r.figures for r in w.close()[0]] == [(1.0, 1.0)], "the next window has its own"


def test_time_outside_the_steps_is_left_out(clock):
    w = window()
    w.add(1, 0.1, torch.tensor(1.0), torch.tensor(1.0))
    clock["now"] += 1.0
    w.close()
    clock["now"] += 60.0  # a validation
    w.restart_clock()
    w.add(2, 0.1, torch.tensor(1.0), torch.tensor(1.0))
    clock["now"] += 2.0
    assert w.close()[1].step_time_s == pytest.approx(2.0)


def test_an_unknown_peak_gives_no_utilisation(clock):
    w = window(peak=None)
    w.add(1, 0.1, torch.tensor(1.0), torch.tensor(1.0))
    clock["now"] += 1.0
    speed = w.close()[1]
    assert (speed.mfu, speed.hfu) == (None, None)


def test_a_window_that_was_recorded_has_losses_and_no_speed_and_the_next_one_begins_after_it(clock):
    w = window()
    w.add(1, 0.1, torch.tensor(7.0), torch.tensor(1.0))
    clock["now"] += 5.0
    records, speed = w.close(timed=False)
    assert [record.loss for record in records] == [7.0]
    assert speed is None
    w.add(2, 0.1, torch.tensor(1.0), torch.tensor(1.0))
    clock["now"] += 0.25
    assert w.close()[1].step_time_s == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("pflops", "text"),
    [
        (15.1, "15.10 PFLOP/s"),
        (0.039, "3.90e-02 PFLOP/s (39.0 TFLOP/s)"),
        (1.2e-4, "1.20e-04 PFLOP/s (120.0 GFLOP/s)"),
        (5e-8, "5.00e-08 PFLOP/s (50.0 MFLOP/s)"),
    ],
)
def test_small_machines_get_a_readable_scale(pflops, text):
    assert readable_flops(pflops) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(45.2, "45s"), (192, "3m12s"), (18420, "5h07m"), (1051200, "12d04h")]
)
def test_durations_are_short(seconds, text):
    assert readable_time(seconds) == text
