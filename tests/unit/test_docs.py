"""The documentation is true: its commands, Python, links, names and field table, against the code."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import zip_longest

import pytest

from mlm.config.command import EVAL, GENERATE, TRAIN
from mlm.config.compose import compose
from mlm.config.fields import MISSING, flatten, plain, schema_fields
from tests.unit.pages import COMMANDS, PAGES, ROOT, Command, fences, verify


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.where)
def test_a_command_of_the_documentation_is_accepted(command, tmp_path, monkeypatch):
    # Files that a page shows (a YAML block that begins with its path) are there for its commands.
    for fence in fences(command.page):
        named = re.match(r"# (\S+/\S+\.yaml)\n", fence.text)
        if fence.language == "yaml" and named:
            path = tmp_path / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.text[named.end() :])
    monkeypatch.chdir(tmp_path)
    verify(command)


@pytest.mark.parametrize(
    "text",
    [
        "mlm-train model=gpt2_tiny train.stepz=1",
        "mlm-train model=gpt2_tiny tp=3",
        "mlm-train model=gpt2_tiny  # refused",
        "mlm-train --steps 3",
        "torchrun --nproc-per-node=6 -m mlm.cli.train model=gpt2_tiny tp=4",
        "srun --nodes=2 --ntasks-per-node=8 mlm-train model=gpt2_8b tp=8 dp=4",
        "make trian",
        "python scripts/bench_train.py --degree 2",
        "python scripts/no_such_script.py",
        "mlm-train -m model=gpt2_tiny tp=1,3",
        "mlm-train -m study=weak_scaling_tq",
        "mlm-train study=weak_scaling_tp",
        "mlm-train -m study=weak_scaling_tp model=gpt2_1b",
        "mlm-eval -m checkpoint=runs/first tp=1,2",
        "mlm-eval checkpoint=runs/first tasks=[wikitext]",
        "mlm-eval tasks=[lambada]",
        "mlm-eval checkpoint=runs/first task_paths.wikitext=x",
        "mlm-generate checkpoint=runs/first",
        "mlm-generate prompt=a",
        "mlm-generate checkpoint=runs/first prompt=a top_p=2",
        "mlm-data inspekt data/wiki",
        "mlm-data split data/wiki --parts 9,1",
        "mlm-report",
        "mlm-report runs/first outt=both",
        "mlm-report runs/first --out both",
        "mlm-harness checkpoint=runs/first tq=2 --tasks wikitext",
        "mlm-harness checkpoint=runs/first tp=two --tasks wikitext",
        "mlm-harness tp=2 --tasks wikitext",
        "mlm-harness checkpoint=runs/first",
        "mlm-convert verify",
        "mlm-convert consolidate runs/mine out.safetensors --dtype fp64",
        "mlm-convert export runs/mine out",
        "mlm-trian model=gpt2_tiny",
        "cd docs && mlm-trian",
    ],
)
def test_a_wrong_command_would_be_noticed(text):
    with pytest.raises(AssertionError):
        verify(Command(ROOT / "README.md", 1, text))


def test_every_page_that_shows_commands_is_read():
    pages = {command.page.relative_to(ROOT).as_posix() for command in COMMANDS}
    assert pages >= {
        "README.md",
        "README.ja.md",
        "CONTRIBUTING.md",
        "docs/cluster.md",
        "docs/configuration.md",
        "docs/evaluation.md",
        "docs/generation.md",
    }


def test_both_readmes_have_the_same_commands_in_the_same_order():
    english, japanese = (
        [command.words for command in COMMANDS if command.page.name == name]
        for name in ("README.md", "README.ja.md")
    )
    assert english == japanese


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(page, capsys):
    blocks = fences(page)
    namespace: dict[str, object] = {"__name__": page.stem}
    for fence, following in zip_longest(blocks, blocks[1:]):
        if fence.language != "python":
            continue
        # Line numbers of a traceback are those of the page.
        exec(compile("\n" * (fence.line - 1) + fence.text, str(page), "exec"), namespace)
        printed = capsys.readouterr().out
        if printed:
            assert following is not None
            assert (following.language, following.text) == ("text", printed)


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name} links to {link}"
        assert path.resolve().is_relative_to(ROOT), f"{page.name} links out of the repository: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(_slug, headings), f"{page.name} links to {link}"
        if path.suffix == ".svg":
            ElementTree.parse(path)


def test_every_name_that_parallelism_attributes_to_a_file_is_there():
    rows = re.findall(
        r"^\| .* \[(mlm/[\w/]+\.py)\]\(\S+\) ((?:`\w+` ?)+)\|$",
        (ROOT / "docs/parallelism.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) >= 10
    for file, names in rows:
        source = (ROOT / file).read_text()
        for name in re.findall(r"`(\w+)`", names):
            found = re.search(rf"^\s*(class|def) {name}\b|^\s*{name} =", source, re.MULTILINE)
            assert found, f"{name} is not in {file}"


@pytest.mark.parametrize(
    ("page", "spec"),
    [("configuration.md", TRAIN), ("evaluation.md", EVAL), ("generation.md", GENERATE)],
)
def test_the_field_table_has_every_field_with_its_type_and_default(page, spec):
    rows = re.findall(
        r"^\| `([\w.]+)` \| (\w+) \| (.+?) \| .+ \|$",
        (ROOT / "docs" / page).read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    documented = {key: (kind, default) for key, kind, default in rows}
    assert len(documented) == len(rows), "a field has two rows"

    kinds = {int: "int", float: "float", bool: "bool", str: "text"}
    composed = flatten(compose([], [], spec))
    expected = {}
    for key, field in schema_fields(spec.schema).items():
        kind = "list" if field.is_list else "map" if field.is_mapping else kinds.get(field.kind, "choice")
        value = field.default if key.startswith("model.") else composed[key]
        default = str(value).lower() if isinstance(value, bool) else plain(value) or "null"
        by_model = key in ("model.padded_vocab_size", "tokenizer.kind") or value is MISSING
        expected[key] = (kind, "the model's" if by_model else default)
    assert documented == expected
