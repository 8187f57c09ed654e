"""DataError with its parts kept, so that a launcher can list it beside other problems."""

from __future__ import annotations

from mlm.errors import DataError, Problem


class BadData(DataError):
    """A DataError made of a Problem: what the file is, what is wrong with it, what to do."""

    def __init__(self, where: str, wrong: str, remedy: str):
        self.problem = Problem(where, wrong, remedy)
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[type[BadData], tuple[str, str, str]]:
        # The default would call it with the one sentence; errors of worker processes travel as pickles.
        return BadData, (self.problem.where, self.problem.wrong, self.problem.remedy)
