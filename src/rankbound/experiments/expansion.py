"""From a study to its trials: every setting x grid point x fold x seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rankbound.errors import ArgumentError, DataError
from rankbound.experiments.sources import Source, fold_count, fold_numbers, source_of, split_of
from rankbound.experiments.spec import PAIRWISE_ACCURACY, Bounded, LossChoice, ModelChoice, OwnData, Quick, Study, Table
from rankbound.experiments.store import Placed, Rule
from rankbound.experiments.trial import FAMILIES, RECORDERS, Trial
from rankbound.measures.names import parse_measure
from rankbound.models.by_name import check_ranker, make_loss

__all__ = ["Planned", "check_table", "expand", "quickened", "select", "with_files"]

_MOST_TRIALS = 1_000_000
_FAMILY = {"letor": "rows", "ratings": "users", "faces": "faces"}


@dataclass(frozen=True)
class Planned:
    """A trial of a study: what it is run with, and the place that it has in the study's tables."""

    trial: Trial
    setting: Mapping[str, str]
    system: str
    variant: str
    rule: Rule
    seconds: float  # what it is expected to take
    point: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, str]:
        """All that --only can ask for."""
        spec = self.trial.spec
        shown = {name: _shown(value) for name, value in self.point.items()}
        return shown | dict(self.setting) | {"fold": str(spec["fold"]), "seed": str(spec["seed"])}

    @property
    def placed(self) -> Placed:
        """What the store keeps of it."""
        spec = self.trial.spec
        point = {name: _shown(value) for name, value in self.point.items()}
        return Placed(
            self.trial.id, spec["fold"], spec["seed"], dict(self.setting), self.system, self.variant, self.rule, point
        )


def expand(study: Study, *, fetch: bool = True, tell: Callable[[str], Any] = lambda _: None) -> list[Planned]:
    """All trials of a study in the order of its file; without ``fetch`` data need not be here and trials have no id.

    Optional tables whose data are not here are left out; ``tell`` is called with what is missing.
    """
    planned: list[Planned] = []
    missing: dict[str, list[str]] = {}
    for table in study.tables:
        try:
            planned += _of_table(table, study.path.parent, fetch or table.optional)
        except DataError as error:
            if not table.optional:
                raise
            missing.setdefault(str(error), []).append(table.name or str(table.data))
    for reason, names in missing.items():
        tell(f"left out: {', '.join(dict.fromkeys(names))}: {reason}")
    if not planned:
        raise DataError(f"{study.path}: the data of none of its tables are here")
    return planned


def quickened(study: Study) -> Study:
    """The study as --quick runs it: a small part, trained for a short while, under a name of its own."""
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
    return table.model_copy(update=changes)


def select(planned: list[Planned], only: Mapping[str, Any]) -> list[Planned]:
    """The trials whose metadata are as asked for; a list means any of its values."""
    kept = planned
    for key, wanted in only.items():
        known = sorted({name for one in planned for name in one.metadata})
        if key not in known:
            raise ArgumentError(f"--only: unknown key {key!r}; this study has {', '.join(known)}")
        values = {_shown(value) for value in (wanted if isinstance(wanted, list) else [wanted])}
        there = {one.metadata.get(key, "") for one in planned}
        if not values & there:
            raise ArgumentError(f"--only: {key} is one of {', '.join(sorted(there))}, got {', '.join(sorted(values))}")
        kept = [one for one in kept if one.metadata.get(key, "") in values]
    if not kept:
        raise ArgumentError("--only: no trial has all of these: " + ", ".join(f"{k}={v}" for k, v in only.items()))
    return kept


def with_files(planned: Planned, base: Path) -> Planned:
    """The same with the files of its data looked up; for what was expanded without."""
    spec = planned.trial.spec
    data = spec["data"] if isinstance(spec["data"], str) else OwnData(**spec["data"])
    source = source_of(data, base, backbone=spec["prepare"].get("backbone"))
    return replace(planned, trial=replace(planned.trial, source=source))


# ---- one table -------------------------------------------------------------------------------------------------------


def _of_table(table: Table, base: Path, fetch: bool) -> Iterator[Planned]:
    source = source_of(table.data, base, fetch, table.prepare.backbone)
    numbers = fold_numbers(table, source)
    several_models = len(table.model_choices) > 1
    for choice, loss, bounding, nsr, test_nsr, varied in _settings(table):
        for seed, fold, point in itertools.product(table.seeds, numbers, _points(choice.grid)):
            spec = _spec(table, choice, loss, bounding, nsr, test_nsr, varied | point, fold, seed)
            setting = _setting(table, source, choice, loss, bounding, nsr, test_nsr, varied)
            yield Planned(
                Trial(spec, source),
                setting,
                _system(several_models, setting, varied),
                _variant(nsr, test_nsr),
                _rule(table, loss),
                table.seconds,
                point,
            )


Setting = tuple[ModelChoice, LossChoice | None, Bounded, float | None, float | None, dict[str, Any]]


def _settings(table: Table) -> Iterator[Setting]:
    for choice in table.model_choices:
        losses: list[LossChoice | None] = [*(choice.loss or [])] or [None]
        for loss, bounding in itertools.product(losses, table.bounding):
            ratios: list[float | None] = [*(table.nsr or [])] or [None]
            for nsr, varied in itertools.product(ratios, _points(table.vary)):
                for test_nsr in table.test_nsr or [nsr]:
                    yield choice, loss, bounding, nsr, test_nsr, varied


def _points(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of a grid.

    >>> _points({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _spec(
    table: Table, choice: ModelChoice, loss: LossChoice | None, bounding: Bounded, nsr: float | None,
    test_nsr: float | None, changed: Mapping[str, Any], fold: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """What a trial is a function of, and nothing else: names for tables are not in here."""
    together = dict(choice.params) | dict(changed)
    options = {} if loss is None else dict(loss.options)
    options |= {name.removeprefix("loss."): value for name, value in together.items() if name.startswith("loss.")}
    if bounding.ranker_strength is not None:
        options["ranker_strength"] = bounding.ranker_strength
    label = "" if loss is None else loss.label
    spec: dict[str, Any] = {
        "family": _FAMILY[table.kind],
        "data": table.data if isinstance(table.data, str) else table.data.model_dump(exclude_defaults=True),
        "prepare": table.prepare.model_dump(exclude_defaults=True),
        "split": split_of(table),
        "folds": fold_count(table),
        "fold": fold,
        "model": choice.model,
        "params": {name: value for name, value in together.items() if not name.startswith("loss.")},
        "loss": None if loss is None else loss.loss,
        "loss_options": options,
        "bounding": bounding.bounding,
        "seed": seed,
        "selection": table.selection,
        "select_by": table.measure_to_select_by(label),
        "measures": sorted(set(table.measures)),
        "record": table.record,
    }
    if table.kind == "ratings":
        spec |= {"nsr": nsr, "test_nsr": test_nsr, "protocol": table.protocol, "refit": table.refit}
        spec["test_share"] = table.test_share
    if table.kind == "faces":
        spec |= {"pairs": table.pairs, "min_gap": table.min_gap}
        spec |= {"examples": table.examples} if table.examples else {}
    return spec


def _setting(
    table: Table, source: Source, choice: ModelChoice, loss: LossChoice | None, bounding: Bounded,
    nsr: float | None, test_nsr: float | None, varied: Mapping[str, Any],
) -> dict[str, str]:  # fmt: skip
    found = {"table": table.name, "data": source.name, "model": choice.label}
    found |= {} if loss is None else {"loss": loss.label}
    found["bounding"] = bounding.label
    if nsr is not None:
        found["nsr"] = _shown(nsr)
    if test_nsr != nsr:
        found["test_nsr"] = _shown(test_nsr)
    return found | {name: _shown(value) for name, value in varied.items()}


def _system(several_models: bool, setting: Mapping[str, str], varied: Mapping[str, Any]) -> str:
    parts = [setting["model"]] if several_models or "loss" not in setting else []
    parts += [setting[key] for key in ("loss", "bounding") if setting.get(key, "none") != "none" or key == "bounding"]
    if "loss" not in setting and setting["bounding"] == "none":
        parts.remove("none")
    return " · ".join([*parts, *(f"{name} {_shown(value)}" for name, value in varied.items())])


def _variant(nsr: float | None, test_nsr: float | None) -> str:
    if nsr is None:
        return ""
    return f"NSR {_shown(nsr)}" if nsr == test_nsr else f"NSR {_shown(nsr)}, tested at {_shown(test_nsr)}"


def _rule(table: Table, loss: LossChoice | None) -> Rule:
    select_by = table.measure_to_select_by("" if loss is None else loss.label)
    if table.report == "all":
        report = tuple(table.measures)
    else:
        report = (select_by,) if table.report == "selected" else tuple(table.report)
    return Rule(table.selection, select_by, table.choose, report, tuple(sorted(table.versus.items())))


def _shown(value: Any) -> str:
    """A value as tables and --only write it.

    >>> _shown(2.0), _shown(0.5), _shown([8, 4]), _shown("nDCG")
    ('2', '0.5', '8x4', 'nDCG')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return "x".join(map(_shown, value)) if isinstance(value, (list, tuple)) else str(value)


# ---- checks ----------------------------------------------------------------------------------------------------------


def check_table(table: Table) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Keys of a table and what to call to check each: names that only parsers and models know."""
    yield "data", partial(getattr, table, "kind")
    for at, measure in enumerate(table.measures):
        yield f"measures[{at}]", partial(_check_measure, table, measure)
    if isinstance(table.report, list):
        for at, measure in enumerate(table.report):
            yield f"report[{at}]", partial(_check_among, measure, table.measures, "measures")
    yield "select_by", partial(_check_select_by, table)
    yield "split", partial(split_of, table)
    yield "nsr", partial(_check_nsr, table)
    yield "grid", partial(_check_size, table)
    yield "prepare.backbone", partial(_check_for_images, table, table.prepare.backbone)
    yield "examples", partial(_check_for_images, table, table.examples)
    for at, name in enumerate(table.record):
        yield f"record[{at}]", partial(_check_among, name, list(RECORDERS), "registered recorders")
    for at, bounding in enumerate(table.bounding):
        yield f"bounding[{at}]", partial(_check_bounding, bounding)
    for at, choice in enumerate(table.model_choices):
        where = f"models[{at}]" if table.models else "model"
        yield where, partial(_check_choice, table, choice)
        for place, loss in enumerate(choice.loss or []):
            where = f"models[{at}].loss[{place}]" if table.models and table.models[at].loss else f"loss[{place}]"
            yield where, partial(_check_loss, table, choice, loss)


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
        raise ArgumentError("users' lists need negatives: give nsr, as nsr = 1")
    if table.kind != "ratings" and (table.nsr is not None or table.test_nsr is not None):
        raise ArgumentError(f"is for users' lists only, not for {table.kind} data")
    if any(value <= 0 for value in [*(table.nsr or []), *(table.test_nsr or [])]):
        raise ArgumentError("must be positive")


def _check_size(table: Table) -> None:
    """Refuse what would take for ever to write down, let alone to run."""
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
        raise ArgumentError(f"is for images only, not for {table.kind} data")


def _check_bounding(bounding: Bounded) -> None:
    if bounding.bounding == "none":
        return  # known without loading torch
    from rankbound.losses import LOSS_BOUNDINGS

    if bounding.bounding not in LOSS_BOUNDINGS:
        raise ArgumentError(f"bounding must be one of {', '.join(LOSS_BOUNDINGS)}, got {bounding.bounding!r}")


def _check_choice(table: Table, choice: ModelChoice) -> None:
    family = _FAMILY[table.kind]
    if family not in FAMILIES:
        raise AssertionError(f"there is no family {family}")
    if (choice.model == "MatrixFactorization") != (family == "users"):
        users = "MatrixFactorization is the model of users' lists (ratings) and of nothing else"
        raise ArgumentError(f"{users}, got {choice.model!r} for {table.kind} data")
    for bounding in table.bounding:
        check_ranker(choice.model, {**choice.params, **choice.grid, **table.vary}, None, bounding.bounding)


def _check_loss(table: Table, choice: ModelChoice, loss: LossChoice) -> None:
    for bounding in table.bounding:
        check_ranker(choice.model, {}, loss.loss, bounding.bounding)
        if choice.model == "LambdaMART" and loss.loss == "lambdarank":
            continue  # LightGBM's own, which is no loss of ours
        for point in _points(choice.grid | table.vary):
            together = dict(choice.params) | point
            options = {name.removeprefix("loss."): value for name, value in together.items() if name[:5] == "loss."}
            extra = {} if bounding.ranker_strength is None else {"ranker_strength": bounding.ranker_strength}
            make_loss(loss.loss, bounding.bounding, loss.options | options | extra)
