"""Every example notebook runs in a kernel of its own and prints what is stored in it.

After a change, run `python tests/integrations/test_notebooks.py [NAME...]` to execute the notebooks again and to store
their outputs, and read the diff. The pages of the documentation show these outputs.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.printed_numbers import numbers_masked, same_within

pytestmark = pytest.mark.full("runs notebooks")

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
MOST_CELLS = 16
STORED = ("text/plain", "text/html", "image/svg+xml")  # other forms of a figure are left out
FIGURE = "image/svg+xml"
TRAINED = ("lightgbm",)  # notebooks with numbers of trees, which depend on the processor: only their text is compared


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    """Jupyter and IPython keep their files here, and not in the home folder, which may be read-only."""
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        (tmp_path / name.lower()).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def execute(name: str) -> Any:
    """Return the notebook with the outputs of a new kernel."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3")
    client.execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = merged([stored(output) for output in cell.outputs])
    return notebook


def merged(outputs: list[Any]) -> list[Any]:
    """Join what is printed in several pieces: where the pieces end depends on the speed of the machine."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output.output_type == "stream" == joined[-1].output_type and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def stored(output: Any) -> Any:
    """The output as it is kept: a figure as an image and its text, a table as HTML and its text."""
    if "data" in output:
        kinds = [kind for kind in STORED if kind in output.data]
        if FIGURE in kinds:
            kinds.remove("text/html")
        output.data = {kind: output.data[kind] for kind in kinds}
        output.metadata = {}
    if "execution_count" in output:
        output.execution_count = None
    return output


def texts(notebook: Any) -> list[list[str]]:
    """What each cell prints and displays, without the figures, whose lines depend on the fonts of the machine."""
    return [
        [
            text
            for output in cell.get("outputs", [])
            for kind, text in sorted(output.get("data", {"text/plain": output.get("text")}).items())
            if kind != FIGURE
        ]
        for cell in notebook.cells
    ]


def is_same(name: str, printed: str, kept: str) -> bool:
    """Whether a notebook prints what is stored in it."""
    return numbers_masked(printed) == numbers_masked(kept) if name in TRAINED else same_within(printed, kept)


@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.filterwarnings("ignore:Jupyter is migrating its paths:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Parsing dates involving:DeprecationWarning")
def test_the_notebook_prints_what_is_stored_in_it(name, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found, kept = texts(execute(name)), texts(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))
    assert list(map(len, found)) == list(map(len, kept))
    pairs = [pair for cells in zip(found, kept, strict=True) for pair in zip(*cells, strict=True)]
    assert [pair for pair in pairs if not is_same(name, *pair)] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_is_short_and_complete(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= MOST_CELLS
    assert notebook.cells[0].source.startswith("# ")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(FIGURE in output.get("data", {}) for output in outputs)
    assert any("rankbound-table" in output.get("data", {}).get("text/html", "") for output in outputs)
    text = (FOLDER / f"{name}.ipynb").read_text()
    for pattern in (r"https?://(?!www\.w3\.org/)", r"/(?:home|root|tmp|work)/"):  # nothing from a network or a machine
        assert not re.search(pattern, text), pattern


def test_there_are_five_notebooks():
    assert NOTEBOOKS == ["compare", "evaluate", "lightgbm", "pytorch", "recommender"]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    for changed in sys.argv[1:] or NOTEBOOKS:
        nbformat.write(execute(changed), FOLDER / f"{changed}.ipynb")
