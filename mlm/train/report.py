"""The table at the start of a run, and the one of where the time of profiled steps went."""

from __future__ import annotations

from rich.table import Table

from mlm.parallel.parameter import count_parameters
from mlm.plan.flops import flops_formula
from mlm.plan.groups import dp_groups, tp_groups
from mlm.plan.parameters import count_real_parameters
from mlm.train.log import logger
from mlm.train.metrics import Speed
from mlm.train.setup import Run
from mlm.train.tables import plain_table, rendered
from mlm.train.trace import StepTimes


def startup_table(run: Run) -> None:
    """Log what is about to run: model, mesh, batch, arithmetic, data and baselines."""
    rows = _model_rows(run) + _mesh_rows(run) + _batch_rows(run) + _data_rows(run)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    logger.info(rendered(table))
    warn_of_repetition(run)


def time_table(times: list[StepTimes], steps: list[int], speeds: list[Speed]) -> None:
    """Log where the time of the profiled steps went: the mean of the ranks, their least and most, shares."""
    several = len(times) > 1
    spread_titles = ("least", "most") if several else ()
    table = plain_table(
        f"mean of {len(times)} ranks" if several else "", "ms a step", "share", *spread_titles
    )
    step_s = sum(each.step_s for each in times) / len(times)
    for kind, label in _TIME_LABELS.items():
        values = [getattr(each, kind) for each in times]
        mean = sum(values) / len(values)
        spread = [f"{limit(values) * 1e3:,.1f}" for limit in (min, max)] if several else []
        style = "bold" if kind == "step_s" else None
        table.add_row(label, f"{mean * 1e3:,.1f}", f"{mean / step_s:.1%}", *spread, style=style)
    timed = sorted(speed.step_time_s for speed in speeds)
    beside = f" (the median window, without the profiler: {timed[len(timed) // 2] * 1e3:,.1f} ms a step)"
    which = f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))}"
    logger.info(f"where the time of {which} went{beside if timed else ''}:\n{rendered(table)}")


_TIME_LABELS = {
    "compute_s": "compute, forward and backward",
    "exposed_communication_s": "communication while nothing computes",
    "data_s": "data",
    "optimizer_s": "optimizer",
    "other_s": "other: Python, launches, waiting",
    "step_s": "together",
}


def _model_rows(run: Run) -> list[tuple[str, str]]:
    model = run.config.model
    padded, local = count_parameters(run.model)
    real = count_real_parameters(model, run.config.finetune.task).total
    groups = ", ".join(
        f"{g.name}: {len(g.parameters)} tensors, {g.num_elements:,} elements, weight decay {g.weight_decay:g}"
        for g in run.groups
    )
    return [
        (
            "model",
            f"{model.name}: {model.num_layers} layers, hidden {model.hidden_size}, {model.num_heads} heads, "
            f"sequence {model.seq_length}, vocabulary {model.vocab_size:,} padded to "
            f"{model.padded_vocab_size:,}",
        ),
        ("parameters", f"{padded:,} padded, {real:,} real; {local:,} on this rank"),
        ("optimizer groups", f"on this rank, {groups}"),
    ]


def _mesh_rows(run: Run) -> list[tuple[str, str]]:
    config, mesh = run.config, run.mesh
    tp, dp = (_short(groups(mesh.tp.size, mesh.pp.size, mesh.dp.size)) for groups in (tp_groups, dp_groups))
    threads = f", threads of each: {config.launch.threads}" if run.device.type == "cpu" else ""
    return [
        ("mesh", f"tp={mesh.tp.size} pp={mesh.pp.size} dp={mesh.dp.size}: tp groups {tp}, dp groups {dp}"),
        ("device", f"{mesh.world_size} x {run.device_name}{threads}"),
        ("precision", f"{config.precision.name}, fp32 products at {run.matmul_precision}"),
    ]


def _batch_rows(run: Run) -> list[tuple[str, str]]:
    train = run.config.train
    micro_batches = train.global_batch_size // (train.micro_batch_size * run.mesh.dp.size)
    peak = "peak unknown" if run.peak_flops is None else f"peak {run.peak_flops / 1e12:,.1f} TFLOP/s a device"
    return [
        (
            "batch",
            f"{run.objective.tokens_per_step:,} tokens a step: {train.global_batch_size} samples = "
            f"{run.mesh.dp.size} dp x {micro_batches} micro batches x {train.micro_batch_size}",
        ),
        ("model FLOPs", f"{run.flops_per_step:.3e} a step = {flops_formula(run.config)}; {peak}"),
    ]


def _data_rows(run: Run) -> list[tuple[str, str]]:
    data, config = run.data, run.config
    samples = config.train.steps * config.train.global_batch_size
    if config.finetune.task is not None:
        return run.objective.rows()
    rows = [
        (
            "data",
            f"{data.source}: {_documents(data.documents['train'])}{data.tokens['train']:,} training, "
            f"{data.tokens['valid']:,} validation tokens, tokenizer {data.tokenizer['kind']}",
        ),
        (
            "epochs",
            f"{config.train.steps:,} steps are {samples:,} samples, {samples / data.samples_per_epoch:,.1f} "
            f"epochs of {data.samples_per_epoch:,}",
        ),
    ]
    if len(data.datasets) > 1:
        # Epochs of a blend differ by dataset.
        rows[-1] = ("samples", f"{config.train.steps:,} steps are {samples:,} samples, by weight:")
        rows += _blend_rows(run, samples)
    return rows + run.objective.rows()


def _blend_rows(run: Run, samples: int) -> list[tuple[str, str]]:
    rows = []
    for dataset, taken in zip(run.data.datasets, run.data.consumed(samples), strict=True):
        if not dataset.weight:
            rows.append((f"  {dataset.name}", "weight 0: not read"))
            continue
        epoch = dataset.samples_per_epoch(run.config.model.seq_length)
        rows.append(
            (
                f"  {dataset.name}",
                f"{dataset.weight:.4g}: {taken:,} samples, {taken / epoch:,.2f} epochs of {epoch:,} "
                f"({_documents(dataset.documents['train'])}{dataset.tokens['train']:,} training tokens)",
            )
        )
    return rows


def warn_of_repetition(run: Run) -> None:
    """Say which datasets of a blend are gone through more than once; of a single one the table tells."""
    samples = run.config.train.steps * run.config.train.global_batch_size
    if len(run.data.datasets) == 1:
        return
    for dataset, taken in zip(run.data.datasets, run.data.consumed(samples), strict=True):
        epoch = dataset.samples_per_epoch(run.config.model.seq_length)
        if taken > epoch:
            logger.warning(
                f"{dataset.name} has {epoch:,} samples and gives {taken:,}: it is repeated "
                f"{taken / epoch:,.1f} times; lower its weight or train.steps if that is not meant"
            )


def _documents(number: int) -> str:
    """A text is one document, which goes without saying."""
    return f"{number:,} documents, " if number > 1 else ""


def _short(groups: list[list[int]]) -> str:
    shown = " ".join("[" + _run_of(group) + "]" for group in groups[:4])
    return shown if len(groups) <= 4 else f"{shown} .. ({len(groups)})"


def _run_of(group: list[int]) -> str:
    return " ".join(map(str, group)) if len(group) <= 8 else f"{group[0]} {group[1]} .. {group[-1]}"
