"""How many functions of the package an evaluation of two dicts runs: short paths are quick, and quick to read."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from pathlib import Path

import rankbound as rb

PACKAGE = str(Path(rb.__file__).parent)
MEASURES = ["nDCG@10", "EM(nDCG@10)"]


def calls_of(work):
    """The functions of the package that a call runs, once for each time, as (module, name)."""
    seen = []

    def count(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            seen.append((frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_name))

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


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
