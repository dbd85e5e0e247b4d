"""A study as a TOML file: which models are trained on which data, how they are selected, and what is measured.

A file has a title, keys under ``[defaults]`` that all tables share, and a ``[[tables]]`` for each group of settings::

    title = "Does bounding help on our shop's data?"

    [[tables]]
    data = { ratings = "choices.csv" }
    model = "MatrixFactorization"
    loss = ["nDCG", "AP"]
    bounding = ["none", "expectation-max"]
    nsr = [1, 2]
    measures = ["nDCG", "AP"]
    grid = { learning_rate = [0.01, 0.03] }

Every key is checked when the file is read, including the names of losses, measures, models and their parameters.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.io import read_bytes
from rankbound.measures.measure import parse_measure
from rankbound.models.by_name import packages_of
from rankbound.models.rankers.backbone import EFFICIENTNET
from rankbound.packages import DRAWING, EFFICIENTNET_PACKAGES

PAIRWISE_ACCURACY = "pairwise accuracy"  # of images: the fraction of pairs in the right order
_TYPE_ERRORS = ("string_type", "int_type", "float_type", "literal_error", "list_type", "model_type", "dict_type")
_PAPERS = Path(__file__).with_name("papers")
Kind = Literal["letor", "ratings", "faces"]
_KINDS: tuple[Kind, ...] = ("letor", "ratings", "faces")
Value = TypeVar("Value")


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _path(value: str) -> str:
    if "\0" in value or len(value) > 4000 or any(len(part.encode()) > 255 for part in value.split("/")):
        raise ValueError(f"must be a path, got {value[:60]!r}")
    return value


def _json_value(value: Any) -> Any:
    """Refuse what TOML can express but JSON, and so the identity of a trial, cannot: nan, infinity and dates."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {value}")
    if isinstance(value, dict):
        return {key: _json_value(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_json_value(entry) for entry in value]
    if not isinstance(value, (str, int, float, bool)):
        raise ValueError(f"must be a number, a string, true, false, a list or a table, got {value}")
    return value


FilePath = Annotated[str, AfterValidator(_path)]
Parameter = Annotated[Any, AfterValidator(_json_value)]
Several = Annotated[list[Value], BeforeValidator(_listed), Field(min_length=1)]


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OwnData(StrictModel):
    """Data that are not in the catalog; paths are relative to the file of the study."""

    letor: FilePath | list[FilePath] | None = Field(
        default=None,
        description="A folder with train, vali and test (or Fold1, Fold2, ... of these), one file, or several.",
    )
    ratings: FilePath | None = Field(default=None, description="A file of users and items, with or without ratings.")
    faces: FilePath | None = Field(default=None, description="Images with ages: an npz file, or a folder or tar file.")
    form: str = Field(default="auto", description="Format of the ratings file, as in rankbound.data.read_ratings.")

    @model_validator(mode="after")
    def _one_kind(self) -> OwnData:
        named = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(named) != 1:
            raise ValueError(f"data must name one of {', '.join(_KINDS)}, got {' and '.join(named) or 'none'}")
        return self

    @property
    def kind(self) -> Kind:
        """The kind of data, which determines the reader: letor, ratings or faces."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)


class Prepare(StrictModel):
    """How the data are prepared before they are split."""

    binarize: float | Literal["highest"] | None = Field(
        default=None, description="Labels of at least this value become 1, others 0."
    )
    scale: Literal["min-max", "standard"] | None = Field(
        default=None, description="How features are scaled within each query."
    )
    fill: float | None = Field(default=None, description="Value of missing features (NULL).")
    relevant: int = Field(default=0, ge=0, description="Minimum number of relevant items of a query.")
    relevant_from: float | None = Field(
        default=None, description="Ratings of at least this value are choices; others are dropped."
    )
    users_with: int = Field(default=1, ge=1, description="Minimum number of choices of a user.")
    items: Literal["rated", "chosen"] = Field(
        default="rated",
        description="Negatives are drawn from all items of the file, or from those that a remaining user has chosen.",
    )
    backbone: FilePath | None = Field(
        default=None,
        description="Images: file of a network, in the folder of the data set or of the study; rankers then learn from "
        "the features that it computes from images of 224 x 224, see rankbound.models.backbone_features. "
        "efficientnet-lite0 needs no file.",
    )
    first: int | None = Field(default=None, ge=1, description="Use only this many queries or users, for a first try.")


class LossChoice(StrictModel):
    """A loss, its name in tables, and options of its class."""

    loss: str
    name: str = ""
    options: dict[str, Parameter] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name or self.loss


class Bounded(StrictModel):
    """A bounding, its name in tables, and the strength of its reference ranker."""

    bounding: str
    name: str = ""
    ranker_strength: float | None = Field(default=None, gt=0.5, lt=1)

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name or (
            self.bounding
            if self.ranker_strength is None
            else f"{self.bounding}, ranker_strength {self.ranker_strength:g}"
        )


class ModelChoice(StrictModel):
    """A model, its name in tables, its parameters, and the grid of those to tune."""

    model: str
    name: str = ""
    params: dict[str, Parameter] = Field(default_factory=dict)
    grid: dict[str, list[Parameter]] = Field(default_factory=dict)
    loss: Annotated[list[LossChoice] | None, BeforeValidator(lambda value: _losses(value))] = None

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name or self.model


def _losses(value: Any) -> Any:
    return None if value is None else [{"loss": item} if isinstance(item, str) else item for item in _listed(value)]


def _boundings(value: Any) -> Any:
    return [{"bounding": item} if isinstance(item, str) else item for item in _listed(value)]


class Table(StrictModel):
    """A group of settings: every model x loss x bounding x NSR x varied parameter, each run for every fold and seed."""

    name: str = Field(default="", description="Name of the table; several may have the same.")
    data: str | OwnData = Field(description="Name of a data set (rankbound data list), or files of your own.")
    optional: bool = Field(default=False, description="Leave the table out, with a note, if its data are missing.")
    prepare: Prepare = Prepare()
    split: Literal["given", "user-folds", "monte-carlo", "query-folds"] | None = Field(
        default=None, description="How the data are split; by default 'given' if the data come with folds."
    )
    folds: Annotated[int, Field(ge=1)] | list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None, description="The number of folds, or a list of their numbers; by default all of them, or 5."
    )
    test_fraction: float = Field(default=0.2, gt=0, lt=1, description="Of each user's choices, with split monte-carlo.")

    model: str | None = None
    params: dict[str, Parameter] = Field(
        default_factory=dict, description="Parameters of all models; loss.X is an option of the loss."
    )
    grid: dict[str, list[Parameter]] = Field(
        default_factory=dict, description="Parameters to tune, each with the values to try."
    )
    models: list[ModelChoice] = Field(default_factory=list)
    loss: Annotated[list[LossChoice] | None, BeforeValidator(_losses)] = None
    bounding: Annotated[list[Bounded], BeforeValidator(_boundings), Field(min_length=1)] = [Bounded(bounding="none")]
    nsr: Several[float] | None = Field(
        default=None, description="Negative items per positive item in training lists of users."
    )
    test_nsr: Several[float] | None = Field(
        default=None, description="The same ratio in test lists; by default that of training."
    )
    test: Several[Literal["sampled", "full"]] = Field(
        default=["sampled"],
        description="What users are tested on: lists with sampled negative items, or all items but those of training.",
    )
    vary: dict[str, list[Parameter]] = Field(
        default_factory=dict, description="Parameters of which each value makes a row of its own."
    )
    seeds: Several[Annotated[int, Field(ge=0)]] = [0]

    measures: Several[str]
    report: Literal["all", "selected"] | list[str] = Field(default="all", description="Measures that make rows.")
    selection: Literal["validation", "test", "last"] = Field(
        default="validation",
        description="Data on which epoch and grid point are selected. Tables mark 'test', which some papers used.",
    )
    select_by: str | dict[str, str] | None = Field(
        default=None, description="Measure to select by, or one for each loss."
    )
    choose: Literal["one", "each"] = Field(
        default="one", description="With 'each' (selection test only), the grid point is selected for each measure."
    )
    protocol: Literal["honest", "published"] = Field(default="honest", description="How negative items are drawn.")
    refit: bool = Field(
        default=True, description="Lists of users: train again, including the held-out part, after selection."
    )
    train_on_validation: bool = Field(
        default=False, description="Queries: train on the validation part, too, which must not be selected on."
    )
    versus: dict[str, str] = Field(default_factory=dict, description="Setting that the others are tested against.")
    record: list[str] = Field(default_factory=list, description="Recorders that add to the history of a trial.")
    pairs: int = Field(default=10_000, ge=1, description="Images: number of test pairs.")
    min_gap: int = Field(default=5, ge=0, description="Images: the ages of a pair differ by more than this.")
    mirror: bool = Field(
        default=True, description="Images: extend the training data of models of pixels by mirrored images."
    )
    examples: int = Field(
        default=0,
        ge=0,
        le=20,
        description="Images: number of example pairs of each kind (right order, wrong order, ...) to keep for figures.",
    )
    seconds: float = Field(
        default=10.0, gt=0, description="Expected duration of a trial, until the store has measured some."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Table:
        if (self.model is None) == (not self.models):
            raise ValueError("a table needs either model or models")
        if self.choose == "each" and self.selection != "test":
            raise ValueError(f'choose = "each" requires selection = "test", got {self.selection!r}')
        if self.train_on_validation and self.selection == "validation":
            raise ValueError('train_on_validation requires selection = "test" or "last", got "validation"')
        if self.selection == "last" and (self.grid or any(choice.grid for choice in self.models)):
            raise ValueError('selection = "last" selects nothing, so it cannot be combined with a grid')
        return self

    @property
    def kind(self) -> Kind:
        """The kind of data: letor, ratings or faces."""
        from rankbound.data.catalog import find_entry

        if not isinstance(self.data, str):
            return self.data.kind
        kind = find_entry(self.data).kind
        return next(known for known in _KINDS if known == kind)

    @property
    def model_choices(self) -> list[ModelChoice]:
        """All models, with the parameters of the table filled in; those of a model take precedence."""
        choices = self.models or [ModelChoice(model=self.model or "")]
        return [
            choice.model_copy(
                update={
                    "params": self.params | choice.params,
                    "grid": self.grid | choice.grid,
                    "loss": self.loss if choice.loss is None else choice.loss,
                }
            )
            for choice in choices
        ]

    def measure_to_select_by(self, loss: str) -> str:
        """The measure by which epoch and grid point of a loss are selected."""
        if isinstance(self.select_by, dict):
            return self.select_by[loss]
        return self.select_by or ("Tau" if self.kind == "faces" else self.measures[0])


class Quick(StrictModel):
    """The part of the study that ``quick`` runs."""

    only: dict[str, str | int | float | list[str | int | float]] = Field(default_factory=dict)
    params: dict[str, Parameter] = Field(
        default_factory=dict, description="Replace those of the tables, where a model has them."
    )
    grid: dict[str, list[Parameter]] | None = Field(
        default=None, description="Replaces those of the tables; {} stands for no grid."
    )
    first: int | None = Field(default=None, ge=1, description="Use only this many queries or users.")
    seconds: float | None = Field(default=None, gt=0, description="Expected duration of a trial; by default as above.")


class Claim(StrictModel):
    """A finding of a paper about rows that are tested against another setting (``versus``)."""

    claim: str = Field(description="The finding in words.")
    where: dict[str, Several[str | int | float]] = Field(default_factory=dict, description="The rows that it is about.")
    expect: Literal["above", "below", "similar"] = Field(
        default="above",
        description="Whether these rows should lie above or below what they are tested against, or differ from it by "
        "less than the margin.",
    )
    margin: float = Field(
        default=0.005, gt=0, description="Of similar rows: the largest difference that is negligible."
    )


class Study(StrictModel):
    """A study: its tables, claims and additional tables."""

    name: str
    title: str
    about: str = Field(default="", description="What readers of the results should know.")
    tables: list[Table] = Field(default_factory=list)
    trials_of: str | None = Field(
        default=None, description="A study whose trials (and store) this one reports differently."
    )
    report: Literal["all", "selected"] | list[str] | None = Field(
        default=None, description="With trials_of: the measures that make rows."
    )
    quick: Quick = Quick()
    claims: list[Claim] = Field(default_factory=list, description="Findings of the paper, to test on the results.")
    derived: list[str] = Field(default_factory=list, description="Functions that compute additional tables.")
    figures: list[str] = Field(
        default_factory=list,
        description="Figures to write with the tables of results, as STUDY--FIGURE.svg or, if large, .png.",
    )
    path: Path
    store_name: str

    @property
    def published_path(self) -> Path:
        """The file of published numbers, which may be absent."""
        return self.path.with_name(f"{self.path.stem}.published.csv")


# ---- finding and reading ---------------------------------------------------------------------------------------------


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
        return _sharing(path, fields)
    loaded = _validated(path, fields)
    if not loaded.tables:
        raise ArgumentError(f"{path}: tables: a study needs at least one [[tables]]")
    return loaded


def _sharing(path: Path, fields: dict[str, Any]) -> Study:
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
    study = _validated(path, fields | {"store_name": other.store_name})
    report = {} if study.report is None else {"report": study.report}
    tables = [table.model_copy(update=report) for table in other.tables]
    quick = study.quick if "quick" in fields else other.quick
    return study.model_copy(update={"tables": tables, "quick": quick})


def _toml(path: Path) -> dict[str, Any]:
    content = read_bytes(path)
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not valid TOML: {error}") from error


def _check_values(path: Path, value: Any, *location: int | str) -> None:
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


def _validated(path: Path, fields: dict[str, Any]) -> Study:
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


def _message(problem: Any) -> str:
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
    from rankbound.studies.expansion import check_table

    for at, table in enumerate(study.tables):
        for key, check in check_table(table):
            try:
                check()
            except RankboundError as error:
                raise ArgumentError(f"{path}: tables[{at}].{key}: {error}") from error
    for at, name in enumerate(study.derived):
        if name not in DERIVED:
            raise ArgumentError(f"{path}: derived[{at}]: must be one of {', '.join(DERIVED)}, got {name!r}")
    for name in study.report if isinstance(study.report, list) else []:
        parse_measure(name)
