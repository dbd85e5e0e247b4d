"""LambdaMART on workers of Dask."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("pandas")

import pandas as pd

from rankbound.errors import ArgumentError, DataError
from rankbound.integrations import dask as module
from rankbound.integrations import fit_on_dask
from rankbound.models import BoostingRanker, LambdaMART, load_ranker
from rankbound.parallel import clusters

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

FEATURES = [f"f{k}" for k in range(5)]
# dask and distributed leave files open and warn about the ports of other tests
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Port"),
    pytest.mark.full("starts Dask and torchrun"),
]


def queries(seed, count=120):
    """Features with few values, whose bins do not depend on the rows of a worker."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 12, count)
    X = np.clip(np.round(rng.normal(size=(sizes.sum(), len(FEATURES))) * 2), -4, 4).astype(np.float32)
    frame = pd.DataFrame(X, columns=FEATURES)
    frame["label"] = np.clip(np.round(X[:, 0] / 2 + X[:, 1] * X[:, 2] / 4 + rng.normal(size=len(X)) / 2), 0, 3)
    frame["qid"] = np.repeat(np.arange(count), sizes)
    frame["weight"] = np.repeat(rng.uniform(0.5, 2, count), sizes)
    return frame


def partitioned(frame, parts):
    """Partitions of whole queries."""
    edges = np.searchsorted(frame.qid, np.linspace(0, frame.qid.max() + 1, parts + 1))
    return dd.concat([dd.from_pandas(frame.iloc[a:b], npartitions=1) for a, b in pairwise(edges)])


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}),  # on a busy machine
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def fitted(ranker, frame, held_out=None, weights=False):
    eval_set = None if held_out is None else (held_out[FEATURES], held_out.label, held_out.qid)
    weight = frame.weight if weights else None
    return ranker.fit(frame[FEATURES], frame.label.astype(int), qid=frame.qid, eval_set=eval_set, sample_weight=weight)


@pytest.mark.parametrize(
    ("objective", "bounding"), [("lambdarank", "none"), ("lambda-nDCG", "expectation-max"), ("nDCG", "min-max")]
)
def test_two_workers_grow_the_trees_of_one_process(client, tmp_path, objective, bounding):
    """Weights or bounding, objective and selected round; LightGBM itself differs only where the docstring says."""
    frame, held_out, test = queries(1), queries(2, 40), queries(3)[FEATURES]
    options = {"n_estimators": 12, "num_leaves": 6, "min_child_samples": 1}
    expected = fitted(LambdaMART(objective, bounding, **options), frame, held_out, weights=bounding == "none")
    ranker = LambdaMART(objective, bounding, **options)
    shared = {"features": FEATURES, "weight": "weight" if bounding == "none" else None, "client": client}
    found = fit_on_dask(ranker, partitioned(frame, 4), eval_set=partitioned(held_out, 3), **shared)
    assert found is ranker
    assert found.boosters_[0].num_trees() == expected.boosters_[0].num_trees()
    np.testing.assert_allclose(found.predict(test), expected.predict(test), rtol=0, atol=1e-9)
    assert found.eval_score_ == pytest.approx(expected.eval_score_, abs=1e-12)
    found.save(tmp_path / "model")
    np.testing.assert_array_equal(load_ranker(tmp_path / "model").predict(test), found.predict(test))


def test_the_default_objective_ranks_as_well_as_in_one_process(client):
    """Its noise differs between workers: the measure is the same within noise, far above that of random scores."""
    frame, test = queries(1, 300), queries(3, 300)
    options = {"n_estimators": 20, "num_leaves": 8}
    expected = fitted(LambdaMART(**options), frame).score(test[FEATURES], test.label, test.qid)
    found = fit_on_dask(LambdaMART(**options), partitioned(frame, 2), features=FEATURES, client=client)
    assert found.score(test[FEATURES], test.label, test.qid) == pytest.approx(expected, abs=0.04)


def test_early_stopping_keeps_the_round_at_which_one_process_stops():
    values = [0.1, 0.3, 0.2, 0.2, 0.2, 0.9]
    assert module._best_round(values, None) == 6
    assert module._best_round(values, 2) == 2
    assert module._best_round(values, 5) == 6


@pytest.fixture(scope="module")
def expected_trees(client):
    pids_of_two_workers(client)
    return trained_on(client)


def pids_of_two_workers(client):
    """Wait until both workers answer."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answers = client.run(os.getpid, on_error="return").values()
        if len(answers) == 2 and all(isinstance(answer, int) for answer in answers):
            return list(answers)
        time.sleep(0.2)
    return pytest.fail("a worker did not come back")


def trained_on(client):
    options = {"n_estimators": 1000, "num_leaves": 6, "min_child_samples": 1}
    ranker = fit_on_dask(
        LambdaMART("lambda-nDCG", **options), partitioned(queries(1), 4), features=FEATURES, client=client
    )
    return ranker.boosters_[0].model_to_string()


@pytest.mark.parametrize("delay", [0.5, *(pytest.param(at, marks=pytest.mark.slow) for at in (0.0, 0.1, 0.3, 0.7))])
def test_training_gives_the_same_trees_if_a_worker_is_killed(client, expected_trees, monkeypatch, delay):
    """The other worker waits for the one that died, and is started again."""
    train, trainings = module._trees, []

    def killed_training(*given):
        trainings.append(threading.Timer(delay, kill))
        if len(trainings) == 1:
            trainings[0].start()
        return train(*given)

    def kill():
        os.kill(victim, signal.SIGKILL)

    monkeypatch.setattr(module, "_trees", killed_training)
    for _ in range(5):
        victim = pids_of_two_workers(client)[1]
        trainings.clear()
        assert trained_on(client) == expected_trees
        trainings[0].join()
        if len(trainings) > 1:
            return
        delay /= 2  # the training had ended
    pytest.fail("no kill hit the training")


def test_an_error_on_one_worker_ends_the_training_on_all(client, monkeypatch):
    """The others would wait for it for ever."""
    monkeypatch.setattr(module, "_trained", fails_on_the_second)
    monkeypatch.setattr(module, "_SECONDS_TO_NOTICE", 1)
    with pytest.raises(DataError, match=r"LightGBM failed on worker tcp://\S+: bad rows"):
        fit_on_dask(LambdaMART(), partitioned(queries(1), 2), features=FEATURES, client=client)
    pids_of_two_workers(client)


def fails_on_the_second(parts, parameters, rounds, machines, port):
    if machines.endswith(str(port)):
        raise ValueError("bad rows")
    time.sleep(5)  # longer than what is waited for lost workers


def test_a_worker_without_nanny_that_waits_for_ever_is_named(monkeypatch):
    monkeypatch.setattr(module, "_trained", fails_on_the_second)
    monkeypatch.setattr(module, "_SECONDS_TO_NOTICE", 1)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(DataError, match=r"the training failed on worker \S+, and worker \S+ waits for it for ever"),
    ):
        fit_on_dask(LambdaMART(), partitioned(queries(1), 2), features=FEATURES, client=client)


def test_a_query_in_two_partitions_is_refused_by_name(client):
    frame = queries(1)
    cut = int((frame.qid <= 30).sum()) - 1  # one row of query 30 is in the second partition
    split = dd.concat([dd.from_pandas(part, npartitions=1) for part in (frame.iloc[:cut], frame.iloc[cut:])])
    with pytest.raises(DataError, match="query 30 is in the partitions 0 and 1, but all rows of a query must be"):
        fit_on_dask(LambdaMART(), split, features=FEATURES, client=client)


def test_a_partition_with_bad_values_is_named(client):
    frame = queries(1)
    frame.loc[frame.index[-1], "f2"] = np.inf
    with pytest.raises(DataError, match=r"partition 2: features must be finite or NaN"):
        fit_on_dask(LambdaMART(), partitioned(frame, 3), features=FEATURES, client=client)


def test_a_worker_with_another_version_is_named(client, monkeypatch):
    monkeypatch.setattr(clusters, "versions", lambda packages: {"python": "3.11", "lightgbm": "0.0"})
    monkeypatch.setattr(client, "run", lambda *_, **__: {"tcp://a:1": {"python": "3.11", "lightgbm": "4.7.0"}})
    with pytest.raises(DataError, match=r"worker tcp://a:1 has lightgbm 4.7.0, the client has 0.0"):
        fit_on_dask(LambdaMART(), partitioned(queries(1), 2), features=FEATURES, client=client)


@pytest.mark.parametrize(
    ("ranker", "options", "message"),
    [
        (BoostingRanker(), {}, "ranker must be a LambdaMART, got BoostingRanker"),
        (LambdaMART("lambdarank", "min-max"), {}, "bounding of lambdarank must be none on Dask"),
        (LambdaMART(), {"label": "grade"}, "frame must have the column 'grade', got f0"),
        (LambdaMART(), {"client": 3}, "client must be a client of Dask or an address, got int"),
        (LambdaMART(), {"client": "tcp://host"}, "cluster needs host and port of a scheduler"),
        (LambdaMART(categorical_features=(1,)), {}, "categorical_features must be empty on Dask"),
    ],
)
def test_bad_arguments_are_refused(ranker, options, message):
    with pytest.raises(ArgumentError, match=message):
        fit_on_dask(ranker, partitioned(queries(1, 10), 1), **options)


def test_a_frame_in_memory_is_refused():
    with pytest.raises(ArgumentError, match="frame must be a Dask DataFrame, got DataFrame"):
        fit_on_dask(LambdaMART(), queries(1))


def test_a_scheduler_that_does_not_answer(monkeypatch):
    def refuse(*_, **__):
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(DataError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        fit_on_dask(LambdaMART(), partitioned(queries(1, 10), 1), features=FEATURES, client="tcp://127.0.0.1:9")
