"""Fixtures of the tests of raw text on its way to a dataset."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def test_data() -> Path:
    folder = os.environ.get("MLM_TEST_DATA")
    if not folder:
        pytest.skip("MLM_TEST_DATA is not set: it names a folder with classics/, lambada/, wikitext103/")
    return Path(folder)
