"""Files written a tensor at a time are those of torch.save to torch.load and to any zip program."""

import argparse
import tracemalloc
import zipfile

import pytest
import torch

from mlm.convert.torch_file import Later, TorchFile

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_reads_every_dtype_and_shape_back_bit_by_bit_in_whatever_order_they_came(tmp_path, mmap):
    shapes = [(3, 5), (7,), (), (0, 4), (2, 3, 4)]
    tensors = {f"{d}{s}": torch.randn(s, dtype=torch.float64).to(d) for d in DTYPES for s in shapes}
    later = {name: Later(str(i), t.dtype, tuple(t.shape)) for i, (name, t) in enumerate(tensors.items())}
    path = tmp_path / "a.pt"
    content = {"model": {"nested": later}, "args": argparse.Namespace(dtype=torch.half), "version": 3.0}
    with path.open("wb") as file, TorchFile(file, content) as target:
        for name in reversed(tensors):
            target.write(later[name].key, tensors[name])
    with torch.serialization.safe_globals([argparse.Namespace]):
        read = torch.load(path, mmap=mmap, weights_only=True)
    assert (read["args"].dtype, read["version"]) == (torch.half, 3.0)
    for name, tensor in tensors.items():
        found = read["model"]["nested"][name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found, tensor)
        # Where a mapping begins at a page, 64 bytes hold for the tensor too.
        assert not mmap or found.numel() == 0 or found.data_ptr() % 64 == 0
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_a_transposed_view_is_written_as_what_it_shows(tmp_path):
    matrix = torch.arange(12.0).view(3, 4)
    path = tmp_path / "a.pt"
    with path.open("wb") as file, TorchFile(file, {"w": Later("0", torch.float32, (4, 3))}) as target:
        target.write("0", matrix.t())
    assert torch.equal(torch.load(path, weights_only=True)["w"], matrix.t())


def test_writing_holds_no_second_copy_of_a_tensor(tmp_path):
    tensor = torch.zeros(1 << 21)
    with (tmp_path / "a.pt").open("wb") as file:
        tracemalloc.start()
        with TorchFile(file, {"w": Later("0", torch.float32, (1 << 21,))}) as target:
            target.write("0", tensor)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20, f"{peak:,} bytes for a tensor of {tensor.nbytes:,}"
