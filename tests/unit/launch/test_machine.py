from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlm.launch import limits
from mlm.launch.machine import Machine, detect_machine, torch_build
from tests.unit.launch.test_nvml import H100, V100, FakeNvml

AVAILABLE = 8_000_000 * 1024


def system(root: Path, files: dict[str, str]) -> Path:
    """A root directory with /proc/meminfo and the given files."""
    for name, text in {
        "proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n",
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        ({}, AVAILABLE),
        (  # version 2: limit minus use, plus file pages that can be dropped
            {
                "proc/self/cgroup": "0::/job/1\n",
                "sys/fs/cgroup/job/1/memory.max": "4000000\n",
                "sys/fs/cgroup/job/1/memory.current": "1500000\n",
                "sys/fs/cgroup/job/1/memory.stat": "anon 1000000\ninactive_file 500000\n",
            },
            3_000_000,
        ),
        (  # the tighter limit of a parent group counts
            {
                "proc/self/cgroup": "0::/job/1\n",
                "sys/fs/cgroup/job/1/memory.max": "max\n",
                "sys/fs/cgroup/job/memory.max": "2000000\n",
            },
            2_000_000,
        ),
        (  # in a container the listed path is the host's and the mount is the group itself
            {"proc/self/cgroup": "0::/../../host/path\n", "sys/fs/cgroup/memory.max": "5000000\n"},
            5_000_000,
        ),
        (  # version 1
            {
                "proc/self/cgroup": "4:memory:/slurm/job\n0::/\n",
                "sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes": "6000000\n",
                "sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes": "1000000\n",
                "sys/fs/cgroup/memory/slurm/job/memory.stat": "total_inactive_file 400000\n",
            },
            5_400_000,
        ),
        (  # version 1 writes no limit as a huge number
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            AVAILABLE,
        ),
    ],
)
def test_memory_is_what_the_system_has_cut_by_the_control_group(
    tmp_path: Path, files: dict[str, str], memory: int
) -> None:
    assert limits.available_memory(system(tmp_path, files)) == memory


def test_without_proc_the_memory_is_what_sysconf_says(tmp_path: Path) -> None:
    assert limits.available_memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 6),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 6),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "350000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/job\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            },
            6,
        ),
    ],
)
def test_cores_are_the_affinity_cut_by_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert limits.usable_cores(system(tmp_path, files)) == cores


CUDA_BUILD = """\
from typing import Optional
__version__ = '2.13.0+cu128'
cuda: Optional[str] = '12.8'
hip: Optional[str] = None
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CUDA_BUILD, ("2.13.0+cu128", "12.8")),
        (CUDA_BUILD.replace("'12.8'", "None"), ("2.13.0+cu128", None)),
        ("__version__ = '2.4'\ncuda = '11.8'\n", ("2.4", "11.8")),
    ],
)
def test_the_torch_build_is_read_from_its_version_file(
    tmp_path: Path, text: str, expected: tuple[str, str | None]
) -> None:
    (tmp_path / "version.py").write_text(text)
    assert torch_build(tmp_path) == expected


def test_no_torch_has_no_version(tmp_path: Path) -> None:
    assert torch_build(tmp_path) == (None, None)
    assert torch_build(None) == (None, None)


def test_the_machine_shows_visible_devices_and_can_use_them_with_a_cuda_torch(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text(CUDA_BUILD)
    library = FakeNvml([V100, H100])
    machine = detect_machine({"CUDA_VISIBLE_DEVICES": "1"}, library=library, torch_folder=tmp_path)
    assert [device.uuid for device in machine.accelerators] == ["GPU-h100"]
    assert machine.can_use_cuda
    assert not Machine(1, 1, machine.accelerators).can_use_cuda


def test_this_machine_is_described() -> None:
    import torch

    machine = detect_machine({})
    assert machine.torch_version == torch.__version__
    assert machine.torch_cuda == torch.version.cuda
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert 0 < machine.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
