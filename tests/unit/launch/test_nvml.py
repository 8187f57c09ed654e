"""The ctypes layer is driven through a library that behaves as NVML's reference manual says."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from mlm.launch.nvml import Accelerator, Gpu, list_gpus, visible

NOT_SUPPORTED = 3


class FakeNvml:
    """nvml* functions over a list of devices: (name, uuid, bytes, capability, MIG instances or None)."""

    def __init__(self, devices: list[tuple[Any, ...]], init: int = 0):
        self.devices = {100 * (index + 1): device for index, device in enumerate(devices)}
        self.instances = {
            handle + number + 1: instance
            for handle, device in self.devices.items()
            for number, instance in enumerate(device[4] or [])
        }
        self.init, self.shut_down = init, 0

    def nvmlInit_v2(self) -> int:
        return self.init

    def nvmlShutdown(self) -> int:
        self.shut_down += 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.devices)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = list(self.devices)[index]
        return 0

    def _device(self, handle: ctypes.c_void_p) -> tuple[Any, ...]:
        assert handle.value is not None
        return {**self.devices, **self.instances}[handle.value]

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p, name: Any, size: int) -> int:
        name.value = self._device(handle)[0].encode()
        return 0

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p, uuid: Any, size: int) -> int:
        uuid.value = self._device(handle)[1].encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        size = self._device(handle)[2]
        if size is None:
            return NOT_SUPPORTED
        memory._obj.total = size
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        if handle.value in self.instances:
            return NOT_SUPPORTED
        major._obj.value, minor._obj.value = self._device(handle)[3]
        return 0

    def nvmlDeviceGetMigMode(self, handle: ctypes.c_void_p, current: Any, pending: Any) -> int:
        instances = self._device(handle)[4]
        if instances is None:
            return NOT_SUPPORTED
        current._obj.value = int(bool(instances))
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: ctypes.c_void_p, count: Any) -> int:
        count._obj.value = 7
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: ctypes.c_void_p, index: int, found: Any) -> int:
        wanted = (handle.value or 0) + index + 1
        if wanted not in self.instances:
            return NOT_SUPPORTED
        found._obj.value = wanted
        return 0


V100 = ("Tesla V100-SXM3-32GB", "GPU-v100", 32 << 30, (7, 0), None)
H100 = ("NVIDIA H100 80GB HBM3", "GPU-h100", 80 << 30, (9, 0), [])
SLICE = ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-1", 5 << 30, (0, 0), None)
CUT = ("NVIDIA A100-SXM4-40GB", "GPU-cut", 40 << 30, (8, 0), [SLICE, (*SLICE[:1], "MIG-2", *SLICE[2:])])


def test_devices_are_read_with_name_memory_uuid_and_capability() -> None:
    library = FakeNvml([V100, H100])
    whole = [gpu.whole for gpu in list_gpus(library)]
    assert whole == [
        Accelerator("Tesla V100-SXM3-32GB", 32 << 30, "GPU-v100", compute_capability=(7, 0)),
        Accelerator("NVIDIA H100 80GB HBM3", 80 << 30, "GPU-h100", compute_capability=(9, 0)),
    ]
    assert [device.has_bf16 for device in whole] == [False, True]
    assert library.shut_down == 1


def test_a_cut_gpu_lists_its_instances_with_the_chips_capability() -> None:
    (gpu,) = list_gpus(FakeNvml([CUT]))
    assert gpu.mig_mode
    assert [(i.uuid, i.is_mig, i.memory_bytes, i.has_bf16) for i in gpu.instances] == [
        ("MIG-1", True, 5 << 30, True),
        ("MIG-2", True, 5 << 30, True),
    ]


def test_a_driver_that_does_not_start_means_no_devices() -> None:
    assert list_gpus(FakeNvml([H100], init=9)) == []


def test_a_device_that_fails_a_query_is_left_out() -> None:
    assert [
        gpu.whole.uuid for gpu in list_gpus(FakeNvml([("broken", "GPU-x", None, (9, 0), None), H100]))
    ] == ["GPU-h100"]


def uuids(cuda_visible_devices: str | None, devices: list[tuple[Any, ...]]) -> list[str]:
    return [device.uuid for device in visible(list_gpus(FakeNvml(devices)), cuda_visible_devices)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["GPU-v100", "GPU-h100"]),
        ("", []),
        ("-1", []),
        ("1", ["GPU-h100"]),
        ("1,0", ["GPU-h100", "GPU-v100"]),
        ("0,7,1", ["GPU-v100"]),  # everything behind an index that does not exist is hidden
        ("0,-1,1", ["GPU-v100"]),
        ("1,1", ["GPU-h100"]),
        ("GPU-h", ["GPU-h100"]),  # a UUID may be shortened as long as it is unique
        ("GPU-", []),
        ("none", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str | None, expected: list[str]) -> None:
    assert uuids(value, [V100, H100]) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ["MIG-1"]), ("0", ["MIG-1"]), ("MIG-2", ["MIG-2"]), ("MIG-2,MIG-1", ["MIG-2"])],
)
def test_a_process_gets_one_mig_instance_at_most(value: str | None, expected: list[str]) -> None:
    assert uuids(value, [CUT]) == expected


def test_whole_gpus_come_before_instances_when_nothing_is_chosen() -> None:
    assert uuids(None, [CUT, H100]) == ["GPU-h100"]


def test_a_gpu_with_mig_mode_on_but_no_instance_offers_nothing() -> None:
    empty = Gpu(Accelerator("A100", 40 << 30, "GPU-e"), mig_mode=True)
    assert visible([empty], None) == ()
    assert visible([empty], "0") == ()
