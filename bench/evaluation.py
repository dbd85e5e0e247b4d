"""Evaluation: five measures from dicts, integer frames and TREC files, against pytrec_eval, ranx and ir_measures."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytrec_eval

import rankbound as rb
from bench.timing import Row, best_of, row

MEASURES = ["nDCG@10", "AP", "RR", "P@10", "R@100"]
TREC_NAMES = {"ndcg_cut.10", "map", "recip_rank", "P.10", "recall.100"}
RANX_NAMES = ["ndcg@10", "map", "mrr", "precision@10", "recall@100"]
BOUNDED = MEASURES + [f"UL2({name})" for name in MEASURES]


def make(queries: int, items: int, seed: int = 0):
    """Graded labels and scores that lean towards them; every run returns all judged documents in ranked order."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(5, size=(queries, items), p=[0.55, 0.2, 0.15, 0.07, 0.03])
    scores = rng.normal(size=(queries, items)) + 0.3 * labels
    order = np.argsort(-scores, axis=1)
    query, document = np.repeat(np.arange(queries), items), np.tile(np.arange(items), queries)
    qrels = pl.DataFrame({"qid": query, "docid": document, "label": labels.ravel()})
    ranked = pl.DataFrame({"qid": query, "docid": order.ravel(), "score": np.take_along_axis(scores, order, 1).ravel()})
    return qrels, ranked


def to_dicts(frame: pl.DataFrame) -> dict[str, dict[str, float]]:
    nested: dict[str, dict[str, float]] = {}
    names = {d: f"d{d}" for d in frame["docid"].unique().to_list()}
    for q, d, value in frame.iter_rows():
        nested.setdefault(f"q{q}", {})[names[d]] = value
    return nested


def run() -> list[Row]:
    warnings.simplefilter("ignore")
    rows = []
    for queries, items in ((10_000, 100), (1_000, 1_000)):
        qrels_frame, run_frame = make(queries, items)
        qrels, ranking = to_dicts(qrels_frame), to_dicts(run_frame)

        def pytrec(qrels=qrels, ranking=ranking):
            return pytrec_eval.RelevanceEvaluator(qrels, TREC_NAMES).evaluate(ranking)

        times = best_of(
            {
                "dicts": lambda q=qrels, r=ranking: rb.evaluate(q, r, MEASURES),
                "bounded": lambda q=qrels, r=ranking: rb.evaluate(q, r, BOUNDED, bounds=True),
                "frames": lambda q=qrels_frame, r=run_frame: rb.evaluate(q, r, MEASURES),
                "pytrec_eval": pytrec,
            },
            turns=7,
        )
        shape = f"{queries:,} x {items:,}"
        rows += [
            row(f"{shape}, from dicts", times["dicts"], "pytrec_eval", times["pytrec_eval"], 2.5),
            row(f"{shape}, from integer frames", times["frames"], "pytrec_eval, dicts ready", times["pytrec_eval"], 5),
            row(f"{shape}, dicts, with bounds and UL2", times["bounded"], "ours without", times["dicts"], 1 / 1.4),
        ]
        rows += _ranx(shape, qrels, ranking, times["dicts"])
        rows += _ir_measures(shape, qrels, ranking, times["dicts"])
    return rows + _files() + _start_up()


def _ranx(shape: str, qrels, ranking, ours: float) -> list[Row]:
    try:
        import ranx
    except ImportError:
        return []

    def work():
        return ranx.evaluate(ranx.Qrels(qrels), ranx.Run(ranking), RANX_NAMES)

    work()  # once for its compiler, which is not counted against it
    return [row(f"{shape}, from dicts", ours, "ranx", best_of({"ranx": work}, turns=2)["ranx"], 10)]


def _ir_measures(shape: str, qrels, ranking, ours: float) -> list[Row]:
    import ir_measures

    names = [ir_measures.parse_measure(name) for name in MEASURES]
    theirs = best_of({"it": lambda: ir_measures.calc_aggregate(names, qrels, ranking)}, turns=2)["it"]
    return [row(f"{shape}, from dicts", ours, "ir_measures", theirs)]


def _files() -> list[Row]:
    """A million rows of run and as many of qrels, parsing included."""
    qrels, ranking = make(10_000, 100)
    with tempfile.TemporaryDirectory() as folder:
        qrels_path, run_path = Path(folder, "qrels.txt"), Path(folder, "run.txt")
        text = pl.format("q{} 0 doc{} {}", "qid", "docid", "label")
        qrels.select(text).write_csv(qrels_path, include_header=False, quote_style="never")
        text = pl.format("q{} Q0 doc{} 1 {} tag", "qid", "docid", "score")
        ranking.select(text).write_csv(run_path, include_header=False, quote_style="never")

        def pytrec():
            with qrels_path.open() as q, run_path.open() as r:
                evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(q), TREC_NAMES)
                return evaluator.evaluate(pytrec_eval.parse_run(r))

        times = best_of({"ours": lambda: rb.evaluate(qrels_path, run_path, MEASURES), "pytrec_eval": pytrec}, turns=3)
    return [row("TREC files of 1 M rows", times["ours"], "pytrec_eval", times["pytrec_eval"], 2)]


def _start_up() -> list[Row]:
    def start(*command: str):
        return lambda: subprocess.run(command, check=True, capture_output=True)

    script = Path(sys.executable).with_name("rankbound")
    times = best_of(
        {"help": start(str(script), "--help"), "numpy": start(sys.executable, "-c", "import numpy")}, turns=9
    )
    return [row("rankbound --help", times["help"], "python -c 'import numpy'", times["numpy"], 1 / 3)]
