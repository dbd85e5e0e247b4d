"""A word about compiling where it takes long, none where kernels are loaded."""

from __future__ import annotations

import pytest

from rankbound import losses
from rankbound.cli.kernels import ready_kernels


@pytest.mark.parametrize(("seconds", "said"), [(0.2, ""), (31.4, "compiled in 31 s")])
def test_compiling_is_reported_loading_is_not(monkeypatch, capsys, seconds, said):
    asked = []
    monkeypatch.setattr(losses, "warm_up", lambda *names: asked.append(names) or seconds)
    ready_kernels("lambda-nDCG")
    shown = capsys.readouterr()
    assert asked == [("lambda-nDCG",)]
    assert shown.out == ""
    assert said in shown.err
    assert bool(said) == bool(shown.err)
