"""Renders the examples in docstrings as code blocks, wherever they occur."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class ExamplesAsCode(griffe.Extension):
    """Put fences around examples, which Markdown would otherwise take for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Edit the docstring of each object after it has been loaded."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
