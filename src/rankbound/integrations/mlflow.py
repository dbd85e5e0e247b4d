"""Results in experiment trackers: MLflow, and every tracker that has a method ``log_metric(name, value)``."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.errors import ArgumentError
from rankbound.evaluation import Evaluation
from rankbound.packages import import_package

if TYPE_CHECKING:
    from rankbound.evaluation.scores import ScoreMatrix

_LONGEST = 240  # characters of a name; MLflow allows 250, with the suffix of a limit


def log_to_mlflow(
    result: Any,
    *,
    prefix: str = "",
    step: int | None = None,
    interval: bool = True,
    per_query: bool = True,
    page: bool = True,
) -> dict[str, float]:
    """Log a result to the active run of MLflow, or to a new run; see `log_to` for the arguments and what is logged."""
    mlflow = import_package("mlflow")
    return log_to(mlflow, result, prefix=prefix, step=step, interval=interval, per_query=per_query, page=page)


def log_to(
    tracker: Any,
    result: Any,
    *,
    prefix: str = "",
    step: int | None = None,
    interval: bool = True,
    per_query: bool = True,
    page: bool = True,
) -> dict[str, float]:
    """Log the means of a result as metrics and its tables and page as files, and return the metrics.

    A metric has the name of its measure in letters, digits and ``_-. /`` only: ``EM(nDCG@10)`` is logged as
    ``EM_nDCG_at_10``. The ends of its confidence interval are ``EM_nDCG_at_10_low`` and ``EM_nDCG_at_10_high``. With
    several runs, the name of the run and a slash come first. A mean that no query counts for is left out.

    The files are ``result.json`` (everything but the values per query), ``per_query.csv``, ``differences.csv`` of a
    comparison, and ``report.html``. The page of a comparison of runs has every query and the figures; that of
    evaluations has the findings and tables. A tracker without ``log_text`` and ``log_artifact`` gets metrics only.

    Parameters
    ----------
    tracker:
        An object with ``log_metric(name, value)``, which is called with ``step=`` too if a step is given. Files are
        passed to its ``log_text(text, name)`` or else, as paths, to its ``log_artifact(path)``.
    result:
        An `Evaluation`, a dict of them by run, a `Comparison`, or another object with ``mean()`` and, for the files,
        ``interval()``, ``per_query`` and ``to_dict()``.
    prefix:
        What the names of metrics and files start with, such as ``"test/"``.
    step:
        Step of the training, for instance the epoch.
    interval, per_query, page:
        Whether to log confidence intervals, the table of queries, and the page.

    >>> from rankbound import evaluate
    >>> class Tracker:
    ...     def log_metric(self, name, value):
    ...         print(name, round(value, 4))
    >>> qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 0, "b": 1}}
    >>> result = evaluate(qrels, {"q1": {"a": 0.2, "b": 0.9}, "q2": {"a": 0.1, "b": 0.8}}, ["RR", "EM(nDCG@10)"])
    >>> metrics = log_to(Tracker(), result, interval=False, page=False)
    RR 0.75
    EM_nDCG_at_10 0.0
    """
    if not callable(getattr(tracker, "log_metric", None)):
        raise ArgumentError(f"tracker must have a method log_metric(name, value), got {type(tracker).__name__}")
    if not isinstance(result, Mapping) and not callable(getattr(result, "mean", None)):
        raise ArgumentError(f"result must be an Evaluation, a Comparison or have mean(), got {type(result).__name__}")
    has_files = any(callable(getattr(tracker, name, None)) for name in ("log_text", "log_artifact"))
    files = dict(_files(result, per_query=per_query, page=page)) if has_files else {}  # before anything is logged
    metrics = {f"{prefix}{name}": value for name, value in _metrics(result, interval=interval).items()}
    for name, value in metrics.items():
        tracker.log_metric(name, value, **({} if step is None else {"step": step}))
    for name, text in files.items():
        _log_file(tracker, f"{prefix}{name}", text)
    return metrics


def _log_file(tracker: Any, name: str, text: str) -> None:
    if callable(getattr(tracker, "log_text", None)):
        tracker.log_text(text, name)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name.replace("/", "_")
        path.write_text(text, encoding="utf-8")
        tracker.log_artifact(str(path))


# ---- metrics ---------------------------------------------------------------------------------------------------------


def _metrics(result: Any, *, interval: bool) -> dict[str, float]:
    """Return means and ends of intervals by names that every tracker accepts."""
    ends = dict(_leaves(_intervals(result))) if interval else {}
    names: dict[str, float] = {}
    for path, mean in _leaves(_means(result)):
        if mean is None or math.isnan(mean):
            continue
        name = _unused("/".join(_plain_name(part) for part in path)[:_LONGEST], names)
        names[name] = float(mean)
        low, high = ends.get(path, (None, None))
        if low is not None and not math.isnan(low):
            names |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    return names


def _means(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return {name: each.mean() for name, each in result.items()}
    means: Mapping[str, Any] = result.mean()
    return means


def _intervals(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return {name: _intervals(each) for name, each in result.items()}
    intervals = getattr(result, "intervals", None)  # a comparison has them by run
    if intervals is None:
        intervals = result.interval() if callable(getattr(result, "interval", None)) else {}
    found: Mapping[str, Any] = intervals
    return found


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, str(name)))
        else:
            yield (*path, str(name)), value


def _plain_name(name: str) -> str:
    """Return a measure's or run's name in the characters that MLflow allows.

    >>> [_plain_name(name) for name in ("EM(nDCG@10)", "nDCG(dcg='exp-log2')@5", "AP(rel=2)", "../runs/bm25.txt")]
    ['EM_nDCG_at_10', 'nDCG_dcg_exp-log2_at_5', 'AP_rel_2', 'runs_bm25.txt']
    """
    plain = re.sub(r"[^\w.\- ]+", "_", name.replace("@", "_at_"))
    return re.sub("_{2,}", "_", plain).strip("_. ") or "_"


def _unused(name: str, used: Mapping[str, float]) -> str:
    number, candidate = 2, name
    while candidate in used:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


# ---- files -----------------------------------------------------------------------------------------------------------


def _files(result: Any, *, per_query: bool, page: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file that the result allows."""
    if isinstance(result, Mapping):
        summary: Any = {name: each.to_dict() for name, each in result.items()}
    else:
        summary = result.to_dict() if callable(getattr(result, "to_dict", None)) else None
    if summary is not None:
        yield "result.json", json.dumps(summary, indent=2, ensure_ascii=False, default=str) + "\n"
    if per_query and (table := _per_query(result)) is not None:
        yield "per_query.csv", table.write_csv()
    if hasattr(result, "scores") and hasattr(result, "table"):  # a comparison
        yield "differences.csv", result.table.write_csv()
    if page and (text := _page(result)) is not None:
        yield "report.html", text


def _per_query(result: Any) -> Any:
    if not isinstance(result, Mapping):
        return getattr(result, "per_query", None)
    import polars as pl

    tables = [each.per_query.select(pl.lit(name).alias("run"), pl.all()) for name, each in result.items()]
    return pl.concat(tables, how="diagonal_relaxed")


def _page(result: Any) -> str | None:
    """Return the report page of a comparison or of evaluations; None if there is nothing to report."""
    from rankbound.report.figures.drawing import Tables, draw_figures
    from rankbound.report.page import make_report, write_report

    scores = _score_matrix(result)
    if scores is None:
        return None
    policy = {name: getattr(result, name, None) for name in ("baseline", "inference")}
    report = make_report(scores, **policy)
    if not report.tables:  # no measure counts any query
        return None
    if scores.items is None:  # evaluations do not know how many items a query has, which the list of queries shows
        report, figures = replace(report, scores=None), {}
    else:
        figures = draw_figures(Tables(scores.to_table()))
    with tempfile.TemporaryDirectory() as folder:
        path = write_report(Path(folder) / "report.html", report, figures=figures, title="Ranking report")
        return path.read_text(encoding="utf-8")


def _score_matrix(result: Any) -> ScoreMatrix | None:
    from rankbound.evaluation.alignment import align_evaluations
    from rankbound.evaluation.scores import ScoreMatrix

    scores = getattr(result, "scores", None)
    if isinstance(scores, ScoreMatrix):
        return scores
    evaluations = result if isinstance(result, Mapping) else {"run": result}
    if not all(isinstance(each, Evaluation) for each in evaluations.values()):
        return None
    return align_evaluations(list(evaluations.values()), None, names=[str(name) for name in evaluations])
