"""Shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that ask for it are skipped where it is absent."""
    folder = os.environ.get("RANKBOUND_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RANKBOUND_DATA does not point to the folder of real data sets")
    return Path(folder)
