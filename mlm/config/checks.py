"""What can be known to be wrong from the configuration alone, without looking at the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import gcd
from typing import Any

from mlm.config.fields import Field, flatten, plain, schema_fields
from mlm.config.names import alternatives, nearest
from mlm.config.profiled_steps import profile_problems
from mlm.config.ranges import EVAL_RANGES, GENERATE_RANGES, RANGES, Range
from mlm.config.resolve import resolved
from mlm.config.schema import EvalConfig, GenerateConfig, LaunchConfig, LayerNormPlacement, TrainConfig
from mlm.config.slurm_options import slurm_problems
from mlm.errors import Problem

__all__ = ["check", "check_evaluation", "check_generation", "resolved"]

FINETUNE_TASKS = ("race", "mnli", "qqp", "squad_v1", "squad_v2")
"""mlm.finetune.tasks.TASKS has a row for each."""

NAMES: dict[str, tuple[str, ...]] = {
    "model.architecture": ("gpt2", "bert"),
    "objective.name": ("next_token", "masked_lm", *FINETUNE_TASKS),
    "finetune.task": FINETUNE_TASKS,
    "tokenizer.kind": ("gpt2", "sentencepiece", "char", "byte", "wordpiece", "hf"),
    "precision.name": ("auto", "fp32", "bf16", "fp16"),
    "precision.matmul": ("auto", "highest", "medium"),
    "launch.mode": ("auto", "local", "join", "slurm", "dry_run"),
    "launch.device": ("auto", "cuda", "cpu"),
    "logger.kind": ("none", "wandb", "tensorboard"),
}
"""Dotted key -> the names that exist; mlm.models.registry has a row for each architecture."""


def check(config: TrainConfig) -> list[Problem]:
    """Every problem of config that needs no machine, no file and no other process to be seen; [] is good.

    Numbers are checked against mlm.config.ranges first; a relation between fields (divisibility, order)
    is looked at only where each of them is in its range, so that one slip is one problem.
    """
    values = flatten(config)
    problems, bad = single_values(values, schema_fields(), RANGES)

    def usable(*keys: str) -> bool:
        return not bad.intersection(keys)

    if usable("model.architecture", "objective.name", "model.segments"):
        problems += _form(config)
    if usable("objective.mask_share", "objective.random_share"):
        problems += _replacements(config)
    if usable("pp") and config.pp != 1:
        problems.append(Problem(f"pp={config.pp}", "pipeline parallelism is not built yet", "use pp=1"))
    if usable("model.hidden_size", "model.num_heads"):
        problems += _heads_divide_hidden(config)
    if usable("tp", "model.hidden_size", "model.num_heads", "model.ffn_hidden_size"):
        problems += _tp_divides_layers(config)
    if usable("tp", "model.vocab_size", "model.padded_vocab_size"):
        problems += _vocabulary(config)
    if usable("dp", "train.global_batch_size", "train.micro_batch_size"):
        problems += _batch(config)
    if usable("train.steps", "optim.warmup_steps", "optim.decay_steps"):
        problems += _schedule(config)
    if usable("objective.name") and config.objective.name == "masked_lm" and config.eval.tasks:
        wrong = "score answers, and objective=masked_lm trains a model that has none"
        where = f"eval.tasks=[{','.join(config.eval.tasks)}]"
        problems.append(Problem(where, wrong, "leave them out; validation tells what was learned"))
    if usable("eval.interval") and config.eval.interval and not config.eval.tasks:
        wrong = "is for eval.tasks, which names none"
        remedy = "name tasks as eval.tasks=[lambada], or use eval.interval=0"
        problems.append(Problem(f"eval.interval={config.eval.interval}", wrong, remedy))
    if usable("precision.initial_loss_scale", "precision.min_loss_scale"):
        problems += _loss_scale(config)
    if usable("train.steps"):
        problems += profile_problems(config)
    if config.sweep_dir is not None:
        where, remedy = f"sweep_dir={config.sweep_dir}", "use run_dir=, or add -m to make several runs"
        problems.append(Problem(where, "is for several runs, and this is one", remedy))
    problems += _beginning(config)
    if usable("optim.lr", "optim.min_lr") and config.optim.min_lr > config.optim.lr:
        where = f"optim.min_lr={config.optim.min_lr:g}"
        wrong = f"is above optim.lr={config.optim.lr:g}, where the decay starts"
        problems.append(Problem(where, wrong, f"use optim.min_lr={config.optim.lr / 10:g}"))
    return problems + slurm_problems(config.launch)


def check_evaluation(config: EvalConfig) -> list[Problem]:
    """The same of mlm-eval: what is wrong with its numbers and names by themselves."""
    problems, _ = single_values(flatten(config), schema_fields(EvalConfig), EVAL_RANGES)
    return problems + _no_restarts(config.launch) + slurm_problems(config.launch)


def check_generation(config: GenerateConfig) -> list[Problem]:
    """The same of mlm-generate, and what its choices have against each other."""
    problems, bad = single_values(flatten(config), schema_fields(GenerateConfig), GENERATE_RANGES)
    problems += _one_source(config)
    if not bad.intersection(("temperature", "samples")) and config.temperature == 0 and config.samples > 1:
        where, wrong = f"samples={config.samples}", "would be the same text each time with temperature=0"
        problems.append(Problem(where, wrong, "use samples=1, or a temperature above 0"))
    if "" in config.stop:
        where, wrong = f"stop={plain(config.stop)}", "holds an empty string, which is everywhere"
        problems.append(Problem(where, wrong, "leave it out"))
    if config.launch.mode == "slurm":
        wrong = "submits a job, and texts are made where they are asked for"
        remedy = "inside an allocation: srun --ntasks=TP mlm-generate ..."
        problems.append(Problem("launch=slurm", wrong, remedy))
    return problems + _no_restarts(config.launch)


def _one_source(config: GenerateConfig) -> list[Problem]:
    """Prompts come from one place, and a terminal is no place for batches."""
    given = {
        "prompt": config.prompt is not None,
        "prompts": config.prompts is not None,
        "interactive=true": config.interactive,
    }
    names = [name for name, is_given in given.items() if is_given]
    if not names:
        remedy = 'give prompt="...", prompts=FILE, or interactive=true'
        return [Problem("prompt", "is not set, and nothing else to go on from is", remedy)]
    found = []
    if len(names) > 1:
        found.append(Problem(" and ".join(names), "are both where prompts come from", "keep one of them"))
    for key, is_given in {"out": config.out is not None, "samples": config.samples > 1}.items():
        if config.interactive and is_given:
            where, wrong = f"{key}={getattr(config, key)}", "is for batches, and interactive=true is none"
            found.append(Problem(where, wrong, "leave it out, or use prompts=FILE"))
    return found


def _no_restarts(launch: LaunchConfig) -> list[Problem]:
    if launch.max_restarts == 0:
        return []
    where = f"launch.max_restarts={launch.max_restarts}"
    return [Problem(where, "is for a training, which has checkpoints", "leave it out")]


def divisors(number: int) -> list[int]:
    """Every divisor of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def next_multiple(number: int, of: int) -> int:
    """The smallest multiple of `of` that is at least number."""
    return -(-number // of) * of


def single_values(
    values: dict[str, Any], fields: Mapping[str, Field], ranges: Mapping[str, Range]
) -> tuple[list[Problem], set[str]]:
    """Problems that one value has by itself, and the keys that have one."""
    problems = []
    bad = set()
    for key, value in values.items():
        allowed = ranges.get(key)
        if allowed is not None and value is not None and value not in allowed:
            null = f", or {key}=null" if fields[key].optional else ""
            remedy = allowed.remedy(key, value) + null
            problems.append(Problem(f"{key}={plain(value)}", allowed.wrong(value), remedy))
            bad.add(key)
        if key in NAMES and value is not None and value not in NAMES[key]:
            close = nearest(value, NAMES[key], limit=1)
            remedy = f"use {key}={close[0]}" if close else f"use {alternatives(NAMES[key])}"
            problems.append(Problem(f"{key}={value}", f"is not {alternatives(NAMES[key])}", remedy))
            bad.add(key)
    return problems, bad


OBJECTIVES = {"gpt2": ("next_token",), "bert": ("masked_lm", *FINETUNE_TASKS)}
"""model.architecture -> what it can be trained for; first its own, the others are chosen by finetune=."""


def _form(config: TrainConfig) -> Iterator[Problem]:
    """What the architecture does not have, or cannot be without."""
    model, name = config.model, config.objective.name
    possible = OBJECTIVES[model.architecture]
    if name not in possible and name in FINETUNE_TASKS:
        wrong = f"is a task for a bert, and the weights are of a {model.architecture}"
        yield Problem(f"finetune={name}", wrong, "name a BERT: init_from=CHECKPOINT")
    elif name not in possible:
        wrong = f"is not what model.architecture={model.architecture} is trained for"
        remedy = f"use objective={possible[0]}, or another model"
        yield Problem(f"objective.name={name}", wrong, remedy)
    if model.architecture == "gpt2":
        if model.layernorm is LayerNormPlacement.post:
            yield Problem("model.layernorm=post", "is for bert; gpt2 has it at the input", "use pre")
        if model.segments:
            yield Problem(f"model.segments={model.segments}", "is for bert; gpt2 has none", "use 0")
    else:
        if model.segments < 2:
            wrong = "is too few to tell the two segments of a sample apart"
            yield Problem(f"model.segments={model.segments}", wrong, "use model.segments=2")
        if not model.tie_embeddings:
            wrong = "is not possible with bert, whose decoder is the embedding table"
            yield Problem("model.tie_embeddings=false", wrong, "use model.tie_embeddings=true")


def _replacements(config: TrainConfig) -> list[Problem]:
    mask, random = config.objective.mask_share, config.objective.random_share
    if mask + random <= 1:
        return []
    wrong = f"and objective.random_share={random:g} are more than 1 together"
    return [Problem(f"objective.mask_share={mask:g}", wrong, f"use objective.random_share={1 - mask:g}")]


def _heads_divide_hidden(config: TrainConfig) -> list[Problem]:
    hidden, heads = config.model.hidden_size, config.model.num_heads
    if hidden % heads == 0:
        return []
    wrong = f"is not a multiple of model.num_heads={heads}"
    near = [f"model.num_heads={h}" for h in _around(heads, divisors(hidden))]
    sizes = _around(hidden, [hidden // heads * heads, next_multiple(hidden, heads)])
    remedy = f"use {alternatives([f'model.hidden_size={size}' for size in sizes if size] + near)}"
    return [Problem(f"model.hidden_size={hidden}", wrong, remedy)]


def _tp_divides_layers(config: TrainConfig) -> list[Problem]:
    model, tp = config.model, config.tp
    ffn = 4 * model.hidden_size if model.ffn_hidden_size is None else model.ffn_hidden_size
    problems = []
    possible = alternatives([str(d) for d in divisors(gcd(model.num_heads, ffn))])
    if model.num_heads % tp:
        wrong = f"is not a multiple of tp={tp}"
        problems.append(Problem(f"model.num_heads={model.num_heads}", wrong, f"use tp={possible}"))
    # 4 x hidden_size divides whenever the heads do, so only a width of its own is worth a line.
    if model.ffn_hidden_size is not None and ffn % tp:
        wrong = f"is not a multiple of tp={tp}"
        remedy = f"use tp={possible}, or model.ffn_hidden_size={next_multiple(ffn, tp)}"
        problems.append(Problem(f"model.ffn_hidden_size={ffn}", wrong, remedy))
    return problems


def _vocabulary(config: TrainConfig) -> list[Problem]:
    model, tp = config.model, config.tp
    rows = model.vocab_size if model.padded_vocab_size is None else model.padded_vocab_size
    enough = next_multiple(max(rows, model.vocab_size), tp)
    remedy = f"use model.padded_vocab_size={enough}"
    if rows < model.vocab_size:
        wrong = f"is below model.vocab_size={model.vocab_size}, and every token needs a row"
        return [Problem(f"model.padded_vocab_size={rows}", wrong, remedy)]
    if rows % tp:
        implied = " (model.vocab_size)" if model.padded_vocab_size is None else ""
        wrong = f"is not a multiple of tp={tp}"
        return [Problem(f"model.padded_vocab_size={rows}{implied}", wrong, remedy)]
    return []


def _batch(config: TrainConfig) -> list[Problem]:
    train, dp = config.train, config.dp or 1
    at_once = train.micro_batch_size * dp
    if train.global_batch_size % at_once == 0:
        return []
    by = f"train.micro_batch_size={train.micro_batch_size}" + (f" x dp={dp}" if config.dp is not None else "")
    sizes = [train.global_batch_size // at_once * at_once, next_multiple(train.global_batch_size, at_once)]
    use = [f"train.global_batch_size={size}" for size in sizes if size]
    if train.global_batch_size % dp == 0:
        micro = _around(train.micro_batch_size, divisors(train.global_batch_size // dp))
        use += [f"train.micro_batch_size={size}" for size in micro]
    where = f"train.global_batch_size={train.global_batch_size}"
    return [Problem(where, f"is not a multiple of {by}", f"use {alternatives(use)}")]


def _schedule(config: TrainConfig) -> list[Problem]:
    optim, steps = config.optim, config.train.steps
    end = steps if optim.decay_steps is None else optim.decay_steps
    if optim.warmup_steps < end or optim.warmup_steps == 0:
        return []
    of = f"train.steps={steps}" if optim.decay_steps is None else f"optim.decay_steps={end}"
    wrong = f"leaves no step for the decay, which ends at {of}"
    # The paper warms up over a hundredth of its steps; of very few steps one is still better than none.
    shorter = f"use optim.warmup_steps={max(end // 100, min(1, end - 1))}"
    longer = f", or optim.decay_steps={100 * optim.warmup_steps} to run the start of a longer schedule"
    return [Problem(f"optim.warmup_steps={optim.warmup_steps}", wrong, shorter + longer)]


def _beginning(config: TrainConfig) -> list[Problem]:
    resume, found = config.resume, []
    if resume == "auto" and config.run_dir is None:
        wrong = "continues the run in run_dir, which is not set and would be a new one each time"
        found.append(Problem("resume=auto", wrong, "add run_dir=DIR, or use resume=PATH"))
    if resume not in ("auto", "never") and config.init_from is not None:
        wrong = f"brings weights, and so does resume={resume}"
        remedy = "use resume to go on with a training, init_from to begin one at step 0"
        found.append(Problem(f"init_from={config.init_from}", wrong, remedy))
    return found


def _loss_scale(config: TrainConfig) -> list[Problem]:
    initial, floor = config.precision.initial_loss_scale, config.precision.min_loss_scale
    if initial >= floor:
        return []
    where, wrong = f"precision.initial_loss_scale={initial:g}", f"is below precision.min_loss_scale={floor:g}"
    return [Problem(where, wrong, f"use precision.initial_loss_scale={floor:g} or more")]


def _around(value: int, valid: Iterable[int]) -> list[int]:
    """The nearest valid numbers below and above value."""
    below = [v for v in valid if v < value]
    above = [v for v in valid if v > value]
    return [*below[-1:], *above[:1]]
