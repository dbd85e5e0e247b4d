"""The code of the how-to pages runs as it stands, block after block."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
_BLOCK = re.compile(r"```python(?: needs=(\w+))?\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", ["pytorch.md", "lightgbm.md"])
def test_page_runs(page):
    text = (PAGES / page).read_text()
    names: dict[str, object] = {}
    blocks = _BLOCK.findall(text)
    assert len(blocks) >= 4
    assert len(blocks) == text.count("```python")
    for needs, code in blocks:
        if needs and importlib.util.find_spec(needs) is None:
            continue
        with warnings.catch_warnings():
            # LightGBM's scikit-learn interface warns about its own feature names
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            exec(compile(code, page, "exec"), names)
