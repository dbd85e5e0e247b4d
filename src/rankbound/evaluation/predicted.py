"""Predicted labels for all queries and human labels for some: intervals that hold however bad the predictions are.

A model, such as an LLM judge, has labeled documents of all N queries; people have labeled those of a random sample of
n. With x the value of a measure by the human labels and y that by the predicted labels,

    mean = mean over the sample of (x - w y) + w * (mean of y over the other queries),

which has no bias whatever the predictions and the weight w are, and the least variance for
w = cov(x, y) / ((1 + n/(N - n)) var(y)): prediction-powered inference with a tuned weight (Angelopoulos, Duchi & Zrnic,
PPI++: Efficient prediction-powered inference, 2023; for rankings Oosterhuis et al., Reliable confidence intervals for
information retrieval evaluation using generative AI, KDD 2024). Useless predictions have a weight near 0, and the
interval is that of the human labels alone. The same holds for the difference of two runs, with differences for x and y.

The variance is var(x - w y)/n + w^2 var(y)/(N - n). As the weight is estimated from the sample, squared residuals are
divided by 1 - leverage (HC2, MacKinnon & White 1985), the first part has n - 2 degrees of freedom, and the interval is
Student's with the degrees of freedom of the sum (Satterthwaite).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special, stats

from rankbound.arrays import floats
from rankbound.data.frames import with_equal_id_types
from rankbound.data.sources import to_frame
from rankbound.errors import ArgumentError, DataError, InferenceWarning
from rankbound.evaluation.resampling import check_confidence
from rankbound.evaluation.result import Evaluations
from rankbound.evaluation.runs import evaluate

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import ArrayLike, NDArray

FEWEST = 3  # human values: n - 2 degrees of freedom


@dataclass(frozen=True, slots=True)
class PredictedMean:
    """A mean from predicted labels for all queries and human labels for a sample of them.

    ``human_mean`` with its interval is that of the human labels alone, and ``predicted_mean`` that of the predicted
    labels of all queries; ``weight`` is that of the predictions.
    """

    mean: float
    low: float
    high: float
    weight: float
    human_mean: float
    human_low: float
    human_high: float
    predicted_mean: float
    human_queries: int
    queries: int


def predicted_mean(
    human: ArrayLike, predicted: ArrayLike, predicted_rest: ArrayLike, *, confidence: float = 0.95
) -> PredictedMean:
    """The mean of a value over queries, from human values of a random sample and predicted values of all queries.

    Parameters
    ----------
    human, predicted:
        Values of the queries of the sample by human and by predicted labels, at least 3.
    predicted_rest:
        Values of the other queries by predicted labels.
    confidence:
        Level of the interval.

    >>> found = predicted_mean([0.4, 0.6, 0.5, 0.9], [0.5, 0.7, 0.6, 1.0], [0.6, 0.7, 0.8])  # predicted = human + 0.1
    >>> round(found.mean, 4), round(found.weight, 4)
    (0.6, 0.75)
    """
    check_confidence(confidence)
    x, y, rest = (
        floats(name, values)
        for name, values in (
            ("human", human),
            ("predicted", predicted),
            ("predicted_rest", predicted_rest),
        )
    )
    if len(x) != len(y):
        raise ArgumentError(f"human and predicted must have a value for each query, got {len(x)} and {len(y)}")
    if len(x) < FEWEST:
        raise ArgumentError(f"human labels are needed for at least {FEWEST} queries, got {len(x)}")
    n, others = len(x), len(rest)
    spread = float(np.var(np.concatenate((y, rest)), ddof=1))
    weight = 0.0
    if others > 1 and spread > 0:
        weight = float(np.cov(x, y)[0, 1] / ((1 + n / others) * spread))
        weight = min(max(weight, 0.0), 1.0)
    residual = x - weight * y
    parts = [(float(np.var(residual, ddof=1)) / n, n - 1)]
    if weight:
        parts = [
            (_variance_of_mean(residual, y), n - 2),
            (weight**2 * float(np.var(rest, ddof=1)) / others, others - 1),
        ]
    mean = float(residual.mean() + (weight * rest.mean() if weight else 0.0))
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts) if variance > 0 else n - 1
    half = float(special.stdtrit(freedom, (1 + confidence) / 2)) * variance**0.5
    alone = float(special.stdtrit(n - 1, (1 + confidence) / 2)) * float(np.std(x, ddof=1)) / n**0.5
    human_mean = float(x.mean())
    return PredictedMean(
        mean,
        mean - half,
        mean + half,
        weight,
        human_mean,
        human_mean - alone,
        human_mean + alone,
        float(np.concatenate((y, rest)).mean()),
        n,
        n + others,
    )


def _variance_of_mean(residual: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """The variance of the mean residual; queries with extreme predictions fit best, so that 1 - leverage divides."""
    centered = predicted - predicted.mean()
    leverage = 1 / len(predicted) + centered**2 / max(float((centered**2).sum()), np.finfo(float).tiny)
    scaled = (residual - residual.mean()) ** 2 / np.maximum(1 - leverage, 1 / len(predicted))
    return float(scaled.sum()) / len(predicted) ** 2


# ---- runs ------------------------------------------------------------------------------------------------------------

_SUSPICIOUS = 0.01  # p-value below which the human sample does not look random


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far predicted and human labels agree on the documents that have both.

    ``confusion`` has a row per human grade and a column per predicted grade, and ``kappa`` is Cohen's.
    """

    documents: int
    grades: tuple[float, ...]
    confusion: tuple[tuple[int, ...], ...]
    kappa: float


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """The mean of a measure for a run; with a ``baseline``, the mean difference, run minus baseline."""

    measure: str
    run: str
    baseline: str | None
    result: PredictedMean


@dataclass(frozen=True, eq=False)
class PredictedEvaluation:
    """The result of `evaluate_predicted`: a row per measure and run, then one per measure and difference."""

    rows: tuple[PredictedRow, ...]
    agreement: Agreement
    confidence: float
    warnings: tuple[str, ...]

    def mean(self) -> dict[str, dict[str, float]]:
        """The mean of every measure for each run."""
        result: dict[str, dict[str, float]] = {}
        for row in self.rows:
            if row.baseline is None:
                result.setdefault(row.run, {})[row.measure] = row.result.mean
        return result

    @property
    def table(self) -> pl.DataFrame:
        """The rows as a frame."""
        import polars as pl

        rows = [
            {"measure": row.measure, "run": row.run, "baseline": row.baseline, **asdict(row.result)}
            for row in self.rows
        ]
        return pl.DataFrame(rows, schema_overrides={"baseline": pl.String})

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "rows": self.table.to_dicts(),
            "agreement": asdict(self.agreement),
            "confidence": self.confidence,
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        means = ", ".join(
            f"{row.run} {row.measure}={row.result.mean:.4f} [{row.result.low:.4f}, {row.result.high:.4f}]"
            for row in self.rows
            if row.baseline is None
        )
        return f"PredictedEvaluation({means}; kappa={self.agreement.kappa:.2f})"


def evaluate_predicted(
    qrels: Any,
    predicted: Any,
    runs: Mapping[str, Any],
    measures: Any = None,
    *,
    confidence: float = 0.95,
    **options: Any,
) -> PredictedEvaluation:
    """Evaluate runs by predicted labels for all queries and human labels for a random sample of them.

    Parameters
    ----------
    qrels:
        Human judgments of the sample, in any form that `rankbound.evaluate` takes: at least 3 queries, chosen at
        random. Their documents without a human judgment count as label 0.
    predicted:
        Labels of a model for all queries, those of the sample too; of the same grades.
    runs:
        Runs by name, ``{name: run}``. Each is also compared with the first.
    measures, options:
        As in `rankbound.evaluate`; queries for which a measure is not defined count as 0 unless ``empty`` says "one".
    confidence:
        Level of the intervals, which are about the population of queries that the sample comes from.

    Warns
    -----
    InferenceWarning
        If the sample does not look random: its queries are not spread over the order of the queries, or they differ
        from the others by the predicted labels.
    """
    check_confidence(confidence)
    if options.setdefault("empty", "zero") == "skip":
        raise ArgumentError(
            "empty must be 'zero' or 'one' with predicted labels: which queries are empty is predicted, too"
        )
    human_labels, predicted_labels = with_equal_id_types([to_frame(qrels, "label"), to_frame(predicted, "label")])
    agreement = agreement_of(human_labels, predicted_labels)
    by_human = evaluate(human_labels, dict(runs), measures, **options)
    by_model = evaluate(predicted_labels, dict(runs), measures, **options)
    order = [str(name) for name in predicted_labels["qid"].unique(maintain_order=True)]
    names = list(runs)
    sample, values = _aligned_values(by_human, by_model, names, order)
    if sample.sum() < FEWEST:
        raise ArgumentError(
            f"human labels are needed for at least {FEWEST} queries of the predicted ones, got {sample.sum()}"
        )
    rows = []
    for baseline in (None, names[0]):
        for measure, (human, model) in values.items():
            for at, name in enumerate(names):
                if baseline is None or at > 0:
                    x, y = (part[at] - (0.0 if baseline is None else part[0]) for part in (human, model))
                    found = predicted_mean(x[sample], y[sample], y[~sample], confidence=confidence)
                    rows.append(PredictedRow(measure, name, baseline, found))
    notes = _notes_on_sample(sample, next(iter(values.values()))[1].mean(axis=0))
    for note in notes:
        warnings.warn(note, InferenceWarning, stacklevel=2)
    return PredictedEvaluation(tuple(rows), agreement, confidence, notes)


def _aligned_values(
    by_human: Evaluations, by_model: Evaluations, names: Sequence[str], order: Sequence[str]
) -> tuple[NDArray[np.bool_], dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]]:
    """Queries that have human labels, and by measure the human and the predicted values, runs x queries."""
    of_human, of_model = (
        {
            name: dict(zip(map(str, result.query_ids), range(result.queries), strict=True))
            for name, result in results.items()
        }
        for results in (by_human, by_model)
    )
    queries = [q for q in order if all(q in of_model[name] for name in names)]
    sample = np.array([all(q in of_human[name] for name in names) for q in queries], dtype=bool)
    values = {}
    for measure in by_model[names[0]].measures:
        human = np.full((len(names), len(queries)), np.nan)
        model = np.empty_like(human)
        for row, name in enumerate(names):
            model[row] = by_model[name].values[measure][[of_model[name][q] for q in queries]]
            at = [of_human[name][q] for q, known in zip(queries, sample, strict=True) if known]
            human[row, sample] = by_human[name].values[measure][at]
        values[measure] = human, model
    return sample, values


def agreement_of(human: pl.DataFrame, predicted: pl.DataFrame) -> Agreement:
    """How far two tables of judgments agree; DataError if they have no document in common, or other grades."""
    grades = np.unique(np.maximum(np.append(human["label"].to_numpy(), 0), 0))
    other = np.setdiff1d(np.maximum(predicted["label"].to_numpy(), 0), grades)
    if len(other):
        known = ", ".join(f"{grade:g}" for grade in grades)
        raise DataError(f"predicted labels must be grades of the human labels ({known}), got {other[0]:g}")
    both = human.join(predicted, on=["qid", "docid"], how="inner", suffix="_predicted")
    if len(both) == 0:
        raise DataError("no document has a human and a predicted label: do their ids match?")
    rows, columns = (
        np.searchsorted(grades, np.maximum(both[name].to_numpy(), 0)) for name in ("label", "label_predicted")
    )
    confusion = np.zeros((len(grades), len(grades)), dtype=np.int64)
    np.add.at(confusion, (rows, columns), 1)
    observed = float(np.trace(confusion)) / len(both)
    expected = float(confusion.sum(axis=0) @ confusion.sum(axis=1)) / len(both) ** 2
    kappa = (observed - expected) / (1 - expected) if expected < 1 else float("nan")
    return Agreement(len(both), tuple(grades.tolist()), tuple(map(tuple, confusion.tolist())), kappa)


def _notes_on_sample(sample: NDArray[np.bool_], predicted: NDArray[np.float64]) -> tuple[str, ...]:
    """Sentences on a sample of queries that does not look random."""
    if sample.all():
        return ()
    notes = []
    position = np.arange(len(sample))
    for what, values in (
        ("are not spread over the order of the queries", position),
        ("differ from the others by their predicted values", predicted),
    ):
        p = float(stats.mannwhitneyu(values[sample], values[~sample]).pvalue)
        if p < _SUSPICIOUS:
            notes.append(
                f"the queries with human labels {what} (p = {p:.2g}): the intervals hold for random samples only"
            )
    return tuple(notes)
