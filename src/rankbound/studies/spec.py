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

import math
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

PAIRWISE_ACCURACY = "pairwise accuracy"  # of images: the fraction of pairs in the right order
Kind = Literal["letor", "ratings", "faces"]
_KINDS: tuple[Kind, ...] = ("letor", "ratings", "faces")
Value = TypeVar("Value")
Values: TypeAlias = dict[str, Any]  # by key, as TOML and JSON have them


def _as_list(value: Any) -> Any:
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
Several = Annotated[list[Value], BeforeValidator(_as_list), Field(min_length=1)]


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
    return None if value is None else [{"loss": item} if isinstance(item, str) else item for item in _as_list(value)]


def _boundings(value: Any) -> Any:
    return [{"bounding": item} if isinstance(item, str) else item for item in _as_list(value)]


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
