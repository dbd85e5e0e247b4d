"""Converts notebooks with stored outputs to pages of the site: text, code, tables in HTML, figures as SVG.

The notebooks themselves are executed by tests/integrations/test_notebooks.py, which also compares their outputs.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["notebook_page"]


def notebook_page(path: Path, source: str) -> str:
    """The notebook as Markdown; ``source`` is the path of the file that readers can open themselves."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts = [part for cell in notebook["cells"] for part in _cell(cell)]
    parts.append(f"The notebook is `{source}` in the repository.")
    return "\n\n".join(parts) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell["outputs"]:
        yield _output(output)


def _output(output: dict[str, Any]) -> str:
    """The richest form that the output has; HTML is put on one line, because an empty line would end it."""
    data = output.get("data", {"text/plain": output.get("text", [])})
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            return f'<div class="notebook-output">{" ".join("".join(data[kind]).split())}</div>'
    return f'<pre class="notebook-output">{html.escape("".join(data["text/plain"])).rstrip()}</pre>'
