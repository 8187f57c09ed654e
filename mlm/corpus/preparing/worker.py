"""A process that encodes blocks: pickles in on stdin, pickles out on stdout.

Started by the pool beside it. It ends when its stdin does, so that none survives a parent that was killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from typing import IO, Any

from mlm.errors import MlmError


def send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, protocol=5)
    stream.flush()


def resident_bytes() -> int:
    """Memory of this process now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    # A Ctrl-C reaches the whole group; the parent alone decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox: IO[bytes] = os.fdopen(os.dup(0), "rb")
    outbox: IO[bytes] = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    # Whatever a library prints must not get between the pickles.
    os.dup2(2, 1)
    from mlm.corpus.preparing.encode import Encoder

    try:
        recipe, may_grow_bytes = pickle.load(inbox)
        encoder = Encoder(recipe)
        send(outbox, None)
        limit = resident_bytes() + may_grow_bytes
        while True:
            block = pickle.load(inbox)
            try:
                answer: Any = encoder(block)
            except MlmError as error:
                answer = error
            except Exception:
                answer = RuntimeError(f"a worker failed\n{traceback.format_exc()}")
            send(outbox, (answer, resident_bytes() > limit))
    except (EOFError, BrokenPipeError):
        os._exit(0)
    except MlmError as error:
        send(outbox, error)


if __name__ == "__main__":
    main()
