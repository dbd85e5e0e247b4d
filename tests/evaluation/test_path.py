"""How many functions of the package an evaluation of two dicts runs: short paths are quick, and quick to read."""

from __future__ import annotations

import random
from itertools import pairwise

import rankbound as rb
from tests.calls import calls_of

MEASURES = ["nDCG@10", "EM(nDCG@10)"]


def test_two_dicts_take_a_short_path():
    rng = random.Random(1)
    names = [f"d{number}" for number in range(20)]
    qrels = {f"q{query}": {name: rng.randint(0, 3) for name in names[:12]} for query in range(5)}
    run = {f"q{query}": {name: rng.random() for name in names[2:]} for query in range(5)}  # with unjudged documents

    def evaluate():
        rb.evaluate(qrels, run, MEASURES)

    evaluate()  # reads the names of the measures, which are kept
    calls = calls_of(evaluate)
    modules = [module for module, _ in calls]
    assert len(set(calls)) <= 69, sorted(set(calls))
    assert len(set(modules)) <= 15, sorted(set(modules))
    assert sum(one != other for one, other in pairwise(modules)) <= 67, modules
    # what is counted is the pipeline: it reads, ranks, computes values and makes a result
    assert {("/data/judged.py", "_lists_of_dicts"), ("/measures/ranked.py", "rank")} <= set(calls)
    assert {("/measures/additive.py", "values"), ("/evaluation/lists.py", "evaluate_lists")} <= set(calls)
