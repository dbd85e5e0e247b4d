"""Extensions of the mkdocs build: figures drawn at build time, notebooks, tables of results, formulas as MathML.

Neither the build nor the finished site needs network access.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latex2mathml.converter
from mkdocs.structure.files import File

from rankbound.report.figures import save_chart

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs imports this file by its path

from notebooks import notebook_page
from results_pages import MARKER, figures_without_data, overview, result_pages

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

NOTEBOOKS = "examples/notebooks"
OVERVIEW = "results/index.md"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add figures that depend on no data, the pages of results with their charts, and the example notebooks."""
    charts = {f"figures/{name}.svg": outcome.chart for name, outcome in figures_without_data().items()}
    pages, drawn = result_pages(Path(config.docs_dir) / "results")
    for name, page in pages.items():
        files.append(File.generated(config, name, content=page))
    with tempfile.TemporaryDirectory() as folder:
        for name, chart in (charts | drawn).items():
            content = save_chart(chart, Path(folder) / "chart.svg").read_bytes()
            files.append(File.generated(config, name, content=content))
    root = Path(config.docs_dir).parent
    for path in sorted((root / NOTEBOOKS).glob("*.ipynb")):
        page = notebook_page(path, path.relative_to(root).as_posix())
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Fill in the overview of the results."""
    if page.file.src_uri != OVERVIEW:
        return markdown
    return markdown.replace(MARKER, overview(Path(config.docs_dir) / "results"))


def on_page_content(content: str, **_: Any) -> str:
    """Convert formulas to MathML, which browsers render themselves."""
    return FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    latex = html.unescape(match.group(2))
    if match.group(1) == "span":
        return latex2mathml.converter.convert(latex)
    return f'<div class="formula">{latex2mathml.converter.convert(latex, display="block")}</div>'
