"""What the values of normalized measures mean, in a sentence each."""

from __future__ import annotations

from rankbound.measures import parse_measure

# by the name of the bounding or standardization
_SCALES = {
    "min-max": "is 0 for the worst and 1 for the best ranking of the candidates",
    "expectation": "is 1 for a random ranking of the candidates on average, and 2 for one that scores twice as much",
    "expectation-max": "is 0 for a random ranking of the candidates on average, and 1 for the best ranking",
    "z-score": "is in standard deviations of random rankings of the candidates, and 0 for a random ranking of the "
    "candidates on average",
    "distribution": "is the fraction of all rankings of the candidates that are no better",
    "UL1": "is lower than the plain measure by more, the higher a random ranking of the candidates scores",
    "UL2": "is 0 at the expected value of a random ranking of the candidates and 1 for the best ranking; its mean over "
    "random rankings is not 0, because it divides by different numbers above and below the expected value",
    "UL2-centered": "is 0 for a random ranking of the candidates on average, and 1 for the best ranking; values above "
    "and below the expected value of a random ranking are divided by different numbers",
    "normal": "is 0.5 at the mean of the reference runs on the same query, and 0.84 one standard deviation above it",
    "uniform": "is 0.5 at the mean of the reference runs on the same query, and 0.65 one standard deviation above it",
    "empirical": "is the fraction of the reference runs that are no better on the same query",
}


def describe_scale(measure: str) -> str:
    """What the values of a normalized measure mean, in a sentence; "" for plain measures.

    >>> describe_scale("EM(nDCG@10)")
    'EM(nDCG@10) is 0 for a random ranking of the candidates on average, and 1 for the best ranking.'
    >>> describe_scale("nDCG@10")
    ''
    """
    text = _SCALES.get(parse_measure(measure).bounding, "")
    return f"{measure} {text}." if text else ""
