"""Prompts from files, and what is said of those that cannot be gone on from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlm.config.command import GENERATE
from mlm.config.compose import compose, load_config, save_config
from mlm.config.schema import GenerateConfig
from mlm.data.bad_data import BadData
from mlm.data.tokenizers import ByteTokenizer, CharTokenizer
from mlm.errors import ConfigError
from mlm.generate.prompts import Prompt, first_ids, length_problems, read_prompts


def prompts_of(path: Path) -> list[str]:
    return [prompt.text for prompt in read_prompts(compose([f"prompts={path}"], [], GENERATE))]


def test_lines_of_a_text_are_prompts_and_blank_ones_are_none(tmp_path):
    (tmp_path / "p.txt").write_bytes("one \r\n\n  zwei: ä, ${x}\n\t\nthree".encode())
    assert prompts_of(tmp_path / "p.txt") == ["one ", "  zwei: ä, ${x}", "three"]


def test_lines_of_json_hold_a_prompt_or_a_text(tmp_path):
    records = [{"prompt": "a\nb", "text": "no"}, {"text": " c", "id": 3}, {"prompt": ""}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    assert prompts_of(tmp_path / "p.jsonl") == ["a\nb", " c", ""]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.jsonl", b'{"prompt": "a"}\n{"prompt"', ["p.jsonl, line 2 is not JSON"]),
        ("p.jsonl", b'{"question": "a"}\n[1]\n', ["line 1 has no key prompt or text", "line 2 has no key"]),
        ("p.jsonl", b'{"prompt": 3}', ["line 1 has a prompt that is no text"]),
        ("p.txt", b"a\nb\xff\n", ["line 2 is no UTF-8 at byte 2"]),
        ("p.txt", b"\n \n", ["holds no prompt"]),
        ("p.txt", None, ["cannot be read (No such file or directory)"]),
        ("p.jsonl", b"{}\n" * 12, ["line 10 has no key", "2 more lines have such problems"]),
    ],
)
def test_a_file_that_is_not_what_it_has_to_be_is_refused_by_line(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        prompts_of(tmp_path / name)
    for part in said:
        assert part in str(caught.value)
    assert "line 11" not in str(caught.value)


def test_an_empty_prompt_begins_a_document_where_there_is_a_token_for_its_end():
    assert first_ids(ByteTokenizer(), "") == [256]
    assert first_ids(ByteTokenizer(), "a") == [97]
    with pytest.raises(BadData, match="an empty prompt is nothing to begin with for char"):
        first_ids(CharTokenizer("ab"), "")


def test_prompts_that_are_too_long_or_not_of_the_alphabet_are_named():
    prompts = [Prompt("aaab", "p, line 1"), Prompt("ab", "p, line 2"), Prompt("xy", "p, line 3")]
    long, foreign = length_problems(prompts, CharTokenizer("ab"), 3, slide=False)
    assert str(long).startswith("p, line 1 has 4 tokens, and the model sees 3: shorten it, or use slide=true")
    assert str(foreign).startswith("p, line 3 has character 'x'")
    assert length_problems(prompts, CharTokenizer("abxy"), 3, slide=True) == []


VERBATIM = [
    "To be, or 'not' to \"be\": {x} ${y} [z] = 3",
    "",
    " ",
    "null",
    "007",
    "a\nb",
    "1,2",
    "choice(1,2)",
    "\\n",
]


@pytest.mark.parametrize("text", VERBATIM)
def test_a_prompt_is_taken_as_it_is_typed_and_survives_its_file(text, tmp_path):
    config = compose([f"prompt={text}", "checkpoint=x"], [], GENERATE)
    assert config.prompt == text
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml", GenerateConfig) == config


def test_stop_strings_are_a_list_as_in_yaml(tmp_path):
    config = compose(['stop=["\\n\\n", "Q:", \' \', "${a}"]', "prompt=x"], [], GENERATE)
    assert config.stop == ["\n\n", "Q:", " ", "${a}"]
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml", GenerateConfig).stop == config.stop


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "prompt is not set, and nothing else to go on from is"),
        (["prompt=a", "prompts=b"], "prompt and prompts are both where prompts come from"),
        (["prompt=a", "interactive=true"], "prompt and interactive=true are both"),
        (["interactive=true", "out=x"], "is for batches, and interactive=true is none"),
        (["interactive=true", "samples=2"], "samples=2 is for batches"),
        (["prompt=a", "samples=2", "temperature=0"], "would be the same text each time"),
        (["prompt=a", "top_p=0"], "top_p=0 is not above 0"),
        (["prompt=a", "top_p=1.01"], "top_p=1.01 is not at most 1: use top_p=1 or less"),
        (["prompt=a", "top_k=0"], "top_k=0 is not at least 1"),
        (["prompt=a", "temperature=-1"], "temperature=-1 is not at least 0"),
        (["prompt=a", "temperature=nan"], "is not a finite number"),
        (["prompt=a", 'stop=[""]'], "holds an empty string"),
        (["prompt=a", "launch=slurm"], "texts are made where they are asked for"),
        (["prompt=a", "launch.max_restarts=1"], "is for a training"),
    ],
)
def test_choices_that_cannot_be_are_refused(words, said):
    (problem,) = GENERATE.check(compose(words, [], GENERATE))
    assert said in str(problem)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("stop=Q", "is not a list"),
        ("stop=[1]", "is not text"),
        ("stop=[", "cannot be read as a list"),
        ("stop=", "gives no value"),
        ("dp=2", "is no such key"),
    ],
)
def test_values_of_another_form_are_refused(word, said):
    with pytest.raises(ConfigError, match=said):
        compose([word, "prompt=a"], [], GENERATE)


def test_a_prompt_is_given_once():
    with pytest.raises(ConfigError, match="gives prompt a second time"):
        compose(["prompt=a", "prompt=b"], [], GENERATE)
