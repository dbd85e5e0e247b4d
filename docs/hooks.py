"""Extensions of the mkdocs build: notebooks as pages, formulas as MathML.

Neither the build nor the finished site needs network access.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latex2mathml.converter
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs imports this file by its path

from notebooks import notebook_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

NOTEBOOKS = "examples/notebooks"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the example notebooks."""
    root = Path(config.docs_dir).parent
    for path in sorted((root / NOTEBOOKS).glob("*.ipynb")):
        page = notebook_page(path, path.relative_to(root).as_posix())
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Convert formulas to MathML, which browsers render themselves."""
    return FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    latex = html.unescape(match.group(2))
    if match.group(1) == "span":
        return latex2mathml.converter.convert(latex)
    return f'<div class="formula">{latex2mathml.converter.convert(latex, display="block")}</div>'
