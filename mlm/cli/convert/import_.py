"""mlm-convert import."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlm.cli.convert.reading import add_reading_arguments, reading_of

DESCRIPTION = """\
Write the weights of another program as a run of mlm with one checkpoint, step_0, which mlm-eval, mlm-generate
and init_from= take like one that was trained here. The format is recognised by looking. Every tensor has to
find its place and every parameter its tensor; what does not is named and nothing is written. Values are kept
to the bit, in fp32. Rows of padding in a vocabulary are dropped; others, zeros, are added where asked for."""
EXAMPLES = """\
  mlm-convert import gpt2/ runs/gpt2
  mlm-convert import gpt2/ runs/gpt2 --pad-vocab-to-multiple 128
  mlm-convert import bert-base-uncased/ runs/bert --fresh pooler. --fresh order_head."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", type=Path, help="the folder of the weights")
    parser.add_argument("out", metavar="RUN_DIR", type=Path, help="the run directory to write, a new one")
    add_reading_arguments(parser)
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--padded-vocab-size", metavar="ROWS", type=int, help="rows of the embedding table, zeros at its end"
    )
    rows.add_argument(
        "--pad-vocab-to-multiple", metavar="N", type=_positive, help="the same, to the next multiple of N"
    )
    parser.add_argument(
        "--tokenizer", metavar="TOKENIZER", help="in place of the source's: gpt2, wordpiece:vocab.txt, ..."
    )
    parser.add_argument(
        "--fresh",
        metavar="NAME",
        action="append",
        default=[],
        help="draw parameters of ours that begin so where the source lacks them; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=1234, help="what --fresh draws with (%(default)s)")


def run(args: argparse.Namespace) -> int:
    from mlm.convert.formats import open_source
    from mlm.convert.importing import import_weights
    from mlm.data.tokenizers import parse_tokenizer

    tokenizer = None if args.tokenizer is None else parse_tokenizer(args.tokenizer)
    source = open_source(args.source.expanduser(), reading_of(args), kind=args.format)
    rows = args.padded_vocab_size
    if args.pad_vocab_to_multiple is not None:
        rows = -(-source.model.vocab_size // args.pad_vocab_to_multiple) * args.pad_vocab_to_multiple
    written = import_weights(
        source,
        args.out,
        padded_vocab_size=rows,
        tokenizer=tokenizer,
        fresh=tuple(args.fresh),
        seed=args.seed,
    )
    model = written.model
    print(
        f"{written.run_dir}: {source.format}, {written.parameters:,} parameters ({model.num_layers} layers, "
        f"hidden {model.hidden_size}, {model.num_heads} heads, context {model.seq_length:,}), "
        f"{written.bytes / 2**20:,.1f} MiB"
    )
    print(
        f"tokenizer: {written.tokenizer}; vocabulary {model.vocab_size:,} in {model.padded_vocab_size:,} rows"
    )
    for caution in source.cautions:
        print(f"note: {caution}")
    if written.fresh:
        print(f"drawn with seed {args.seed}: {', '.join(written.fresh)}")
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number
