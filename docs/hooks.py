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
import polars as pl
from mkdocs.structure.files import File

from rankbound.report.figures import all_figures, save_chart
from rankbound.report.numbers import show_number

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs imports this file by its path

from notebooks import notebook_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

NOTEBOOKS = "examples/notebooks"
RESULTS_PAGE, RESULTS_MARKER = "results/index.md", "<!-- results -->"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
OPEN_ROWS = 40  # longer tables are collapsed
NOT_SHOWN = ("seconds", "chosen", "epochs")  # columns that are only in the CSV file


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the figures that depend on no data as figures/NAME.svg, and the example notebooks as notebooks/NAME.md."""
    with tempfile.TemporaryDirectory() as folder:
        for name, outcome in all_figures(pl.DataFrame()).items():
            if outcome.chart is not None:
                drawn = save_chart(outcome.chart, Path(folder) / f"{name}.svg").read_bytes()
                files.append(File.generated(config, f"figures/{name}.svg", content=drawn))
    root = Path(config.docs_dir).parent
    for path in sorted((root / NOTEBOOKS).glob("*.ipynb")):
        page = notebook_page(path, path.relative_to(root).as_posix())
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Replace the marker on the results page by a table for each CSV file of results."""
    if page.file.src_uri != RESULTS_PAGE:
        return markdown
    folder = Path(config.docs_dir) / "results"
    return markdown.replace(RESULTS_MARKER, "\n\n".join(result_section(path) for path in sorted(folder.glob("*.csv"))))


def on_page_content(content: str, **_: Any) -> str:
    """Convert formulas to MathML, which browsers render themselves."""
    return FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    latex = html.unescape(match.group(2))
    if match.group(1) == "span":
        return latex2mathml.converter.convert(latex)
    return f'<div class="formula">{latex2mathml.converter.convert(latex, display="block")}</div>'


def result_section(path: Path) -> str:
    """Return a heading, links to details and to the file, and the rows of a table."""
    table = pl.read_csv(path, infer_schema_length=None)
    shown = [name for name in table.columns if name not in NOT_SHOWN]
    about = f"[How these numbers were obtained]({path.stem}.md). " if path.with_suffix(".md").is_file() else ""
    lines = [f"## {path.stem}", "", f"{about}{table.height} rows; [CSV file]({path.name}).", ""]
    rows = [_row(name.replace("_", " ") for name in shown), _row(_align(table[name]) for name in shown)]
    rows += [_row(_cell(value) for value in row) for row in table.select(shown).rows()]
    if table.height > OPEN_ROWS:  # collapsed, in the syntax of pymdownx.details
        rows = [f'??? note "All {table.height} rows"', "", *(f"    {row}" for row in rows)]
    return "\n".join([*lines, *rows])


def _align(column: pl.Series) -> str:
    return "---:" if column.dtype.is_numeric() else "---"


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return show_number(value) if isinstance(value, float) else str(value).replace("|", r"\|").replace("<", "&lt;")
