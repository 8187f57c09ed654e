from __future__ import annotations

import os
import platform

from mlm.launch.local import worker_environment


def environment(given: dict[str, str], *, device: str = "cpu", tp: int = 1) -> dict[str, str]:
    return worker_environment(given, device=device, tp=tp, threads=3, started_s=12.5)


def test_threads_follow_the_configuration_whatever_the_shell_says() -> None:
    ours = environment({"OMP_NUM_THREADS": "1"})
    assert (ours["OMP_NUM_THREADS"], ours["MKL_NUM_THREADS"]) == ("3", "3")


def test_workers_know_their_launcher_and_when_it_began() -> None:
    ours = environment({})
    assert int(ours["MLM_LAUNCHER_PID"]) == os.getpid()
    assert float(ours["MLM_STARTED"]) == 12.5


def test_what_the_user_has_set_is_left_alone() -> None:
    given = {"MALLOC_TOP_PAD_": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "8", "PYTHONUNBUFFERED": "0"}
    assert not given.keys() & environment(given, device="cuda", tp=2).keys()


def test_one_hardware_queue_for_tensor_parallel_on_cuda_only() -> None:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    assert environment({}, device="cuda", tp=2)[name] == "1"
    assert name not in environment({}, device="cuda", tp=1)
    assert name not in environment({}, device="cpu", tp=2)


def test_malloc_keeps_large_tensors_where_glibc_would_return_them() -> None:
    glibc = platform.system() == "Linux" and platform.libc_ver()[0] == "glibc"
    assert ("MALLOC_MMAP_THRESHOLD_" in environment({})) == glibc
