"""What a data configuration names: one text, or one or several token datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlm.config.schema import DataConfig
from mlm.data.indexed import idx_path
from mlm.data.text import is_text


@dataclass(frozen=True)
class Named:
    """A token dataset as it was named. where: how an error names it; weight: as typed, 1 for data.path."""

    where: str
    path: str
    weight: float

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.prefix.name

    @property
    def prefix(self) -> Path:
        return Path(self.path).expanduser().absolute()


def is_text_run(data: DataConfig) -> bool:
    """Whether the run trains on a text (embedded or .txt) rather than on token datasets."""
    return data.blend is None and is_text(data.path)


def named_datasets(data: DataConfig) -> list[Named]:
    """The token datasets of a run, in the order of data.blend; none for a text."""
    if data.blend is not None:
        return [
            Named(f"data.blend[{index}].path={part.path}", part.path, part.weight)
            for index, part in enumerate(data.blend)
        ]
    if is_text_run(data):
        return []
    assert data.path is not None, "no path is the embedded text"
    return [Named(f"data.path={data.path}", data.path, 1.0)]


def holding_ids(data: DataConfig) -> str | None:
    """How an error names the first dataset of ids that exists; of missing ones nothing more can be said."""
    return next((named.where for named in named_datasets(data) if idx_path(named.prefix).is_file()), None)


def distinct_names(datasets: Sequence[Named]) -> list[str]:
    """The names of datasets, with the place in the list where two would be called the same."""
    names = [named.name for named in datasets]
    return [name if names.count(name) == 1 else f"{name}[{index}]" for index, name in enumerate(names)]
