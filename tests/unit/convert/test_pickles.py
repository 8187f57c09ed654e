"""Foreign pickles: what they may hold is read, what would run is refused before it does."""

import argparse
import collections
import os
import pickle
import random
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from mlm.convert.pickles import Inert, load_pickled
from mlm.errors import ConfigError

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


class Touch:
    """Pickles to the call of a function that leaves a file."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def save(content, path, zipped=True):
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


@FORMATS
def test_options_numpy_values_and_states_of_generators_are_read_as_they_were(tmp_path, zipped):
    generator = np.random.RandomState(7)
    content = {
        "args": argparse.Namespace(num_layers=2, params_dtype=torch.float16, lr=np.float32(1e-4), split=None),
        "checkpoint_version": 2.0,
        "model": collections.OrderedDict(weight=torch.arange(6.0).view(2, 3).half()),
        "iteration": np.int64(5),
        "rng_state": (random.Random(3).getstate(), generator.get_state(), torch.get_rng_state()),
    }
    read = load_pickled(save(content, tmp_path / "a.pt", zipped))
    assert vars(read["args"]) == vars(content["args"])
    assert read["iteration"] == 5
    assert read["checkpoint_version"] == 2.0
    assert torch.equal(read["model"]["weight"], content["model"]["weight"])
    python, numpy, torchs = read["rng_state"]
    assert python == content["rng_state"][0]
    assert np.array_equal(numpy[1], generator.get_state()[1])
    assert numpy[2:] == generator.get_state()[2:]
    assert torch.equal(torchs, content["rng_state"][2])


@FORMATS
@pytest.mark.parametrize(
    ("function", "asked"),
    [(os.system, "posix.system"), (os.mkdir, "posix.mkdir"), (eval, "eval"), (pickle.loads, "pickle.loads")],
)
def test_a_file_that_would_run_code_is_refused_by_the_name_it_asks_for_and_nothing_runs(
    tmp_path, zipped, function, asked
):
    mark = tmp_path / "ran"
    argument = {
        os.system: f"touch {mark}",
        os.mkdir: str(mark),
        eval: f"__import__('os').mkdir({str(mark)!r})",
        pickle.loads: pickle.dumps(Touch(os.mkdir, str(mark))),
    }[function]
    path = save({"model": {"w": torch.zeros(1)}, "x": Touch(function, argument)}, tmp_path / "a.pt", zipped)
    with pytest.raises(ConfigError) as refused:
        load_pickled(path)
    assert not mark.exists()
    message = str(refused.value)
    assert f"{path} asks for {asked}, which is code" in message
    assert "allow_pickle=true" in message
    load_pickled(path, allow_pickle=True)
    assert mark.exists(), "the file would have run: the refusal above refused something"


@pytest.mark.parametrize("protocol", range(6))
def test_a_plain_pickle_of_any_protocol_runs_nothing(tmp_path, protocol):
    mark, path = tmp_path / "ran", tmp_path / "a.pt"
    path.write_bytes(pickle.dumps(Touch(os.mkdir, str(mark)), protocol))
    with pytest.raises(ConfigError, match=r"a\.pt (is damaged|asks for posix\.mkdir)"):
        load_pickled(path)
    assert not mark.exists()


@FORMATS
def test_an_object_array_is_refused_with_what_it_holds(tmp_path, zipped):
    mark = tmp_path / "ran"
    array = np.array([Touch(os.mkdir, str(mark))], dtype=object)
    with pytest.raises(ConfigError):
        load_pickled(save({"x": array}, tmp_path / "a.pt", zipped))
    assert not mark.exists()


@FORMATS
def test_classes_that_are_not_installed_are_refused_or_inert_beside_weights_that_are_read(tmp_path, zipped):
    module = types.ModuleType("trainer_of_others")
    scaler = type("LossScaler", (dict,), {"__module__": "trainer_of_others"})
    module.LossScaler = scaler
    sys.modules["trainer_of_others"] = module
    try:
        held = scaler(scale=2.0)
        held.window = 1000
        path = save({"w": torch.ones(3), "optimizer": {"loss_scaler": held}}, tmp_path / "a.pt", zipped)
    finally:
        del sys.modules["trainer_of_others"]
    with pytest.raises(ConfigError, match=r"asks for trainer_of_others\.LossScaler"):
        load_pickled(path)
    read = load_pickled(path, allow_pickle=True)
    assert torch.equal(read["w"], torch.ones(3))
    assert isinstance(read["optimizer"]["loss_scaler"], Inert)


@pytest.mark.parametrize("allow_pickle", [False, True])
@FORMATS
def test_a_file_cut_anywhere_is_called_damaged(tmp_path, zipped, allow_pickle):
    whole = save({"w": torch.ones(1000)}, tmp_path / "whole.pt", zipped).read_bytes()
    path = tmp_path / "a.pt"
    for kept in (0, 3, 10, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(ConfigError, match=r"a\.pt is damaged"):
            load_pickled(path, allow_pickle=allow_pickle)
    path.write_text("hello, this is text\n")
    with pytest.raises(ConfigError, match=r"a\.pt is damaged"):
        load_pickled(path, allow_pickle=allow_pickle)


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"a\.pt cannot be read \(No such file"):
        load_pickled(tmp_path / "a.pt")
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory"):
        load_pickled(tmp_path)


def test_tensors_are_views_of_the_mapped_file_and_a_compressed_zip_is_read_all_the_same(tmp_path):
    big = torch.arange(1 << 14, dtype=torch.int32)
    path = save({"w": big}, tmp_path / "a.pt")
    read = load_pickled(path)["w"]
    # Linux lists what a process has mapped.
    assert str(path) in Path("/proc/self/maps").read_text()
    assert torch.equal(read, big)
    squeezed = tmp_path / "b.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(squeezed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert squeezed.stat().st_size < path.stat().st_size
    assert torch.equal(load_pickled(squeezed)["w"], big)


def test_a_torchscript_program_is_not_run(tmp_path):
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/constants.pkl", b"")
        archive.writestr("a/data.pkl", b"")
    with pytest.raises(ConfigError, match="TorchScript"):
        load_pickled(path, allow_pickle=True)
