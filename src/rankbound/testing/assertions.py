"""Assertions on rankings, for the tests of a search or RAG system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankbound.evaluation.gate import FAIL, PASS, gate
from rankbound.report.gate import gate_markdown

if TYPE_CHECKING:
    from rankbound.evaluation.gate import Gate


def assert_no_regression(
    qrels: Any,
    baseline: Any,
    run: Any,
    measures: Any = "nDCG@10",
    *,
    margin: float,
    may_be_unclear: bool = False,
    **options: Any,
) -> Gate:
    """Raise AssertionError unless a loss of the margin or more is ruled out; see `rankbound.gate`.

    ``may_be_unclear`` accepts "cannot tell" too, so that only an established loss fails the test. ``options`` are those
    of `rankbound.gate`. The result is returned.

    >>> qrels = {f"q{i}": {"a": 1, "b": 0} for i in range(20)}
    >>> good = {query: {"a": 0.9, "b": 0.1} for query in qrels}
    >>> assert_no_regression(qrels, good, good, "RR", margin=0.02)
    Gate(pass; RR: +0.0000; margin=0.02)
    """
    __tracebackhide__ = True  # pytest shows the call, not this function
    result = gate(qrels, baseline, run, measures, margin=margin, **options)
    accepted = result.outcome != FAIL if may_be_unclear else result.outcome == PASS
    if not accepted:
        raise AssertionError(gate_markdown(result))
    return result
