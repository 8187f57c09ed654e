"""The formulas of scaling studies, against cases worked out by hand and NumPy's quartiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm.report.efficiency import (
    Work,
    efficiency_by_flops,
    efficiency_by_parameters,
    efficiency_of_speed_up,
    flops_rate,
    flops_rate_per_device,
    speed_up,
    timing,
    tokens_rate,
)

ONE = Work(processes=1, flops=8e12, parameters=1_000, samples=8, tokens=8_192)
EIGHT = Work(processes=8, flops=64e12, parameters=6_000, samples=16, tokens=16_384)


def test_rates_of_a_job_that_takes_two_seconds_a_step():
    assert flops_rate(EIGHT, 2.0) == 32e12
    assert flops_rate_per_device(EIGHT, 2.0) == 4e12
    assert tokens_rate(EIGHT, 2.0) == 8_192


def test_efficiency_by_flops_of_eight_times_the_work_on_eight_devices_is_the_ratio_of_times():
    assert efficiency_by_flops(EIGHT, 1.25, ONE, 1.0) == pytest.approx(0.8, rel=1e-15)
    assert efficiency_by_flops(ONE, 1.0, ONE, 1.0) == 1.0


def test_efficiency_by_parameters_counts_parameters_times_samples():
    # 6 times the parameters, twice the samples, 8 devices, 1.25 times the time: 6 * 2 / 8 / 1.25.
    assert efficiency_by_parameters(EIGHT, 1.25, ONE, 1.0) == pytest.approx(1.2, rel=1e-15)


def test_speed_up_counts_samples_and_its_efficiency_divides_by_the_processes():
    # Twice the samples in half the time.
    assert speed_up(EIGHT, 0.5, ONE, 1.0) == pytest.approx(4.0, rel=1e-15)
    assert efficiency_of_speed_up(4.0, EIGHT, ONE) == 0.5


def test_the_team_s_own_table_of_2020_from_its_milliseconds():
    # Scaling by parameters of 1.16, 2.03, 4.24 and 8.67 billion on 1, 2, 4, 8 devices.
    published = [(1, 1.16, 1121, 1.0), (2, 2.03, 1093, 0.896), (4, 4.24, 1238, 0.825), (8, 8.67, 1407, 0.743)]
    one = Work(1, 1.0, 1_160_000_000, 8, 8_192)
    for processes, billions, milliseconds, scaling in published:
        work = Work(processes, 1.0, round(billions * 1e9), 8, 8_192)
        found = efficiency_by_parameters(work, milliseconds / 1e3, one, 1.121)
        assert found == pytest.approx(scaling, abs=0.003)


windows_of_runs = st.lists(
    st.lists(st.tuples(st.integers(1, 50), st.floats(1e-4, 1e3)), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)


@given(windows_of_runs)
def test_the_windows_of_all_runs_are_pooled_as_numpy_does(runs):
    found = timing(runs)
    pooled = np.array([seconds for run in runs for _, seconds in run])
    low, middle, high = np.quantile(pooled, [0.25, 0.5, 0.75])
    assert found.windows == len(pooled)
    assert (found.q1_s, found.median_s, found.q3_s) == pytest.approx((low, middle, high), rel=1e-12)
    assert found.spread == pytest.approx((high - low) / middle, rel=1e-9, abs=1e-12)
    for mean, run in zip(found.run_means_s, runs, strict=True):
        steps, seconds = np.array(run).T
        assert mean == pytest.approx(np.average(seconds, weights=steps), rel=1e-12)
