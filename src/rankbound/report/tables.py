"""Tables for people and papers: the same rows as text, HTML, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rankbound.io import atomic_write
from rankbound.report.safe_text import escape_controls, without_formulas

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    import polars as pl
    import rich.table

MARK = "†"  # significant, where the sign of the number says in which direction
BETTER, WORSE = "↑", "↓"  # significantly better and worse than what the table's note names
OUTSIDE = "∗"

_WIDE = 4000  # columns: a text that is not for a terminal is neither wrapped nor cut
_LONGEST = 80  # characters of a cell in HTML; a longer text is cut
_STYLE = (
    ".rankbound-result{overflow-x:auto;margin:.3em 0;color:inherit}"
    ".rankbound-result table{border-collapse:collapse;margin:0;width:auto;color:inherit;font-size:.92em;"
    "font-variant-numeric:tabular-nums}"
    ".rankbound-result caption{caption-side:top;text-align:left;font-weight:600;padding:.2em 0 .4em;color:inherit}"
    ".rankbound-result th,.rankbound-result td{padding:.25em .9em .25em 0;text-align:right;white-space:nowrap;"
    "color:inherit;background:none;border:0}"
    ".rankbound-result .text{text-align:left;font-weight:400}"
    ".rankbound-result thead th,.rankbound-result thead th.text{font-weight:600;"
    "border-bottom:1px solid rgba(128,128,128,.6)}"
    ".rankbound-result tbody tr{background:none;border-bottom:1px solid rgba(128,128,128,.22)}"
    ".rankbound-result p{margin:.5em 0 0;font-size:.85em;opacity:.8;max-width:60em}"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of one cell of a table."""

    text: str
    bold: bool = False
    mark: str = ""

    def __str__(self) -> str:
        return self.text + self.mark


@dataclass(frozen=True, eq=False)
class Table:
    """Columns, of which the first ``text_columns`` are words, and rows; each line of ``note`` is a sentence or more.

    ``data`` has the bare numbers for CSV and JSON; without it they hold the texts. ``data_sets`` names the data set of
    each row, for filtering, where a row has one. With ``ends_with_text`` the last column is words, too.

    >>> print(Table.of_texts("Means", ["measure", "mean"], [["AP", "0.5000"]]).to_text(), end="")
    Means
    measure     mean
    ────────────────
    AP        0.5000
    """

    name: str
    title: str
    columns: tuple[str, ...]
    text_columns: int
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    data: pl.DataFrame | None = None
    data_sets: tuple[str, ...] = field(default=())
    ends_with_text: bool = False

    @classmethod
    def of_texts(
        cls,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        text_columns: int = 1,
        notes: Iterable[str] = (),
    ) -> Table:
        """A table of plain texts."""
        cells = tuple(tuple(map(Cell, row)) for row in rows)
        return cls("", title, tuple(columns), text_columns, cells, "\n".join(notes))

    def is_number(self, column: int) -> bool:
        """Whether a column, by index, holds numbers and is aligned to the right."""
        last = len(self.columns) - self.ends_with_text
        return self.text_columns <= column < last

    # ---- formats -----------------------------------------------------------------------------------------------------

    def to_text(self, width: int | None = None) -> str:
        """Lines of text with the title above and without the note.

        With a ``width`` in characters, texts are wrapped to fit; where that is not enough, columns of numbers are left
        out, the last first, and a line below names them.
        """
        from rich.console import Console

        console = Console(width=width or _WIDE, color_system=None, highlight=False, markup=False, emoji=False)
        shown = self
        left_out: list[str] = []
        while width and (last := shown._last_number()) is not None and shown._least_width(console) > width:
            left_out.insert(0, shown.columns[last])
            shown = shown._without_column(last)
        with console.capture() as captured:
            console.print(shown._as_rich())
        lines = wrap(escape_controls(self.title), console.width, break_on_hyphens=False)
        lines += [line.rstrip() for line in captured.get().split("\n")]
        if left_out:
            names = ", ".join(escape_controls(name) for name in left_out)
            lines += wrap(f"Too narrow for: {names}. --json and wider terminals have them.", console.width)
        return "".join(f"{line}\n" for line in lines if line)

    def to_html(self) -> str:
        """A table for notebooks, in their colors and self-contained; long texts are cut.

        >>> "&lt;b&gt;" in Table.of_texts("<b>", [], []).to_html()
        True
        """
        head = "".join(self._html_cell(index, name, "th", "col") for index, name in enumerate(self.columns))
        body = "".join(f"<tr>{self._html_row(row)}</tr>" for row in self.rows)
        below = "".join(f"<p>{_escape_html(line)}</p>" for line in self.note.splitlines())
        caption = f"<caption>{_escape_html(self.title)}</caption>"
        return (
            f'<div class="rankbound-result"><style>{_STYLE}</style><table class="rankbound-table">{caption}'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
        )

    def to_markdown(self) -> str:
        """A pipe table with its title above and its note below."""
        alignment = ["---:" if self.is_number(column) else "---" for column in range(len(self.columns))]
        lines = [_join_pipes(map(escape_markdown, self.columns)), _join_pipes(alignment)]
        lines += [_join_pipes(map(_markdown_cell, row)) for row in self.rows]
        note = f"\n{escape_markdown(self.note)}\n" if self.note else ""
        return f"**{escape_markdown(self.title)}**\n\n" + "\n".join(lines) + f"\n{note}"

    def to_latex(self) -> str:
        """A table for the package booktabs."""
        alignment = "".join("r" if self.is_number(column) else "l" for column in range(len(self.columns)))
        body = [" & ".join(map(_latex_cell, row)) + r" \\" for row in self.rows]
        lines = [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_escape_latex(f'{self.title}. {self.note}'.strip())}}}",
            rf"  \begin{{tabular}}{{{alignment}}}",
            r"    \toprule",
            "    " + " & ".join(map(_escape_latex, self.columns)) + r" \\",
            r"    \midrule",
            *(f"    {line}" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """The bare numbers, unrounded; for spreadsheets, so that texts that would run as formulas are quoted."""
        import polars as pl

        data = pl.DataFrame(self.to_dict()["rows"]) if self.data is None else self.data
        return without_formulas(data).write_csv()

    def to_dict(self) -> dict[str, Any]:
        """Title, rows as dicts, and note, ready for JSON."""
        texts = [dict(zip(self.columns, map(str, row), strict=True)) for row in self.rows]
        return {"title": self.title, "rows": texts if self.data is None else self.data.to_dicts(), "note": self.note}

    # ---- text --------------------------------------------------------------------------------------------------------

    def _as_rich(self) -> rich.table.Table:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        rows = [[Text(escape_controls(str(cell))) for cell in row] for row in (self.columns, *self.rows)]
        for index, name in enumerate(rows[0]):
            if self.is_number(index):
                width = max(row[index].cell_len for row in rows)
                table.add_column(name, justify="right", no_wrap=True, min_width=width)
            else:
                table.add_column(name, overflow="fold")
        for row in rows[1:]:
            table.add_row(*row)
        return table

    def _least_width(self, console: Any) -> int:
        from rich.measure import Measurement

        return Measurement.get(console, console.options.update(max_width=_WIDE), self._as_rich()).minimum

    def _last_number(self) -> int | None:
        return next((index for index in range(len(self.columns) - 1, -1, -1) if self.is_number(index)), None)

    def _without_column(self, index: int) -> Table:
        rows = tuple(row[:index] + row[index + 1 :] for row in self.rows)
        return replace(self, columns=self.columns[:index] + self.columns[index + 1 :], rows=rows)

    # ---- HTML --------------------------------------------------------------------------------------------------------

    def _html_row(self, row: tuple[Cell, ...]) -> str:
        kinds = ("th", "row") if self.text_columns else ("td", "")
        first = self._html_cell(0, str(row[0]), *kinds)
        return first + "".join(self._html_cell(index, str(cell), "td", "") for index, cell in enumerate(row[1:], 1))

    def _html_cell(self, column: int, text: str, element: str, scope: str) -> str:
        attributes = f' scope="{scope}"' if scope else ""
        attributes += "" if self.is_number(column) else ' class="text"'
        attributes += f' title="{_escape_html(text)}"' if len(text) > _LONGEST else ""
        shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        return f"<{element}{attributes}>{_escape_html(shown)}</{element}>"


def write_tables(tables: Sequence[Table], folder: str | PathLike[str]) -> list[Path]:
    """Write each table as .md, .csv and .tex; give back the files."""
    files = []
    for table in tables:
        for suffix, text in ((".md", table.to_markdown()), (".csv", table.to_csv()), (".tex", table.to_latex())):
            files.append(Path(folder) / f"{table.name}{suffix}")
            with atomic_write(files[-1]) as temporary:
                temporary.write_text(text, encoding="utf-8")
    return files


# ---- markup ----------------------------------------------------------------------------------------------------------


def _escape_html(text: str) -> str:
    return html.escape(text, quote=True)


def _join_pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    return (f"**{text}**" if cell.bold else text) + escape_markdown(cell.mark)


def escape_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> escape_markdown("a|b *c* <i>")
    'a\\|b \\*c\\* &lt;i&gt;'
    """
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", " ".join(text.split())).replace("<", "&lt;").replace(">", "&gt;")


def _latex_cell(cell: Cell) -> str:
    text = _escape_latex(cell.text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    return text + (rf"$^{{{_LATEX[cell.mark][1:-1]}}}$" if cell.mark else "")


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "·": r"$\cdot$",
    "†": r"$\dagger$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "…": r"\dots{}",
    "∗": r"$\ast$",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "α": r"$\alpha$",
}


def _escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> _escape_latex("50 % of a_b & {c}")
    '50 \\% of a\\_b \\& \\{c\\}'
    """
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
