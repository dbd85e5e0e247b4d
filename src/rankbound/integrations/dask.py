"""LambdaMART on the workers of a Dask cluster, by LightGBM's own distributed training.

Each partition of a Dask DataFrame holds whole queries, and each worker takes a run of adjacent partitions. LightGBM's
workers exchange histograms of gradients by sockets of their own, so that a tree is grown from all rows, while the
objective sees the queries of one worker at a time. What depends on the whole training set is computed before: the scale
of the gradients. LightGBM's own evaluation is not used, because each worker would measure its part of the held-out
queries only. Instead, the measure of every round is computed after the training from all held-out queries, and the
round that the same data on one machine would have selected is kept.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import numpy as np

from rankbound.arrays import labels_of, weights_of
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.packages import import_package
from rankbound.parallel import check_versions, open_client, workers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models.rankers.trees import LambdaMART

_ATTEMPTS = 3  # trainings that may lose a worker
_SECONDS_TO_NOTICE = 10  # that a worker is lost, when its neighbors report an error
_SECONDS_TO_RETURN = 30  # for a worker that its nanny starts again
_PACKAGES = ("rankbound", "lightgbm", "numpy")  # whose versions must be the same everywhere


def fit_on_dask(
    ranker: LambdaMART,
    frame: Any,
    *,
    label: str = "label",
    query: str = "qid",
    weight: str | None = None,
    features: Sequence[str] | None = None,
    eval_set: Any = None,
    client: Any = None,
) -> LambdaMART:
    """Fit a `LambdaMART` on a Dask DataFrame and return it; it can then be used and saved like any other.

    Parameters
    ----------
    ranker:
        The ranker, with any objective and bounding; ``"lambdarank"``, LightGBM's own objective, takes no bounding here.
        ``n_jobs`` is ignored: a worker of Dask has its number of threads.
    frame:
        A Dask DataFrame. All rows of a query must be in one partition; ``frame.shuffle("qid")`` sees to that.
    label, query, weight:
        Names of the columns of relevance labels, of queries and, optionally, of weights, such as those of
        `rankbound.difficulty_weights`. The weight of a query is the mean of its rows.
    features:
        Columns of features. None: all columns that are not named above.
    eval_set:
        Held-out queries with the same columns, as a Dask DataFrame. The number of trees that ranks them best is kept.
        With ``early_stopping_rounds`` it is the one at which the training of one process would have stopped, but all
        rounds are trained.
    client:
        A client of Dask, or the address of a scheduler, or ``"local:N"`` for N processes of this machine. None: the
        current client.

    The trees depend on the partitions and on the number of workers, not on which worker has which partitions. With one
    worker, they are those of `LambdaMART.fit`. With more they are others, of about the same quality, for three reasons.
    LightGBM's workers estimate the number of rows in a leaf from hessians, to which ``min_child_samples`` then applies.
    Each determines the bins of some features from its own rows. Noisy losses, such as the default, draw noise for the
    queries of a worker. Features with few values, ``min_child_samples=1`` and a loss without noise give the trees of
    one process up to rounding.

    If a worker dies, the others wait for it inside LightGBM for ever, so that their nannies start them again, too, and
    what they held in memory is computed again; data that was scattered to them is lost. The training then starts anew,
    at most twice, after up to 30 seconds for the worker to come back. If it comes back, the trees are the same.
    """
    from rankbound.models.rankers.trees import LambdaMART

    if type(ranker) is not LambdaMART:
        raise ArgumentError(f"ranker must be a LambdaMART, got {type(ranker).__name__}")
    if ranker.objective == "lambdarank" and ranker.bounding != "none":
        raise ArgumentError("bounding of lambdarank must be none on Dask; objective='lambda-nDCG' accepts all")
    if ranker.categorical_features:
        raise ArgumentError("categorical_features must be empty on Dask")
    import_package("dask.dataframe")
    columns = _columns(frame, label, query, weight, features)
    with _client(client) as opened:
        check_versions(opened, _PACKAGES)
        count = len(_workers(opened))
        for attempt in range(1, _ATTEMPTS + 1):
            workers = _wait_for_workers(opened, count)
            try:
                return _fitted(ranker, frame, eval_set, columns, opened, workers)
            except (ArgumentError, DataError):
                raise
            except Exception as error:  # LightGBM, Dask and the sockets between them fail in many ways
                lost = _lost_workers(opened, workers)
                if not lost:
                    raise DataError(f"LightGBM failed on the cluster: {error}") from error
                if attempt == _ATTEMPTS:
                    raise DataError(
                        f"worker {min(lost)} was lost in training attempt {attempt}, others in those before; workers "
                        "may have run out of memory"
                    ) from error
    raise AssertionError("unreachable")


def _columns(frame: Any, label: str, query: str, weight: str | None, features: Sequence[str] | None) -> dict[str, Any]:
    if not hasattr(frame, "npartitions") or not hasattr(frame, "columns"):
        raise ArgumentError(f"frame must be a Dask DataFrame, got {type(frame).__name__}")
    names = [str(name) for name in frame.columns]
    special = [label, query, *([] if weight is None else [weight])]
    chosen = [name for name in names if name not in special] if features is None else list(features)
    for name in (*special, *chosen):
        if name not in names:
            raise ArgumentError(f"frame must have the column {name!r}, got {', '.join(names)}")
    if not chosen:
        raise ArgumentError(f"frame must have columns of features besides {', '.join(special)}")
    return {"label": label, "query": query, "weight": weight, "features": chosen}


# ---- the cluster -----------------------------------------------------------------------------------------------------


@contextmanager
def _client(client: Any) -> Iterator[Any]:
    """Yield the client that is meant; one of an address is closed afterwards."""
    from distributed import Client, get_client

    if isinstance(client, str):
        with open_client(client) as (opened, _):
            yield opened
        return
    if client is None:
        try:
            client = get_client()
        except ValueError as error:
            raise ArgumentError(
                "client must be a client of Dask or the address of a scheduler; there is no current client"
            ) from error
    if not isinstance(client, Client):
        raise ArgumentError(f"client must be a client of Dask or an address, got {type(client).__name__}")
    if client.status != "running":
        raise DataError(f"the scheduler of the client cannot be reached: its status is {client.status!r}")
    yield client


def _workers(client: Any) -> dict[str, str]:
    """Return the folder of each worker by its address; a worker that was started again has another folder."""
    found = workers_of(client)
    return {address: found[address]["local_directory"] for address in sorted(found)}


def _lost_workers(client: Any, before: dict[str, str], seconds: float | None = None) -> set[str]:
    """Return the workers that are no longer there; their neighbors may report an error before the scheduler notices."""
    end = time.monotonic() + (_SECONDS_TO_NOTICE if seconds is None else seconds)
    while True:
        now = _workers(client)
        lost = {address for address, folder in before.items() if now.get(address) != folder}
        if lost or time.monotonic() >= end:
            return lost
        time.sleep(0.2)


def _wait_for_workers(client: Any, count: int) -> dict[str, str]:
    """Return the workers when there are this many again, as far as they come back."""
    end = time.monotonic() + _SECONDS_TO_RETURN
    while len(workers := _workers(client)) < count and time.monotonic() < end:
        time.sleep(0.2)
    if not workers:
        raise DataError("all workers were lost, and none came back")
    return workers


def _end(client: Any, waiting: list[str], reason: str) -> None:
    """End the processes of workers that wait inside LightGBM for one that failed; their nannies start them again.

    Nothing else ends the waiting. Dask's own restart first asks them to close, and loses workers now and then.
    """
    found = workers_of(client)
    present = [address for address in waiting if address in found]
    for address in present:
        if found[address]["nanny"] is None:
            raise DataError(
                f"{reason}, and worker {address} waits for it for ever, because it has no nanny that could start it "
                "again: close it, or start workers with nannies"
            )
    if present:
        client.run(os._exit, 1, workers=present, on_error="ignore")


# ---- partitions ------------------------------------------------------------------------------------------------------


def _prepared(table: Any, number: int, columns: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a partition, its rows sorted by query."""
    try:
        names = table[columns["query"]].to_numpy()
        ids, codes = np.unique(names, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        labels = np.maximum(labels_of(table[columns["label"]].to_numpy()), 0)[order].astype(np.float64)
        matrix = table[columns["features"]].to_numpy(dtype=np.float32)[order]
        if np.isinf(matrix).any():
            raise DataError("features must be finite or NaN (missing), got infinity")
        sizes = np.bincount(codes, minlength=len(ids)).astype(np.int64)
        part = {"X": np.ascontiguousarray(matrix), "y": labels, "sizes": sizes, "ids": ids}
        if columns["weight"] is not None:
            rows = weights_of(columns["weight"], table[columns["weight"]].to_numpy())[order]
            means = np.bincount(codes[order], rows, minlength=len(ids)) / np.maximum(sizes, 1)
            part["weight"] = np.repeat(means, sizes)
        return part
    except (ValueError, TypeError) as error:
        raise DataError(f"partition {number}: {error}") from error


def _summary(part: dict[str, Any], objective: Any) -> dict[str, Any]:
    """Return what the client needs to know about a partition."""
    hessian = (0.0, 0)
    if objective is not None and len(part["y"]):
        offsets = np.concatenate(([0], np.cumsum(part["sizes"])))
        hessian = objective.hessian_at_equal_scores(objective.loss.plan(part["y"], offsets))
    return {"ids": part["ids"], "rows": len(part["y"]), "hessian": hessian}


@dataclass(frozen=True)
class _Part:
    """A partition in the memory of a worker, and what the client needs to know about it."""

    worker: str
    arrays: Any  # a future of the result of _prepared
    ids: NDArray[Any]
    rows: int
    hessian: tuple[float, int]


def _parts(frame: Any, columns: dict[str, Any], objective: Any, client: Any, workers: Sequence[str]) -> list[_Part]:
    """Return the prepared partitions that are not empty; each of the workers has adjacent ones."""
    from dask.delayed import delayed

    prepared = [delayed(_prepared)(partition, number, columns) for number, partition in enumerate(frame.to_delayed())]
    owners = [workers[number * len(workers) // len(prepared)] for number in range(len(prepared))]
    futures = [
        future
        for owner in dict.fromkeys(owners)
        for future in client.compute(
            [task for task, its_owner in zip(prepared, owners, strict=True) if its_owner == owner],
            workers=[owner],
            allow_other_workers=True,
        )
    ]
    summaries = client.gather([client.submit(_summary, future, objective, pure=False) for future in futures])
    first: dict[Any, int] = {}
    for number, summary in enumerate(summaries):
        for name in summary["ids"].tolist():
            if first.setdefault(name, number) != number:
                raise DataError(
                    f"query {name!r} is in the partitions {first[name]} and {number}, but all rows of a query must be "
                    f"in one; frame.shuffle({columns['query']!r}) sees to that"
                )
    parts = [
        _Part(owner, future, **summary)
        for owner, future, summary in zip(owners, futures, summaries, strict=True)
        if summary["rows"]
    ]
    if not parts:
        raise DataError("frame must have rows, got none")
    return parts


# ---- training --------------------------------------------------------------------------------------------------------


def _fitted(
    ranker: LambdaMART, frame: Any, eval_set: Any, columns: dict[str, Any], client: Any, workers: dict[str, str]
) -> LambdaMART:
    import lightgbm

    from rankbound.losses import lightgbm_objective
    from rankbound.models.tree_text import trees_alone

    ranker._check_ranges()
    is_own = ranker.objective != "lambdarank"
    objective = lightgbm_objective(ranker.objective, **ranker._loss_options()) if is_own else None
    parts = _parts(frame, columns, objective, client, list(workers))
    if objective is None:
        special = {"objective": "lambdarank", "lambdarank_truncation_level": ranker.truncation_level}
    else:
        totals = [sum(column) for column in zip(*(part.hessian for part in parts), strict=True)]
        special = {"objective": replace(objective, scale=objective.scale_for(*totals))}
    parameters = ranker._lightgbm_parameters({**ranker._boosting_parameters(), **special})
    text = _trees(parts, parameters, int(ranker.n_estimators), client, workers)
    best = None
    if eval_set is not None:
        values = _measured(ranker, text, eval_set, {**columns, "weight": None}, client, list(workers))
        best = _best_round(values, ranker.early_stopping_rounds)
        ranker.eval_score_ = values[best - 1]
    booster = lightgbm.Booster(model_str=text)
    ranker.n_features_in_ = len(columns["features"])
    ranker.feature_names_in_ = np.array(columns["features"], dtype=object)
    ranker._keep([lightgbm.Booster(model_str=trees_alone(booster.model_to_string(num_iteration=best)))])
    ranker.n_queries_ = sum(len(part.ids) for part in parts)
    return ranker


def _trees(parts: list[_Part], parameters: dict[str, Any], rounds: int, client: Any, folders: dict[str, str]) -> str:
    """Train on all workers that have partitions, and return the text of the trees, which all of them have."""
    workers = list(dict.fromkeys(part.worker for part in parts))
    folders = {worker: folders[worker] for worker in workers}
    if lost := _lost_workers(client, folders, 0):  # while the partitions were prepared
        raise ConnectionError(f"worker {min(lost)} was lost")
    threads = client.nthreads(workers=workers)
    ports = client.run(_reserve_port, workers=workers)
    machines = ",".join(f"{urlparse(worker).hostname}:{ports[worker]}" for worker in workers)
    futures = {
        worker: client.submit(
            _trained,
            [part.arrays for part in parts if part.worker == worker],
            {**parameters, "num_threads": threads[worker]},
            rounds,
            machines,
            ports[worker],
            workers=[worker],
            pure=False,
        )
        for worker in workers
    }
    failed: str | None = None
    while failed is None and not all(future.done() for future in futures.values()):
        time.sleep(0.1)
        failed = next((worker for worker, future in futures.items() if future.status in ("error", "lost")), None)
        if failed is None:
            failed = min(_lost_workers(client, folders, 0), default=None)
    if failed is not None:
        error = futures[failed].exception() if futures[failed].status == "error" else None
        lost = _lost_workers(client, folders)
        waiting = [worker for worker, future in futures.items() if not future.done()]
        client.cancel(list(futures.values()), force=True)
        _end(client, waiting, f"the training failed on worker {failed}")
        if not lost:
            raise DataError(f"LightGBM failed on worker {failed}: {error}") from error
        raise ConnectionError(f"worker {min(lost)} was lost") from error
    return str(futures[workers[0]].result())


_RESERVED: dict[int, socket.socket] = {}  # ports of this worker for trainings that have not begun


def _reserve_port() -> int:
    """Return a free port of this worker, which no other process takes until the training begins."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    port = int(reserved.getsockname()[1])
    _RESERVED[port] = reserved
    return port


def _trained(parts: list[dict[str, Any]], parameters: dict[str, Any], rounds: int, machines: str, port: int) -> str:
    """Train on the partitions of this worker, together with the others, and return the text of the trees."""
    import lightgbm

    from rankbound.models.tree_text import trees_alone

    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "ids"}
    data = lightgbm.Dataset(columns["X"], columns["y"], weight=columns.get("weight"), group=columns["sizes"])
    _RESERVED.pop(port).close()
    count = machines.count(",") + 1
    if count == 1:
        return trees_alone(lightgbm.train(parameters, data, rounds).model_to_string())
    network = {"machines": machines, "num_machines": count, "local_listen_port": port, "tree_learner": "data"}
    booster = lightgbm.train({**parameters, **network}, data, rounds)
    try:
        return trees_alone(booster.model_to_string())
    finally:
        booster.free_network()


def _measured(
    ranker: Any, trees: str, frame: Any, columns: dict[str, Any], client: Any, workers: Sequence[str]
) -> list[float]:
    """Return the mean of the measure over all held-out queries after every round."""
    parts = _parts(frame, columns, None, client, workers)
    tasks = [client.submit(_sums_by_round, part.arrays, trees, str(ranker.measure), pure=False) for part in parts]
    sums, counts = zip(*client.gather(tasks), strict=True)
    if sum(counts) == 0:
        raise DataError(f"{ranker.measure} is not defined for any query of eval_set, because none has a relevant item")
    return [math.fsum(column) / sum(counts) for column in zip(*sums, strict=True)]


def _sums_by_round(part: dict[str, Any], trees: str, measure: str) -> tuple[list[float], int]:
    """Return the sum of the measure over the queries after each round, and for how many queries it is defined."""
    import lightgbm

    from rankbound.evaluation import evaluate_lists

    booster = lightgbm.Booster(model_str=trees)
    lists = Lists(part["y"], np.concatenate(([0], np.cumsum(part["sizes"]))))
    scores, sums, count = np.zeros(len(part["y"])), [], 0
    for round_ in range(booster.num_trees()):
        scores = scores + booster.predict(part["X"], start_iteration=round_, num_iteration=1, num_threads=1)
        values = evaluate_lists(lists.with_scores(scores), [measure]).per_query[measure].drop_nulls().drop_nans()
        sums.append(math.fsum(values))
        count = len(values)
    return sums, count


def _best_round(values: list[float], patience: int | None) -> int:
    """Return the round with the best value, counted from 1, among those before an early stop."""
    best = 0
    for round_, value in enumerate(values):
        if value > values[best]:
            best = round_
        elif patience is not None and round_ - best >= patience:
            break
    return best + 1
