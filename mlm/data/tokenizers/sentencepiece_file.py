"""What a SentencePiece .model file says and its library does not: the types of pieces, the normaliser.

The file is a protocol buffer (sentencepiece_model.proto). Field numbers are those of that definition, and a
reader of its wire format is shorter than a dependency on the protobuf package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlm.data.tokenizers.names import is_control

_PIECES, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5
_PIECE_TEXT, _PIECE_TYPE = 1, 3
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_SPACES, _ESCAPE_SPACES = 2, 3, 4, 5
_SUFFIX_SPACES = 24
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4


@dataclass(frozen=True)
class ModelFile:
    """A model's bytes, ready for the library, and what decides whether text comes back.

    model: the file, its user-defined pieces that are written as control tokens made control pieces, so that
    no text gives them. normalises: characters are replaced. adds_space: one before the text. drops_spaces:
    those at the ends and all but one of several. marks_spaces: as U+2581, where they stand.
    controls: the text of control pieces.
    """

    model: bytes
    normalises: bool
    adds_space: bool
    drops_spaces: bool
    marks_spaces: bool
    controls: frozenset[str]


def read_model(model: bytes) -> ModelFile:
    """Raises ValueError when the bytes are no model."""
    changed, controls, normalises, pieces = bytearray(model), set(), False, 0
    normalizer: dict[int, int] = {}
    trainer: dict[int, int] = {}
    for number, start, stop, _ in _fields(model, 0, len(model)):
        if number == _PIECES:
            pieces += 1
            text, type_of, type_at = "", _NORMAL, -1
            for inner, at, end, value in _fields(model, start, stop):
                if inner == _PIECE_TEXT:
                    text = model[at:end].decode()
                elif inner == _PIECE_TYPE:
                    type_of, type_at = value, at
            if type_of == _USER_DEFINED and is_control(text):
                changed[type_at] = type_of = _CONTROL
            if type_of == _CONTROL:
                controls.add(text)
        elif number in (_NORMALIZER, _DENORMALIZER):
            lengths = {inner: end - at for inner, at, end, _ in _fields(model, start, stop)}
            normalises |= lengths.get(_CHARSMAP, 0) > 0
            if number == _NORMALIZER:
                normalizer = _numbers(model, start, stop)
        elif number == _TRAINER:
            trainer = _numbers(model, start, stop)
    if not pieces:
        raise ValueError("no pieces")
    return ModelFile(
        model=bytes(changed),
        normalises=normalises,
        adds_space=bool(normalizer.get(_DUMMY_PREFIX, True)),
        drops_spaces=bool(normalizer.get(_REMOVE_SPACES, True)),
        marks_spaces=bool(normalizer.get(_ESCAPE_SPACES, True)) and not trainer.get(_SUFFIX_SPACES),
        controls=frozenset(controls),
    )


def _numbers(buffer: bytes, start: int, stop: int) -> dict[int, int]:
    """The fields of a message that are numbers or switches."""
    return {number: value for number, _, _, value in _fields(buffer, start, stop) if value >= 0}


def _fields(buffer: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, first byte, byte after the last, value) of each field; value is -1 unless it is a varint."""
    while at < stop:
        key, at = _varint(buffer, at, stop)
        number, wire = key >> 3, key & 7
        start, value = at, -1
        match wire:
            case 0:
                value, at = _varint(buffer, at, stop)
            case 1:
                at += 8
            case 2:
                length, start = _varint(buffer, at, stop)
                at = start + length
            case 5:
                at += 4
            case _:
                raise ValueError(f"wire type {wire} at byte {at}")
        if at > stop:
            raise ValueError(f"a field goes on beyond byte {stop}")
        yield number, start, at, value


def _varint(buffer: bytes, at: int, stop: int) -> tuple[int, int]:
    """The number that begins at a byte, seven bits a byte from the low end, and the byte after it."""
    value = shift = 0
    while at < stop:
        byte = buffer[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError(f"a number goes on beyond byte {stop}")
