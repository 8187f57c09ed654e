"""Cores and memory this process may use, which in containers is less than the machine has."""

from __future__ import annotations

import os
import re
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """Cores this process may run on: its CPU affinity, cut by the quota of its control group."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1  # macOS has no affinity
    quota = _cpu_quota(root)
    return max(1, min(cores, int(quota)) if quota is not None else cores)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can still be allocated: what the system has available, cut by control group limits."""
    bounds = [_system_memory(root)]
    for folder in _groups(root, "memory"):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        if limit is not None:
            # Pages of files nobody reads at the moment count as used but are given up on demand.
            bounds.append(max(0, limit - used + _inactive_file(folder / "memory.stat")))
    return min(bounds)


def _system_memory(root: Path) -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    # Without /proc (macOS) the size of the memory is all the standard library can tell.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cpu_quota(root: Path) -> float | None:
    """Cores' worth of time the control group grants, or None for no limit."""
    quotas = []
    for folder in _groups(root, "cpu"):
        words = _read(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit():
            quotas.append(int(words[0]) / int(words[1]))
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and its parents, versions 1 and 2.

    Inside a container the path in /proc/self/cgroup may be the host's; the mount point itself, which
    is then the container's own group, ends the list in every case.
    """
    base = root / "sys/fs/cgroup"
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names == "":
            mount = base
        elif controller in names.split(","):
            mount = base / controller
        else:
            continue
        folder = mount / path.lstrip("/")
        while folder != mount and mount in folder.parents:
            folders.append(folder)
            folder = folder.parent
        folders.append(mount)
    return folders


def _inactive_file(path: Path) -> int:
    found = re.search(r"^(?:total_)?inactive_file (\d+)$", _read(path), re.MULTILINE)
    return int(found[1]) if found else 0


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    # Version 1 writes "no limit" as a number near 2**63.
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
