"""A study as a TOML file: what is trained on what, how it is chosen, what is measured.

A file has a title, keys that all tables share under ``[defaults]``, and one ``[[tables]]`` for each group of settings::

    title = "Does bounding help on our shop's data?"

    [[tables]]
    data = { ratings = "choices.csv" }
    model = "MatrixFactorization"
    loss = ["nDCG", "AP"]
    bounding = ["none", "expectation-max"]
    nsr = [1, 2]
    measures = ["nDCG", "AP"]
    grid = { learning_rate = [0.01, 0.03] }

Every key is checked when the file is read, names of losses, measures, models and their parameters included.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.io import read_bytes
from rankbound.measures.measure import parse_measure

__all__ = [
    "PAIRWISE_ACCURACY",
    "Bounded",
    "Claim",
    "Kind",
    "LossChoice",
    "ModelChoice",
    "OwnData",
    "Prepare",
    "Quick",
    "StrictModel",
    "Study",
    "Table",
    "known_studies",
    "load_study",
    "study_path",
]

PAIRWISE_ACCURACY = "pairwise accuracy"  # of images: the share of pairs in the right order
_OF_ANOTHER_TYPE = ("string_type", "int_type", "float_type", "literal_error", "list_type", "model_type", "dict_type")
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


FilePath = Annotated[str, AfterValidator(_path)]
Several = Annotated[list[Value], BeforeValidator(_listed), Field(min_length=1)]


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OwnData(StrictModel):
    """Data that are in no catalog; paths are relative to the study's file."""

    letor: FilePath | list[FilePath] | None = Field(
        default=None,
        description="A folder with train, vali and test (or Fold1, Fold2, ... of these), one file, or several.",
    )
    ratings: FilePath | None = Field(default=None, description="A file of users and items, with ratings or without.")
    faces: FilePath | None = Field(default=None, description="An npz, a folder or a tar of images named after the age.")
    form: str = Field(default="auto", description="Form of the ratings file, as rankbound.data.read_ratings has it.")

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
    """What is done to the data before they are split."""

    binarize: float | Literal["highest"] | None = Field(
        default=None, description="Labels from here on are 1, others 0."
    )
    scale: Literal["min-max", "standard"] | None = Field(default=None, description="Features, within each query.")
    fill: float | None = Field(default=None, description="In place of features that are not known (NULL).")
    relevant: int = Field(default=0, ge=0, description="Queries with fewer relevant items are left out.")
    relevant_from: float | None = Field(
        default=None, description="Ratings from here on are choices, others are dropped."
    )
    users_with: int = Field(default=1, ge=1, description="Users with fewer choices are left out.")
    items: Literal["rated", "chosen"] = Field(
        default="rated",
        description="Negatives come from all items of the file, or from those that a user kept has chosen.",
    )
    backbone: FilePath | None = Field(
        default=None,
        description="Images: a network's file, in the folder of the data set or beside one's own; rankers then learn "
        "from what it makes of images of 224 x 224, see rankbound.models.backbone_features.",
    )
    first: int | None = Field(
        default=None, ge=1, description="Only the first so many queries or users: for trying out."
    )


class LossChoice(StrictModel):
    """A loss, how tables call it, and options of its class."""

    loss: str
    name: str = ""
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name or self.loss


class Bounded(StrictModel):
    """A bounding, how tables call it, and the distribution that it refers to."""

    bounding: str
    name: str = ""
    ranker_strength: float | None = Field(default=None, gt=0.5, lt=1)

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name or (
            self.bounding
            if self.ranker_strength is None
            else f"{self.bounding}, ranker_strength {self.ranker_strength:g}"
        )


class ModelChoice(StrictModel):
    """A model, how tables call it, its parameters, and what of them is to be chosen."""

    model: str
    name: str = ""
    params: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    loss: Annotated[list[LossChoice] | None, BeforeValidator(lambda value: _losses(value))] = None

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name or self.model


def _losses(value: Any) -> Any:
    return None if value is None else [{"loss": one} if isinstance(one, str) else one for one in _listed(value)]


def _boundings(value: Any) -> Any:
    return [{"bounding": one} if isinstance(one, str) else one for one in _listed(value)]


class Table(StrictModel):
    """A group of settings that are run alike: every model x loss x bounding x NSR x varied parameter x fold x seed."""

    name: str = Field(default="", description="Of the table; several may share one.")
    data: str | OwnData = Field(description="A name of the catalog (rankbound data list), or files of your own.")
    optional: bool = Field(default=False, description="Left out, and said so, where its data are not here.")
    prepare: Prepare = Prepare()
    split: Literal["given", "user-folds", "monte-carlo", "query-folds"] | None = Field(
        default=None, description="given: the folds that the data come with. Unless said: given if there are any."
    )
    folds: Annotated[int, Field(ge=1)] | list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None, description="How many, or which numbers; unless said all, or 5."
    )
    test_fraction: float = Field(default=0.2, gt=0, lt=1, description="Of each user's choices, with split monte-carlo.")

    model: str | None = None
    params: dict[str, Any] = Field(default_factory=dict, description="Of all models; loss.X is an option of the loss.")
    grid: dict[str, list[Any]] = Field(default_factory=dict, description="Parameters to choose, values to try.")
    models: list[ModelChoice] = Field(default_factory=list)
    loss: Annotated[list[LossChoice] | None, BeforeValidator(_losses)] = None
    bounding: Annotated[list[Bounded], BeforeValidator(_boundings), Field(min_length=1)] = [Bounded(bounding="none")]
    nsr: Several[float] | None = Field(
        default=None, description="Negatives per positive item in training; users' lists only."
    )
    test_nsr: Several[float] | None = Field(
        default=None, description="In testing; unless said the same as in training."
    )
    vary: dict[str, list[Any]] = Field(default_factory=dict, description="Parameters that make rows of their own.")
    seeds: Several[int] = [0]

    measures: Several[str]
    report: Literal["all", "selected"] | list[str] = Field(default="all", description="Which measures make rows.")
    selection: Literal["validation", "test", "last"] = Field(
        default="validation",
        description="What epoch and grid point are chosen by; test: as some papers did, told in tables.",
    )
    select_by: str | dict[str, str] | None = Field(default=None, description="A measure, or one for each loss.")
    choose: Literal["one", "each"] = Field(
        default="one", description="each: the grid point for each measure on its own; only with selection test."
    )
    protocol: Literal["honest", "published"] = Field(default="honest", description="How negatives are drawn.")
    refit: bool = Field(
        default=True, description="Users' lists: train again with the part that was held out to choose."
    )
    versus: dict[str, str] = Field(default_factory=dict, description="Setting that others are tested against.")
    record: list[str] = Field(default_factory=list, description="Registered functions that add to a trial's history.")
    pairs: int = Field(default=10_000, ge=1, description="Images: pairs to test on.")
    min_gap: int = Field(default=5, ge=0, description="Images: pairs have ages more than this apart.")
    examples: int = Field(
        default=0,
        ge=0,
        le=20,
        description="Images: pairs of each kind (right order, wrong order, ...) that a trial keeps, to be looked at.",
    )
    seconds: float = Field(default=10.0, gt=0, description="What a trial takes, until the store knows better.")

    @model_validator(mode="after")
    def _consistent(self) -> Table:
        if (self.model is None) == (not self.models):
            raise ValueError("a table needs either model or models")
        if self.choose == "each" and self.selection != "test":
            raise ValueError(f'choose = "each" goes with selection = "test", got {self.selection!r}')
        if self.selection == "last" and (self.grid or any(choice.grid for choice in self.models)):
            raise ValueError('selection = "last" chooses nothing, so it cannot go with a grid')
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
        """All models with the table's own parameters filled in; what a model says itself wins."""
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
        """The measure that epoch and grid point of a loss are chosen by."""
        if isinstance(self.select_by, dict):
            return self.select_by[loss]
        return self.select_by or ("Tau" if self.kind == "faces" else self.measures[0])


class Quick(StrictModel):
    """What is left of the study with --quick."""

    only: dict[str, str | int | float | list[str | int | float]] = Field(default_factory=dict)
    params: dict[str, Any] = Field(default_factory=dict, description="In place of the tables' own.")
    grid: dict[str, list[Any]] | None = Field(default=None, description="In place of the tables' own; {}: no grid.")
    first: int | None = Field(default=None, ge=1, description="Only the first so many queries or users.")


class Claim(StrictModel):
    """What a paper says about rows that are tested against another setting (``versus``)."""

    claim: str = Field(description="In words.")
    where: dict[str, Several[str | int | float]] = Field(default_factory=dict, description="Which rows it is about.")
    expect: Literal["above", "below"] = Field(
        default="above", description="Where the row should lie beside what it is tested against."
    )


class Study(StrictModel):
    """A study: its tables, and what else belongs to it."""

    name: str
    title: str
    about: str = Field(default="", description="What one should know when reading the results.")
    tables: list[Table] = Field(default_factory=list)
    trials_of: str | None = Field(
        default=None, description="A study whose trials (and store) this one reports in another way."
    )
    report: Literal["all", "selected"] | list[str] | None = Field(
        default=None, description="With trials_of: the measures."
    )
    quick: Quick = Quick()
    claims: list[Claim] = Field(default_factory=list, description="Findings of the paper, tested on the results.")
    derived: list[str] = Field(default_factory=list, description="Registered functions that make further tables.")
    path: Path
    store_name: str

    @property
    def published_path(self) -> Path:
        """Where the numbers to compare with are, if there are any."""
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
        known = [found.stem for found in sorted(_PAPERS.glob("*.toml"))]
        near = difflib.get_close_matches(study, known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
        raise ArgumentError(f"unknown study {study!r}: {hint} A file of your own ends in .toml")
    return path


def load_study(study: str) -> Study:
    """Read and check a study: one that comes with the package by its name, or a file."""
    path = study_path(study)
    found = _toml(path)
    defaults = found.pop("defaults", {})
    for key, wanted in (("defaults", dict), ("tables", list)):
        part = defaults if key == "defaults" else found.get("tables", [])
        if not isinstance(part, wanted):
            raise ArgumentError(f"{path}: {key} must be a {'table' if wanted is dict else 'list of tables [[tables]]'}")
    unknown = [key for key in defaults if key not in Table.model_fields]
    if unknown:
        raise ArgumentError(f"{path}: defaults.{unknown[0]}: {_unknown_key(unknown[0], Table)}")
    tables = [defaults | table if isinstance(table, dict) else table for table in found.pop("tables", [])]
    for reserved in ("path", "store_name"):
        if reserved in found:
            raise ArgumentError(f"{path}: {reserved}: {_unknown_key(reserved, Study)}")
    given = {"name": path.stem, "store_name": path.stem} | found | {"tables": tables, "path": path}
    if isinstance(found.get("trials_of"), str):
        return _sharing(path, given)
    read = _validated(path, given)
    if not read.tables:
        raise ArgumentError(f"{path}: tables: a study needs at least one [[tables]]")
    _check_names(path, read)
    return read


def _sharing(path: Path, given: dict[str, Any]) -> Study:
    if given["tables"]:
        raise ArgumentError(f"{path}: tables: a study with trials_of has no tables of its own")
    name = given["trials_of"]
    if not re.fullmatch(r"[\w.-]{1,100}", name):
        raise ArgumentError(f"{path}: trials_of: must be the name of a study, got {name!r}")
    own = path.with_name(f"{name}.toml")
    if "trials_of" in _toml(own if own.is_file() else study_path(name)):  # a study and itself, or two in a circle
        raise ArgumentError(f"{path}: trials_of: must be a study with tables of its own, got {name!r}")
    other = load_study(str(own) if own.is_file() else name)
    study = _validated(path, given | {"store_name": other.store_name})
    report = {} if study.report is None else {"report": study.report}
    tables = [table.model_copy(update=report) for table in other.tables]
    quick = study.quick if "quick" in given else other.quick
    shared = study.model_copy(update={"tables": tables, "quick": quick})
    _check_names(path, shared)
    return shared


def _toml(path: Path) -> dict[str, Any]:
    content = read_bytes(path)
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no TOML: {error}") from error


def _validated(path: Path, given: dict[str, Any]) -> Study:
    try:
        return Study.model_validate(given)
    except ValidationError as error:
        # where a key may be one thing or another, what is wrong with the nearest says more than that it is no string
        problems = sorted(error.errors(), key=lambda problem: problem["type"] in _OF_ANOTHER_TYPE)
        raise ArgumentError(f"{path}: {_key(problems[0]['loc'])}: {_said(problems[0])}") from None


def _key(place: tuple[int | str, ...]) -> str:
    """The path of a key as one would write it.

    >>> _key(("tables", 0, "grid", "learning_rate"))
    'tables[0].grid.learning_rate'
    """
    # pydantic adds which member of a union it tried: these are names of types, never of keys
    parts = [part for part in place if isinstance(part, int) or not re.search(r"[^\w.-]|^(str|OwnData|int)$", part)]
    return re.sub(r"\.?\[", "[", ".".join(f"[{part}]" if isinstance(part, int) else part for part in parts))


def _said(problem: Any) -> str:
    if problem["type"] == "extra_forbidden":
        homes: dict[str | int, type[BaseModel]] = {
            "tables": Table,
            "quick": Quick,
            "prepare": Prepare,
            "models": ModelChoice,
            "data": OwnData,
            "claims": Claim,
        }
        homes |= {"loss": LossChoice, "bounding": Bounded}
        above = [part for part in problem["loc"][:-1] if part in homes]
        return _unknown_key(str(problem["loc"][-1]), homes[above[-1]] if above else Study)
    said = str(problem["msg"]).removeprefix("Value error, ")
    shown = f", got {problem['input']!r}" if problem["type"] not in ("missing", "value_error") else ""
    return said[0].lower() + said[1:] + shown


def _unknown_key(key: str, home: type[BaseModel]) -> str:
    known = [name for name in home.model_fields if name not in ("path", "store_name")]
    near = difflib.get_close_matches(key, known, n=1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; known are {', '.join(known)}"


# ---- names that only the package's own parsers can check -------------------------------------------------------------


def _check_names(path: Path, study: Study) -> None:
    from rankbound.experiments.derived import DERIVED
    from rankbound.experiments.expansion import check_table

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
