"""mlm-convert export."""

from __future__ import annotations

import argparse
from pathlib import Path

FORMATS = ("hf",)

DESCRIPTION = """\
Write a checkpoint, whatever tp and dp it was trained at, as another program has it. hf: a folder that
transformers' AutoModel.from_pretrained and AutoTokenizer.from_pretrained load. Rows of padding in the
vocabulary are left out. What the other program has no word for is refused by its name; the folder is whole or
not there."""
EXAMPLES = """\
  mlm-convert export runs/first first-hf --to hf
  mlm-convert export runs/first/checkpoints/step_1000 first-hf --to hf --dtype bf16"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a run (its newest) or a checkpoints/step_N")
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write, a new one")
    parser.add_argument("--to", required=True, choices=FORMATS, help="whose format")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="fp32", help="(%(default)s)")


def run(args: argparse.Namespace) -> int:
    from mlm.checkpoint.locate import resolve_checkpoint

    checkpoint = resolve_checkpoint(args.checkpoint)
    from mlm.convert.exporting import outgoing
    from mlm.convert.huggingface.export import export

    written = export(args.out, outgoing(checkpoint), dtype=args.dtype)
    print(
        f"{written.folder}: {written.model_class}, {written.tensors} tensors, {written.elements:,} elements, "
        f"{written.bytes / 2**20:,.1f} MiB in {', '.join(written.files)}, from {checkpoint.directory}"
    )
    if written.note:
        print(written.note)
    return 0
