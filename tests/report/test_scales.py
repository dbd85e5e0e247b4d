"""What the page says about normalized measures is true of all rankings of a query."""

from __future__ import annotations

import re
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import norm

import rankbound as rb
from rankbound.difficulty.standardization import standardize
from rankbound.measures.measure import BOUNDINGS, STANDARDIZATIONS
from rankbound.report.scales import describe_scale

LABELS = [2, 1, 0, 0, 0, 0]


@pytest.fixture(scope="module")
def orders() -> rb.Lists:
    """Every order of the labels as a query of its own."""
    every = list(permutations(LABELS))
    n = len(LABELS)
    scores = np.tile(np.arange(n, 0, -1.0), len(every))
    return rb.Lists(np.concatenate(every), np.arange(0, n * len(every) + 1, n), scores)


def of_all_orders(orders, name):
    return rb.evaluate(orders, ["nDCG", name]).values[name]


@pytest.mark.parametrize("wrapper", [*BOUNDINGS, *STANDARDIZATIONS])
def test_every_wrapper_is_described(wrapper):
    assert describe_scale(f"{wrapper}(nDCG@10)").startswith(f"{wrapper}(nDCG@10) is ")
    assert describe_scale("nDCG@10") == ""


@pytest.mark.parametrize("wrapper", BOUNDINGS)
def test_scales_are_as_described(orders, wrapper):
    text, values = describe_scale(f"{wrapper}(nDCG)"), of_all_orders(orders, f"{wrapper}(nDCG)")
    plain = of_all_orders(orders, "nDCG")
    if "0 for a random ranking of the candidates on average" in text:
        assert values.mean() == pytest.approx(0, abs=1e-9)
    if "1 for a random ranking of the candidates on average" in text:
        assert values.mean() == pytest.approx(1)
        assert values == pytest.approx(plain / plain.mean())
    if re.search(r"1 for the best ranking", text):
        assert values.max() == pytest.approx(1)
    if "0 for the worst" in text:
        assert values.min() == pytest.approx(0)
    if "standard deviations of random" in text:
        assert values.std() == pytest.approx(1)
    if "fraction of all rankings" in text:
        assert values == pytest.approx([(plain <= x + 1e-12).mean() for x in plain])
    if "is not 0" in text:
        assert abs(values.mean()) > 0.01
        assert np.interp(plain.mean(), *zip(*sorted(zip(plain, values, strict=True)), strict=True)) == pytest.approx(
            0, abs=0.05
        )
    if "lower than the plain measure" in text:
        assert (values <= plain + 1e-12).all()


def test_standardized_scales_are_as_described():
    references = np.array([[0.1], [0.3], [0.5]])
    mean, deviation = references.mean(), references.std(ddof=1)
    at, twice = np.array([mean, mean + deviation]), np.repeat(references, 2, axis=1)
    assert standardize(at, twice, "normal") == pytest.approx([0.5, norm.cdf(1)])
    assert norm.cdf(1) == pytest.approx(0.84, abs=0.005)
    assert standardize(at, twice, "uniform") == pytest.approx([0.5, 0.65])
    for wrapper in ("STD", "STDU"):
        assert "is 0.5 at the mean of the reference runs" in describe_scale(f"{wrapper}(AP)")
    assert "0.84" in describe_scale("STD(AP)")
    assert "0.65" in describe_scale("STDU(AP)")
