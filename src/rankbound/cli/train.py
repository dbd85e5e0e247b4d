"""rankbound train: fit a ranker on queries with features, or a recommender on interactions, and save it to a folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.cli.several_workers import run_in_processes
from rankbound.cli.train_recommender import COLUMNS, looks_like_interactions, train_recommender
from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.models import RECOMMENDERS
from rankbound.packages import check_packages
from rankbound.parallel import workers as together
from rankbound.report import numbers

if TYPE_CHECKING:
    from rankbound.data.letor import LetorData
    from rankbound.data.splits import Fold
    from rankbound.models.base import Ranker

_CONFIG = (
    "data",
    "model",
    "loss",
    "bounding",
    "valid",
    "measures",
    "seed",
    "epochs",
    "output",
    "checkpoint",
    "user",
    "item",
    "rating",
    "timestamp",
    "min_rating",
)
_KINDS: dict[str, tuple[Any, str]] = {  # of the options in a file; the others are texts
    "params": (dict, "a table"),
    "measures": (str, "a measure or a list of measures"),
    "seed": (int, "an integer"),
    "epochs": (int, "an integer"),
    "min_rating": ((int, float), "a number"),
}

_SECONDS_FOR_FIRST = 5  # after which a worker ends that failed while the first one did not


def train(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="LETOR or SVMlight file, or a data set such as mq2008 or mq2008/1 (fold 1); for recommenders a csv, "
            "tsv or parquet file of interactions, a file of MovieLens, or a data set such as ml-100k.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Class of the ranker; recommenders are Blend, EASE, ImplicitALS, ItemKNN, MatrixFactorization, "
            "Popularity.  [default: MLPRanker]",
        ),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="NAME", help="Such as nDCG, AP@10, lambda-nDCG, RankNet, ListNet, regression.")
    ] = None,
    bounding: Annotated[
        str | None, typer.Option(metavar="NAME", help="none, min-max, expectation, expectation-max, distribution.")
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Queries or interactions that select the best step; a fold has its own."),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            "--measures",
            metavar="MEASURE",
            help="Measure to report; the first selects the step. Can be repeated.  [default: nDCG]",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of all random numbers.")] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="Passes over the queries, for networks.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Parameter of the ranker, loss.KEY=VALUE of its loss, or MODEL.KEY=VALUE of a model of Blend. "
            "Can be repeated.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Save the state here after each epoch, and resume from it.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="TOML file with these options and a table [params]; the command line takes precedence."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of users of interactions.")] = None,
    item: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of items.")] = None,
    rating: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of ratings.")] = None,
    timestamp: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of timestamps.")] = None,
    min_rating: Annotated[
        float | None, typer.Option(metavar="X", help="Interactions with a lower rating are left out.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes of this machine that train a network or MatrixFactorization."),
    ] = None,
    out: Annotated[str | None, typer.Option("-o", "--output", metavar="DIR", help="Folder for the model.")] = None,
    as_json: options.Json = False,
) -> None:
    """Train a ranker and save it.

    \b
    Example:
      rankbound train mq2008/1 --model MLPRanker --loss nDCG --bounding expectation-max -o model
      rankbound train train.txt --valid vali.txt --model LambdaMART --param num_leaves=63 -o model
      rankbound train ratings.csv --model ImplicitALS --min-rating 4 --param factors=128 -o model
      rankbound train ratings.csv --model Blend --param models=EASE,ImplicitALS --param EASE.l2=300 -o model
      rankbound train train.txt --loss nDCG --workers 4 --checkpoint state -o model
    """
    command_line = {
        "data": data,
        "model": model,
        "loss": loss,
        "bounding": bounding,
        "valid": valid,
        "measures": measures,
        "seed": seed,
        "epochs": epochs,
        "checkpoint": checkpoint,
        "output": out,
        "user": user,
        "item": item,
        "rating": rating,
        "timestamp": timestamp,
        "min_rating": min_rating,
    }
    chosen, params = _options(command_line, param or [], config)
    for needed, name in (("data", "DATA"), ("output", "-o")):
        if chosen.get(needed) is None:
            raise ArgumentError(f"missing {name}: training data and an output folder are required, see 'train --help'")
    target = Path(chosen["output"])
    if target.exists() and not (target / "model.json").is_file():
        raise ArgumentError(f"{target}: exists and is not a model folder")
    _check_kind_of_data(chosen)
    if workers is not None:
        _check_workers(_ranker(chosen, params), chosen)
        raise typer.Exit(run_in_processes(workers, _without_workers(context.find_root().obj)))
    with together() as group:
        if group.size > 1:
            _check_workers(_ranker(chosen, params), chosen)
        try:
            _train(chosen, params, target, is_first=group.is_first, as_json=as_json)
        except RankboundError:
            if not group.is_first:  # most errors are those of all processes: the first one reports them
                time.sleep(_SECONDS_FOR_FIRST)
            raise


def _train(chosen: dict[str, Any], params: dict[str, Any], target: Path, *, is_first: bool, as_json: bool) -> None:
    """Read, fit, save and report; of several processes that train together, the first one saves and reports."""
    if chosen.get("model") in RECOMMENDERS:
        recommender: Any = _ranker(chosen, params)
        train_recommender(recommender, chosen, target, is_first=is_first, as_json=as_json)
        return
    with output.working("reading ..."):
        ranker = _ranker(chosen, params)
        parts = read_parts(chosen["data"])
        if chosen.get("valid") is not None:
            from rankbound.data.splits import Fold

            parts = Fold(parts.train, read_parts(chosen["valid"]).train, parts.test)
    _fit(ranker, parts)
    if is_first:
        ranker.save(target)
        _report(ranker, parts, chosen, target, as_json)


def _check_workers(ranker: Ranker, chosen: dict[str, Any]) -> None:
    """Raise ArgumentError for a model that several processes cannot train together, and for standard input."""
    kinds = {kind.__name__ for kind in type(ranker).__mro__}  # by name, because an import would load torch
    if not kinds & {"NeuralRanker", "MatrixFactorization"}:
        raise ArgumentError(
            "several workers can train networks and MatrixFactorization (for trees on Dask see "
            f"rankbound.integrations.fit_on_dask), got {type(ranker).__name__}"
        )
    if "-" in (chosen["data"], chosen.get("valid")):
        raise ArgumentError("several workers need data that each of them can read, got standard input")


def _without_workers(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of the command line without --workers.

    >>> _without_workers(["train", "a.txt", "--workers", "2", "-o", "model"])
    ['train', 'a.txt', '-o', 'model']
    """
    return [
        argument
        for before, argument in zip(("", *arguments), arguments, strict=False)
        if "--workers" not in (before, argument.partition("=")[0])
    ]


def _fit(ranker: Ranker, parts: Fold[Any]) -> None:
    from rankbound.models.options import show_training

    held_out = (
        None if parts.validation is None else _columns(fit_width(parts.validation, parts.train.features.shape[1]))
    )
    X, y, qid = _columns(parts.train)
    with show_training(ranker) as has_progress, nullcontext() if has_progress else output.working("training ..."):
        ranker.fit(X, y, qid=qid, eval_set=held_out)


def _report(ranker: Ranker, parts: Fold[Any], chosen: dict[str, Any], target: Path, as_json: bool) -> None:
    from rankbound.difficulty import difficulty_of
    from rankbound.evaluation import evaluate_lists
    from rankbound.measures import LabelCounts, parse_measure

    names = [str(name) for name in chosen.get("measures") or [ranker.measure]]
    values = {}
    for role in ("train", "validation", "test"):
        part = getattr(parts, role)
        if part is not None:
            scores = ranker.predict(fit_width(part, ranker.n_features_in_).features, qid=part.lists.query_of_item)
            values[role] = evaluate_lists(part.lists.with_scores(scores), names).mean()
    rows, width = parts.train.features.shape
    target_measure = parse_measure(ranker.measure).plain
    no_choice = int((~difficulty_of(target_measure, LabelCounts.from_lists(parts.train.lists)).informative).sum())
    steps = {"epochs": len(ranker.history_), "kept_epoch": ranker.kept_epoch_} if hasattr(ranker, "history_") else {}
    if as_json:
        output.print_json(
            {
                "model": type(ranker).__name__,
                "output": str(target),
                "data": chosen["data"],
                "params": output.plain_params(ranker),
                "queries": len(parts.train.lists),
                "no_choice_queries": no_choice,
                "rows": rows,
                "features": width,
                **steps,
                "mean": values,
            }
        )
        return
    table = [[name, *(numbers.show_number(values[role][name]) for role in values)] for name in names]
    without = f" ({no_choice} of them without a choice: all rankings have the same {target_measure})"
    note = f"{len(parts.train.lists)} queries{without if no_choice else ''}, {rows} rows, {width} features"
    if steps:
        note += f"; epoch {steps['kept_epoch']} of {steps['epochs']}"
    output.print_table(f"{type(ranker).__name__} in {target}", ["measure", *values], table, note=note)


def _check_kind_of_data(chosen: dict[str, Any]) -> None:
    """Raise ArgumentError for interactions without a recommender, and options of recommenders without interactions."""
    if chosen.get("model") in RECOMMENDERS:
        return
    if looks_like_interactions(chosen["data"]):
        rule = f"interactions of users with items need a recommender: --model {', '.join(RECOMMENDERS)}"
        raise ArgumentError(f"{chosen['data']}: {rule}; got {chosen.get('model') or 'no --model'}")
    for name in (*COLUMNS, "min_rating"):
        if chosen.get(name) is not None:
            option = name.replace("_", "-")
            raise ArgumentError(f"--{option} must be left out unless --model is one of {', '.join(RECOMMENDERS)}")


# ---- the ranker ------------------------------------------------------------------------------------------------------


def _ranker(chosen: dict[str, Any], params: dict[str, Any]) -> Ranker:
    """Create the ranker that the options describe, not yet fitted."""
    from rankbound.models import RANKERS
    from rankbound.models.by_name import check_ranker, make_ranker, packages_of

    name = "MLPRanker" if chosen.get("model") is None else chosen["model"]
    usable = [known for known in RANKERS if known != "RankCNN"]  # which is trained on images
    if name not in usable:
        raise ArgumentError(f"model must be one of {', '.join(usable)}, got {name!r}")
    check_packages("train", *packages_of(name))
    loss_options = {key.removeprefix("loss."): value for key, value in params.items() if key.startswith("loss.")}
    by_option = {"random_state": "seed", "epochs": "epochs", "checkpoint": "checkpoint"}
    params = {name: chosen[option] for name, option in by_option.items() if chosen.get(option) is not None} | {
        key: value for key, value in params.items() if not key.startswith("loss.")
    }
    loss, bounding = chosen.get("loss"), "none" if chosen.get("bounding") is None else chosen["bounding"]
    check_ranker(name, params, loss, bounding)
    first, *others = chosen.get("measures") or [None]
    preferences = {} if first is None else {"measure": first, **({"watch": tuple(others)} if others else {})}
    ranker: Ranker = make_ranker(name, params, loss=loss, bounding=bounding, loss_options=loss_options, **preferences)
    return ranker


def _options(
    command_line: dict[str, Any], param: list[str], config: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options and parameters; those of the command line take precedence over those of the file."""
    from_file: dict[str, Any] = {}
    params: dict[str, Any] = {}
    if config is not None:
        from_file = _read_config(config)
        params = {
            key: tuple(value) if isinstance(value, list) else value for key, value in from_file.pop("params").items()
        }
    params |= parse_params(param)
    return from_file | {key: value for key, value in command_line.items() if value is not None}, params


def _read_config(path: str) -> dict[str, Any]:
    import tomllib

    from rankbound.io import read_bytes

    content = read_bytes(path)
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not TOML: {error}") from error
    unknown = [key for key in table if key not in (*_CONFIG, "params")]
    if unknown:
        raise ArgumentError(f"{path}: unknown option {unknown[0]!r}; the options are {', '.join(_CONFIG)} and [params]")
    table.setdefault("params", {})
    if isinstance(table.get("measures"), str):
        table["measures"] = [table["measures"]]
    for key, value in table.items():
        kind, words = _KINDS.get(key, (str, "a text"))
        entries = value if key == "measures" and isinstance(value, list) else [value]
        for entry in entries:
            if not isinstance(entry, kind) or isinstance(entry, bool):
                raise ArgumentError(f"{path}: {key} must be {words}, got {value!r}")
            if isinstance(entry, str) and "\0" in entry:
                raise ArgumentError(f"{path}: {key} must be a text without NUL characters, got {entry!r}")
    return table


def parse_params(texts: Sequence[str]) -> dict[str, Any]:
    """Parse parameters of the command line.

    >>> parse_params(["num_leaves=63", "EASE.l2=300.5"])
    {'num_leaves': 63, 'EASE.l2': 300.5}
    """
    params = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ArgumentError(f"--param must be KEY=VALUE, got {text!r}")
        params[key] = parse_value(value)
    return params


def parse_value(text: str) -> Any:
    """Parse a parameter of the command line: a number, true, false, none, several separated by commas, or text.

    >>> parse_value("64,32"), parse_value("1e-3"), parse_value("true"), parse_value("none"), parse_value("relu")
    ((64, 32), 0.001, True, None, 'relu')
    """
    if "," in text:
        return tuple(parse_value(entry.strip()) for entry in text.split(",") if entry.strip())
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


# ---- the data --------------------------------------------------------------------------------------------------------


def read_parts(source: str) -> Fold[Any]:
    """Read training data and, for a fold of a known data set, its validation and test data."""
    from rankbound.data.catalog import known_sets
    from rankbound.data.loading import load_fold, load_set, read_letor_file
    from rankbound.data.splits import Fold

    name, _, number = source.partition("/")
    if source == "-" or Path(source).exists() or name not in known_sets():
        if source != "-" and not Path(source).exists():
            raise DataError(f"{source}: cannot be read: No such file, and no data set of that name")
        return Fold(read_letor_file(source), None, None)
    if known_sets()[name].kind != "letor":
        raise DataError(
            f"{name}: is a data set of kind {known_sets()[name].kind}, expected one of queries with features (letor)"
        )
    if not number:
        return Fold(load_set(name), None, None)
    if not number.isdecimal():
        raise ArgumentError(f"a fold must be a number, as in {name}/1, got {number!r}")
    return load_fold(name, int(number))


def fit_width(data: LetorData, width: int) -> LetorData:
    """Add columns of zeros up to the width of the model, because files may leave out zeros in the last columns."""
    import numpy as np

    from rankbound.data.letor import LetorData

    missing = width - data.features.shape[1]
    if missing <= 0:
        return data  # the model refuses additional features
    filler = np.zeros((len(data.features), missing), data.features.dtype)
    return LetorData(data.lists, np.concatenate((data.features, filler), axis=1), data.notes)


def _columns(data: LetorData) -> tuple[Any, Any, Any]:
    return data.features, data.lists.labels, data.lists.query_of_item
