"""One thread budget for kernels, trees and torch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound import losses
from rankbound.errors import ArgumentError
from rankbound.kernels import threads_for
from rankbound.models import LambdaMART, MLPRanker
from rankbound.models.rankers import trees
from rankbound.parallel import cores, set_threads, threads

X = np.random.default_rng(0).random((40, 3))
Y, QID = np.tile([0, 1, 2, 0], 10), np.repeat(np.arange(10), 4)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    """A machine of four cores without wishes of the user."""
    monkeypatch.delenv("RANKBOUND_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4), raising=False)
    yield
    set_threads(None)


def test_the_budget_is_set_by_call_by_variable_or_by_the_cores(monkeypatch):
    assert threads() == cores() == 4
    monkeypatch.setenv("RANKBOUND_THREADS", "2")
    assert threads() == 2
    set_threads(3)
    assert threads() == losses.threads() == 3
    set_threads(None)
    assert threads() == 2
    for ignored in ("0", "-1", "many", "", "1.5", "9" * 5_000, "\u0662"):
        monkeypatch.setenv("RANKBOUND_THREADS", ignored)
        assert threads() == 4
    monkeypatch.setenv("RANKBOUND_THREADS", "9")
    assert threads() == 4


@pytest.mark.parametrize("count", [0, -1, 5, 1.0, True, "2"])
def test_budgets_that_are_no_number_of_cores_are_refused(count):
    with pytest.raises(ArgumentError, match=f"threads must be between 1 and 4, got {count!r}"):
        set_threads(count)
    assert threads() == 4


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, 2), (1, 1)])
def test_trees_are_grown_and_used_with_the_budget(monkeypatch, n_jobs, expected):
    monkeypatch.setattr(trees, "_VALUES_PER_THREAD", 1)
    used = []
    train, predict = trees.lightgbm.train, trees.lightgbm.Booster.predict

    def watched_train(parameters, *rest, **options):
        used.append(parameters["num_threads"])
        return train(parameters, *rest, **options)

    def watched_predict(booster, *rest, **options):
        used.append(options["num_threads"])
        return predict(booster, *rest, **options)

    monkeypatch.setattr(trees.lightgbm, "train", watched_train)
    monkeypatch.setattr(trees.lightgbm.Booster, "predict", watched_predict)
    set_threads(2)
    LambdaMART(n_estimators=2, min_child_samples=1, n_jobs=n_jobs).fit(X, Y, qid=QID).predict(X)
    assert set(used) == {expected}
    assert len(used) >= 2


def test_kernels_use_the_budget_as_far_as_it_pays():
    set_threads(2)
    assert [threads_for(work) for work in (0, 1, 1e12)] == [1, 1, 2]


def test_torch_trains_with_the_budget(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    set_threads(1)
    MLPRanker(hidden=(2,), epochs=1, random_state=0).fit(X, Y, qid=QID)
    assert 1 in seen
