"""mlm-convert export."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlm.errors import ConfigError, Problem

FORMATS = ("hf", "megatron")
VERSIONS = (0, 1, 2, 3)

DESCRIPTION = """\
Write a checkpoint, whatever tp and dp it was trained at, as another program has it. hf: a folder that
transformers' AutoModel.from_pretrained and AutoTokenizer.from_pretrained load. megatron: a folder that
Megatron-LM's --load takes at --tp ranks. Rows of padding in the vocabulary are left out, and made anew as
zeros where Megatron-LM pads. What the other program has no word for is refused by its name; the folder is
whole or not there."""
EXAMPLES = """\
  mlm-convert export runs/first first-hf --to hf
  mlm-convert export runs/first/checkpoints/step_1000 first-hf --to hf --dtype bf16
  mlm-convert export runs/first first-megatron --to megatron --tp 4"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a run (its newest) or a checkpoints/step_N")
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write, a new one")
    parser.add_argument("--to", required=True, choices=FORMATS, help="whose format")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="fp32", help="(%(default)s)")
    megatron = parser.add_argument_group("--to megatron")
    megatron.add_argument("--tp", type=int, help="tensor-parallel ranks to write files for (1)")
    megatron.add_argument(
        "--checkpoint-version",
        type=int,
        choices=VERSIONS,
        help="of its layout; 0 and 1 are of 2019 and 2020 (3)",
    )


def run(args: argparse.Namespace) -> int:
    from mlm.checkpoint.locate import resolve_checkpoint

    _check(args)
    checkpoint = resolve_checkpoint(args.checkpoint)
    from mlm.convert.exporting import outgoing

    if args.to == "megatron":
        from mlm.convert.megatron import export as megatron

        ranks, version = args.tp or 1, 3 if args.checkpoint_version is None else args.checkpoint_version
        tree = megatron.export(args.out, outgoing(checkpoint), tp=ranks, version=version, dtype=args.dtype)
        print(
            f"{tree.folder}: Megatron-LM, checkpoint version {version}, {tree.ranks} ranks, "
            f"{tree.elements:,} elements, {tree.rows:,} rows of tokens, {tree.bytes / 2**20:,.1f} MiB, "
            f"from {checkpoint.directory}"
        )
        return 0
    from mlm.convert.huggingface.export import export

    written = export(args.out, outgoing(checkpoint), dtype=args.dtype)
    print(
        f"{written.folder}: {written.model_class}, {written.tensors} tensors, {written.elements:,} elements, "
        f"{written.bytes / 2**20:,.1f} MiB in {', '.join(written.files)}, from {checkpoint.directory}"
    )
    if written.note:
        print(written.note)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises ConfigError for options of the other format, or a number of ranks that is none."""
    given = {"--tp": args.tp, "--checkpoint-version": args.checkpoint_version}
    problems = [
        Problem(f"{option} {value}", f"says nothing about --to {args.to}", "leave it out")
        for option, value in given.items()
        if value is not None and args.to != "megatron"
    ]
    if args.to == "megatron" and args.tp is not None and args.tp < 1:
        problems.append(Problem(f"--tp {args.tp}", "is no number of ranks", "use 1 or more"))
    if problems:
        raise ConfigError(problems)
