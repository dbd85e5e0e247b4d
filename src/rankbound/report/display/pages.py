"""The pages of results."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from rankbound.display import page_of
from rankbound.evaluation.audit import Audit
from rankbound.evaluation.comparison import Comparison
from rankbound.report.audit import write_audit_page


@page_of.register(Comparison)
def write_comparison_page(
    comparison: Comparison, path: str | PathLike[str], *, title: str, about: Mapping[str, str] | None = None
) -> Path:
    """Write what the comparison found in words, its tables, figures, and a list of all queries."""
    from rankbound.report.numbers import describe_inference
    from rankbound.report.page import write_page

    candidates = {} if comparison.scores.candidates is None else {"Candidates": comparison.scores.candidates}
    signatures = {f"Signature of {name}": signature for name, signature in comparison.signature.items()}
    return write_page(
        path,
        scores=comparison.scores,
        title=title,
        about={**(about or {}), **candidates, **signatures, **describe_inference(comparison.inference)},
        baseline=comparison.baseline,
        inference=comparison.inference,
    )


@page_of.register(Audit)
def write_page_of_audit(
    result: Audit, path: str | PathLike[str], *, title: str, about: Mapping[str, str] | None = None
) -> Path:
    """Write the findings and tables of an audit; it says all that there is to say about itself."""
    del about
    return write_audit_page(result, path, title)
