"""DataError with its parts kept, so that a launcher can list it beside other problems."""

from __future__ import annotations

from mlm.errors import DataError, Problem


class BadData(DataError):
    """A DataError made of a Problem: what the file is, what is wrong with it, what to do."""

    def __init__(self, where: str, wrong: str, remedy: str):
        self.problem = Problem(where, wrong, remedy)
        super().__init__(str(self.problem))
