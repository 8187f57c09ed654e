"""The text of `mlm-train --help`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlm.config.compose import describe_groups

_INTRODUCTION = """\
usage: mlm-train [KEY=VALUE ...] [--config-dir DIR ...] [--help] [--version]

Train a GPT-2 tensor-parallel, starting the worker processes itself: one per CUDA device, or tp*dp
processes on CPU. Inside a torchrun or srun step that is already there it joins instead.

examples:
  mlm-train experiment=quickstart                 learn Shakespeare at tp=2, minutes on two CPU cores
  mlm-train model=gpt2_tiny tp=2 train.steps=50 train.global_batch_size=8     all of it, in seconds
  mlm-train model=gpt2_8b tp=8 launch=dry_run     what would run, without running it
  mlm-train model=gpt2_8b tp=8                    8.3 billion parameters on 8 devices, the paper's recipe
  torchrun --nproc-per-node=8 -m mlm.cli.train model=gpt2_8b tp=8     the same under a given launcher

keys (dotted names of mlm/config/schema.py; these are the usual ones):
  tp=2 dp=2                    tensor- and data-parallel degree; dp is inferred when left out
  train.steps=1000 train.global_batch_size=64 train.micro_batch_size=8
  optim.lr=3e-4                model.num_layers=12 and every other field of a group
  data.path=PREFIX             PREFIX.bin and PREFIX.idx, or a .txt file
  run_dir=runs/first seed=1    where the run writes (never over an earlier one); random numbers

groups (GROUP=OPTION; * is the default):
"""
_CONCLUSION = """\

Own options: put YAML files into DIR/GROUP/NAME.yaml and give --config-dir DIR.
exit codes: 0 finished, 1 a worker failed, 2 refused before start, 130/143 stopped by a signal
"""


def text(config_dirs: Sequence[Path]) -> str:
    """The whole help, with the options of the groups in the shipped and the given directories."""
    lines = []
    for group in describe_groups(config_dirs):
        width = max((len(option.name) for option in group.options), default=0)
        for number, option in enumerate(group.options):
            head = group.name if number == 0 else ""
            star = "*" if option.name == group.default else " "
            lines.append(f"  {head:11}{star}{option.name:{width}}  {option.description}".rstrip())
    return _INTRODUCTION + "\n".join(lines) + "\n" + _CONCLUSION
