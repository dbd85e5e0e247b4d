"""The types that describe a trial, and their JSON form.

A trial is described by four types, each holding the one before it:

==============  =======================================================================================================
`TrialSpec`     everything that the numbers depend on, apart from the data: model, loss, split, fold, seed, measures
`Trial`         a spec together with its data; this is what a worker receives, and ``Trial.id`` identifies it
`TrialSlot`     a trial's assignment to a row of a study's tables: setting, grid point and selection rule
`Outcome`       what running the trial produced (`rankbound.studies.trial`)
==============  =======================================================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from rankbound.studies.sources import Source, digest_of
from rankbound.studies.spec import Kind, OwnData, Prepare, StrictModel

FORMAT = 2  # increase it when the same spec would produce other numbers, so that older trials run again


class UserOptions(StrictModel):
    """How the lists of users are sampled and trained on."""

    nsr: float
    test_nsr: float
    protocol: Literal["honest", "published"]
    refit: bool
    test_fraction: float
    test: Literal["sampled", "full"] = "sampled"
    select: Literal["sampled", "full"] = "sampled"  # how the validation choices are ranked to select an epoch


class ImageOptions(StrictModel):
    """Which pairs of images a trial is tested on, how many examples of each kind it keeps, how it is trained."""

    pairs: int
    min_gap: int
    examples: int = 0
    mirror: bool = True


class TrialSpec(StrictModel):
    """Everything that the numbers of a trial depend on, apart from the content of its data.

    Titles, table names and expected durations are no part of it: two settings with equal specs share one trial.
    Fields at their default are left out of the identity, so a new field with a default keeps the ids of old trials.
    """

    format: int = Field(description="Version of the code that turns a spec into numbers: `FORMAT`.")
    kind: Kind
    data: str | OwnData
    prepare: Prepare = Prepare()
    split: str
    folds: int
    fold: int
    model: str
    params: dict[str, Any] = Field(default_factory=dict)
    loss: str | None = None
    loss_options: dict[str, Any] = Field(default_factory=dict)
    bounding: str = "none"
    seed: int
    selection: Literal["validation", "test", "last"]
    train_on_validation: bool = Field(default=False, description="Of trials of queries only.")
    select_by: str
    measures: tuple[str, ...]
    record: tuple[str, ...] = ()
    user_options: UserOptions | None = Field(default=None, description="Of trials of users and items only.")
    image_options: ImageOptions | None = Field(default=None, description="Of trials of images only.")
    modules: dict[str, str] = Field(
        default_factory=dict, description="Modules that define measures of one's own: name and SHA-256 of the source."
    )

    @property
    def users(self) -> UserOptions:
        """Options of a trial of users and items."""
        if self.user_options is None:
            raise AssertionError(f"a trial of {self.kind} data has no user options")
        return self.user_options

    @property
    def images(self) -> ImageOptions:
        """Options of a trial of images."""
        if self.image_options is None:
            raise AssertionError(f"a trial of {self.kind} data has no image options")
        return self.image_options

    def to_json(self) -> str:
        """The spec in its canonical form: sorted keys, no defaults.

        >>> spec = TrialSpec(format=2, kind="letor", data="mq2008", split="given", folds=0, fold=1, model="AdaRank",
        ...                  seed=0, selection="last", select_by="AP", measures=("AP",))
        >>> TrialSpec.model_validate_json(spec.to_json()) == spec
        True
        """
        content = self.model_dump(exclude_defaults=True)
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Trial:
    """A spec and its data. ``digest`` identifies the content of the data; `identified` computes it."""

    spec: TrialSpec
    source: Source
    digest: str = ""

    def identified(self) -> Trial:
        """The trial with the digest of its data, without which it has no ``id``."""
        return replace(self, digest=digest_of(self.source))

    @cached_property
    def id(self) -> str:
        """Digest of spec and data: equal trials have equal ids on every machine."""
        if not self.digest:
            raise AssertionError("a trial has an id only after its data have been identified")
        return hashlib.sha256(f"{self.spec.to_json()}\n{self.digest}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class SelectionRule:
    """How one trial is selected among the points of a grid, and which measures are reported."""

    selection: str
    select_by: str
    choose: str
    report: tuple[str, ...]
    versus: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TrialSlot:
    """A trial's assignment in a study.

    ``setting`` identifies the row of the results, ``point`` the grid point within it; ``system`` and ``variant`` are
    the names that tables and figures use. ``seconds`` is the expected duration.
    """

    trial: Trial
    setting: Mapping[str, str]
    system: str
    variant: str
    rule: SelectionRule
    point: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 10.0

    @property
    def id(self) -> str:
        """Id of the trial."""
        return self.trial.id

    @property
    def fold(self) -> int:
        """Fold of the trial."""
        return self.trial.spec.fold

    @property
    def seed(self) -> int:
        """Seed of the trial."""
        return self.trial.spec.seed

    @property
    def metadata(self) -> dict[str, str]:
        """Every key that ``only`` can select by, with this trial's value."""
        return {**self.point, **self.setting, "fold": str(self.fold), "seed": str(self.seed)}

    def identified(self) -> TrialSlot:
        """The slot with the digest of its trial's data."""
        return replace(self, trial=self.trial.identified())

    def to_json(self) -> str:
        """The slot as a store keeps it: the paths of data files belong to one machine and are left out."""
        content = _slots().dump_python(self, exclude={"trial": {"spec": True, "source": {"files", "folds"}}})
        content["trial"]["spec"] = json.loads(self.trial.spec.to_json())
        return json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> TrialSlot:
        """Read what `to_json` wrote; pydantic's ValidationError, a ValueError, if it is anything else."""
        return _slots().validate_json(text)


@cache
def _slots() -> TypeAdapter[TrialSlot]:
    return TypeAdapter(TrialSlot)
