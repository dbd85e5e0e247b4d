"""Normalized measures and p-values as measures of ir_measures, and with it of PyTerrier's experiments.

ir_measures has a list of providers, each of which computes some measures. Importing this module adds a provider named
``rankbound`` to it and registers one measure for each wrapper (``EM``, ``MM``, ...), so that our measures and those of
other providers work in one call.

In ir_measures every judged query counts. A query that the run lacks is therefore an empty ranking here, in which all
candidates are tied: the values are those of ``rankbound.evaluate(qrels, run, ..., missing="zero")``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.judged import from_frames
from rankbound.data.sources import to_frame, to_lists
from rankbound.difficulty.p_values import PValues
from rankbound.errors import ArgumentError, CoverageWarning, MeasureError
from rankbound.evaluation import Evaluation, evaluate_lists
from rankbound.evaluation.combined_p_values import fisher
from rankbound.evaluation.lists import warn_of_coverage
from rankbound.measures.measure import BOUNDINGS, Measure, parse_measure
from rankbound.packages import import_package
from rankbound.protocol import CANDIDATES, EMPTY, TIES, Protocol, as_protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists

ir_measures: Any = import_package("ir_measures")
util = ir_measures.util

_P_VALUE, _BETTER, _PLAIN = "PValue", "BetterThanRandom", "Rankbound"
_LEVEL = 0.05  # of BetterThanRandom, without correction
_CHOICES = {
    "ties": TIES,
    "empty": EMPTY,
    "candidates": CANDIDATES,
}
_DEFAULTS = {name: choices[0] for name, choices in _CHOICES.items()}
_SUMMARIES = {
    _P_VALUE: "Probability that a random ranking scores at least as well; over queries, Fisher's combined p-value",
    _BETTER: f"1 where this p-value is below {_LEVEL:g}, else 0; the mean is the fraction of such queries",
    _PLAIN: "The plain measure as rankbound computes it, with ties averaged",
    **{wrapper: f"The measure normalized by the bounding {bounding!r}" for wrapper, bounding in BOUNDINGS.items()},
}


def ir_measure(
    measure: Any,
    protocol: Protocol | None = None,
    *,
    ties: str | None = None,
    empty: str | None = None,
    candidates: str | None = None,
) -> Any:
    """Make a measure of rankbound a measure of ir_measures, which PyTerrier's ``Experiment`` takes as well.

    Parameters
    ----------
    measure:
        A normalized measure, such as ``"EM(nDCG@10)"``. ``"PValue(nDCG@10)"`` is the p-value of each query against
        random rankings of its candidates, and ir_measures aggregates it by Fisher's method (PyTerrier shows the mean of
        any measure). ``"BetterThanRandom(nDCG@10)"`` is 1 where this p-value is below 0.05, so that its mean is the
        fraction of such queries, which is expected to be at most 0.05 for random rankings. A plain measure is called
        ``Rankbound(nDCG@10)``, because ir_measures has its own nDCG@10, which does not average ties.
    protocol:
        How runs are evaluated, see `rankbound.Protocol`; of its fields, ties, empty and candidates are used, which the
        arguments of these names replace.
    ties, candidates:
        As in `rankbound.evaluate`; ``candidates`` is "judged" or "returned". Where every query has a single judged
        document, as in MS MARCO, there is no choice among the judged ones: evaluate with the retrieved documents as
        candidates, ``rankbound.evaluate(..., candidates=...)``.
    empty:
        Queries without a value, because nothing is relevant or every ranking scores the same: "skip" gives NaN, with
        a warning, and leaves them out of the mean of ir_measures. Choose "zero" or "one" to count them in PyTerrier,
        whose mean is NaN otherwise.

    >>> import ir_measures
    >>> qrels = {"q1": {"a": 1, "b": 0, "c": 0}, "q2": {"a": 0, "b": 1}}
    >>> run = {"q1": {"a": 0.2, "b": 0.9, "c": 0.1}, "q2": {"a": 0.1, "b": 0.8}}
    >>> measures = [ir_measures.RR, ir_measure("MM(RR)"), ir_measure("PValue(RR)")]
    >>> results = ir_measures.calc_aggregate(measures, qrels, run)
    >>> [(measure, round(results[measure], 4)) for measure in measures]  # Fisher: of 2/3 and 1/2
    [(RR, 0.75), (MM(RR), 0.625), (PValue(RR), 0.6995)]

    The grammar of `ir_measures.parse_measure` has no measures as arguments. It takes them as text:

    >>> ir_measures.parse_measure("MM(measure='nDCG')@10") == ir_measure("MM(nDCG@10)")
    True
    """
    name, inner = _split(measure)
    fields = {"ties": ties, "empty": empty, "candidates": candidates}
    chosen = as_protocol(protocol, {field: value for field, value in fields.items() if value is not None})
    return _MEASURES[name](measure=inner, **{field: getattr(chosen, field) for field in fields})


def _split(measure: Any) -> tuple[str, str]:
    """The name under which a measure is registered with ir_measures, and the plain measure."""
    if isinstance(measure, str):
        outer, _, inner = measure.strip().partition("(")
        if outer.strip() in (_P_VALUE, _BETTER, _PLAIN) and inner.endswith(")"):
            return outer.strip(), inner[:-1]
    parsed = parse_measure(measure)
    if parsed.is_standardized:
        raise MeasureError(f"{parsed} needs reference runs, which ir_measures cannot pass: use rankbound.evaluate")
    wrapper = next((wrapper for wrapper, bounding in BOUNDINGS.items() if bounding == parsed.bounding), _PLAIN)
    return wrapper, str(parsed.plain)


# ---- measures --------------------------------------------------------------------------------------------------------


class _Measure(ir_measures.Measure):  # type: ignore[misc]  # ir_measures has no type information
    """A measure of rankbound. Objects of ir_measures are compared by how they print, so options are part of it."""

    SUPPORTED_PARAMS = {  # noqa: RUF012 - the interface of ir_measures
        "measure": ir_measures.measures.ParamInfo(dtype=str, required=True, desc="a plain measure, such as 'nDCG@10'"),
        "cutoff": ir_measures.measures.ParamInfo(dtype=int, required=False, desc="cutoff of the plain measure"),
        **{
            name: ir_measures.measures.ParamInfo(
                dtype=str, choices=list(choices), default=choices[0], desc=f"{name} of evaluate"
            )
            for name, choices in _CHOICES.items()
        },
    }

    def __init__(self, **params: Any) -> None:
        cutoff = params.pop("cutoff", None)
        if "measure" in params:
            inner = parse_measure(params["measure"])
            if cutoff is not None:
                inner = parse_measure(f"{_without_cutoff(inner)}@{cutoff}")
            params["measure"] = str(self._checked(inner).plain)
        for name, choices in _CHOICES.items():
            if params.get(name, choices[0]) not in choices:
                raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {params[name]!r}")
        super().__init__(**{name: value for name, value in params.items() if value != _DEFAULTS.get(name)})

    def _checked(self, inner: Measure) -> Measure:
        if inner.bounding != "none":
            raise MeasureError(f"{self.NAME} takes a plain measure, got {inner}")
        return inner.bounded(BOUNDINGS.get(self.NAME, "none"))  # raises for measures that the bounding cannot take

    @property
    def requested(self) -> Measure:
        """The measure that rankbound evaluates."""
        return self._checked(parse_measure(self.params["measure"]))

    @property
    def options(self) -> tuple[str, ...]:
        """The values of ties, empty and candidates."""
        return tuple(self.params.get(name, default) for name, default in _DEFAULTS.items())

    def __repr__(self) -> str:
        parts = [self.params.get("measure", "")]
        parts += [f"{name}={self.params[name]!r}" for name in _DEFAULTS if name in self.params]
        return f"{self.NAME}({', '.join(parts)})"

    def aggregator(self) -> Any:
        """Fisher's method for p-values, the mean for their comparison with a level, `Evaluation.mean` otherwise."""
        if self.NAME == _P_VALUE:
            return _Aggregate(fisher)
        return ir_measures.measures.MeanAgg() if self.NAME == _BETTER else _Aggregate(self._mean)

    def _mean(self, values: list[float]) -> float:
        name = str(self.requested)
        return Evaluation(values, {name: np.array(values)}, {}).mean()[name]


def _without_cutoff(measure: Measure) -> str:
    return str(measure).rpartition("@")[0] or str(measure)


class _NoEvidence(float):
    """The p-value 1 of a query on which every ranking scores the same; combinations of p-values leave it out."""


class _Aggregate:
    """Collects the values of all queries, in the interface of ir_measures."""

    def __init__(self, combine: Callable[[list[float]], float]) -> None:
        self._combine = combine
        self._values: list[float] = []

    def add(self, value: float) -> None:
        if not isinstance(value, _NoEvidence):
            self._values.append(value)

    def result(self) -> float:
        return self._combine(self._values)


# ---- provider --------------------------------------------------------------------------------------------------------


class _Provider(ir_measures.providers.Provider):  # type: ignore[misc]
    """Computes the measures above."""

    NAME = "rankbound"

    def supports(self, measure: Any) -> bool:
        if measure.NAME in _SUMMARIES and hasattr(measure, "requested"):
            measure.validate_params()
            return True
        return False

    def _evaluator(self, measures: Iterable[Any], qrels: Any) -> _Evaluator:
        return _Evaluator(list(measures), qrels)


class _Evaluator(ir_measures.providers.Evaluator):  # type: ignore[misc]
    """Evaluates runs against judgments that are read once."""

    def __init__(self, measures: list[_Measure], qrels: Any) -> None:
        self._qrels = _source(util.QrelsConverter(qrels), "qrels", "relevance")
        super().__init__(measures, _query_ids(self._qrels))

    def _iter_calc(self, run: Any) -> Iterator[Any]:
        if not self.qrel_qids:
            return
        run = _source(util.RunConverter(run), "run", "score")
        lists = self._lists(run)
        by_name = {
            str(query): query for query in self.qrel_qids
        }  # tables with ids of different types are compared as text
        queries = [by_name[str(query)] for query in lists.query_ids]
        for options in sorted({measure.options for measure in self.measures}):
            group = [measure for measure in self.measures if measure.options == options]
            for measure, values in _values(group, lists, dict(zip(_DEFAULTS, options, strict=True))):
                yield from (util.Metric(query, measure, value) for query, value in zip(queries, values, strict=True))

    def _lists(self, run: Any) -> Lists:
        same: Callable[[Any], Any] = _unchanged if isinstance(self._qrels, dict) and isinstance(run, dict) else str
        if not {same(query) for query in self.qrel_qids}.isdisjoint(map(same, _query_ids(run))):
            return to_lists(self._qrels, run, missing="zero")
        if len(run):
            text = "qrels and run have no query in common: every query counts as an empty ranking"
            warnings.warn(text, CoverageWarning, stacklevel=2)
        judgments = to_frame(self._qrels, "label")
        nothing = judgments.clear().select("qid", "docid", score="label")
        return from_frames(judgments, nothing, missing="zero", disjoint=True)


def _values(measures: list[_Measure], lists: Lists, options: dict[str, Any]) -> Iterator[tuple[_Measure, list[float]]]:
    """The measures with their values for the queries of the lists."""
    for need_p_values in (False, True):  # distributions take time, so only where p-values are wanted
        group = [measure for measure in measures if (measure.NAME in (_P_VALUE, _BETTER)) == need_p_values]
        if not group:
            continue
        requested = {str(measure.requested): measure.requested for measure in group}
        result = evaluate_lists(lists, requested, Protocol(**options), against_random=need_p_values)
        warn_of_coverage(result.warnings, stacklevel=2)
        for measure in group:
            name = str(measure.requested)
            if need_p_values:
                yield measure, _p_values(measure.NAME, result.p_values[name])
            else:
                _warn_of_nan(measure, result.values[name])
                yield measure, result.values[name].tolist()


def _warn_of_nan(measure: _Measure, values: NDArray[np.float64]) -> None:
    count = int(np.isnan(values).sum())
    if count:
        text = f"{measure} has no value on {count} of {len(values)} queries, which are NaN and left out of its mean"
        warnings.warn(f"{text}; empty='zero' counts them as 0", stacklevel=2)


def _p_values(name: str, p: PValues) -> list[float]:
    if name == _BETTER:
        return (p.better < _LEVEL).astype(float).tolist()  # type: ignore[no-any-return]
    return [value if choice else _NoEvidence(value) for value, choice in zip(p.better.tolist(), p.choice, strict=True)]


def _source(converter: Any, side: str, number: str) -> Any:
    """Judgments or a run as a pandas frame, if that is what they are, else as a dict."""
    kind, problem = converter.predict_type()
    if kind == "UNKNOWN":
        raise ValueError(f"unknown {side} format: {problem}")  # as the providers of ir_measures do
    if kind == "pd_dataframe":
        return converter.as_pd_dataframe()[["query_id", "doc_id", number]]
    return converter.as_dict_of_dict()


def _unchanged(identifier: Any) -> Any:
    return identifier


def _query_ids(source: Any) -> set[Any]:
    return set(source["query_id"].unique()) if hasattr(source, "columns") else set(source)


def _register() -> dict[str, _Measure]:
    """Make measures and provider known to ir_measures; a second call, as by a reload, replaces those of the first."""
    measures = {}
    for name, summary in _SUMMARIES.items():
        attributes = {"NAME": name, "__name__": name, "PRETTY_NAME": name, "SHORT_DESC": summary, "__doc__": summary}
        measures[name] = type(f"_{name}", (_Measure,), attributes)()
    ir_measures.measures.registry.update(measures)
    provider = _Provider()
    ir_measures.providers.registry[provider.NAME] = provider
    pipeline = ir_measures.DefaultPipeline
    pipeline.providers = [*(known for known in pipeline.providers if known.NAME != provider.NAME), provider]
    return measures


_MEASURES = _register()
