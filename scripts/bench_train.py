#!/usr/bin/env python3
"""Training throughput of a named model at tp and dp on this machine, as one JSON line.

    python scripts/bench_train.py model=gpt2_small_cpu --tp 2 --batch 4

Reports medians over several windows: tokens/s, model TFLOP/s, its share of the machine's GEMM peak measured
in the same run, and tokens per CPU second, the steadier figure on a machine that others use too.
`--no-communication` replaces every collective by nothing (results are then wrong): the difference is what
communication costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

# As the launcher sets it for workers; before torch is imported in the child processes.
from mlm.config.compose import compose
from mlm.launch.local import worker_environment
from mlm.plan.flops import model_flops_per_step

WINDOWS, STEPS_PER_WINDOW, WARM_UP_STEPS = 5, 2, 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="key=value as for mlm-train (model=..., precision=bf16)")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--dp", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4, help="samples per step over all dp ranks")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each process")
    parser.add_argument("--windows", type=int, default=WINDOWS, help=f"windows of {STEPS_PER_WINDOW} steps")
    parser.add_argument("--no-communication", action="store_true", help="leave out all collectives")
    parser.add_argument("--profile", action="store_true", help="print torch's profile of one step instead")
    args = parser.parse_args()

    world_size = args.tp * args.dp
    os.environ.update(
        worker_environment({}, device="cpu", tp=args.tp, threads=args.threads, started_s=time.time())
    )
    with tempfile.TemporaryDirectory() as folder:
        import torch.multiprocessing as mp

        queue = mp.get_context("spawn").SimpleQueue()
        mp.spawn(_rank, args=(args, world_size, folder, queue), nprocs=world_size)
        results = sorted((queue.get() for _ in range(world_size)), key=lambda r: r["rank"])
    if not args.profile:
        print(json.dumps(_report(args, results)))


def _report(args: argparse.Namespace, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    config = compose(args.overrides)
    first = ranks[0]
    wall = statistics.median(first["wall_s"])
    # CPU time of all ranks per step: what the step costs, whoever else is on the machine.
    cpu = statistics.median(sum(times) for times in zip(*(r["cpu_s"] for r in ranks), strict=True))
    tokens = args.batch * config.model.seq_length
    tflops = model_flops_per_step(config.model, args.batch) / wall / 1e12
    peak = sum(r["gemm_tflops"] for r in ranks)
    return {
        "model": config.model.name,
        "precision": first["precision"],
        "matmul": first["matmul"],
        "tp": args.tp,
        "dp": args.dp,
        "threads": args.threads,
        "batch": args.batch,
        "seq_length": config.model.seq_length,
        "communication": not args.no_communication,
        "step_wall_s": round(wall, 4),
        "step_cpu_s": round(cpu, 4),
        "tokens_per_s": round(tokens / wall, 1),
        "tokens_per_cpu_s": round(tokens / cpu, 1),
        "model_tflops": round(tflops, 4),
        "gemm_peak_tflops": round(peak, 4),
        "share_of_gemm_peak": round(tflops / peak, 3),
        "peak_memory_gib": round(max(r["memory_bytes"] for r in ranks) / 2**30, 2),
        "loss": first["loss"],
        "cpu": _cpu_name(),
    }


def _rank(rank: int, args: argparse.Namespace, world_size: int, folder: str, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    from mlm.models.registry import build_model
    from mlm.optim.adamw import AdamW, parameter_groups
    from mlm.parallel.data_parallel import replicate
    from mlm.parallel.device import autocast_for, peak_memory_bytes, set_matmul_precision
    from mlm.parallel.mesh import Mesh, build_mesh
    from mlm.parallel.rng import RngStreams
    from mlm.train.objectives.next_token import TokenBatch
    from mlm.train.step import train_step

    torch.set_num_threads(args.threads)
    device = torch.device("cpu")
    config = compose([*args.overrides, "model.dropout=0", "model.attention_dropout=0"])
    precision = "fp32" if config.precision.name == "auto" else config.precision.name
    matmul = set_matmul_precision(config.precision.matmul, device)
    mesh = Mesh.single()
    if world_size > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/r", rank=rank, world_size=world_size)
        mesh = build_mesh(args.tp, 1, args.dp, "cpu")
    gemm = _gemm_tflops(torch.bfloat16 if precision == "bf16" else torch.float32)
    rng = RngStreams(config.seed, mesh, device)
    model = build_model(config.model, tp=mesh.tp, rng=rng, seed=config.seed)
    replica = replicate(model, mesh.dp)
    optimizer = AdamW(parameter_groups(model, 0.01), beta1=0.9, beta2=0.95, eps=1e-8)
    if args.no_communication:
        dist.all_reduce = _no_all_reduce

    seq, mine = config.model.seq_length, args.batch // args.dp
    generator = torch.Generator().manual_seed(mesh.dp.rank)
    ids = torch.randint(0, config.model.vocab_size, (mine, seq + 1), generator=generator)
    loss = torch.zeros(())

    def steps(count: int) -> None:
        nonlocal loss
        for _ in range(count):
            loss, *_ = train_step(
                replica,
                optimizer,
                [TokenBatch(ids, args.batch * seq)],
                lr=1e-4,
                clip_grad_norm=1.0,
                mesh=mesh,
                autocast=autocast_for(precision, device),
            )

    steps(WARM_UP_STEPS)
    if args.profile:
        with torch.profiler.profile() as profile:
            steps(1)
        if rank == 0:
            print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=30))
    wall, cpu = [], []
    for _ in range(0 if args.profile else args.windows):
        if world_size > 1:
            dist.barrier()
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        steps(STEPS_PER_WINDOW)
        wall.append((time.perf_counter() - wall_start) / STEPS_PER_WINDOW)
        cpu.append((time.process_time() - cpu_start) / STEPS_PER_WINDOW)
    queue.put(
        {
            "rank": rank,
            "wall_s": wall,
            "cpu_s": cpu,
            "loss": loss.item() * args.dp,  # of this replica; a step returns its share of the whole
            "gemm_tflops": gemm,
            "matmul": matmul,
            "precision": precision,
            "memory_bytes": peak_memory_bytes(device),
        }
    )
    if world_size > 1:
        dist.barrier()
    sys.stdout.flush()
    # Without the interpreter's own end: gloo's threads can abort it.
    os._exit(0)


def _gemm_tflops(dtype: Any, size: int = 2048, repeats: int = 5) -> float:
    """Best rate of a square product on this rank, all ranks at it together, in CPU time."""
    import torch

    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e12


def _no_all_reduce(*args: Any, async_op: bool = False, **kwargs: Any) -> Any:
    class Done:
        def wait(self) -> None: ...

    return Done() if async_op else None


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        import platform

        return platform.processor()


if __name__ == "__main__":
    main()
