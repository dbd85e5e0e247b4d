"""The command that measures the first use of losses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import first_use
from benchmarks.first_use import FIRST_BAR, SECOND_BAR, FirstUse, cases, main
from rankbound.losses import get_loss, loss_names


def test_one_loss_is_compiled_by_the_first_process_and_loaded_by_the_second(monkeypatch, capsys):
    folders = []
    run = subprocess.run

    def recording(*arguments, **options):
        done = run(*arguments, **options)
        files = Path(options["env"]["NUMBA_CACHE_DIR"]).rglob("*.nbc")
        folders.append({file.name: file.stat().st_mtime_ns for file in files})
        return done

    monkeypatch.setattr(first_use.subprocess, "run", recording)
    main(["ListNet", "--json"])  # has a small kernel; the exit code depends on how busy the machine is
    (result,) = json.loads(capsys.readouterr().out)["losses"]
    assert result.pop("loss") == "ListNet"
    assert len(result) == 4
    assert all(seconds > 0 for seconds in result.values())
    first, second = folders
    assert first  # it has compiled
    assert first == second  # and the second process has not


def test_every_loss_has_a_case():
    assert set(loss_names(10)) < set(cases())
    for name, options in cases().values():
        get_loss(name, **options)


@pytest.mark.parametrize(("first", "second", "code"), [(FIRST_BAR, SECOND_BAR, 0), (FIRST_BAR + 1, 0, 1), (1, 1, 1)])
def test_table_and_exit_code(monkeypatch, capsys, first, second, code):
    monkeypatch.setattr(first_use, "first_use", lambda case: FirstUse(case, first, 1.25, second, 0.25))
    assert main(["nDCG", "RR, form=ranks"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2
    assert lines[3].split()[:3] == ["RR,", "form=ranks", f"{first:.2f}"]
    assert ("misses a bar" in lines[2]) == (code == 1)


def test_an_unknown_loss_is_an_error_before_anything_is_measured(capsys):
    assert main(["nDCG", "bpref"]) == 2
    out, err = capsys.readouterr()
    assert "loss must be one of nDCG; DCG" in err
    assert "got 'bpref'" in err
    assert out == ""
