"""LambdaMART on the workers of a Dask cluster, by LightGBM's own distributed training.

Each partition of a Dask DataFrame holds whole queries. LightGBM's workers exchange histograms of gradients, so that a
tree is grown from all rows, while the objective sees the queries of one worker at a time. What depends on the whole
training set is computed before: the scale of the gradients. LightGBM's own evaluation is not used, because each worker
would measure its part of the held-out queries only. Instead, the measure of every round is computed after the training
from all held-out queries, and the round that the same data on one machine would have selected is kept.
"""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import labels_of, weights_of
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.packages import required_package
from rankbound.parallel import check_versions, open_client

if TYPE_CHECKING:
    from rankbound.models.trees import LambdaMART

__all__ = ["fit_on_dask"]

_ATTEMPTS = 3  # trainings that may lose a worker
_SECONDS_TO_NOTICE = 10
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

    With one worker, the trees are those of `LambdaMART.fit`. With more they are others, of about the same quality, that
    also depend on the worker that each partition is on, for three reasons. LightGBM's workers estimate the number of
    rows in a leaf from hessians, to which ``min_child_samples`` then applies. Each determines the bins of some features
    from its own rows. Noisy losses, such as the default, draw noise for the queries of a worker. Features with few
    values, ``min_child_samples=1`` and a loss without noise give the trees of one process up to rounding.

    If a worker dies, the training starts again with the workers that are there then, at most twice. A worker that still
    waits for the one that died inside LightGBM can block the second attempt for ever; restart the cluster then.
    """
    from rankbound.models.trees import LambdaMART

    if type(ranker) is not LambdaMART:
        raise ArgumentError(f"ranker must be a LambdaMART, got {type(ranker).__name__}")
    if ranker.objective == "lambdarank" and ranker.bounding != "none":
        raise ArgumentError("bounding of lambdarank must be none on Dask; objective='lambda-nDCG' accepts all")
    if ranker.categorical_features:
        raise ArgumentError("categorical_features must be empty on Dask")
    required_package("dask.dataframe", "cluster")
    columns = _columns(frame, label, query, weight, features)
    with _client(client) as opened:
        check_versions(opened, _PACKAGES)
        for attempt in range(1, _ATTEMPTS + 1):
            workers = _addresses(opened)
            try:
                return _fitted(ranker, frame, eval_set, columns, opened)
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
                _forget_connections(opened)
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


def _addresses(client: Any) -> set[str]:
    return set(client.scheduler_info(n_workers=-1)["workers"])


def _lost_workers(client: Any, before: set[str]) -> set[str]:
    """Return the workers that are no longer there; their neighbors may report an error before the scheduler notices."""
    end = time.monotonic() + _SECONDS_TO_NOTICE
    while not (lost := before - _addresses(client)) and time.monotonic() < end:
        time.sleep(0.2)
    return lost


def _forget_connections(client: Any) -> None:
    """Make all workers forget the connections of a training that failed, which LightGBM would use again.

    LightGBM keeps them in the thread of the training: every thread of a worker runs one of the tasks.
    """
    tasks = [
        client.submit(_free_network, workers=[worker], allow_other_workers=True, pure=False)
        for worker, threads in client.ncores().items()
        for _ in range(threads)
    ]
    client.gather(tasks, errors="skip")


def _free_network() -> None:
    from lightgbm.basic import _LIB

    _LIB.LGBM_NetworkFree()
    time.sleep(0.5)  # no thread of this worker takes a second task


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


def _parts(frame: Any, columns: dict[str, Any], objective: Any, client: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the prepared partitions that are not empty, in the memory of the workers, and their summaries."""
    from dask.delayed import delayed

    prepared = [delayed(_prepared)(partition, number, columns) for number, partition in enumerate(frame.to_delayed())]
    prepared = client.persist(prepared)
    summaries = client.gather(client.compute([delayed(_summary)(part, objective) for part in prepared]))
    first: dict[Any, int] = {}
    for number, summary in enumerate(summaries):
        for name in summary["ids"].tolist():
            if first.setdefault(name, number) != number:
                raise DataError(
                    f"query {name!r} is in the partitions {first[name]} and {number}, but all rows of a query must be "
                    f"in one; frame.shuffle({columns['query']!r}) sees to that"
                )
    kept = [number for number, summary in enumerate(summaries) if summary["rows"]]
    if not kept:
        raise DataError("frame must have rows, got none")
    return [prepared[number] for number in kept], [summaries[number] for number in kept]


# ---- training --------------------------------------------------------------------------------------------------------


def _fitted(ranker: LambdaMART, frame: Any, eval_set: Any, columns: dict[str, Any], client: Any) -> LambdaMART:
    import lightgbm
    from dask.delayed import delayed
    from lightgbm.dask import DaskLGBMRanker

    from rankbound.losses import lightgbm_objective
    from rankbound.models.tree_text import trees_alone

    ranker._check_ranges()
    objective = None
    if ranker.objective != "lambdarank":
        objective = lightgbm_objective(ranker.objective, **ranker._loss_options())
    parts, summaries = _parts(frame, columns, objective, client)
    if objective is not None:
        totals = [sum(column) for column in zip(*(summary["hessian"] for summary in summaries), strict=True)]
        objective = replace(objective, scale=objective.scale_for(*totals))

    da: Any = importlib.import_module("dask.array")  # it has no types

    def column(name: str, lengths: list[int], dtype: Any, width: int | None = None) -> Any:
        chunks = [
            da.from_delayed(delayed(dict.get)(part, name), (rows,) if width is None else (rows, width), dtype)
            for part, rows in zip(parts, lengths, strict=True)
        ]
        return da.concatenate(chunks)

    rows, counts = [summary["rows"] for summary in summaries], [len(summary["ids"]) for summary in summaries]
    boosting = ranker._boosting_parameters()
    estimator = DaskLGBMRanker(
        client=client,
        n_estimators=int(ranker.n_estimators),
        objective="lambdarank" if objective is None else objective,
        learning_rate=boosting["learning_rate"],
        num_leaves=boosting["num_leaves"],
        max_depth=boosting["max_depth"],
        min_child_samples=boosting["min_data_in_leaf"],
        reg_lambda=boosting["lambda_l2"],
        subsample=boosting["bagging_fraction"],
        subsample_freq=boosting["bagging_freq"],
        colsample_bytree=boosting["feature_fraction"],
        random_state=0 if ranker.random_state is None else ranker.random_state,
        verbosity=-1,
        force_row_wise=True,
        deterministic=True,
        feature_pre_filter=False,
        min_data_in_bin=1,
        metric="None",
        **({"lambdarank_truncation_level": ranker.truncation_level} if objective is None else {}),
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Parameter n_jobs will be ignored")  # LightGBM's own default is meant
        estimator.fit(
            column("X", rows, np.float32, len(columns["features"])),
            column("y", rows, np.float64),
            group=column("sizes", counts, np.int64),
            sample_weight=None if columns["weight"] is None else column("weight", rows, np.float64),
        )
    text = trees_alone(estimator.booster_.model_to_string())
    best = None
    if eval_set is not None:
        values = _measured(ranker, text, eval_set, {**columns, "weight": None}, client)
        best = _best_round(values, ranker.early_stopping_rounds)
        ranker.eval_score_ = values[best - 1]
    booster = lightgbm.Booster(model_str=text)
    ranker.n_features_in_ = len(columns["features"])
    ranker.feature_names_in_ = np.array(columns["features"], dtype=object)
    ranker._keep([lightgbm.Booster(model_str=trees_alone(booster.model_to_string(num_iteration=best)))])
    ranker.n_queries_ = sum(counts)
    return ranker


def _measured(ranker: Any, trees: str, frame: Any, columns: dict[str, Any], client: Any) -> list[float]:
    """Return the mean of the measure over all held-out queries after every round."""
    from dask.delayed import delayed

    parts, _ = _parts(frame, columns, None, client)
    tasks = [delayed(_sums_by_round)(part, trees, str(ranker.measure)) for part in parts]
    sums, counts = zip(*client.gather(client.compute(tasks)), strict=True)
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
