#!/usr/bin/env python3
"""How long a checkpoint of some 500 MB takes to write and to read, beside other ways on the same disk.

    python scripts/bench_checkpoint.py --repeats 7

Everything is interleaved, repeated and summed up as medians. A write counts until the data are on the disk
(fsync of every file and of the folder); a read begins with the files in the page cache. Ours holds checksums,
index and manifest as well. Ratios in one run mean something, seconds on a shared disk little.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlm.config.schema import ModelConfig

MODEL = ModelConfig(
    name="bench", num_layers=8, hidden_size=512, num_heads=8, seq_length=1024, vocab_size=32_768, dropout=0.0
)
"""42 million parameters: with Adam's moments 507 MB in fp32."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7, help="of every way (default 7)")
    parser.add_argument(
        "--layers", type=int, default=MODEL.num_layers, help="fewer for a quick look (default 8)"
    )
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder here)")
    args = parser.parse_args()

    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory(dir=args.folder or Path.cwd(), prefix="bench_checkpoint.") as folder:
        queue = mp.get_context("spawn").SimpleQueue()
        mp.spawn(_rank, args=(args, Path(folder), queue), nprocs=2)
        # Rank 0 has all of the single-process states, so most bytes.
        ranks = sorted([queue.get(), queue.get()], key=lambda rank: -int(rank["bytes"]))
    _table(ranks)


def _table(ranks: list[dict[str, Any]]) -> None:
    """One line per way; a way of two ranks takes as long as the slower of them, in each repeat."""
    size = ranks[0].pop("bytes")
    ranks[1].pop("bytes")
    median, least, cpu = {}, {}, {}
    for name in _NAMES:
        repeats = list(zip(*(rank[name] for rank in ranks if name in rank), strict=True))
        walls = [max(wall for wall, _ in each) for each in repeats]
        median[name], least[name] = statistics.median(walls), min(walls)
        cpu[name] = statistics.median(sum(seconds for _, seconds in each) for each in repeats)
    print(f"{size / 1e6:,.0f} MB of tensors\n")
    print("| way | seconds, median | least | compared with | median | least | CPU seconds, all ranks |")
    print("|---|---|---|---|---|---|---|")
    for name, base in _NAMES.items():
        ratios = f"{median[name] / median[base]:.2f} | {least[name] / least[base]:.2f}"
        print(f"| {name} | {median[name]:.2f} | {least[name]:.2f} | {base} | {ratios} | {cpu[name]:.2f} |")


SAVE, LOAD = "torch.save", "torch.load"
_NAMES = {
    "raw write": SAVE,
    "safetensors": SAVE,
    SAVE: SAVE,
    "DCP, 2 ranks": SAVE,
    "ours, 1 rank": SAVE,
    "ours, 2 ranks": SAVE,
    "stall, asynchronous, 1 rank": "ours, 1 rank",
    "stall, asynchronous, 2 ranks": "ours, 2 ranks",
    LOAD: LOAD,
    "ours, read, 1 rank": LOAD,
    "ours, read, 2 ranks": LOAD,
    "ours, all checksums": LOAD,
}
"""Ways by name in the order of the table, and what each is compared with."""


def _rank(rank: int, args: argparse.Namespace, folder: Path, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    from mlm.parallel.mesh import Mesh, build_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    pair = _State(args.layers, build_mesh(tp=2, pp=1, dp=1, device_type="cpu"))
    alone = _State(args.layers, Mesh.single()) if rank == 0 else None
    ways = {} if alone is None else _ways_of_one(alone, folder)
    shared = _ways_of_two(pair, folder)
    times: dict[str, Any] = {name: [] for name in (*ways, *shared)}
    for repeat in range(args.repeats + 1):
        for name in _NAMES:
            way = shared.get(name) or ways.get(name)
            dist.barrier()
            cpu = time.process_time()
            taken = way() if way is not None else None
            # The first round warms up allocators, staging buffers and the file system.
            if taken is not None and repeat > 0:
                times[name].append((taken, time.process_time() - cpu))
            dist.barrier()
            if rank == 0:
                _clear(folder)
    queue.put(times | {"bytes": sum(t.nbytes for t, _ in (alone or pair).tensors.values())})
    dist.barrier()
    dist.destroy_process_group()


class _State:
    """A model and its moments, filled, and what our checkpoints see of them."""

    def __init__(self, layers: int, mesh: Any):
        from dataclasses import replace

        import torch

        from mlm.checkpoint.layout import moments, weights
        from mlm.models.registry import build_model
        from mlm.optim.adamw import AdamW, parameter_groups
        from mlm.parallel.rng import RngStreams

        rng = RngStreams(0, mesh, torch.device("cpu"))
        self.mesh = mesh
        self.model = build_model(replace(MODEL, num_layers=layers), tp=mesh.tp, rng=rng, seed=0)
        self.optimizer = AdamW(parameter_groups(self.model, 0.0), beta1=0.9, beta2=0.99, eps=1e-8)
        self.tensors = weights(self.model) | moments(self.model, self.optimizer.named_moments())
        for _, first, second in self.optimizer.named_moments():
            first.normal_()
            second.normal_()

    @property
    def plain(self) -> dict[str, Any]:
        return {name: tensor for name, (tensor, _) in self.tensors.items()}


def _ways_of_one(state: _State, folder: Path) -> dict[str, Callable[[], float]]:
    import torch
    from safetensors.torch import save_file

    from mlm.checkpoint.manifest import damage

    torch.save(state.plain, folder / "to_load.pt")

    def raw(path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for tensor in state.plain.values():
                file.write(tensor.numpy().data)

    def load() -> None:
        for name, tensor in torch.load(folder / "to_load.pt", weights_only=True).items():
            state.tensors[name][0].copy_(tensor)

    return {
        "raw write": lambda: _to_disk(raw, folder),
        "safetensors": lambda: _to_disk(lambda path: save_file(state.plain, path), folder),
        SAVE: lambda: _to_disk(lambda path: torch.save(state.plain, path), folder),
        LOAD: lambda: _timed(load),
        **_ours(state, folder / "alone", "1 rank"),
        "ours, all checksums": lambda: _timed(lambda: damage(folder / "alone" / "read" / "step_1")),
    }


def _ways_of_two(state: _State, folder: Path) -> dict[str, Callable[[], float]]:
    import torch.distributed.checkpoint as dcp

    from mlm.checkpoint.layout import as_global

    state_dict = as_global(state.tensors, state.mesh.device_mesh)

    def theirs(path: Path) -> None:
        dcp.save(state_dict, checkpoint_id=path)

    return {
        "DCP, 2 ranks": lambda: _to_disk(theirs, folder, rank=state.mesh.rank),
        **_ours(state, folder / "pair", "2 ranks"),
    }


def _ours(state: _State, folder: Path, who: str) -> dict[str, Callable[[], float]]:
    from mlm.checkpoint.load import load_training
    from mlm.checkpoint.save import Saver
    from mlm.checkpoint.state import TrainingState

    blocking = Saver(folder / "blocking", state.mesh)
    asynchronous = Saver(folder / "asynchronous", state.mesh, asynchronous=True)
    Saver(folder / "read", state.mesh).save(TrainingState(step=1), state.tensors)
    steps = iter(range(1, 10**6))

    def save(saver: Saver) -> float:
        saver.save(TrainingState(step=next(steps)), state.tensors)
        saver.wait()
        (outcome,) = saver.outcomes()
        assert outcome.error is None, outcome.error
        return outcome.stall_s

    return {
        f"ours, {who}": lambda: save(blocking),
        f"stall, asynchronous, {who}": lambda: save(asynchronous),
        f"ours, read, {who}": lambda: _timed(
            lambda: load_training(
                folder / "read" / "step_1", state.model, state.optimizer.named_moments(), state.mesh
            )
        ),
    }


def _to_disk(write: Callable[[Path], None], folder: Path, rank: int = 0) -> float:
    """Seconds to write a new file or folder and to have all of it on the disk."""
    path = folder / "written"

    def act() -> None:
        write(path)
        if rank == 0:
            for each in [*path.iterdir()] if path.is_dir() else [path]:
                _sync(each)
            _sync(folder)

    return _timed(act)


def _clear(folder: Path) -> None:
    """Remove what a way has written, and leave nothing of it for the disk to do while the next is timed."""
    for path in (
        folder / "written",
        *folder.glob("*/blocking/step_*"),
        *folder.glob("*/asynchronous/step_*"),
    ):
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
    os.sync()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _timed(act: Callable[[], Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
