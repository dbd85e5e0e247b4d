"""How numbers are written for people: on the page, in tables, in a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankbound.evaluation.inference import Inference


NO_TEST_OF_FEW = "groups of fewer than 5 queries have neither interval nor test"


def show_number(value: float | None, digits: int = 4, sign: bool = False) -> str:
    """A number with a true minus sign; a dash where there is none.

    >>> show_number(0.25), show_number(-0.25, sign=True), show_number(-1e-9, sign=True), show_number(None)
    ('0.2500', '−0.2500', '0.0000', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    rounded = round(value, digits) + 0.0  # -0.0 + 0.0 is 0.0
    text = f"{rounded:+.{digits}f}" if sign and rounded != 0 else f"{rounded:.{digits}f}"
    return text.replace("-", "−")


def show_interval(low: float | None, high: float | None, sign: bool = False) -> str:
    """Both ends; a dash where there is no interval.

    >>> show_interval(0.1, 0.2), show_interval(None, None)
    ('0.1000 to 0.2000', '–')
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "–"
    return f"{show_number(low, sign=sign)} to {show_number(high, sign=sign)}"


def show_p(value: float | None) -> str:
    """A p-value for a table.

    >>> show_p(0.0312), show_p(0.00002), show_p(1.0), show_p(None)
    ('0.0312', '< 0.0001', '1.0000', '–')
    """
    return "< 0.0001" if value is not None and value < 0.0001 else show_number(value)


def say_p(value: float) -> str:
    """A p-value in a sentence.

    >>> say_p(0.0312), say_p(0.00002)
    ('p = 0.0312', 'p < 0.0001')
    """
    text = show_p(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def in_interval(value: float, low: float | None, high: float | None) -> bool:
    """Whether the value lies between both ends.

    >>> in_interval(0.5, 0.4, 0.6), in_interval(0.5, None, None)
    (True, False)
    """
    return low is not None and high is not None and low <= value <= high


_TESTS = {"t": "paired t test", "wilcoxon": "Wilcoxon test", "randomization": "randomization test"}
_CORRECTIONS = {"holm": "Holm", "bonferroni": "Bonferroni", "benjamini-hochberg": "Benjamini-Hochberg"}


def show_correction(inference: Inference) -> str:
    """The correction in words.

    >>> from rankbound.evaluation.inference import Inference
    >>> show_correction(Inference()), show_correction(Inference(correction="none"))
    ('Holm-corrected', 'not corrected')
    """
    correction = _CORRECTIONS.get(inference.correction)
    return "not corrected" if correction is None else f"{correction}-corrected"


def show_policy(inference: Inference) -> str:
    """Test and correction in words.

    >>> from rankbound.evaluation.inference import Inference
    >>> show_policy(Inference()), show_policy(Inference(test="wilcoxon", correction="none"))
    ('paired t test, Holm-corrected', 'Wilcoxon test, not corrected')
    """
    return f"{_TESTS[inference.test]}, {show_correction(inference)}"


def describe_intervals(inference: Inference, which: str = "intervals") -> str:
    """A clause for the note of a table whose intervals are at the corrected level; empty without a correction.

    >>> from rankbound.evaluation.inference import Inference
    >>> describe_intervals(Inference()), describe_intervals(Inference(correction="none"))
    ('intervals at the corrected level; ', '')
    """
    return "" if inference.correction == "none" else f"{which} at the corrected level; "


def describe_inference(inference: Inference) -> dict[str, str]:
    """The policy for intervals and tests, as metadata of a page."""
    return {
        "Intervals": f"{100 * inference.confidence:g} %, {inference.interval}, {inference.resamples:,} resamples, "
        f"seed {inference.seed}",
        "Tests": show_policy(inference),
    }
