"""From a study to its trials: every setting x grid point x fold x seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rankbound.errors import ArgumentError, DataError
from rankbound.studies.sources import Source, fold_count, fold_numbers, source_of, split_of
from rankbound.studies.spec import Bounded, LossChoice, ModelChoice, Quick, Study, Table, Values
from rankbound.studies.trial_spec import FORMAT, ImageOptions, SelectionRule, Trial, TrialSlot, TrialSpec, UserOptions


@dataclass(frozen=True)
class Expansion:
    """The trials of a study: those of tables whose data may be had, and all of them."""

    slots: list[TrialSlot]
    planned: list[TrialSlot]


def expand(
    study: Study,
    *,
    fetch: bool = True,
    modules: Mapping[str, str] | None = None,
    notify: Callable[[str], object] = lambda _: None,
) -> list[TrialSlot]:
    """All trials of a study, in the order of its file.

    Parameters
    ----------
    study:
        The study.
    fetch:
        Look up the files of the data, and download those that can be. Without it the data may be absent, and the
        trials have no id.
    modules:
        Name and digest of the modules that workers import before they run a trial.
    notify:
        Called with a message for each group of optional tables that are left out because their data are absent.
    """
    return expand_tables(study, fetch, modules or {}, notify).slots


def expand_tables(
    study: Study, fetch: bool, modules: Mapping[str, str], notify: Callable[[str], object] = lambda _: None
) -> Expansion:
    """The trials of a study, see `expand`; ``planned`` has those of optional tables whose data are absent, too."""
    expansion = Expansion([], [])
    missing: dict[str, list[str]] = {}
    for table in study.tables:
        found: list[TrialSlot] = []
        try:
            found = list(_expand_table(table, study.path.parent, fetch or table.optional, modules))
        except DataError as error:
            if not table.optional:
                raise
            missing.setdefault(str(error), []).append(table.name or str(table.data))
        expansion.slots.extend(found)
        is_absent = not found and isinstance(table.data, str)
        expansion.planned.extend(_expand_table(table, study.path.parent, False, modules) if is_absent else found)
    for reason, names in missing.items():
        notify(f"left out: {', '.join(dict.fromkeys(names))}: {reason}")
    if not expansion.slots:
        raise DataError(f"{study.path}: the data of all of its tables are missing")
    return expansion


def make_quick(study: Study) -> Study:
    """The study as ``quick`` runs it: a small part, trained briefly, under a name and in a store of its own."""
    quick = study.quick
    tables = [_quick_table(table, quick) for table in study.tables]
    return study.model_copy(
        update={"tables": tables, "name": f"{study.name}-quick", "store_name": f"{study.store_name}-quick"}
    )


def _quick_table(table: Table, quick: Quick) -> Table:
    def known(model: str) -> Values:
        from rankbound.models.by_name import parameters_of

        return {name: value for name, value in quick.params.items() if name in parameters_of(model)}

    changes: Values = {}
    choices = [
        choice.model_copy(
            update={
                "params": choice.params | known(choice.model),
                "grid": choice.grid if quick.grid is None else quick.grid,
            }
        )
        for choice in table.model_choices
    ]
    changes |= {"models": choices, "model": None, "params": {}, "grid": {}}
    if quick.first is not None:
        changes["prepare"] = table.prepare.model_copy(update={"first": quick.first})
    if quick.seconds is not None:
        changes["seconds"] = quick.seconds
    return table.model_copy(update=changes)


def select(slots: list[TrialSlot], only: Mapping[str, object]) -> list[TrialSlot]:
    """The slots whose metadata have the values in ``only``; a list stands for any of its values."""
    selected = slots
    for key, wanted in only.items():
        known = sorted({name for slot in slots for name in slot.metadata})
        if key not in known:
            raise ArgumentError(f"only: unknown key {key!r}; this study has {', '.join(known)}")
        values = {format_value(value) for value in (wanted if isinstance(wanted, (list, tuple, set)) else [wanted])}
        present = {slot.metadata.get(key, "") for slot in slots}
        if not values & present:
            raise ArgumentError(
                f"only: {key} must be one of {', '.join(sorted(present))}, got {', '.join(sorted(values))}"
            )
        selected = [slot for slot in selected if slot.metadata.get(key, "") in values]
    if not selected:
        raise ArgumentError("only: no trial has all of these: " + ", ".join(f"{k}={v}" for k, v in only.items()))
    return selected


def with_files(slots: list[TrialSlot], base: Path) -> list[TrialSlot]:
    """The slots with the files of their data looked up, for slots that were expanded without ``fetch``."""
    found: dict[tuple[Source, str | None], Source] = {}
    located = []
    for slot in slots:
        spec, bare = slot.trial.spec, slot.trial.source
        key = (bare, spec.prepare.backbone)
        if key not in found:
            found[key] = source_of(spec.data, base, backbone=spec.prepare.backbone)
        located.append(replace(slot, trial=replace(slot.trial, source=found[key])))
    return located


# ---- one table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Setting:
    """A combination of the keys of a table that makes a row of the results."""

    table: Table
    choice: ModelChoice
    loss: LossChoice | None
    bounding: Bounded
    nsr: float | None
    test_nsr: float | None
    test: Literal["sampled", "full"]
    varied: Values

    @property
    def select_by(self) -> str:
        """The measure that epoch and grid point are selected by."""
        return self.table.measure_to_select_by("" if self.loss is None else self.loss.label)

    def labels(self, data: str) -> dict[str, str]:
        """The setting as columns of the results."""
        labels = {"table": self.table.name, "data": data, "model": self.choice.label}
        labels |= {} if self.loss is None else {"loss": self.loss.label}
        labels["bounding"] = self.bounding.label
        if self.nsr is not None:
            labels["nsr"] = format_value(self.nsr)
        if self.test_nsr != self.nsr:
            labels["test_nsr"] = format_value(self.test_nsr)
        if self.test != "sampled":
            labels["test"] = self.test
        return labels | {name: format_value(value) for name, value in self.varied.items()}

    @property
    def system(self) -> str:
        """The name of the system in tables and figures."""
        several_models = len(self.table.model_choices) > 1
        parts = [self.choice.label] if several_models or self.loss is None else []
        parts += [] if self.loss is None else [self.loss.label]
        if self.loss is not None or self.bounding.label != "none":
            parts.append(self.bounding.label)
        return " · ".join([*parts, *(f"{name} {format_value(value)}" for name, value in self.varied.items())])

    @property
    def variant(self) -> str:
        """The ratios of negatives, which distinguish evaluations of one system."""
        if self.nsr is None:
            return ""
        trained = f"NSR {format_value(self.nsr)}"
        if self.test == "full":
            return f"{trained}, full ranking"
        return trained if self.nsr == self.test_nsr else f"{trained}, tested at {format_value(self.test_nsr)}"

    @property
    def rule(self) -> SelectionRule:
        """How a trial is selected among the grid points of this setting."""
        table = self.table
        if table.report == "all":
            report = tuple(table.measures)
        else:
            report = (self.select_by,) if table.report == "selected" else tuple(table.report)
        return SelectionRule(table.selection, self.select_by, table.choose, report, tuple(sorted(table.versus.items())))

    def spec(self, point: Values, fold: int, seed: int, modules: Mapping[str, str]) -> TrialSpec:
        """The spec of the trial at a grid point."""
        table = self.table
        params = {**self.choice.params, **self.varied, **point}
        users = images = None
        if self.nsr is not None and self.test_nsr is not None:
            users = UserOptions(
                nsr=self.nsr,
                test_nsr=self.test_nsr,
                protocol=table.protocol,
                refit=table.refit,
                test_fraction=table.test_fraction,
                test=self.test,
                select=self.test,
            )
        if table.kind == "faces":
            images = ImageOptions(
                pairs=table.pairs, min_gap=table.min_gap, examples=table.examples, mirror=table.mirror
            )
        return TrialSpec(
            format=FORMAT,
            kind=table.kind,
            data=table.data,
            prepare=table.prepare,
            split=split_of(table),
            folds=fold_count(table),
            fold=fold,
            model=self.choice.model,
            params={name: value for name, value in params.items() if not name.startswith("loss.")},
            loss=None if self.loss is None else self.loss.loss,
            loss_options=loss_options(self.loss, self.bounding, params),
            bounding=self.bounding.bounding,
            seed=seed,
            selection=table.selection,
            train_on_validation=table.train_on_validation,
            select_by=self.select_by,
            measures=tuple(sorted(set(table.measures))),
            record=tuple(table.record),
            user_options=users,
            image_options=images,
            modules=dict(modules),
        )


def _expand_table(table: Table, base: Path, fetch: bool, modules: Mapping[str, str]) -> Iterator[TrialSlot]:
    source = source_of(table.data, base, fetch, table.prepare.backbone)
    numbers = fold_numbers(table, source)
    for setting in _settings(table):
        labels = setting.labels(source.name)
        for seed, fold, point in itertools.product(table.seeds, numbers, grid_points(setting.choice.grid)):
            yield TrialSlot(
                Trial(setting.spec(point, fold, seed, modules), source),
                labels,
                setting.system,
                setting.variant,
                setting.rule,
                {name: format_value(value) for name, value in point.items()},
                table.seconds,
            )


def _settings(table: Table) -> Iterator[_Setting]:
    for choice in table.model_choices:
        losses: list[LossChoice | None] = [*(choice.loss or [])] or [None]
        for loss, bounding in itertools.product(losses, table.bounding):
            ratios: list[float | None] = [*(table.nsr or [])] or [None]
            for nsr, varied in itertools.product(ratios, grid_points(table.vary)):
                for test in dict.fromkeys(table.test):
                    tested: list[float | None] = [*(table.test_nsr or [])] if test == "sampled" else []
                    for test_nsr in tested or [nsr]:
                        yield _Setting(table, choice, loss, bounding, nsr, test_nsr, test, varied)


def grid_points(grid: Mapping[str, list[Any]]) -> list[Values]:
    """Every combination of the values of a grid.

    >>> grid_points({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def loss_options(loss: LossChoice | None, bounding: Bounded, params: Values) -> Values:
    """Options of a loss: its own, the parameters ``loss.X``, and those of the bounding."""
    options = {} if loss is None else dict(loss.options)
    options |= {name.removeprefix("loss."): value for name, value in params.items() if name.startswith("loss.")}
    if bounding.ranker_strength is not None:
        options["ranker_strength"] = bounding.ranker_strength
    return options


def format_value(value: object) -> str:
    """A value as tables and ``only`` write it.

    >>> format_value(2.0), format_value(0.5), format_value([8, 4]), format_value("nDCG")
    ('2', '0.5', '8x4', 'nDCG')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return "x".join(map(format_value, value)) if isinstance(value, (list, tuple)) else str(value)
