"""PREFIX.json beside PREFIX.bin and PREFIX.idx: what made a dataset. Datasets of other tools have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlm.data.bad_data import BadData
from mlm.files import write_whole

FORMAT = 1


def metadata_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".json")


def read_metadata(prefix: Path) -> dict[str, Any] | None:
    """What is recorded of a dataset; None when nothing is. Raises BadData when the file is no such record."""
    path = metadata_path(prefix)
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadData(str(path), f"cannot be read ({error.strerror})", "check its permissions") from None
    except ValueError:
        values = None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        found = f"is of format {values.get('format')}" if isinstance(values, dict) else "is no JSON object"
        remedy = "move it away to use the dataset without what it records"
        raise BadData(str(path), f"{found}, and a record of a dataset is of format {FORMAT}", remedy)
    return values


def write_metadata(prefix: Path, values: dict[str, Any]) -> None:
    """Write PREFIX.json, whole or not at all; `format` is added. Raises OSError."""
    text = json.dumps({"format": FORMAT, **values}, indent=2, ensure_ascii=False)
    write_whole(metadata_path(prefix), f"{text}\n", durable=True)
