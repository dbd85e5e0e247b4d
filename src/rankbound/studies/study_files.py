"""Finding, reading and checking the files of studies, including the names that only models, losses and parsers know."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.io import read_bytes
from rankbound.measures.measure import parse_measure
from rankbound.models import RECOMMENDERS
from rankbound.models.by_name import check_ranker, make_loss, packages_of
from rankbound.models.rankers.backbone import EFFICIENTNET
from rankbound.packages import DRAWING, EFFICIENTNET_PACKAGES
from rankbound.studies.expansion import grid_points, loss_options
from rankbound.studies.sources import split_of
from rankbound.studies.spec import (
    PAIRWISE_ACCURACY,
    Bounded,
    Claim,
    LossChoice,
    ModelChoice,
    OwnData,
    Prepare,
    Quick,
    Study,
    Table,
    Values,
)
from rankbound.studies.trial import RECORDERS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_TYPE_ERRORS = ("string_type", "int_type", "float_type", "literal_error", "list_type", "model_type", "dict_type")
_PAPERS = Path(__file__).with_name("papers")
_MOST_TRIALS = 1_000_000


def known_studies() -> dict[str, str]:
    """Name and title of the studies that come with the package.

    >>> "thesis-5.1" in known_studies()
    True
    """
    return {path.stem: str(_toml(path).get("title", "")) for path in sorted(_PAPERS.glob("*.toml"))}


def study_path(study: str) -> Path:
    """The file of a study: its name, or the path of a .toml file."""
    if study.endswith(".toml"):
        return Path(study)
    path = _PAPERS / f"{study}.toml"
    if not path.is_file():
        known = [file.stem for file in sorted(_PAPERS.glob("*.toml"))]
        near = difflib.get_close_matches(study, known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known studies are {', '.join(known)}."
        raise ArgumentError(f"unknown study {study!r}: {hint} The path of a study file ends in .toml")
    return path


def load_study(study: str) -> Study:
    """Read and check a study: one that comes with the package by its name, or a file."""
    loaded = _read_study(study)
    _check_names(loaded.path, loaded)
    return loaded


def packages_of_study(study: str, images: bool = True, figures: bool = False) -> list[str]:
    """Return the packages of extras that the models of a study need, and its data of images and figures if it has any.

    >>> packages_of_study("thesis-5.1")
    ['sklearn', 'safetensors', 'torch']
    """
    loaded = _read_study(study)
    needed = packages_of(*(choice.model for table in loaded.tables for choice in table.model_choices))
    required = [table for table in loaded.tables if not table.optional]  # others are left out where data are missing
    if images and any(table.kind == "faces" for table in required):
        needed.append("PIL")
    if images and any(table.prepare.backbone == EFFICIENTNET for table in required):
        needed += EFFICIENTNET_PACKAGES
    return needed + (list(DRAWING) if figures and loaded.figures else [])


def _read_study(study: str) -> Study:
    """Read a study and check its form, but not the names that only the modules of models and losses know."""
    path = study_path(study)
    content = _toml(path)
    _check_values(path, content)
    defaults = content.pop("defaults", {})
    if not isinstance(defaults, dict):
        raise ArgumentError(f"{path}: defaults must be a table")
    if not isinstance(content.get("tables", []), list):
        raise ArgumentError(f"{path}: tables must be a list of tables [[tables]]")
    unknown = [key for key in defaults if key not in Table.model_fields]
    if unknown:
        raise ArgumentError(f"{path}: defaults.{unknown[0]}: {_unknown_key(unknown[0], Table)}")
    tables = [defaults | table if isinstance(table, dict) else table for table in content.pop("tables", [])]
    for reserved in ("path", "store_name"):
        if reserved in content:
            raise ArgumentError(f"{path}: {reserved}: {_unknown_key(reserved, Study)}")
    fields = {"name": path.stem, "store_name": path.stem} | content | {"tables": tables, "path": path}
    if isinstance(content.get("trials_of"), str):
        return _read_sharing_study(path, fields)
    loaded = _validate(path, fields)
    if not loaded.tables:
        raise ArgumentError(f"{path}: tables: a study needs at least one [[tables]]")
    return loaded


def _read_sharing_study(path: Path, fields: Values) -> Study:
    """A study with the trials of another one."""
    if fields["tables"]:
        raise ArgumentError(f"{path}: tables: a study with trials_of has no tables of its own")
    name = fields["trials_of"]
    if not re.fullmatch(r"[\w.-]{1,100}", name):
        raise ArgumentError(f"{path}: trials_of: must be the name of a study, got {name!r}")
    own = path.with_name(f"{name}.toml")
    if "trials_of" in _toml(
        own if own.is_file() else study_path(name)
    ):  # itself, or two studies that refer to each other
        raise ArgumentError(f"{path}: trials_of: must be a study with tables of its own, got {name!r}")
    other = _read_study(str(own) if own.is_file() else name)
    study = _validate(path, fields | {"store_name": other.store_name})
    report = {} if study.report is None else {"report": study.report}
    tables = [table.model_copy(update=report) for table in other.tables]
    quick = study.quick if "quick" in fields else other.quick
    return study.model_copy(update={"tables": tables, "quick": quick})


def _toml(path: Path) -> Values:
    content = read_bytes(path)
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not valid TOML: {error}") from error


def _check_values(path: Path, value: object, *location: int | str) -> None:
    """Raise ArgumentError for numbers and texts that no key of a study can have, wherever they are."""
    problem = ""
    if isinstance(value, dict):
        for key, entry in value.items():
            _check_values(path, entry, *location, key)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            _check_values(path, entry, *location, index)
    elif isinstance(value, float) and not math.isfinite(value):
        problem = f"must be a finite number, got {value}"
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        problem = f"must be an integer of 64 bits, as TOML has them, got {value}"
    elif isinstance(value, str) and "\0" in value:
        problem = f"must be a text without NUL characters, got {value[:60]!r}"
    if problem:
        raise ArgumentError(f"{path}: {_key(location)}: {problem}")


def _validate(path: Path, fields: Values) -> Study:
    try:
        return Study.model_validate(fields)
    except ValidationError as error:
        # for a union of types, the error of the type that fits best says more than "not a string"
        problems = sorted(error.errors(), key=lambda problem: problem["type"] in _TYPE_ERRORS)
        raise ArgumentError(f"{path}: {_key(problems[0]['loc'])}: {_message(problems[0])}") from None


def _key(location: tuple[int | str, ...]) -> str:
    """The path of a key in the notation of TOML and Python.

    >>> _key(("tables", 0, "grid", "learning_rate"))
    'tables[0].grid.learning_rate'
    """
    # pydantic adds the member of a union that it tried: these are names of types, never of keys
    parts = [part for part in location if isinstance(part, int) or not re.search(r"[^\w.-]|^(str|OwnData|int)$", part)]
    return re.sub(r"\.?\[", "[", ".".join(f"[{part}]" if isinstance(part, int) else part for part in parts))


def _message(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        models: dict[str | int, type[BaseModel]] = {
            "tables": Table,
            "quick": Quick,
            "prepare": Prepare,
            "models": ModelChoice,
            "data": OwnData,
            "claims": Claim,
        }
        models |= {"loss": LossChoice, "bounding": Bounded}
        above = [part for part in problem["loc"][:-1] if part in models]
        return _unknown_key(str(problem["loc"][-1]), models[above[-1]] if above else Study)
    message = str(problem["msg"]).removeprefix("Value error, ")
    shown = f", got {problem['input']!r}" if problem["type"] not in ("missing", "value_error") else ""
    return message[0].lower() + message[1:] + shown


def _unknown_key(key: str, model: type[BaseModel]) -> str:
    known = [name for name in model.model_fields if name not in ("path", "store_name")]
    near = difflib.get_close_matches(key, known, n=1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; known keys are {', '.join(known)}"


# ---- names that only the package's own parsers can check -------------------------------------------------------------


def _check_names(path: Path, study: Study) -> None:
    from rankbound.studies.derived import DERIVED

    for at, table in enumerate(study.tables):
        for key, check in _checks_of_table(table):
            try:
                check()
            except RankboundError as error:
                raise ArgumentError(f"{path}: tables[{at}].{key}: {error}") from error
    for at, name in enumerate(study.derived):
        if name not in DERIVED:
            raise ArgumentError(f"{path}: derived[{at}]: must be one of {', '.join(DERIVED)}, got {name!r}")
    for name in study.report if isinstance(study.report, list) else []:
        parse_measure(name)


def _checks_of_table(table: Table) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each key of a table with a function that checks it: names that only parsers and models know."""
    yield "data", partial(getattr, table, "kind")
    for at, measure in enumerate(table.measures):
        yield f"measures[{at}]", partial(_check_measure, table, measure)
    if isinstance(table.report, list):
        for at, measure in enumerate(table.report):
            yield f"report[{at}]", partial(_check_among, measure, table.measures, "measures")
    yield "select_by", partial(_check_select_by, table)
    yield "split", partial(split_of, table)
    yield "nsr", partial(_check_nsr, table)
    yield "test", partial(_check_test, table)
    yield "grid", partial(_check_size, table)
    yield "train_on_validation", partial(_check_for_queries, table, table.train_on_validation)
    yield "prepare.backbone", partial(_check_for_images, table, table.prepare.backbone)
    yield "examples", partial(_check_for_images, table, table.examples)
    for at, name in enumerate(table.record):
        yield f"record[{at}]", partial(_check_among, name, list(RECORDERS), "registered recorders")
    for at, bounding in enumerate(table.bounding):
        yield f"bounding[{at}]", partial(_check_bounding, bounding)
    for at, choice in enumerate(table.model_choices):
        key = f"models[{at}]" if table.models else "model"
        yield key, partial(_check_choice, table, choice)
        own_losses = bool(table.models and table.models[at].loss)
        for number, loss in enumerate(choice.loss or []):
            key = f"models[{at}].loss[{number}]" if own_losses else f"loss[{number}]"
            yield key, partial(_check_loss, table, choice, loss)


def _check_measure(table: Table, measure: str) -> None:
    if table.kind == "faces":
        return _check_among(measure, [PAIRWISE_ACCURACY], "measures of images")
    parse_measure(measure)
    return None


def _check_among(name: str, known: list[str], what: str) -> None:
    if name not in known:
        raise ArgumentError(f"must be one of the {what} ({', '.join(known) or 'none'}), got {name!r}")


def _check_select_by(table: Table) -> None:
    from rankbound.models.measuring import score_measure

    labels = [loss.label for choice in table.model_choices for loss in choice.loss or []] or [""]
    for label in labels:
        if isinstance(table.select_by, dict) and label not in table.select_by:
            raise ArgumentError(f"has no measure for the loss {label!r}; it has {', '.join(table.select_by)}")
        measure = table.measure_to_select_by(label)
        score_measure(measure)
        if table.kind != "faces":
            _check_among(measure, table.measures, "measures")


def _check_nsr(table: Table) -> None:
    if table.kind == "ratings" and table.nsr is None:
        raise ArgumentError("the lists of users need negative items: set nsr, as in nsr = 1")
    if table.kind != "ratings" and (table.nsr is not None or table.test_nsr is not None):
        raise ArgumentError(f"applies to the lists of users only, not to {table.kind} data")
    if any(value <= 0 for value in [*(table.nsr or []), *(table.test_nsr or [])]):
        raise ArgumentError("must be positive")


def _check_test(table: Table) -> None:
    if table.kind != "ratings" and table.test != ["sampled"]:
        raise ArgumentError(f"applies to the lists of users only, not to {table.kind} data")


def _check_size(table: Table) -> None:
    """Refuse a table that would take forever to enumerate, let alone to run."""
    folds = table.folds if isinstance(table.folds, int) else len(table.folds or [])
    settings = (
        len(table.bounding) * len(table.nsr or [0]) * len(table.test_nsr or [0]) * len(table.seeds) * max(folds, 1)
    )
    for choice in table.model_choices:
        points = math.prod(len(values) for values in (*choice.grid.values(), *table.vary.values()))
        if settings * points * len(choice.loss or [0]) > _MOST_TRIALS:
            raise ArgumentError(f"a table must have at most {_MOST_TRIALS:,} trials, got more with {choice.label}")


def _check_for_images(table: Table, value: object) -> None:
    if value and table.kind != "faces":
        raise ArgumentError(f"applies to images only, not to {table.kind} data")


def _check_for_queries(table: Table, value: object) -> None:
    if value and table.kind != "letor":
        raise ArgumentError(f"applies to queries only, not to {table.kind} data")


def _check_bounding(bounding: Bounded) -> None:
    if bounding.bounding == "none":
        return  # checked without loading torch
    from rankbound.losses import LOSS_BOUNDINGS

    if bounding.bounding not in LOSS_BOUNDINGS:
        raise ArgumentError(f"bounding must be one of {', '.join(LOSS_BOUNDINGS)}, got {bounding.bounding!r}")


def _check_choice(table: Table, choice: ModelChoice) -> None:
    if (choice.model in RECOMMENDERS) != (table.kind == "ratings"):
        rule = f"recommenders ({', '.join(RECOMMENDERS)}) are the models for users (ratings), and only for these"
        raise ArgumentError(f"{rule}, got {choice.model!r} for {table.kind} data")
    for bounding in table.bounding:
        check_ranker(choice.model, {**choice.params, **choice.grid, **table.vary}, None, bounding.bounding)


def _check_loss(table: Table, choice: ModelChoice, loss: LossChoice) -> None:
    for bounding in table.bounding:
        check_ranker(choice.model, {}, loss.loss, bounding.bounding)
        if choice.model == "LambdaMART" and loss.loss == "lambdarank":
            continue  # LightGBM's own objective, which is not one of our losses
        for point in grid_points(choice.grid | table.vary):
            make_loss(loss.loss, bounding.bounding, loss_options(loss, bounding, choice.params | point))
