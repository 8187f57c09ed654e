"""The file `best` among a run's checkpoints: which of them scored highest, and how. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlm.files import write_whole

BEST = "best"


@dataclass(frozen=True)
class Best:
    """A checkpoint by its step, and the value of the figure that it was chosen for."""

    step: int
    figure: str
    value: float

    def write(self, folder: Path) -> None:
        """Point folder/best at it: its name in the first line, what it was chosen for in the second."""
        write_whole(folder / BEST, f"step_{self.step}\n{self.figure} {self.value!r}\n", durable=True)


def read_best(folder: Path) -> Best | None:
    """The best checkpoint of a folder; None where none was chosen, or the file cannot be read."""
    try:
        name, chosen = (folder / BEST).read_text(encoding="utf-8").splitlines()
        figure, value = chosen.split()
        return Best(int(name.removeprefix("step_")), figure, float(value))
    except (OSError, ValueError):
        return None
