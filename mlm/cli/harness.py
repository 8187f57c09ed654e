"""mlm-harness: lm-evaluation-harness's own command line, with checkpoints of ours as its model."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import mlm
from mlm.cli.errors import EXIT_FAILED, exit_code_of
from mlm.errors import ConfigError, LaunchError

NAME = "mlm-harness"
_OTHER_COMMANDS = ("ls", "validate")
_MODEL_OPTIONS = ("--model", "-M")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 (a worker failed), 2 (refused), 130."""
    words = list(sys.argv[1:] if argv is None else argv)

    def answer() -> int:
        if not words or words[0] in ("-h", "--help"):
            from mlm.cli import help as help_text

            print(help_text.HARNESS, end="", flush=True)
            return 0
        if words == ["--version"]:
            print(f"{NAME} {mlm.__version__}")
            return 0
        return _evaluate(words)

    return exit_code_of(answer, lambda: NAME, outcome="no result was written")


def for_lm_eval(words: Sequence[str]) -> list[str]:
    """The words as lm_eval takes them: leading key=value words are arguments of the model mlm."""
    if words[0] in _OTHER_COMMANDS:
        return list(words)
    rest = list(words[1:] if words[0] == "run" else words)
    ours = []
    while rest and not rest[0].startswith("-"):
        ours.append(rest.pop(0))
    model = [] if any(word.partition("=")[0] in _MODEL_OPTIONS for word in rest) else ["--model", "mlm"]
    return ["run", *model, *(["--model_args", ",".join(ours)] if ours else []), *rest]


def _evaluate(words: Sequence[str]) -> int:
    from mlm.harness import missing

    found = missing()
    if found:
        raise ConfigError(found)
    from lm_eval.__main__ import cli_evaluate

    import mlm.harness.adapter  # noqa: F401  (its class enters lm_eval's table of models)

    sys.argv = [NAME, *for_lm_eval(words)]
    try:
        cli_evaluate()
    except LaunchError as error:
        print(f"{NAME}: {str(error).removeprefix(f'{NAME}: ')}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
