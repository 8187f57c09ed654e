"""The table of evaluation tasks: adding one is a file with a class like these, and its line below."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from mlm.data.tokenizers import Tokenizer
from mlm.eval.files import DataFile
from mlm.eval.lambada import Lambada
from mlm.eval.perplexity import Perplexity
from mlm.eval.requests import Variant
from mlm.eval.wikitext import WikiText103


class Task(Protocol):
    """A test of a language model. name: what tasks=[...] lists; summary: one line for --help."""

    name: str
    summary: str
    default_files: tuple[DataFile, ...]

    def variants(
        self, paths: Mapping[str, Path], tokenizer: Tokenizer, context: int, limit: int | None
    ) -> list[Variant]:
        """The rows of the task's table, the paper's protocol first where there is one.

        paths: by role of default_files; context: the model's seq_length; limit: how many of the file's
        items, from its beginning, or None for all. Raises BadData when a file is not what it has to be.
        """
        ...


TASKS: dict[str, type[Task]] = {task.name: task for task in (WikiText103, Lambada, Perplexity)}
