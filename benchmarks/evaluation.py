"""Evaluation: five measures from dicts, integer frames and TREC files, and nDCG from arrays."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import rankbound as rb
from benchmarks.comparison import Peer, compare_with_peers
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.records import Finding
from benchmarks.timing import Work

__all__ = ["CURVES", "INPUTS", "MEASURES", "run"]

INPUTS = (
    "generated labels 0 to 4 and scores that correlate with them; every run returns all judged documents; "
    "nDCG@10, AP, RR, P@10 and R@100, in arrays nDCG@10 of scores with ties"
)
MEASURES = ["nDCG@10", "AP", "RR", "P@10", "R@100"]
BOUNDED = MEASURES + [f"UL2({name})" for name in MEASURES]
TREC_NAMES = ["ndcg_cut_10", "map", "recip_rank", "P_10", "recall_100"]
RANX_NAMES = ["ndcg@10", "map", "mrr", "precision@10", "recall@100"]


# ---- inputs ----------------------------------------------------------------------------------------------------------


class Made(NamedTuple):
    """Judgments and a run, as frames and as dicts."""

    qrels_frame: pl.DataFrame
    run_frame: pl.DataFrame
    qrels: dict[str, dict[str, int]]
    run: dict[str, dict[str, float]]


def make(queries: int, items: int) -> Made:
    """Make judgments and a run that lists its documents in ranked order."""
    labels, scores = arrays(queries, items)
    order = np.argsort(-scores, axis=1)
    query, document = np.repeat(np.arange(queries), items), np.tile(np.arange(items), queries)
    qrels = pl.DataFrame({"qid": query, "docid": document, "label": labels.ravel()})
    ranked = np.take_along_axis(scores, order, 1)
    run = pl.DataFrame({"qid": query, "docid": order.ravel(), "score": ranked.ravel()})
    names = [f"d{document}" for document in range(items)]
    return Made(
        qrels,
        run,
        {f"q{q}": dict(zip(names, row, strict=True)) for q, row in enumerate(labels.tolist())},
        {
            f"q{q}": dict(zip([names[index] for index in indices], row, strict=True))
            for q, (indices, row) in enumerate(zip(order.tolist(), ranked.tolist(), strict=True))
        },
    )


def arrays(queries: int, items: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return labels and scores, a row per query."""
    rng = np.random.default_rng(0)
    labels = rng.choice(5, size=(queries, items), p=[0.55, 0.2, 0.15, 0.07, 0.03])
    labels[:, 0] = 1  # a relevant item in every query, so that libraries that skip empty queries compute the same means
    return labels, rng.normal(size=(queries, items)) + 0.3 * labels


# ---- implementations -------------------------------------------------------------------------------------------------


def ours(made: Made) -> Work:
    return lambda: rb.evaluate(made.qrels, made.run, MEASURES)


def ours_on_frames(made: Made) -> Work:
    return lambda: rb.evaluate(made.qrels_frame, made.run_frame, MEASURES)


def pytrec(made: Made) -> Work:
    import pytrec_eval

    return lambda: pytrec_eval.RelevanceEvaluator(made.qrels, set(TREC_NAMES)).evaluate(made.run)


def ranx(made: Made) -> Work:
    import ranx

    return lambda: ranx.evaluate(ranx.Qrels(made.qrels), ranx.Run(made.run), RANX_NAMES)


def ir_measures(made: Made) -> Work:
    import ir_measures

    names = [ir_measures.parse_measure(name) for name in MEASURES]
    return lambda: ir_measures.calc_aggregate(names, made.qrels, made.run)


def scikit_learn(labels: Any, scores: Any, ignore_ties: bool = False) -> Work:
    from sklearn.metrics import ndcg_score

    return lambda: ndcg_score(labels, scores, k=10, ignore_ties=ignore_ties)


# ---- rows ------------------------------------------------------------------------------------------------------------


def run(quick: bool) -> Iterator[Finding]:
    """Yield rows of four kinds of input and of the command line's start-up, then the growth curves."""
    for queries, items in ((50, 20),) if quick else ((10_000, 100), (1_000, 1_000)):
        yield from _from_memory(make(queries, items), f"{queries:,} x {items:,}", 1 if quick else 7)
    queries, items = (50, 20) if quick else (10_000, 100)
    yield from _from_arrays(queries, items, 1 if quick else 5)
    yield from _normalized(queries, items, 1 if quick else 15)
    yield from _from_files(queries, items, 1 if quick else 3)
    yield from _start_up(1 if quick else 9)
    yield from growth_of(__name__, CURVES, quick)


def _means(evaluation: rb.evaluation.Evaluation) -> list[float]:
    return list(evaluation.mean().values())


def _trec_means(per_query: Any) -> list[float]:
    return [float(np.mean([values[name] for values in per_query.values()])) for name in TREC_NAMES]


def _ir_means(values: Any) -> list[float]:
    by_name = {str(measure): value for measure, value in values.items()}
    return [by_name[name] for name in MEASURES]


def _from_memory(made: Made, shape: str, turns: int) -> Iterator[Finding]:
    peers = [
        Peer("pytrec_eval", partial(pytrec, made), 2.5, "pytrec_eval", _trec_means),
        Peer("ranx", partial(ranx, made), 10, "ranx", lambda means: [means[name] for name in RANX_NAMES]),
        Peer("ir_measures", partial(ir_measures, made), None, "ir_measures", _ir_means),
    ]
    yield from compare_with_peers(f"{shape}, from dicts", ours(made), peers, turns=turns, values=_means)
    peers = [Peer("pytrec_eval, dicts ready", partial(pytrec, made), 5, "pytrec_eval", _trec_means)]
    frames = ours_on_frames(made)
    yield from compare_with_peers(f"{shape}, from integer frames", frames, peers, turns=turns, values=_means)
    peers = [Peer("ours without", partial(ours, made), 1 / 1.4, values=_means, against="ourselves")]
    yield from compare_with_peers(
        f"{shape}, dicts, with bounds and UL2",
        lambda: rb.evaluate(made.qrels, made.run, BOUNDED, bounds=True),
        peers,
        turns=turns,
        values=lambda result: _means(result)[: len(MEASURES)],
    )


def _normalized(queries: int, items: int, turns: int) -> Iterator[Finding]:
    """Compare affine normalizations with the plain measure alone, in memory, where sorting is nearly all the work.

    In the second kind of lists the run returns four fifths of the documents, and three tenths have no judgment: then
    the run has to be read as a complete ranking of the judged documents as well.
    """
    labels, scores = arrays(queries, items)
    offsets = np.arange(queries + 1) * items
    judged = np.random.default_rng(1).random(labels.shape) < 0.7
    judged[:, items * 4 // 5 :] = True  # documents that were not returned are known from their judgments alone
    depths = np.full(queries, items * 4 // 5)
    kinds = {
        "all judged": rb.Lists(labels.ravel(), offsets, scores.ravel()),
        "some not judged or returned": rb.Lists(
            np.where(judged, labels, 0).ravel(), offsets, scores.ravel(), depths=depths, judged=judged.ravel()
        ),
    }
    for kind, lists in kinds.items():
        for measure in ("nDCG@10", "AP", "RR"):
            plain = Peer(measure, partial(_evaluation_of, lists, measure), 1 / 1.4, against="ourselves")
            for wrapper in ("MM", "EB", "EM"):
                work = partial(rb.evaluate, lists, [f"{wrapper}({measure})"])
                name = f"{queries:,} x {items:,} in memory, {kind}, {wrapper}({measure})"
                yield from compare_with_peers(name, work, [plain], turns=turns)


def _evaluation_of(lists: rb.Lists, measure: str) -> Work:
    return partial(rb.evaluate, lists, [measure])


def _from_arrays(queries: int, items: int, turns: int) -> Iterator[Finding]:
    """Compare nDCG of a dense matrix of labels and scores, the input that scikit-learn's ndcg_score is made for."""
    labels, scores = arrays(queries, items)
    offsets = np.arange(queries + 1) * items
    tied = np.round(scores, 1)
    for values, name, ignore in ((tied, "with ties", False), (scores, "ties ignored", True)):

        def work(values: Any = values) -> rb.evaluation.Evaluation:
            return rb.evaluate(rb.Lists(labels.ravel(), offsets, values.ravel()), measures=["nDCG@10"])

        peer = Peer(
            f"scikit-learn ndcg_score, {name}",
            partial(scikit_learn, labels, values, ignore),
            module="sklearn",
            values=lambda value: [value],
        )
        yield from compare_with_peers(
            f"{queries:,} x {items:,}, nDCG@10 from arrays", work, [peer], turns=turns, values=_means
        )


def _from_files(queries: int, items: int, turns: int) -> Iterator[Finding]:
    """Compare evaluation of TREC files, parsing included; run and qrels have the same number of rows."""
    made = make(queries, items)
    with tempfile.TemporaryDirectory() as folder:
        qrels, ranking = Path(folder, "qrels.txt"), Path(folder, "run.txt")
        text = pl.format("q{} 0 doc{} {}", "qid", "docid", "label")
        made.qrels_frame.select(text).write_csv(qrels, include_header=False, quote_style="never")
        text = pl.format("q{} Q0 doc{} 1 {} tag", "qid", "docid", "score")
        made.run_frame.select(text).write_csv(ranking, include_header=False, quote_style="never")

        def pytrec_files() -> Work:
            import pytrec_eval

            def work() -> Any:
                with qrels.open() as q, ranking.open() as r:
                    evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(q), set(TREC_NAMES))
                    return evaluator.evaluate(pytrec_eval.parse_run(r))

            return work

        peer = Peer("pytrec_eval", pytrec_files, 2, "pytrec_eval", _trec_means)
        name = f"TREC files of {queries * items:,} rows"
        yield from compare_with_peers(
            name, lambda: rb.evaluate(qrels, ranking, MEASURES), [peer], turns=turns, values=_means
        )


def _start_up(turns: int) -> Iterator[Finding]:
    def start(code: str) -> Work:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    peer = Peer("python -c 'import numpy'", partial(start, "import numpy"), 1 / 3, against="ourselves")
    work = start("from rankbound.cli.main import run; run(['--help'])")
    yield from compare_with_peers("rankbound --help", work, [peer], turns=turns)


# ---- growth ----------------------------------------------------------------------------------------------------------

_IMPLEMENTATIONS = {
    OURS: Implementation(ours),
    f"{OURS}, frames": Implementation(ours_on_frames),
    "pytrec_eval": Implementation(pytrec, module="pytrec_eval"),
    "ranx": Implementation(ranx, module="ranx"),
    "ir_measures": Implementation(ir_measures, module="ir_measures"),
}
CURVES = (
    Curve(
        "evaluate, 200 queries", "items per query", (50, 100, 200, 400, 800, 1_600), (10, 20, 40),
        lambda size, _: make(200, size), _IMPLEMENTATIONS,
    ),
    Curve(
        "evaluate, 100 items each", "queries", (250, 500, 1_000, 2_000, 4_000, 8_000), (5, 10, 20),
        lambda size, _: make(size, 100), _IMPLEMENTATIONS,
    ),
)  # fmt: skip
