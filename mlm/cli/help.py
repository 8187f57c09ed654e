"""The text of `--help`, command by command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlm.config.command import EVAL, GENERATE, TRAIN, Spec
from mlm.config.compose import describe_groups
from mlm.studies.definition import find_studies

_TRAIN = """\
usage: mlm-train [KEY=VALUE ...] [--config-dir DIR ...] [--help] [--version]
       mlm-train -m [study=NAME] [KEY=VALUE ...]

Train a GPT-2 or BERT tensor-parallel, starting the worker processes itself: one per CUDA device, or tp*dp
processes on CPU. Inside a torchrun or srun step that is already there it joins instead.

examples:
  mlm-train experiment=quickstart                 learn Shakespeare at tp=2, minutes on two CPU cores
  mlm-train model=gpt2_tiny tp=2 train.steps=50 train.global_batch_size=8     all of it, in seconds
  mlm-train model=gpt2_8b tp=8 launch=dry_run     what would run, without running it
  mlm-train model=gpt2_8b tp=8                    8.3 billion parameters on 8 devices, the paper's recipe
  torchrun --nproc-per-node=8 -m mlm.cli.train model=gpt2_8b tp=8     the same under a given launcher
  mlm-train -m study=weak_scaling_cpu             a scaling study, one run after the other
  mlm-train -m model=gpt2_tiny train.steps=50 train.global_batch_size=8 tp=1,2 seed=1,2,3     all six pairs

keys (dotted names of mlm/config/schema/; these are the usual ones):
  tp=2 dp=2                    tensor- and data-parallel degree; dp is inferred when left out
  train.steps=1000 train.global_batch_size=64 train.micro_batch_size=8
  optim.lr=3e-4                model.num_layers=12 and every other field of a group
  data.path=PREFIX             PREFIX.bin and PREFIX.idx, or a .txt file
  eval.tasks=[lambada] eval.interval=1000      what mlm-eval measures, while training
  run_dir=runs/first seed=1    where the run writes (never over an earlier one); random numbers
  checkpoint.interval=500      save every so many steps, not only at the end
  finetune=race init_from=PATH finetune.train_path=PATH finetune.dev_path=PATH     a trained BERT, to a task
  resume=auto                  go on with the run in run_dir, from its newest whole checkpoint, at any tp, dp;
                               resume=PATH from another one, init_from=PATH with its weights, at step 0
  sweep_dir=runs/mine          with -m, where all runs go

-m, --multirun makes several runs, one after the other, and a study.json for mlm-report. Values are listed,
tp=1,2, or come from 'seed=range(1,4)' or 'model=glob(gpt2_*)'. With study=NAME the points are the study's;
what is typed beside it holds for all of them. Every point is checked before the first starts. One that fails
is reported, and the others go on. The same command runs only what is missing. launch=dry_run shows it all.

studies (-m study=NAME):
"""
_GROUPS = "\ngroups (GROUP=OPTION; * is the default):\n"
_EVAL = """\
usage: mlm-eval checkpoint=RUN [KEY=VALUE ...] [--config-dir DIR ...] [--help] [--version]

Measure a trained model straight from its checkpoint, at any tp and dp, as the paper did and as others do: one
table a task on the console, every count behind it in eval.json.

examples:
  mlm-eval checkpoint=runs/first tasks=[wikitext103,lambada]      the newest checkpoint of a run
  mlm-eval checkpoint=runs/first/checkpoints/step_1000 tp=2 dp=2  that one, on four processes
  mlm-eval checkpoint=runs/first tasks=[perplexity] task_paths.perplexity=mine.txt
  mlm-eval checkpoint=runs/first tasks=[lambada] limit=100        a quick look, marked as one
  mlm-eval checkpoint=runs/race tasks=[race]                      a fine-tuned model on its task
  mlm-eval checkpoint=runs/first launch=dry_run                   what would run, without running it

keys:
  checkpoint=RUN               a run's directory, or one of its checkpoints/step_N
  tasks=[A,B]                  from the list below; the default is [wikitext103,lambada]
  task_paths.TASK=PATH         its data file; without one it is looked for in $MLM_DATA and the cache
  ensemble=[A,B]               further fine-tuned checkpoints, probabilities averaged with the first's
  tp=2 dp=2                    tensor-parallel degree; ranks that share out the work
  limit=100                    only the first so many items of each file
  batch_tokens=4096            tokens of one forward pass (1,024 on CPU, else 16,384)
  out=DIR                      where eval.json goes (never over an earlier one)

tasks:
"""
_GENERATE = """\
usage: mlm-generate checkpoint=RUN prompt=TEXT [KEY=VALUE ...] [--config-dir DIR ...] [--help] [--version]

Let a trained model go on from a prompt, at any tp; the same seed gives the same text at every tp. Texts go to
standard output, all else to standard error.

examples:
  mlm-generate checkpoint=runs/first prompt="Once upon a time"        one text, shown as it is written
  mlm-generate checkpoint=runs/first prompt="To be" temperature=0     the likeliest token each time
  mlm-generate checkpoint=runs/first prompt= samples=4 top_p=0.9      four new documents
  mlm-generate checkpoint=runs/first prompts=questions.txt out=answers.jsonl tp=2
  mlm-generate checkpoint=runs/first interactive=true                 each line you type is a prompt

keys:
  checkpoint=RUN               a run's directory, or one of its checkpoints/step_N
  prompt=TEXT                  taken as it is typed; or prompts=FILE, one a line (.jsonl: prompt or text),
                               or interactive=true
  max_new_tokens=128           tokens that a text may have after its prompt
  temperature=1 top_k=50 top_p=0.9     how tokens are drawn, in this order; temperature=0: the likeliest
  stop='["\\n\\n","Q:"]'         strings that end a text, and are left out
  samples=4 seed=1234          texts per prompt; what decides all that is drawn
  slide=true                   go on when the context is full, the oldest half of it out of sight
  out=FILE.jsonl               write the texts there (never over an earlier one)
  batch_size=8 tp=2            texts in the making at once; tensor-parallel degree
  echo=true                    print the prompt in front of its text
"""
REPORT = """\
usage: mlm-report RUN ... [out=DIR] [baseline=POINT] [warmup_steps=N] [--help] [--version]

Compute figures from finished runs and write one self-contained page, with table.csv, runs.csv and a PNG of
each figure beside it. RUN is the directory of a run, the folder of a study or a sweep, or a folder that holds
such. Unfinished and damaged runs are named, the rest is reported.

examples:
  mlm-report runs/weak_scaling_cpu            a study: table, efficiency beside the paper's, where time goes
  mlm-report runs/first                       one run: throughput, loss, environment
  mlm-report runs/first runs/second           compare runs: losses in one figure, what differs between them

keys:
  out=DIR                      where the report goes; RUN/report for one RUN, else report. An earlier report
                               there is replaced, a folder that holds anything else never
  baseline=POINT               what efficiencies refer to: a point's name or a run's directory
  warmup_steps=N               steps of each run left out of all figures; a study says its own, otherwise 5

exit codes: 0 a report was written, 2 refused
"""
"""The help of mlm-report."""
HARNESS = """\
usage: mlm-harness checkpoint=RUN_DIR [KEY=VALUE ...] --tasks TASK[,TASK ...] [OPTION of lm_eval ...]
       mlm-harness ls tasks

Run any task of lm-evaluation-harness on a checkpoint of ours, tensor-parallel where tp is above 1. This is
lm_eval's own command line with a model `mlm` in it: leading KEY=VALUE words are --model_args of that model,
everything from the first option on is lm_eval's (`lm_eval run --help`). Needs `pip install 'mlm[harness]'`.

examples:
  mlm-harness checkpoint=runs/first --tasks lambada_openai
  mlm-harness checkpoint=runs/first/checkpoints/step_1000 tp=2 --tasks wikitext,hellaswag --limit 100
  mlm-harness checkpoint=runs/first --tasks my_task --include_path my_tasks --output_path results

keys:
  checkpoint=DIR               a run's directory (its newest checkpoint) or one of its checkpoints/step_N
  tp=N, dp=N                   over how many processes the model is split, and how many copies share the work
  precision=NAME               fp32 (default), bf16, fp16 or auto
  device=NAME                  auto (default), cpu or cuda; threads=N: of each process on CPU
  batch_tokens=N               tokens of one forward pass; lm_eval's --batch_size has no say
  max_length=N                 tokens read at once, up to the model's context
  max_gen_toks=N               new tokens of requests that do not say; 256
  prefix_token_id=N            what stands before a text; the tokenizer's end-of-text token
  seed=N                       of requests that sample; 0

exit codes: 0 finished, 1 a worker failed, 2 refused
"""
"""The help of mlm-harness."""
_CONCLUSION = """\

Own options: put YAML files into DIR/GROUP/NAME.yaml and give --config-dir DIR.
exit codes: 0 finished, 1 a worker or a run of -m failed, 2 refused before start, 130/143 stopped by a signal
"""


def train(config_dirs: Sequence[Path]) -> str:
    """The help of mlm-train, with the options of the groups in the shipped and the given directories."""
    return _TRAIN + _studies(config_dirs) + _GROUPS + _groups(config_dirs, TRAIN) + _CONCLUSION


def evaluate(config_dirs: Sequence[Path]) -> str:
    """The help of mlm-eval, with every task and its files."""
    from mlm.eval.files import file_keys
    from mlm.eval.tasks import TASKS
    from mlm.finetune.tasks import TASKS as LABELLED

    lines = []
    for name, task in TASKS.items():
        lines.append(f"  {name:13}{task.summary}")
        for key, file in file_keys(name, task.default_files).items():
            optional = "" if file.required else " (adds rows where it is there)"
            lines.append(f"  {'':13}task_paths.{key}={file.name or 'FILE'}{optional}")
    for name, labelled in LABELLED.items():
        lines.append(f"  {name:13}{labelled.summary}")
        lines.append(f"  {'':13}task_paths.{name}=PATH (without one, what its run was evaluated on)")
    return _EVAL + "\n".join(lines) + "\n" + _GROUPS + _groups(config_dirs, EVAL) + _CONCLUSION


def generate(config_dirs: Sequence[Path]) -> str:
    """The help of mlm-generate."""
    return _GENERATE + _GROUPS + _groups(config_dirs, GENERATE) + _CONCLUSION


def _studies(config_dirs: Sequence[Path]) -> str:
    studies = find_studies(config_dirs)
    width = max(len(study.name) for study in studies)
    return "".join(f"  {study.name:{width}}  {study.description}".rstrip() + "\n" for study in studies)


def _groups(config_dirs: Sequence[Path], spec: Spec[Any]) -> str:
    lines = []
    for group in describe_groups(config_dirs, spec):
        width = max((len(option.name) for option in group.options), default=0)
        for number, option in enumerate(group.options):
            head = group.name if number == 0 else ""
            star = "*" if option.name == group.default else " "
            lines.append(f"  {head:11}{star}{option.name:{width}}  {option.description}".rstrip())
    return "\n".join(lines) + "\n"
