"""Every example in the README and the docs runs and prints the output that the page shows.

To refresh the output after a change, run `python tests/test_readme.py [PAGE...]` and read the diff. A block that needs
an optional package has `<!-- needs: PACKAGE -->` on the line above it, and one that trains a model, whose numbers
depend on the processor, `<!-- within: TOLERANCE -->`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from rankbound.cli.main import run
from rankbound.data.catalog import data_folder_in_use
from tests.printed_numbers import same_within

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DEMO = "rankbound demo -o demo > demo.log"
BLOCK = re.compile(
    r"((?:<!-- needs: (\w+) -->\n)?(?:<!-- within: ([\d.]+) -->\n)?)```(console|python)\n(.*?)```", re.DOTALL
)


def demo_files(environment: dict[str, str]) -> Path:
    """Return a folder in which the demo ran: once for all pages, because several of them begin with it."""
    cache = Path(os.environ.get("RANKBOUND_CACHE") or tempfile.mkdtemp())
    folder = cache / "pages"
    with FileLock(cache / "pages.lock"):
        if not (folder / "demo.log").exists():
            work = cache / "pages.partial"
            work.mkdir(parents=True)
            subprocess.run(DEMO, shell=True, cwd=work, env=environment, check=True, capture_output=True)
            work.rename(folder)
    return folder


def output_of(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Return what a command prints that must succeed: in this process, which takes less time, or in a shell."""
    if command.startswith("rankbound ") and not set("|<>;&*?$") & set(command):
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
            code = run(shlex.split(command)[1:])
        assert code == 0, f"{command}\n{errors.getvalue()}"
        return printed.getvalue()
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def run_page(text: str, folder: Path) -> str:
    """Return the page with the output that its examples print now; the folder is the working folder."""
    names: dict[str, object] = {}
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def console(block: str) -> str:
        lines = []
        for command in (line[2:] for line in block.splitlines() if line.startswith("$ ")):
            if command == DEMO:
                shutil.copytree(demo_files(environment), folder, dirs_exist_ok=True)
                lines.append(f"$ {command}")
                continue
            printed = output_of(command, folder, environment)
            lines += [f"$ {command}", *printed.rstrip("\n").splitlines()]
        return "\n".join(line.rstrip() for line in lines)

    def session(block: str) -> str:
        lines = []
        for statement in re.findall(r"^>>> (.*(?:\n\.\.\. .*)*)", block, re.MULTILINE):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(statement.replace("\n... ", "\n") + "\n", "<page>", "single"), names)
            lines += [f">>> {statement}", *printed.getvalue().rstrip("\n").splitlines()]
        return "\n".join(line.rstrip() for line in lines)

    def fresh(match: re.Match[str]) -> str:
        comments, needs, tolerance, kind, block = match.groups(default="")
        if needs and importlib.util.find_spec(needs) is None:
            return match.group()
        if kind == "console":
            body = console(block)
        elif ">>> " in block:
            body = session(block)
        else:  # a script: it must run, and its output is not shown
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block, "<page>", "exec"), names)
            return match.group()
        if same_within(f"{body}\n", block, float(tolerance or 0)):
            return match.group()
        return f"{comments}```{kind}\n{body}\n```"

    return BLOCK.sub(fresh, text)


def needs_data(page: Path) -> bool:
    """Whether a page works on real data, in the folder ``data``."""
    return "\n<!-- data: " in page.read_text()


@pytest.mark.cases(1)  # the first one is README.md
@pytest.mark.parametrize(
    "page", [page for page in PAGES if not needs_data(page)], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_examples_print_the_output_on_the_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    if "import ranx" in text and importlib.util.find_spec("ranx"):
        from tests import plain_ranx

        plain_ranx.use(monkeypatch)
    assert run_page(text, tmp_path) == text


@pytest.mark.full("reads real data")
@pytest.mark.real_data
@pytest.mark.parametrize("page", [page for page in PAGES if needs_data(page)], ids=lambda page: page.stem)
def test_tutorials_print_the_output_on_the_page(page, data_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(data_dir)
    text = page.read_text()
    assert run_page(text, tmp_path) == text


def test_every_code_block_is_found():
    for page in PAGES:
        fences = re.findall(r"^```(?:python|console).*", page.read_text(), re.MULTILINE)
        assert len(fences) == len(BLOCK.findall(page.read_text())), page


def test_links_are_valid():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            drawn = link.startswith("../figures/")  # by the build of the site
            assert "://" in link or drawn or (page.parent / link).exists(), f"{page}: {link}"


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]]
    assert [page for page in pages if f": {page}\n" not in navigation and not page.startswith("results/")] == []


@pytest.mark.parametrize("folder", ["concepts", "how-to", "tutorials"])
def test_pages_to_read_at_once_are_short(folder):
    lengths = {}
    for page in (ROOT / "docs" / folder).glob("*.md"):
        # code and formulas are no words
        text = re.sub(r"```.*?```|\\\(.*?\\\)", " ", page.read_text(), flags=re.DOTALL)
        lengths[page.name] = len(re.findall(r"[A-Za-z][\w'’-]*", text))
    assert lengths
    assert {name: words for name, words in lengths.items() if words > 1000} == {}


if __name__ == "__main__":
    for changed in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            if needs_data(changed):
                Path("data").symlink_to(data_folder_in_use())
            changed.write_text(run_page(changed.read_text(), Path(scratch)))
