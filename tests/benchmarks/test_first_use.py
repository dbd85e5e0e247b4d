"""The command that measures the first use of losses."""

from __future__ import annotations

import json

import pytest

from benchmarks import first_use
from benchmarks.first_use import BAR, FirstUse, cases, main
from rankbound.losses import get_loss, loss_names

pytestmark = pytest.mark.full("tests of the benchmarks")


def test_one_loss_in_a_fresh_process(capsys):
    main(["ListNet", "--json"])  # the exit code depends on how busy the machine is
    (result,) = json.loads(capsys.readouterr().out)["losses"]
    assert result.pop("loss") == "ListNet"
    assert len(result) == 2
    assert all(seconds > 0 for seconds in result.values())


def test_every_loss_has_a_case():
    assert set(loss_names(10)) < set(cases())
    for name, options in cases().values():
        get_loss(name, **options)


@pytest.mark.parametrize(("wall", "code"), [(BAR, 0), (BAR + 1, 1)])
def test_table_and_exit_code(monkeypatch, capsys, wall, code):
    monkeypatch.setattr(first_use, "first_use", lambda case: FirstUse(case, wall, 0.25))
    assert main(["nDCG", "RR, form=ranks"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2
    assert lines[2].split()[:3] == ["RR,", "form=ranks", f"{wall:.2f}"]
    assert ("misses the bar" in lines[1]) == (code == 1)


def test_an_unknown_loss_is_an_error_before_anything_is_measured(capsys):
    assert main(["nDCG", "bpref"]) == 2
    out, err = capsys.readouterr()
    assert "loss must be one of nDCG; DCG" in err
    assert "got 'bpref'" in err
    assert out == ""
