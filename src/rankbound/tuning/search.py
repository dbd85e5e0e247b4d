"""tune: search for the ranker that ranks validation queries best, within a budget, resumable."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbound import __version__
from rankbound.data.letor import LetorData
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.inference import Inference
from rankbound.io import atomic_write, locked_file
from rankbound.lists import Lists
from rankbound.measures.measure import parse_measure
from rankbound.models.parameters import check_choice
from rankbound.packages import check_packages
from rankbound.parallel import check_address, cores, module_digests
from rankbound.tuning.progress import ProgressCallback, TuneProgress
from rankbound.tuning.result import TuneResult, optimism_note, trials_table
from rankbound.tuning.space import ModelSpace, make_spaces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from rankbound.measures.measure import Measure
    from rankbound.models import Ranker
    from rankbound.tuning.study import Search, TrialRecord, TrialStudy
    from rankbound.tuning.trial import SearchData

DEFAULT_MEASURE = "nDCG(dcg='exp-log2')@10"
DEFAULT_MINUTES = 10.0
SAMPLERS = ("tpe", "random")
_OTHER_MODELS_FROM = 8  # first trial of the second and later models: a small budget goes to the first one
_NETWORKS_FROM = 40  # the same for a network that was not requested: it takes as long as many trials of trees
_LARGEST_LAMBDARANK_LABEL = 30
_MOST_JOBS = 1_000  # processes; systems refuse many more


def tune(
    X: Any,
    y: ArrayLike,
    *,
    qid: ArrayLike,
    eval_set: tuple[Any, Any, Any] | None = None,
    test_set: tuple[Any, Any, Any] | None = None,
    measure: str | Measure = DEFAULT_MEASURE,
    models: Sequence[str] | None = None,
    space: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    trials: int | None = None,
    sampler: str = "tpe",
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

    The search is an Optuna study. Its first trials are settings that are known to work, the others are suggested by TPE
    or drawn at random. A trial trains a model, the validation queries select its step (round or epoch), and trials that
    fall behind the median of those before end early. The model with the highest mean measure on the validation queries
    is chosen. That value is optimistic, the more so the more trials there are: pass a ``test_set``, which is used once,
    for the chosen model.

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
        "tpe" or "random".
    pruning:
        End trials early that fall behind; see `rankbound.tuning.trial`.
    valid_fraction:
        Fraction of the queries that are held out without an ``eval_set``.
    refit:
        Fit the chosen setting again on training and validation queries, with the number of steps that was selected.
    folder:
        Where trials, table, page and model are kept; ``study.log`` in it is the journal of the Optuna study. A search
        that was interrupted, even killed, resumes when it is called again with the same arguments; finished trials are
        never repeated. Budget and workers may differ. None: nothing is kept.
    page:
        Write ``report.html`` to the folder, or a page to this path; False writes none.
    jobs:
        Worker processes; None takes all cores. With 0, trials run one after another in this process. The cores are
        divided among the workers.
    cluster:
        A Dask cluster instead: ``local:N`` or the address of a scheduler whose workers see ``folder``.
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
    With one worker and a budget of trials, equal arguments give equal results, also when the search is interrupted
    between two trials. With several workers, suggestions depend on the order in which trials finish; with a budget of
    time, speed decides how many trials there are.

    >>> from rankbound.data import synthetic_letor
    >>> data = synthetic_letor(queries=40, seed=1)
    >>> columns = (data.features, data.lists.labels)
    >>> space = {"num_leaves": ["int", 3, 15], "n_estimators": 10, "min_child_samples": 5}
    >>> result = tune(*columns, qid=data.lists.query_of_item, models=["LambdaMART"], space=space, trials=3, jobs=0)
    >>> len(result.records), type(result.ranker).__name__, result.table.columns[:4]
    (3, 'LambdaMART', ['trial', 'model', 'status', 'value'])
    """
    check_packages("tune", "optuna")
    trials, seconds = _check_budget(trials, minutes)
    check_choice("sampler", sampler, SAMPLERS)
    _check_count("seed", seed, 0, "an integer of at least 0")
    seed, workers = int(seed), _count_workers(jobs, cluster)
    wanted_page = _page_path(page, folder)
    measure = str(parse_measure(measure))
    queries = _prepare_queries(
        (X, y, qid), eval_set, test_set, measure, _Wanted(models, space, params), valid_fraction, seed
    )
    digests = module_digests(modules)
    if workers != 0 and not digests and not parse_measure(measure).definition.built_in:
        raise ArgumentError(
            f"workers do not know {measure}, which is registered in this process only: define it in a module and name "
            "it in modules (--module), or set jobs=0"
        )
    from rankbound.tuning.study import Search

    report, policy = progress or (lambda _: None), inference or Inference()
    with tempfile.TemporaryDirectory(prefix="rankbound-tune-") as temporary:
        first_model_trials = (_OTHER_MODELS_FROM if models or space else _NETWORKS_FROM) - 1
        search = Search(
            Path(temporary if folder is None else folder),
            measure,
            queries.spaces,
            sampler,
            bool(pruning),
            seed,
            first_model_trials,
            digests,
            trials,
            seconds,
        )
        with _hold_folder(search, queries.data):
            ran = _run_search(search, queries.data, workers, cluster, report)
            report(TuneProgress("final"))
            result = _make_result(search, queries, refit, ran, policy)
            if folder is None:
                result = replace(result, folder=None)
            else:
                result.ranker.save(search.folder / "model")
                with atomic_write(search.folder / "trials.csv") as path:
                    result.table.write_csv(path)
            if wanted_page is not None:
                from rankbound.tuning.page import write_tuning_page

                report(TuneProgress("page"))
                path = write_tuning_page(wanted_page, result, title="Tuning", inference=policy)
                result = replace(result, page=path)
    return result


# ---- arguments -------------------------------------------------------------------------------------------------------


def _check_count(name: str, value: object, least: int, rule: str) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"{name} must be {rule}, got {value!r}")


def _check_budget(trials: int | None, minutes: float | None) -> tuple[int | None, float | None]:
    """Return the budget as a number of trials and seconds; None is no limit."""
    is_number = isinstance(minutes, (int, float, np.number)) and not isinstance(minutes, bool)
    if minutes is not None and not (is_number and 0 < minutes < math.inf):
        raise ArgumentError(f"minutes must be a positive number or None, got {minutes!r}")
    if trials is not None:
        _check_count("trials", trials, 1, "a positive integer or None")
    elif minutes is None:
        minutes = DEFAULT_MINUTES
    return None if trials is None else int(trials), None if minutes is None else 60.0 * float(minutes)


def _count_workers(jobs: int | None, cluster: str | None) -> int:
    """Return the number of worker processes; 0 is none."""
    if jobs is not None:
        _check_count("jobs", jobs, 0, "a positive integer, 0 or None")
    if cluster is not None:
        check_address(cluster)
    return cores() if jobs is None or cluster is not None else min(int(jobs), _MOST_JOBS)


def _page_path(page: bool | str | PathLike[str], folder: str | PathLike[str] | None) -> Path | None:
    if page is False or (page is True and folder is None):
        return None
    from rankbound.report.page import check_can_render

    check_can_render()
    return Path(str(folder)) / "report.html" if page is True else Path(page)


# ---- data ------------------------------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    """Models, space and fixed parameters, as the user gave them."""

    models: Any
    space: Any
    params: Any

    @property
    def is_default(self) -> bool:
        """Whether the user named neither models nor spaces."""
        return self.models is None and self.space is None


@dataclass(frozen=True, eq=False)
class _Queries:
    """Queries and spaces, checked before the first file is written."""

    data: SearchData
    test: LetorData | None
    spaces: Mapping[str, ModelSpace]
    feature_names: Any


def _prepare_queries(
    columns: Any, eval_set: Any, test_set: Any, measure: str, wanted: _Wanted, valid_fraction: Any, seed: int
) -> _Queries:
    from rankbound import models as rankers
    from rankbound.models.base import Queries
    from rankbound.models.measuring import informative_queries, score_measure
    from rankbound.tuning.trial import SearchData

    score_measure(measure)
    if columns[2] is None:
        raise ArgumentError("qid must be the query of each row, got None")
    is_fraction = isinstance(valid_fraction, (int, float)) and not isinstance(valid_fraction, bool)
    if not (is_fraction and 0 < valid_fraction < 1):
        raise ArgumentError(f"valid_fraction must lie between 0 and 1, got {valid_fraction!r}")
    params = dict(wanted.params or {})
    names = list(make_spaces(wanted.models, wanted.space, params))
    probes: dict[str, Ranker] = {name: getattr(rankers, name)() for name in names}
    probe = probes[names[0]]
    whole = _read_queries(probe, "data", columns, reset=True)
    if wanted.is_default:  # a default model may refuse what the first one accepts, such as NaN
        names = [names[0], *(name for name in names[1:] if _accepts_features(probes[name], whole))]
    for name in names[1:]:
        probes[name]._features(whole.features, reset=True)
    feature_names = getattr(probe, "feature_names_in_", None)
    if feature_names is not None and "categorical_features" in params:  # trials see columns without names
        positions = {str(name): index for index, name in enumerate(feature_names)}
        params["categorical_features"] = [positions.get(name, name) for name in params["categorical_features"]]
    if eval_set is None:
        data = _split_queries(whole, float(valid_fraction), seed)
    else:
        data = SearchData(whole, _read_queries(probe, "eval_set", eval_set))
    test = None if test_set is None else _read_queries(probe, "test_set", test_set)
    for name in names:
        probes[name]._check_labels(Queries(data.train.features, data.train.lists))
    for role, part in (("validation", data.valid), ("test", test)):
        if part is not None:
            try:
                informative_queries(part.lists, parse_measure(measure))
            except DataError as error:
                raise DataError(f"{role} queries: {error}") from error
    labels = data.train.lists.labels
    accepts_lambdarank = bool((labels == np.rint(labels)).all()) and float(labels.max()) <= _LARGEST_LAMBDARANK_LABEL
    wanted_names = names if wanted.is_default else wanted.models
    spaces = make_spaces(wanted_names, wanted.space, params, accepts_lambdarank=accepts_lambdarank)
    return _Queries(data, test, spaces, feature_names)


def _accepts_features(probe: Ranker, part: LetorData) -> bool:
    try:
        probe._features(part.features, reset=True)
    except DataError:
        return False
    return True


def _read_queries(probe: Ranker, name: str, columns: Any, *, reset: bool = False) -> LetorData:
    if not isinstance(columns, (tuple, list)) or len(columns) != 3:
        raise ArgumentError(f"{name} must be (X, y, qid)")
    try:
        X, y, qid = columns
        queries = probe._queries(X, y, qid, None, reset=reset)
    except DataError as error:
        if reset:
            raise
        raise DataError(f"{name}: {error}") from error
    return LetorData(Lists(queries.lists.labels, queries.lists.offsets), queries.features)


def _split_queries(whole: LetorData, fraction: float, seed: int) -> SearchData:
    """Hold out a random fraction of the queries, at least one."""
    from rankbound.tuning.trial import SearchData

    queries = len(whole.lists)
    if queries < 2:
        raise DataError(f"data must have at least 2 queries to hold some out for validation, got {queries}")
    count = min(max(1, round(fraction * queries)), queries - 1)
    shuffled = np.random.default_rng(seed).permutation(queries)
    return SearchData(whole.take(np.sort(shuffled[count:])), whole.take(np.sort(shuffled[:count])))


# ---- the search ------------------------------------------------------------------------------------------------------


@contextmanager
def _hold_folder(search: Search, data: SearchData) -> Iterator[None]:
    """Hold the folder of a search during the block, after checking that it has no other search."""
    folder = search.folder
    index = folder / "tune.json"
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{folder}: is a file, expected a folder for the search")
    if folder.is_dir() and not index.exists() and any(path.name != "lock" for path in folder.iterdir()):
        raise ArgumentError(f"{folder}: exists and is not the folder of a search; choose another folder")
    spent = ("folder", "trials", "seconds", "began")
    identity = {name: value for name, value in search.to_dict().items() if name not in spent}
    identity |= {"rankbound": __version__, "train": _digest(data.train), "valid": _digest(data.valid)}
    identity = json.loads(json.dumps(identity))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        conflict = f"is tuning in {folder}; wait until it is done, or choose another folder"
        with locked_file(folder / "lock", conflict):
            if index.exists():
                _check_identity(index, identity)
            else:
                with atomic_write(index) as path:
                    path.write_text(json.dumps(identity, indent=1), encoding="utf-8")
            yield
    except OSError as error:
        raise DataError(f"{folder}: cannot be used: {error.strerror or error}") from error


def _check_identity(index: Path, identity: Mapping[str, Any]) -> None:
    try:
        known = json.loads(index.read_text(encoding="utf-8"))
        changed = sorted(name for name in known.keys() | identity.keys() if known.get(name) != identity.get(name))
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{index}: is damaged: {error}; choose another folder") from error
    if changed:
        raise DataError(
            f"{index.parent}: contains another search, which differs in {', '.join(changed)}; choose another folder"
        )


def _digest(part: LetorData) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in (part.features, part.lists.labels, part.lists.offsets):
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _run_search(
    search: Search, data: SearchData, workers: int, cluster: str | None, report: Callable[[TuneProgress], None]
) -> int:
    """Run trials until the budget is spent, and return the number of those that were run now."""
    from rankbound.tuning.study import JOURNAL, TrialStudy, drop_partial_line, find_best
    from rankbound.tuning.trial import run_trials
    from rankbound.tuning.workers import run_workers

    drop_partial_line(search.folder / JOURNAL)
    study = TrialStudy(search)
    study.repair()
    before = study.records()
    elapsed = max((record.elapsed for record in before), default=0.0)
    study.search = search = replace(search, began=time.time() - elapsed)
    reported = len(before)

    def report_state(records: Sequence[TrialRecord], last: TrialRecord | None = None) -> None:
        spent = (len(records), search.trials, search.elapsed, search.seconds)
        report(TuneProgress("trials", *spent, search.measure, find_best(records), last))

    def watch(watched: TrialStudy) -> None:
        nonlocal reported
        records = watched.records()
        for last in sorted(records, key=lambda record: record.elapsed)[reported:]:
            report_state(records, last)
        reported = len(records)

    report_state(before)
    if study.has_more():
        if workers == 0:
            run_trials(search, data, watch)
        else:
            run_workers(search, data, workers, cluster, watch)
    return len(study.records()) - len(before)


def _make_result(search: Search, queries: _Queries, refit: bool, ran: int, policy: Inference) -> TuneResult:
    from rankbound.models import load_ranker
    from rankbound.tuning.study import TrialStudy, find_best
    from rankbound.tuning.trial import fit_ranker, refit_ranker

    records, data = tuple(TrialStudy(search).records()), queries.data
    best = find_best(records)
    if best is None:
        first = records[0]
        raise DataError(
            f"all {len(records)} trials failed; trial {first.number}, {first.model}: {first.error.splitlines()[0]}"
        )
    path = search.folder / "best" / str(best.number)
    if refit:
        ranker = refit_ranker(search, data, best)
    elif path.exists():
        ranker = load_ranker(path)
    else:  # after manual changes of the folder
        ranker = fit_ranker(search, data, best.model, best.params)
    numbers = {"training": len(data.train.lists), "validation": len(data.valid.lists)}
    test = None
    if queries.test is not None:
        numbers["test"] = len(queries.test.lists)
        test = _test_ranker(ranker, queries.test, search.measure, policy)
    if queries.feature_names is not None:
        ranker.feature_names_in_ = queries.feature_names
    notes = [optimism_note(len(records)), *policy.notes({search.measure: int((~np.isnan(best.values)).sum())})]
    return TuneResult(
        ranker,
        best,
        records,
        trials_table(records, best, policy),
        search.measure,
        numbers,
        test,
        refit,
        max(record.elapsed for record in records),
        ran,
        tuple(notes),
        search.folder,
    )


def _test_ranker(ranker: Ranker, part: LetorData, measure: str, policy: Inference) -> dict[str, float]:
    from rankbound.tuning.trial import measure_ranker

    values = measure_ranker(ranker, part, measure)
    values = values[~np.isnan(values)]
    low, high = map(float, policy.intervals(values[:, None])[:, 0]) if len(values) > 1 else (math.nan, math.nan)
    return {"mean": math.fsum(values) / len(values), "low": low, "high": high}
