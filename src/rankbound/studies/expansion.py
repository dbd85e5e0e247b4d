"""From a study to its trials: every setting x grid point x fold x seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rankbound.errors import ArgumentError, DataError
from rankbound.measures.measure import parse_measure
from rankbound.models import RECOMMENDERS
from rankbound.models.by_name import check_ranker, make_loss
from rankbound.studies.sources import Source, fold_count, fold_numbers, source_of, split_of
from rankbound.studies.spec import PAIRWISE_ACCURACY, Bounded, LossChoice, ModelChoice, Quick, Study, Table
from rankbound.studies.trial import RECORDERS
from rankbound.studies.trial_spec import (
    FORMAT,
    ImageOptions,
    SelectionRule,
    Trial,
    TrialSlot,
    TrialSpec,
    UserOptions,
)

_MOST_TRIALS = 1_000_000


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
    notify: Callable[[str], Any] = lambda _: None,
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
    study: Study, fetch: bool, modules: Mapping[str, str], notify: Callable[[str], Any] = lambda _: None
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


def quickened(study: Study) -> Study:
    """The study as ``quick`` runs it: a small part, trained briefly, under a name and in a store of its own."""
    quick = study.quick
    tables = [_quick_table(table, quick) for table in study.tables]
    return study.model_copy(
        update={"tables": tables, "name": f"{study.name}-quick", "store_name": f"{study.store_name}-quick"}
    )


def _quick_table(table: Table, quick: Quick) -> Table:
    def known(model: str) -> dict[str, Any]:
        from rankbound.models.by_name import parameters_of

        return {name: value for name, value in quick.params.items() if name in parameters_of(model)}

    changes: dict[str, Any] = {}
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


def select(slots: list[TrialSlot], only: Mapping[str, Any]) -> list[TrialSlot]:
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
    varied: Mapping[str, Any]

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

    def spec(self, point: Mapping[str, Any], fold: int, seed: int, modules: Mapping[str, str]) -> TrialSpec:
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
            loss_options=_loss_options(self.loss, self.bounding, params),
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
        for seed, fold, point in itertools.product(table.seeds, numbers, _points(setting.choice.grid)):
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
            for nsr, varied in itertools.product(ratios, _points(table.vary)):
                for test in dict.fromkeys(table.test):
                    for test_nsr in (table.test_nsr if test == "sampled" else None) or [nsr]:
                        yield _Setting(table, choice, loss, bounding, nsr, test_nsr, test, varied)


def _points(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of a grid.

    >>> _points({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _loss_options(loss: LossChoice | None, bounding: Bounded, params: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a loss: its own, the parameters ``loss.X``, and those of the bounding."""
    options = {} if loss is None else dict(loss.options)
    options |= {name.removeprefix("loss."): value for name, value in params.items() if name.startswith("loss.")}
    if bounding.ranker_strength is not None:
        options["ranker_strength"] = bounding.ranker_strength
    return options


def format_value(value: Any) -> str:
    """A value as tables and ``only`` write it.

    >>> format_value(2.0), format_value(0.5), format_value([8, 4]), format_value("nDCG")
    ('2', '0.5', '8x4', 'nDCG')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return "x".join(map(format_value, value)) if isinstance(value, (list, tuple)) else str(value)


# ---- checks ----------------------------------------------------------------------------------------------------------


def check_table(table: Table) -> Iterator[tuple[str, Callable[[], Any]]]:
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


def _check_for_images(table: Table, value: Any) -> None:
    if value and table.kind != "faces":
        raise ArgumentError(f"applies to images only, not to {table.kind} data")


def _check_for_queries(table: Table, value: Any) -> None:
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
        for point in _points(choice.grid | table.vary):
            make_loss(loss.loss, bounding.bounding, _loss_options(loss, bounding, choice.params | point))
