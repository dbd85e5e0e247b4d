"""tune: search for the ranker that ranks validation queries best, within a budget, resumable."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound import __version__
from rankbound.analysis.inference import Inference
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.io import atomic_write
from rankbound.measures.measure import parse_measure
from rankbound.parallel import cores
from rankbound.tuning.log import TrialLog, TrialRecord
from rankbound.tuning.progress import ProgressCallback, TuneProgress
from rankbound.tuning.pruning import thresholds
from rankbound.tuning.result import TuneResult, optimism_note, trials_table
from rankbound.tuning.sampling import OTHER_MODELS_FROM, choose_model, resolve_sampler, suggest
from rankbound.tuning.space import ModelSpace, make_spaces
from rankbound.tuning.trial import Part, SearchData, Task, refit_ranker, run_task
from rankbound.tuning.workers import finished_tasks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rankbound.models import Ranker

__all__ = ["DEFAULT_MEASURE", "DEFAULT_MINUTES", "tune"]

DEFAULT_MEASURE = "nDCG(dcg='exp-log2')@10"
DEFAULT_MINUTES = 10.0
_LAG = 8
_NETWORKS_FROM = 40  # first trial of a network, unless it was requested: it takes as long as many trials of trees
_FAILURES = 5  # a search whose first trials all fail ends with the error of the first
_LARGEST_LAMBDARANK_LABEL = 30


def tune(
    X: Any,
    y: ArrayLike,
    *,
    qid: ArrayLike,
    eval_set: tuple[Any, Any, Any] | None = None,
    test_set: tuple[Any, Any, Any] | None = None,
    measure: Any = DEFAULT_MEASURE,
    models: Sequence[str] | None = None,
    space: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    trials: int | None = None,
    sampler: str = "auto",
    pruning: bool = True,
    valid_fraction: float = 0.2,
    refit: bool = False,
    folder: str | PathLike[str] | None = None,
    page: bool | str | PathLike[str] = True,
    jobs: int | None = None,
    cluster: str | None = None,
    modules: Iterable[str] = (),
    seed: int = 0,
    inference: Inference | None = None,
    progress: ProgressCallback | None = None,
) -> TuneResult:
    """Choose model, loss, bounding and parameters on validation queries, within a budget of time or trials.

    The first trials are settings that are known to work, the others are suggested by TPE (Optuna) or drawn at random.
    A trial trains a model, the validation queries select its step (round or epoch), and trials that fall behind the
    median of those before end early. The model with the highest mean measure on the validation queries is chosen. That
    value is optimistic, the more so the more trials there are: pass a ``test_set``, which is used once, for the chosen
    model.

    Parameters
    ----------
    X, y, qid:
        Features, labels and the query of each row, as for `Ranker.fit`.
    eval_set:
        ``(X, y, qid)`` of the validation queries. None: a random fraction of the queries is held out.
    test_set:
        ``(X, y, qid)`` of queries for the chosen model alone.
    measure:
        The measure that selects.
    models:
        Names of rankers. None: those of ``space``, or LambdaMART and, from trial 40 on, MLPRanker.
    space:
        Model -> parameter -> range, such as ``{"LambdaMART": {"learning_rate": ["log", 0.02, 0.2]}}``; see
        `rankbound.tuning.space`. It replaces the default space of a model.
    params:
        Fixed parameters, for all models that have them.
    minutes, trials:
        The budget: the time of all runs in ``folder`` together, and the number of trials. None: no limit; both None: 10
        minutes. A trial that is running when the time is over ends after its current step.
    sampler:
        "tpe" (needs Optuna), "random", or "auto": TPE where Optuna is installed.
    pruning:
        End trials early that fall behind; see `rankbound.tuning.pruning`.
    valid_fraction:
        Fraction of the queries that are held out without an ``eval_set``.
    refit:
        Fit the chosen setting again on training and validation queries, with the number of steps that was selected.
    folder:
        Where trials, table, page and model are kept. A search that was interrupted, even killed, resumes when it is
        called again with the same arguments; finished trials are never repeated. Budget and workers may differ. None:
        nothing is written.
    page:
        Write ``report.html`` to the folder, or a page to this path; False writes none.
    jobs:
        Worker processes; None takes all cores. With 0, trials run one after another in this process. The cores are
        divided among the workers.
    cluster:
        A Dask cluster instead: ``local:N`` or the address of a scheduler.
    modules:
        Modules to import in every worker, such as one that defines the measure.
    seed:
        Seed of suggestions, of the held-out queries and of all models.
    inference:
        The policy for intervals.
    progress:
        Called with a `TuneProgress` at every stage and after every trial.

    Notes
    -----
    The suggestion for a trial uses the results of trials that are at least 8 before it (as many as there are workers,
    if these are more), and not those that happen to be finished. With a budget of trials, the result therefore does not
    depend on the number of workers up to 8, nor on interruptions; with a budget of time, speed decides how many trials
    there are.

    >>> from rankbound.data import synthetic_letor
    >>> data = synthetic_letor(queries=40, seed=1)
    >>> columns = (data.features, data.lists.labels)
    >>> space = {"num_leaves": ["int", 3, 15], "n_estimators": 10, "min_child_samples": 5}
    >>> result = tune(*columns, qid=data.lists.query_of_item, models=["LambdaMART"], space=space, trials=3, jobs=0)
    >>> len(result.records), type(result.ranker).__name__, result.table.columns[:4]
    (3, 'LambdaMART', ['trial', 'model', 'status', 'value'])
    """
    budget = _Budget.of(minutes, trials)
    sampler, seed = resolve_sampler(sampler), _check_seed(seed)
    workers = _check_workers(jobs, cluster)
    wanted_page = _page_path(page, folder)
    prepared = _prepare(X, y, qid, eval_set, test_set, str(parse_measure(measure)), models, space, params,
                        valid_fraction, seed)  # fmt: skip
    from rankbound.experiments.modules import module_digests

    digests = module_digests(modules)
    if workers != 0 and not digests and not parse_measure(prepared.measure).definition.built_in:
        raise ArgumentError(
            f"workers do not know {prepared.measure}, which is registered in this process only: define it in a module "
            "and name it in modules (--module), or set jobs=0"
        )
    identity = {
        "rankbound": __version__, "measure": prepared.measure, "seed": seed, "sampler": sampler,
        "pruning": bool(pruning), "spaces": {name: one.to_dict() for name, one in prepared.spaces.items()},
        "modules": digests, "train": _digest(prepared.data.train), "valid": _digest(prepared.data.valid),
    }  # fmt: skip
    report = progress or (lambda _: None)
    policy = inference or Inference()
    with TrialLog(folder, identity).opened() as log:
        before = len(log.records)
        report(TuneProgress("kernels"))
        _warm_up(prepared.spaces)
        queue = _TrialQueue(log, prepared, budget, sampler, pruning, seed, digests, max(_LAG, workers))
        _search(queue, workers, cluster, report)
        report(TuneProgress("final"))
        result = _finished(log, prepared, refit, seed, before, policy)
        if log.folder is not None:
            result.ranker.save(log.folder / "model")
            with atomic_write(log.folder / "trials.csv") as temporary:
                result.table.write_csv(temporary)
        if wanted_page is not None:
            from rankbound.tuning.page import write_tuning_page

            report(TuneProgress("page"))
            path = write_tuning_page(wanted_page, result, title="Tuning", inference=policy)
            result = replace(result, page=path)
    return result


# ---- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Budget:
    """Seconds and number of trials; None is no limit."""

    seconds: float | None
    trials: int | None

    @staticmethod
    def of(minutes: Any, trials: Any) -> _Budget:
        is_number = isinstance(minutes, (int, float, np.number)) and not isinstance(minutes, bool)
        if minutes is not None and not (is_number and 0 < minutes < math.inf):
            raise ArgumentError(f"minutes must be a positive number or None, got {minutes!r}")
        is_count = isinstance(trials, (int, np.integer)) and not isinstance(trials, bool)
        if trials is not None and not (is_count and trials > 0):
            raise ArgumentError(f"trials must be a positive integer or None, got {trials!r}")
        if minutes is None and trials is None:
            minutes = DEFAULT_MINUTES
        return _Budget(None if minutes is None else 60.0 * float(minutes), None if trials is None else int(trials))


def _check_seed(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ArgumentError(f"seed must be an integer of at least 0, got {seed!r}")
    return int(seed)


def _check_workers(jobs: Any, cluster: str | None) -> int:
    from rankbound.experiments.runner import MOST_JOBS, worker_count

    if jobs is not None and (not isinstance(jobs, (int, np.integer)) or isinstance(jobs, bool) or jobs < 0):
        raise ArgumentError(f"jobs must be a positive integer, 0 or None, got {jobs!r}")
    jobs = None if jobs is None else int(jobs)
    if cluster is not None:
        return worker_count(jobs, cluster)
    return cores() if jobs is None else min(jobs, MOST_JOBS)


def _page_path(page: Any, folder: str | PathLike[str] | None) -> Path | None:
    if page is False or (page is True and folder is None):
        return None
    from rankbound.report.page import check_can_render

    check_can_render()
    return Path(str(folder)) / "report.html" if page is True else Path(page)


# ---- data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Everything that is checked before the first file is written."""

    data: SearchData
    test: Part | None
    spaces: Mapping[str, ModelSpace]
    measure: str
    feature_names: Any
    others_from: int


def _prepare(
    X: Any, y: Any, qid: Any, eval_set: Any, test_set: Any, measure: str, models: Any, space: Any, params: Any,
    valid_fraction: Any, seed: int,
) -> _Prepared:  # fmt: skip
    from rankbound import models as rankers
    from rankbound.models.measuring import informative_queries, score_measure

    score_measure(measure)
    if qid is None:
        raise ArgumentError("qid must be the query of each row, got None")
    is_fraction = isinstance(valid_fraction, (int, float)) and not isinstance(valid_fraction, bool)
    if not (is_fraction and 0 < valid_fraction < 1):
        raise ArgumentError(f"valid_fraction must lie between 0 and 1, got {valid_fraction!r}")
    params = dict(params or {})
    names = list(make_spaces(models, space, params))
    probes = {name: getattr(rankers, name)() for name in names}
    probe = probes[names[0]]
    every = probe._queries(X, y, qid, None, reset=True)
    if models is None and space is None:  # a default model may refuse what the first one accepts, such as NaN
        names = [names[0], *(name for name in names[1:] if _takes(probes[name], every.features))]
    for name in names[1:]:
        probes[name]._features(every.features, reset=True)
    feature_names = getattr(probe, "feature_names_in_", None)
    if feature_names is not None and "categorical_features" in params:  # trials see columns without names
        columns = {str(name): index for index, name in enumerate(feature_names)}
        params["categorical_features"] = [columns.get(name, name) for name in params["categorical_features"]]
    whole = Part(every.features, every.lists.labels, every.lists.offsets)
    if eval_set is None:
        data = _split(whole, float(valid_fraction), seed)
    else:
        data = SearchData(whole, _part(probe, "eval_set", eval_set))
    test = None if test_set is None else _part(probe, "test_set", test_set)
    labels = data.train.labels
    for name in names:
        probes[name]._check_labels(_queries(data.train))
    for role, part in (("validation", data.valid), ("test", test)):
        if part is None:
            continue
        try:
            informative_queries(part.lists, parse_measure(measure))
        except DataError as error:
            raise DataError(f"{role} queries: {error}") from error
    integers = np.issubdtype(labels.dtype, np.integer) or bool((labels == np.rint(labels)).all())
    lambdarank = integers and float(labels.max()) <= _LARGEST_LAMBDARANK_LABEL
    spaces = make_spaces(names if models is None and space is None else models, space, params,
                         accepts_lambdarank=lambdarank)  # fmt: skip
    others_from = _NETWORKS_FROM if models is None and space is None else OTHER_MODELS_FROM
    return _Prepared(data, test, spaces, measure, feature_names, others_from)


def _takes(probe: Ranker, features: Any) -> bool:
    try:
        probe._features(features, reset=True)
    except DataError:
        return False
    return True


def _queries(part: Part) -> Any:
    from rankbound.models.base import Queries

    return Queries(part.features, part.lists)


def _part(probe: Ranker, name: str, columns: Any) -> Part:
    if not isinstance(columns, (tuple, list)) or len(columns) != 3:
        raise ArgumentError(f"{name} must be (X, y, qid)")
    try:
        X, y, qid = columns
        queries = probe._queries(X, y, qid, None, reset=False)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    return Part(queries.features, queries.lists.labels, queries.lists.offsets)


def _split(whole: Part, fraction: float, seed: int) -> SearchData:
    """Hold out a random fraction of the queries, at least one."""
    queries = len(whole.offsets) - 1
    if queries < 2:
        raise DataError(f"data must have at least 2 queries to hold some out for validation, got {queries}")
    count = min(max(1, round(fraction * queries)), queries - 1)
    held_out = np.zeros(queries, dtype=bool)
    held_out[np.random.default_rng(seed).permutation(queries)[:count]] = True
    sizes = np.diff(whole.offsets)

    def part(chosen: Any) -> Part:
        rows = np.repeat(chosen, sizes)
        return Part(whole.features[rows], whole.labels[rows], np.concatenate(([0], np.cumsum(sizes[chosen]))))

    return SearchData(part(~held_out), part(held_out))


def _digest(part: Part) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in (part.features, part.labels, part.offsets):
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _warm_up(spaces: Mapping[str, ModelSpace]) -> None:
    """Compile or load the kernels of all losses that may be tried, before the clock starts."""
    from rankbound.losses import warm_up
    from rankbound.models.by_name import parameters_of

    losses: list[Any] = []
    for name, one in spaces.items():
        for parameter in ("objective", "loss"):
            if parameter in one.ranges:
                losses += one.ranges[parameter].choices
            elif parameter in (known := parameters_of(name)):
                losses.append(one.fixed.get(parameter, known[parameter]))
    if wanted := [loss for loss in dict.fromkeys(losses) if loss != "lambdarank"]:
        warm_up(*wanted)


# ---- the search ------------------------------------------------------------------------------------------------------


class _TrialQueue:
    """The trials in order. It ends where the next one needs a result that is missing, and continues after it."""

    def __init__(
        self,
        log: TrialLog,
        prepared: _Prepared,
        budget: _Budget,
        sampler: str,
        pruning: bool,
        seed: int,
        modules: Mapping[str, str],
        lag: int,
    ) -> None:
        self.log, self.prepared, self.budget = log, prepared, budget
        self.folder = ""
        self._sampler, self._pruning, self._seed, self._modules, self._lag = sampler, pruning, seed, modules, lag
        self._settings = {number: (record.model, record.params) for number, record in log.records.items()}
        self._launched: set[int] = set()
        self._before, self._began = log.elapsed, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds of the search, over all runs."""
        return self._before + time.monotonic() - self._began

    @property
    def _seconds_left(self) -> float | None:
        return None if self.budget.seconds is None else self.budget.seconds - self.elapsed

    @property
    def _next(self) -> int:
        number = 1
        while number in self.log.records or number in self._launched:
            number += 1
        return number

    @property
    def has_more(self) -> bool:
        """Whether the budget allows a further trial; there is always a first one."""
        if not self.log.records and not self._launched:
            return True
        left = self._seconds_left
        return (left is None or left > 0) and (self.budget.trials is None or self._next <= self.budget.trials)

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        number = self._next
        if not self.has_more or any(earlier not in self.log.records for earlier in range(1, number - self._lag + 1)):
            raise StopIteration
        model, params = self._setting(number)
        self._settings[number] = model, params
        self._launched.add(number)
        best, left = self.log.best, self._seconds_left
        known = [record for record in self._known(number) if record.model == model]
        return Task(
            number,
            model,
            params,
            self.prepared.measure,
            self._seed,
            thresholds(known) if self._pruning else {},
            None if left is None else max(0.0, left),
            None if best is None else best.value,
            self._modules,
            self.folder,
        )

    def _known(self, number: int) -> list[TrialRecord]:
        """The finished trials whose results a trial may use."""
        earlier = (self.log.records[n] for n in range(1, number - self._lag + 1))
        return [record for record in earlier if record.status != "failed"]

    def _setting(self, number: int) -> tuple[str, dict[str, Any]]:
        known = self._known(number)
        earlier = [self._settings[n] for n in range(1, number)]
        model, start = choose_model(
            self.prepared.spaces, number, self._seed, [name for name, _ in earlier], known, self.prepared.others_from
        )
        space = self.prepared.spaces[model]
        if start is None:
            finished = [record for record in known if record.model == model]
            running = [params for name, params in earlier[max(0, number - self._lag) :] if name == model]
            start = suggest(space, self._sampler, number, self._seed, finished, running)
        return model, {**space.fixed, **start}


def _search(queue: _TrialQueue, workers: int, cluster: str | None, report: Callable[[TuneProgress], None]) -> None:
    log, budget = queue.log, queue.budget

    def state(last: TrialRecord | None) -> TuneProgress:
        return TuneProgress(
            "trials", len(log.records), budget.trials, queue.elapsed, budget.seconds, queue.prepared.measure, log.best,
            last,
        )  # fmt: skip

    report(state(None))
    if not queue.has_more:
        return
    for record, ranker in finished_tasks(queue, queue.prepared.data, workers, cluster, log.folder):
        record = replace(record, elapsed=queue.elapsed)
        log.add(record, ranker)
        report(state(record))
        if len(log.records) >= _FAILURES and log.best is None:
            break
    if log.best is None:
        raise _all_failed(log)


def _all_failed(log: TrialLog) -> DataError:
    first = log.records[min(log.records)]
    return DataError(
        f"all {len(log.records)} trials failed; trial {first.number}, {first.model}: {first.error.splitlines()[0]}"
    )


def _finished(log: TrialLog, prepared: _Prepared, refit: bool, seed: int, before: int, policy: Inference) -> TuneResult:
    best = log.best
    if best is None:  # a search that is resumed after all of its trials failed
        raise _all_failed(log)
    measure, data = prepared.measure, prepared.data
    if refit:
        ranker = refit_ranker(best, data, measure, seed)
    else:
        ranker = log.best_ranker() or run_task(Task(best.number, best.model, best.params, measure, seed), data)[1]
    assert ranker is not None
    records = tuple(log.records[number] for number in sorted(log.records))
    queries = {"training": len(data.train.offsets) - 1, "validation": len(data.valid.offsets) - 1}
    test = None
    if prepared.test is not None:
        queries["test"] = len(prepared.test.offsets) - 1
        test = _test_value(ranker, prepared.test, measure, policy)
    if prepared.feature_names is not None:
        ranker.feature_names_in_ = prepared.feature_names
    notes = [optimism_note(len(records))]
    counted = int((~np.isnan(best.values)).sum())
    notes += policy.notes({measure: counted})
    return TuneResult(
        ranker, best, records, trials_table(records, best, policy), measure, queries, test, refit, log.elapsed,
        len(records) - before, tuple(notes), log.folder,
    )  # fmt: skip


def _test_value(ranker: Ranker, part: Part, measure: str, policy: Inference) -> dict[str, float]:
    features, _, qid = part.columns
    scores = ranker.predict(features, qid)
    evaluation = evaluate_lists(part.lists.with_scores(scores), [measure])
    values = np.asarray(evaluation.values[measure], dtype=np.float64)
    values = values[~np.isnan(values)]
    low, high = (float("nan"),) * 2
    if len(values) > 1:
        low, high = map(float, policy.intervals(values[:, None])[:, 0])
    return {"mean": float(evaluation.mean()[measure]), "low": low, "high": high}
