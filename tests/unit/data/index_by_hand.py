"""Token indexes packed and unpacked number by number, from the description of the format alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence

CODE_OF = {"B": 1, "b": 2, "h": 3, "i": 4, "q": 5, "d": 6, "f": 7, "H": 8}


def pack_index(
    code: int,
    itemsize: int,
    lengths: Sequence[int],
    documents: Sequence[int] | None = None,
    *,
    magic: bytes = b"MMIDIDX\x00\x00",
    version: int = 1,
    pointers: Sequence[int] | None = None,
) -> bytes:
    """An .idx with the given numbers, right or wrong."""
    if pointers is None:
        pointers = [sum(lengths[:i]) * itemsize for i in range(len(lengths))]
    if documents is None:
        documents = list(range(len(lengths) + 1))
    raw = magic + struct.pack("<Q", version) + struct.pack("<B", code)
    raw += struct.pack("<Q", len(lengths)) + struct.pack("<Q", len(documents))
    raw += struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(lengths)}q", *pointers)
    return raw + struct.pack(f"<{len(documents)}q", *documents)


def unpack_index(raw: bytes) -> tuple[int, list[int], list[int], list[int]]:
    """(dtype code, lengths, pointers, document index) of an .idx."""
    assert raw[:9] == b"MMIDIDX\x00\x00"
    version, code, n, d = struct.unpack_from("<QBQQ", raw, 9)
    assert version == 1
    at = 9 + 8 + 1 + 8 + 8
    lengths = list(struct.unpack_from(f"<{n}i", raw, at))
    pointers = list(struct.unpack_from(f"<{n}q", raw, at + 4 * n))
    documents = list(struct.unpack_from(f"<{d}q", raw, at + 12 * n))
    assert len(raw) == at + 12 * n + 8 * d
    return code, lengths, pointers, documents
