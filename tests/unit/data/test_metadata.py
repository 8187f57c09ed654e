from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlm.data.metadata import metadata_path, read_metadata, write_metadata


def test_a_record_comes_back_and_a_dataset_of_another_tool_has_none(tmp_path: Path):
    prefix = tmp_path / "wiki.v2_text_document"
    assert read_metadata(prefix) is None
    write_metadata(prefix, {"tokens": 7, "sources": [{"path": "日本.jsonl"}]})
    assert json.loads((tmp_path / "wiki.v2_text_document.json").read_text())["format"] == 1
    assert read_metadata(prefix) == {"format": 1, "tokens": 7, "sources": [{"path": "日本.jsonl"}]}


def test_a_record_that_cannot_be_written_leaves_the_former_one(tmp_path: Path):
    write_metadata(tmp_path / "data", {"tokens": 7})
    with pytest.raises(TypeError):
        write_metadata(tmp_path / "data", {"tokens": object()})
    assert (read_metadata(tmp_path / "data") or {})["tokens"] == 7
    assert [path.name for path in tmp_path.iterdir()] == [metadata_path(tmp_path / "data").name]
