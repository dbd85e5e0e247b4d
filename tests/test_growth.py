"""A process that evaluates and computes losses again and again does not grow."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pytest

import rankbound
from rankbound.losses import NDCGLoss

STATUS = Path("/proc/self/status")


def resident():
    """Kilobytes of memory that this process holds."""
    gc.collect()
    return int(re.search(r"VmRSS:\s+(\d+)", STATUS.read_text())[1])


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("work", ["evaluate", "loss"])
def test_ten_thousand_calls_do_not_grow(work):
    """Labels and ids change from call to call. A leak of 100 bytes per call would be 1,000 kB."""
    rng = np.random.default_rng(0)

    def call(number):
        scores, labels = rng.random(40), rng.integers(0, 3, 40)
        if work == "evaluate":
            names = [f"d{number}-{d}" for d in range(20)]
            qrels = {f"q{number}": dict(zip(names, labels[:20].tolist(), strict=True)), "q": {names[0]: 1}}
            run = {q: dict(zip(names, scores[:20].tolist(), strict=True)) for q in qrels}
            rankbound.evaluate(qrels, run, ["nDCG@10", "AP", "EM(nDCG@10)"])
        else:
            loss = NDCGLoss(bounding="min-max")
            loss.value_and_gradient(scores, loss.plan(labels, [0, 10, 40]))

    for number in range(2_000):  # caches and pools of memory fill
        call(number)
    before = resident()
    for number in range(2_000, 12_000):
        call(number)
    assert resident() - before < 1_000  # kB
