"""1,200 generated hostile cases: the right value or one line and code 2; no traceback, and no file destroyed."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankbound.cli.main import run
from rankbound.models import AdaRank, Popularity

from . import command_inputs
from .generated import CLASSES, generate

CASES = 1_200
AT_ONCE = 60  # cases of one test
SAMPLE = range(0, CASES, 37)  # in the fast tier: some of each class
SECONDS = 60  # of one case, on a machine that is busy
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")  # what a terminal obeys
STUDY = """title = "t"
[[tables]]
data = { letor = "letor.txt" }
model = "AdaRank"
measures = ["nDCG", "AP"]
split = "query-folds"
folds = 4
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the commands, and one of everything that can be saved."""
    from rankbound.data import read_letor

    folder = tmp_path_factory.mktemp("template")
    command_inputs.write_files(folder)
    Popularity().fit(folder / "ratings.csv").save(folder / "popular")
    data = read_letor(folder / "letor.txt")
    AdaRank(n_estimators=2).fit(data.features, data.lists.labels, qid=data.lists.query_of_item).save(folder / "linear")
    (folder / "study.toml").write_text(STUDY)
    before = Path.cwd()
    os.chdir(folder)
    try:
        for command in (
            "reproduce study.toml --jobs 0 --no-page --store store --results results --json",
            "store export store -o store.zip --json",
            "references qrels.txt run.txt other.txt -m AP -o references.json --json",
            "gate qrels.txt run.txt --save baseline.json --json",
        ):
            assert run(command.split()) in (0, 3), command
    finally:
        os.chdir(before)
    return folder


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Every file with its content, and every link with its target."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


class SlowError(Exception):
    """A case took too long."""


def ring(*_: object) -> None:
    raise SlowError


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def attack(number: int, template: Path, work: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """Run a case; return what is wrong with its outcome, or nothing."""
    folder = work / f"case-{number}"
    shutil.copytree(template, folder)
    case = generate(number, folder)
    kept = {path: path.read_bytes() for path in case.kept}
    before = snapshot(folder)
    os.chdir(folder)
    signal.alarm(SECONDS)
    try:
        code = run(case.words)
    except BaseException as error:
        return f"raised {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        out, err = capfd.readouterr()
        os.chdir(work)
    problems = [
        f"destroyed {path}" for path, content in kept.items() if not path.exists() or path.read_bytes() != content
    ]
    if not stat.S_ISCHR(Path(os.devnull).stat().st_mode):
        problems.append("destroyed the null device")
    problems += outcome_problems(code, out, err, case.words)
    after = snapshot(folder)
    if code == 2:
        allowed = {name for name in after if Path(name).name in ("trials.sqlite-wal", "trials.sqlite-shm", "lock")}
        problems += [f"changed {name}" for name in before if after.get(name) != before[name]]
        problems += [f"wrote {name}" for name in after.keys() - before.keys() - allowed]
    else:
        inputs = [name for name in before if name.startswith("case-") or name in ("qrels.txt", "run.txt", "letor.txt")]
        problems += [f"changed {name}" for name in inputs if after.get(name) != before[name] and name not in case.words]
    if case.must_succeed and code != 0:
        problems.append(f"refused good files: {err}")
    if case.mean is not None and code == 0:
        mean = json.loads(out)["mean"]["AP"]
        if not math.isnan(case.mean) and not math.isclose(mean, case.mean, abs_tol=1e-12):
            problems.append(f"gave {mean} for {case.mean}")
    shutil.rmtree(folder, ignore_errors=True)
    return "; ".join(problems)


def outcome_problems(code: int, out: str, err: str, words: list[str]) -> list[str]:
    problems = []
    if code not in (0, 1, 2, 3):
        problems.append(f"ended with {code}: {err[-300:]}")
    if "Traceback" in err or "panicked" in err:
        problems.append(f"printed a traceback: {err[-600:]}")
    if CONTROL.search(out + err):
        problems.append("printed control characters")
    if code == 2:
        lines = [line for line in err.splitlines() if line.startswith("rankbound: ")]
        if out or len(lines) != 1 or err.splitlines()[-1:] != lines:
            problems.append(f"refused in other words: {out[:100]!r} {err[:300]!r}")
    elif code in (0, 1, 3) and "--json" in words:
        try:
            json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        except ValueError:
            problems.append(f"printed no JSON: {out[:200]!r}")
    return problems


def check(numbers: range, template: Path, work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = Path.cwd()
    try:
        problems = {number: attack(number, template, work, capfd) for number in numbers}
    finally:
        os.chdir(before)
    wrong = {number: text for number, text in problems.items() if text}
    assert not wrong, "\n".join(
        f"case {number} ({CLASSES[number % len(CLASSES)]}): {wrong[number]}" for number in wrong
    )


@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_the_cases(template: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], alarm: None) -> None:
    check(SAMPLE, template, tmp_path, capfd)


@pytest.mark.full("minutes")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, CASES, AT_ONCE))
def test_all_cases(first: int, template: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], alarm: None) -> None:
    check(range(first, first + AT_ONCE), template, tmp_path, capfd)
