"""Any numbers at all, by Hypothesis: results are sound, or the numbers are refused by name."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.tiers import examples

pytest.importorskip("torch")

import torch

import rankbound as rb
from rankbound.evaluation import significance
from rankbound.losses import gradient_and_hessian

from .callables import LOSSES, MEASURES
from .test_arrays import outcome

ANY_KIND = st.sampled_from(["f8", ">f8", "f4", "f2", "i8", ">i4", "u8", "i1", "?"])


@st.composite
def arrays(draw: st.DrawFn, size: int) -> np.ndarray:
    """Numbers of any type and value, in any layout."""
    values = draw(hnp.arrays(draw(ANY_KIND), size))
    layout = draw(st.sampled_from(["plain", "strided", "reversed", "read-only"]))
    if layout == "strided":
        return np.repeat(values, 2)[::2]
    if layout == "reversed":
        return values[::-1]
    if layout == "read-only":
        values.flags.writeable = False
    return values


def is_plain(values: np.ndarray) -> bool:
    """Whether the numbers are such that nobody could refuse them."""
    wide = values.astype(np.float64)
    return bool(np.isfinite(wide).all() and (np.abs(wide) < 1e9).all())


sizes = st.integers(1, 7)
few = examples(60, database=None)


@few
@given(sizes.flatmap(lambda n: st.tuples(arrays(n), arrays(n))))
def test_evaluate(both: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = both
    before = labels.copy(), scores.copy()

    def find() -> Any:
        lists = rb.Lists(labels, [0, len(labels)], scores)
        return rb.evaluate(lists, MEASURES, empty="zero", bounds=True)

    result = outcome(find, "labels", "scores")
    np.testing.assert_array_equal(labels, before[0])
    np.testing.assert_array_equal(scores, before[1])
    if result is None:
        return
    for name in ("nDCG@3", "AP", "RR", "P@2", "nRBP"):
        bounds = result.bounds[name]
        assert bounds.worst[0] - 1e-9 >= 0 or bounds.worst[0] >= -1e-9
        assert bounds.worst[0] - 1e-9 <= result.values[name][0] <= bounds.best[0] + 1e-9, name


@few
@given(sizes.flatmap(lambda n: st.tuples(arrays(n), arrays(n))))
def test_plain_numbers_are_never_refused(both: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = both
    if is_plain(labels) and is_plain(scores):
        assert len(rb.Lists(labels, [0, len(labels)], scores)) == 1


@pytest.mark.parametrize("name", LOSSES)
@examples(25, database=None)
@given(both=sizes.flatmap(lambda n: st.tuples(arrays(n), arrays(n))))
def test_losses(name: str, both: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = both
    outcome(lambda: gradient_and_hessian(LOSSES[name], scores, labels, [0, len(labels)]), "labels", "scores")
    if scores.dtype.isnative and scores.dtype.kind == "f" and scores.strides[0] > 0 and scores.flags.writeable:
        tensor = torch.from_numpy(scores)
        outcome(lambda: LOSSES[name](tensor, labels, [0, len(labels)]), "labels", "scores")


@few
@given(sizes.flatmap(arrays))
def test_significance(differences: np.ndarray) -> None:
    for test in (significance.paired_t, significance.wilcoxon):
        p = outcome(lambda test=test: test(differences), "differences")
        assert p is None or 0 <= p <= 1
    for test in (significance.randomization, significance.studentized_bootstrap):
        p = outcome(lambda test=test: test(differences, resamples=20), "differences")
        assert p is None or 0 <= p <= 1


@few
@given(sizes.flatmap(arrays))
def test_bounds_and_distributions(labels: np.ndarray) -> None:
    for measure in ("nDCG", "nDCG(dcg='exp-log2')", "AP", "RBP(gain='graded')"):
        bounds = outcome(lambda measure=measure: rb.bounds(measure, labels=labels), "labels")
        if bounds is not None:
            assert bounds.worst - 1e-9 <= bounds.expected <= bounds.best + 1e-9, measure
    outcome(lambda: rb.distribution("nDCG", labels=labels, cache=False), "labels")


@few
@given(sizes.flatmap(lambda n: st.tuples(arrays(n), arrays(n))))
def test_weights_and_types(both: tuple[np.ndarray, np.ndarray]) -> None:
    first, second = both
    outcome(lambda: rb.difficulty_weights(first, second, per="row"), "labels", "qid")
    for quota in (None, 0.25):
        types = functools.partial(rb.query_types, best=1.0, worst=second, quota=quota)
        outcome(lambda types=types: types(first, second), "value", "expected", "worst")
