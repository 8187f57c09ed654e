"""mlm-convert: checkpoints to other files, one subcommand each."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import mlm
from mlm.errors import ConfigError, MlmError
from mlm.launch import refusal

SUBCOMMANDS = {
    "consolidate": "the full tensors of a checkpoint in one safetensors file",
    "verify": "read checkpoints and compare every byte with its checksum",
}
"""Each is a module of this package with DESCRIPTION, EXAMPLES, add_arguments(parser) and run(args) -> int."""

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 (failed on the way), 2 (refused), 130."""
    typed = list(sys.argv[1:] if argv is None else argv)
    name = "mlm-convert"
    try:
        args = _parser(typed).parse_args(typed)
        name = f"mlm-convert {args.subcommand}"
        return int(args.run(args))
    except ConfigError as error:
        return refusal.refuse(name, error.problems, outcome="nothing was written")
    except MlmError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser(typed: Sequence[str]) -> argparse.ArgumentParser:
    """Only the subcommand that was typed is imported, so that each --help answers at once."""
    parser = argparse.ArgumentParser(
        prog="mlm-convert",
        description="Checkpoints to other files, and whether they are whole.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mlm-convert {mlm.__version__}")
    subparsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    wanted = next((word for word in typed if word in SUBCOMMANDS), None)
    for name, summary in SUBCOMMANDS.items():
        if name != wanted:
            subparsers.add_parser(name, help=summary)
            continue
        module = importlib.import_module(f"mlm.cli.convert.{name}")
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION,
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
