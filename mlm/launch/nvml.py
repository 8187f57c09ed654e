"""What accelerators there are, asked of NVML: unlike torch.cuda it makes no CUDA context."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any

_SUCCESS = 0
_MIG_ENABLED = 1
_NAME_BYTES = 96


@dataclass(frozen=True)
class Accelerator:
    """One CUDA device as a process sees it: a whole GPU or one MIG instance."""

    name: str
    memory_bytes: int
    uuid: str = ""
    is_mig: bool = False
    compute_capability: tuple[int, int] | None = None

    @property
    def has_bf16(self) -> bool:
        """bfloat16 products in hardware, from compute capability 8.0 on; unknown counts as no."""
        return self.compute_capability is not None and self.compute_capability >= (8, 0)


@dataclass(frozen=True)
class Gpu:
    """A physical GPU with the MIG instances it is cut into, none when it is whole."""

    whole: Accelerator
    mig_mode: bool = False
    instances: tuple[Accelerator, ...] = ()


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def load_library() -> Any | None:
    """The NVML library of the driver, or None where there is no driver."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None


def list_gpus(library: Any) -> list[Gpu]:
    """All GPUs of the machine in NVML's order; an empty list when the driver does not answer.

    A device that fails a query is left out rather than ending the launch.
    """
    if library.nvmlInit_v2() != _SUCCESS:
        return []
    try:
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
            return []
        gpus = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == _SUCCESS:
                gpu = _gpu(library, handle)
                if gpu is not None:
                    gpus.append(gpu)
        return gpus
    finally:
        library.nvmlShutdown()


def _gpu(library: Any, handle: ctypes.c_void_p) -> Gpu | None:
    whole = _accelerator(library, handle)
    if whole is None:
        return None
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    answer = library.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
    if answer != _SUCCESS or current.value != _MIG_ENABLED:
        return Gpu(whole)
    limit = ctypes.c_uint()
    library.nvmlDeviceGetMaxMigDeviceCount(handle, ctypes.byref(limit))
    instances = []
    for index in range(limit.value):
        instance = ctypes.c_void_p()
        found = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index, ctypes.byref(instance))
        accelerator = _accelerator(library, instance) if found == _SUCCESS else None
        if accelerator is not None:
            # The capability is a property of the chip; NVML does not answer it for an instance.
            instances.append(replace(accelerator, is_mig=True, compute_capability=whole.compute_capability))
    return Gpu(whole, mig_mode=True, instances=tuple(instances))


def _accelerator(library: Any, handle: ctypes.c_void_p) -> Accelerator | None:
    name = ctypes.create_string_buffer(_NAME_BYTES)
    uuid = ctypes.create_string_buffer(_NAME_BYTES)
    memory = _Memory()
    if library.nvmlDeviceGetName(handle, name, _NAME_BYTES) != _SUCCESS:
        return None
    if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != _SUCCESS:
        return None
    library.nvmlDeviceGetUUID(handle, uuid, _NAME_BYTES)
    major, minor = ctypes.c_int(), ctypes.c_int()
    answer = library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    return Accelerator(
        name=name.value.decode(errors="replace"),
        memory_bytes=int(memory.total),
        uuid=uuid.value.decode(errors="replace"),
        compute_capability=(major.value, minor.value) if answer == _SUCCESS else None,
    )


def visible(gpus: list[Gpu], cuda_visible_devices: str | None) -> tuple[Accelerator, ...]:
    """The devices a process gets under CUDA_VISIBLE_DEVICES, in its order.

    The rules are CUDA's: unset means all; indices and (shortened) UUIDs are taken up to the first
    that does not exist or repeats; empty means none; of MIG instances a process gets one only.
    """
    if cuda_visible_devices is None:
        whole = [gpu.whole for gpu in gpus if not gpu.mig_mode]
        return tuple(whole) or tuple(instance for gpu in gpus for instance in gpu.instances)[:1]
    chosen: list[Accelerator] = []
    for word in cuda_visible_devices.split(","):
        found = _find(gpus, word.strip())
        if found is None or found in chosen:
            break
        chosen.append(found)
    mig = [device for device in chosen if device.is_mig]
    return tuple(mig[:1] or chosen)


def _find(gpus: list[Gpu], word: str) -> Accelerator | None:
    if word.isdigit():
        if int(word) >= len(gpus):
            return None
        gpu = gpus[int(word)]
        return next(iter(gpu.instances), None) if gpu.mig_mode else gpu.whole
    if not word.startswith(("GPU-", "MIG-")):
        return None
    devices = [gpu.whole for gpu in gpus if not gpu.mig_mode]
    devices += [instance for gpu in gpus for instance in gpu.instances]
    matches = [device for device in devices if device.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None
