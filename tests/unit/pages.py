"""Pages of documentation taken apart, and their command lines parsed or composed without being run."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from mlm.cli import arguments, harness, report
from mlm.cli.convert.main import CONVERT
from mlm.cli.data.main import DATA
from mlm.cli.subcommands import Family
from mlm.config.checks import check
from mlm.config.command import EVAL, GENERATE
from mlm.config.command import TRAIN as CONFIGURED
from mlm.config.compose import compose
from mlm.config.schema import ModelConfig, TokenizerConfig
from mlm.errors import ConfigError, Problem
from mlm.eval import checks as names
from mlm.eval.labelled import is_labelled
from mlm.harness.settings import typed_arguments
from mlm.launch.finetuning import completed
from mlm.launch.machine import detect_machine
from mlm.launch.refusal import format_problems
from mlm.launch.sweep.start import composed
from mlm.launch.training import TRAIN

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
SHELL = ("bash", "sh", "console")

HARMLESS = (
    "cd",
    "source",
    "cat",
    "zcat",
    "ls",
    "tail",
    "git clone",
    "pip install",
    "wandb sync",
    "tensorboard",
    "salloc",
)
"""Commands of others that pages may show; everything else is parsed, or fails the test."""


@dataclass(frozen=True)
class Fence:
    """One fenced block: its language, its text, and the line of the page at which the text begins."""

    page: Path
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command line of a page. output: what the page shows below it. `# refused` in its comment counts."""

    page: Path
    line: int
    text: str
    output: str = ""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    @property
    def is_refused(self) -> bool:
        return "# refused" in self.text

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fences(page: Path) -> list[Fence]:
    found, opened = [], None
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```") and opened is None:
            opened = number, line[3:].strip()
        elif line.startswith("```") and opened is not None:
            start, language = opened
            found.append(Fence(page, start + 1, language, "\n".join(lines[start : number - 1]) + "\n"))
            opened = None
    assert opened is None, f"{page}: a fenced block is not closed"
    return found


def commands(page: Path) -> list[Command]:
    found: list[Command] = []
    for fence in fences(page):
        if fence.language not in SHELL:
            continue
        joined, first = "", 0
        for number, line in enumerate(fence.text.splitlines(), fence.line):
            if fence.language == "console" and not line.startswith("$ ") and not joined:
                assert found, f"{page}:{number}: output before any command"
                found[-1] = dataclasses.replace(found[-1], output=f"{found[-1].output}{line}\n")
                continue
            first = first if joined else number
            joined += line.removeprefix("$ ")
            if joined.endswith("\\"):
                joined = joined[:-1]
                continue
            if shlex.split(joined, comments=True):
                found.append(Command(page, first, joined))
            joined = ""
    return found


COMMANDS = [command for page in PAGES for command in commands(page)]


def verify(command: Command) -> None:
    """Parse or compose each part of a command line; AssertionError when one would not do what it says."""
    for is_operator, group in groupby(command.words, key=lambda word: word in ("&&", "||", ";", "|")):
        words = [] if is_operator else list(group)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words:
            _verify_simple(words, command)


def _verify_simple(words: list[str], command: Command) -> None:
    name, rest = Path(words[0]).name, words[1:]
    if name == "mlm-train":
        found = train_problems(rest)
        assert bool(found) == command.is_refused, f"{command.where}: {[str(p) for p in found]}"
        if command.is_refused and command.output:
            assert command.output == format_problems("mlm-train", found, width=120), command.where
    elif name == "mlm-eval":
        found = eval_problems(rest)
        assert bool(found) == command.is_refused, f"{command.where}: {[str(p) for p in found]}"
    elif name == "mlm-generate":
        found = generate_problems(rest)
        assert bool(found) == command.is_refused, f"{command.where}: {[str(p) for p in found]}"
    elif name == "mlm-data":
        said = parser_problem(DATA, rest)
        assert bool(said) == command.is_refused, f"{command.where}: {said}"
    elif name == "mlm-report":
        # Whether the runs are there depends on the machine.
        flaws = report.parse(rest).problems
        assert bool(flaws) == command.is_refused, f"{command.where}: {[str(p) for p in flaws]}"
    elif name == "mlm-convert":
        found_by_parser = parser_problem(CONVERT, rest)
        assert bool(found_by_parser) == command.is_refused, f"{command.where}: {found_by_parser}"
    elif name == "mlm-harness":
        found = harness_problems(rest)
        assert bool(found) == command.is_refused, f"{command.where}: {[str(p) for p in found]}"
    elif name == "torchrun":
        from torch.distributed.run import parse_args

        given = parse_args(rest)
        processes = int(given.nnodes.split(":")[0]) * int(given.nproc_per_node)
        problems = {
            "mlm.cli.train": train_problems,
            "mlm.cli.eval": eval_problems,
            "mlm.cli.generate": generate_problems,
        }
        assert given.module, command.where
        assert given.training_script in problems, command.where
        assert not problems[given.training_script](given.training_script_args, processes), command.where
    elif name == "srun":
        at = rest.index("mlm-train")
        options = dict(option.removeprefix("--").split("=") for option in rest[:at])
        per_node, nodes = int(options.get("ntasks-per-node", 0)), int(options.get("nodes", 1))
        tasks = int(options.get("ntasks", per_node * nodes))
        assert not train_problems(rest[at + 1 :], tasks if tasks > 1 else None), command.where
    elif name == "make":
        makefile = (ROOT / "Makefile").read_text()
        for word in rest:
            variable, equals, _ = word.partition("=")
            pattern = rf"\b{variable}\b" if equals else rf"^{re.escape(word)}:"
            assert re.search(pattern, makefile, re.MULTILINE), f"{command.where}: make knows no {word}"
    elif name in ("python", "python3"):
        assert "".join(rest[:1]).startswith("scripts/"), f"{command.where}: {words} is no script of ours"
        assert (ROOT / rest[0]).is_file(), f"{command.where}: there is no {rest[0]}"
        given = script_arguments(ROOT / rest[0], rest[1:])
        compose(getattr(given, "overrides", []))
    else:
        known = any(words[: len(harmless.split())] == harmless.split() for harmless in HARMLESS)
        assert known, f"{command.where}: what is {name}?"


def train_problems(words: list[str], processes: int | None = None) -> list[Problem]:
    """What mlm-train has against its arguments, the machine left aside. processes: started by another."""
    given = arguments.parse(words)
    if given.help or given.version:
        return given.problems
    if given.multirun:
        assert processes is None, "-m starts processes of its own"
        command = dataclasses.replace(TRAIN, spec=_TRAIN)
        sweep = composed(command, given.overrides, given.config_dirs, detect_machine({}), {})
        return [*given.problems, *(p for p in sweep.problems if not _is_absence(p))]
    given.refuse_sweeps(can_sweep=True)
    try:
        config = compose(given.overrides, given.config_dirs, _TRAIN)
    except ConfigError as error:
        return [*given.problems, *error.problems]
    if processes is not None:
        dp, left = divmod(processes, config.tp)
        assert left == 0, f"{processes} processes are no multiple of tp={config.tp}"
        assert config.dp in (None, dp), f"{processes} processes are not tp={config.tp} x dp={config.dp}"
        config = dataclasses.replace(config, dp=dp)
    return [*given.problems, *check(config)]


def _as_if_there(path: str, allow_pickle: bool, *_: int | None) -> tuple[ModelConfig, TokenizerConfig]:
    """Model and tokenizer of weights that a page names; whether files are there depends on the machine."""
    config = compose([f"model={'bert_110m' if 'bert' in path else 'gpt2_124m'}"])
    return config.model, config.tokenizer


_TRAIN = dataclasses.replace(CONFIGURED, from_checkpoint=_as_if_there, completed=completed)


def _is_absence(problem: Problem) -> bool:
    """Whether it is about a file of a page, which depends on the machine."""
    return problem.wrong in ("does not exist", "is no such file or folder")


def eval_problems(words: list[str], processes: int | None = None) -> list[Problem]:
    """What mlm-eval has against its arguments, the machine and files left aside."""
    given = arguments.parse(words)
    if given.help or given.version:
        return given.problems
    given.refuse_sweeps(can_sweep=False)
    try:
        config = compose(given.overrides, given.config_dirs, EVAL)
    except ConfigError as error:
        return [*given.problems, *error.problems]
    if processes is not None:
        assert processes % config.tp == 0, f"{processes} processes are no multiple of tp={config.tp}"
    of_tasks = [] if is_labelled(config) else names.task_problems(config.tasks, config.task_paths)
    found = [*given.problems, *EVAL.check(config), *of_tasks]
    # Whether a file is there depends on the machine; that it is asked for is the point of the page.
    found = [p for p in found if "is not set, and" not in p.wrong and p.wrong != "is no such file"]
    return found if config.checkpoint else [*found, Problem("checkpoint", "is not set", "give it")]


def harness_problems(words: list[str]) -> list[Problem]:
    """What our model has against its arguments; lm_eval's own and the checkpoint are left aside."""
    passed_on = harness.for_lm_eval(words)
    if passed_on[0] == "ls":
        return []
    options = dict(pair for pair in pairwise(passed_on) if pair[0][0] == "-")
    given = dict(word.partition("=")[::2] for word in options.get("--model_args", "").split(","))
    typed: dict[str, object] = {key: int(v) if v.isdecimal() else v for key, v in given.items() if key}
    _, found = typed_arguments(typed)
    missing = [key for key, there in (("checkpoint", typed), ("--tasks", options)) if key not in there]
    return [*found, *(Problem(key, "is not set", "give it") for key in missing)]


def generate_problems(words: list[str], processes: int | None = None) -> list[Problem]:
    """What mlm-generate has against its arguments, the machine and files left aside."""
    given = arguments.parse(words)
    if given.help or given.version:
        return given.problems
    given.refuse_sweeps(can_sweep=False)
    try:
        config = compose(given.overrides, given.config_dirs, GENERATE)
    except ConfigError as error:
        return [*given.problems, *error.problems]
    if processes is not None:
        assert processes == config.tp, f"{processes} processes are not tp={config.tp}"
    found = [*given.problems, *GENERATE.check(config)]
    return found if config.checkpoint else [*found, Problem("checkpoint", "is not set", "give it")]


def parser_problem(command: Family, words: list[str]) -> str:
    """What the parser of a command with subcommands says against arguments; files are left aside."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            command.parser(words).parse_args(words)
    except SystemExit as left:
        return said.getvalue() if left.code else ""
    return ""


class _Parsed(Exception):
    pass


def script_arguments(script: Path, words: list[str]) -> argparse.Namespace:
    """What a script's own parser makes of its arguments; the script does nothing else."""
    original = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, args: object = None, namespace: object = None) -> object:
        raise _Parsed(original(self, words))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.setattr(sys, "argv", [str(script), *words])
        # As Python does for a script: modules beside it are found.
        patch.syspath_prepend(script.parent)
        try:
            runpy.run_path(str(script), run_name="__main__")
        except _Parsed as parsed:
            namespace: argparse.Namespace = parsed.args[0]
            return namespace
        except SystemExit:
            raise AssertionError(f"{script.name} does not take {words}") from None
    raise AssertionError(f"{script} parsed no arguments")
