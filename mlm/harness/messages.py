"""What lm_eval's process and the workers say to each other, and how they find each other."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlm.errors import LaunchError
from mlm.eval.requests import Segment

CONFIG = "config.yaml"
"""In the folder that the processes share: what the workers are to do, as mlm-eval has it."""
REPORT = "report.txt"
"""There too: what went wrong, in words, once the workers have failed."""
_SOCKET = "socket"


@dataclass(frozen=True)
class Score:
    """Score these segments; answered by rank 0 with Scores."""

    segments: Sequence[Segment]


@dataclass(frozen=True)
class Drawing:
    """How the tokens of a text are chosen and where it ends.

    until: strings that end it and do not belong to it. temperature: 0 for the likeliest token each time.
    top_k: None, or only among so many. top_p: 1, or only among the likeliest that together have so much.
    """

    max_tokens: int
    until: tuple[str, ...] = ()
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0


@dataclass(frozen=True)
class Prompt:
    """A text to go on with: its ids, int64 [n], n >= 1, and the number that decides what is drawn for it."""

    number: int
    tokens: NDArray[np.int64]


@dataclass(frozen=True)
class Generate:
    """Go on with these prompts; answered by the first tp rank of each replica with its {number: text}."""

    prompts: Sequence[Prompt]
    drawing: Drawing
    seed: int


Request = Score | Generate


@dataclass(frozen=True)
class Hello:
    """A worker's first word: it has its part of the model."""

    rank: int


@dataclass(frozen=True)
class Progress:
    """How far rank 0 is with a request; total is that of the whole job."""

    done: int
    total: int


@dataclass(frozen=True)
class Answer:
    """A worker's last word on a request."""

    value: object


def listen(folder: Path, workers: int) -> socket.socket:
    """A socket in the folder, which only its owner may enter. Raises LaunchError when it cannot be made."""
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(str(folder / _SOCKET))
    except OSError as error:
        server.close()
        raise LaunchError(
            f"no socket can be made in {folder} ({error}): set TMPDIR to a local folder with a short name"
        ) from None
    server.listen(workers)
    return server


def accept(server: socket.socket) -> Connection:
    """The connection of the worker that is waiting there."""
    return Connection(server.accept()[0].detach())


def connect(folder: Path) -> Connection:
    """A worker's connection to the process that listens there."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(folder / _SOCKET))
    return Connection(client.detach())
