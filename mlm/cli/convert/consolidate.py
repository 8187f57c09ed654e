"""mlm-convert consolidate."""

from __future__ import annotations

import argparse
from pathlib import Path

DESCRIPTION = """\
Write the weights of a checkpoint, whatever tp and dp it was trained at, to one safetensors file under their
logical names, with the model's configuration in its metadata. Any safetensors reader opens it. The checksums
of the checkpoint are compared first; the file is whole or not there."""
EXAMPLES = """\
  mlm-convert consolidate runs/first model.safetensors
  mlm-convert consolidate runs/first/checkpoints/step_1000 model.safetensors --dtype bf16
  mlm-convert consolidate runs/first all.safetensors --optimizer"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a run (its newest) or a checkpoints/step_N")
    parser.add_argument("out", metavar="OUT.safetensors", type=Path, help="the file to write")
    parser.add_argument(
        "--dtype", choices=("fp32", "bf16", "fp16"), help="of the weights; as stored if not given"
    )
    parser.add_argument("--optimizer", action="store_true", help="Adam's moments as well, as they are stored")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")


def run(args: argparse.Namespace) -> int:
    from mlm.checkpoint.locate import resolve_checkpoint

    checkpoint = resolve_checkpoint(args.checkpoint)
    from mlm.convert.consolidate import consolidate

    written = consolidate(
        checkpoint, args.out, dtype=args.dtype, optimizer=args.optimizer, overwrite=args.overwrite
    )
    print(
        f"{written.path}: {written.tensors} tensors, {written.elements:,} elements, "
        f"{written.bytes / 2**20:,.1f} MiB, from {checkpoint.directory}"
    )
    return 0
