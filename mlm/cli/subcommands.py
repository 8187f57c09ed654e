"""Commands that consist of subcommands: `mlm-data prepare`, `mlm-convert verify`. Imports no torch."""

from __future__ import annotations

import argparse
import importlib
import keyword
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlm
from mlm.cli.errors import exit_code_of
from mlm.launch import refusal


@dataclass(frozen=True)
class Family:
    """A command and its subcommands.

    subcommands: name -> what it does, in the order of --help. Each is a module of `package` with DESCRIPTION,
    EXAMPLES, add_arguments(parser) and run(args) -> exit code. outcome and failed: see cli.errors.
    """

    name: str
    description: str
    package: str
    subcommands: Mapping[str, str]
    outcome: str = refusal.NOTHING_STARTED
    failed: int = refusal.EXIT_REFUSED

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run the subcommand that was typed and return its exit code, or that of its error."""
        typed = list(sys.argv[1:] if argv is None else argv)
        args = self.parser(typed).parse_args(typed)
        return exit_code_of(
            lambda: int(args.run(args)),
            lambda: f"{self.name} {args.subcommand}",
            outcome=self.outcome,
            failed=self.failed,
        )

    def parser(self, typed: Sequence[str]) -> argparse.ArgumentParser:
        """Only the subcommand that was typed is imported, so that each --help answers at once."""
        parser = argparse.ArgumentParser(prog=self.name, description=self.description, allow_abbrev=False)
        parser.add_argument("--version", action="version", version=f"{self.name} {mlm.__version__}")
        subparsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        wanted = next((word for word in typed if word in self.subcommands), None)
        for name, summary in self.subcommands.items():
            if name != wanted:
                subparsers.add_parser(name, help=summary)
                continue
            # A module cannot well be called `import`.
            file = f"{name}_" if keyword.iskeyword(name) else name
            module = importlib.import_module(f"{self.package}.{file}")
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
