"""The text a run trains on: the embedded one, or a file of the user's."""

from __future__ import annotations

from pathlib import Path

from mlm.data.bad_data import BadData

EMBEDDED_NAME = "tinyshakespeare"
EMBEDDED_PATH = Path(__file__).parent / "assets" / "tinyshakespeare.txt"


def is_text(path: str | None) -> bool:
    """Whether data.path means text (embedded or .txt) rather than the PREFIX of a .bin/.idx pair."""
    return path is None or path.endswith(".txt")


def text_path(path: str | None) -> Path:
    return EMBEDDED_PATH if path is None else Path(path).expanduser().absolute()


def read_text(path: Path) -> str:
    """The text of data.path, with its line ends as they are; errors as read_utf8."""
    return read_utf8(path, f"data.path={path}")[1]


def read_utf8(path: Path, where: str) -> tuple[bytes, str]:
    """A whole file, as bytes and as text with its line ends as they are. where: how errors name it.

    Raises BadData when it cannot be read, is not UTF-8 (naming the first wrong byte's offset) or is blank.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadData(where, f"cannot be read ({error.strerror})", "check the path") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{raw[error.start]:02x} at byte offset {error.start:,}"
        raise BadData(where, f"is not UTF-8: {byte}", "convert it, for instance with iconv") from None
    if not text.strip():
        raise BadData(where, "holds no text", "give a file with text in it")
    return raw, text
