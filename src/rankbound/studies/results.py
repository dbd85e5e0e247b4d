"""The results of a study: the selected trial of each grid, means with intervals, and published numbers.

A value of ours is the mean over folds and seeds of the mean over the queries for which the measure is defined. Its 95 %
interval is that of a mean over queries (or users), which are independent and may occur in several folds: all deviations
of a query enter together. For pairs of faces the persons are independent, and a pair belongs to two of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankbound.data.frames import polars_explained
from rankbound.errors import DataError
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.query_sets import is_bound_column
from rankbound.studies.image_pairs import COLUMNS as EXAMPLE_COLUMNS
from rankbound.studies.spec import PAIRWISE_ACCURACY
from rankbound.studies.store import Store
from rankbound.studies.trial_spec import TrialSlot

_QUERY_COLUMNS = ("qid", "items", "relevant")
_NUMBERS = ("published", "ours", "difference", "ci_low", "ci_high")
_TESTED = ("versus_difference", "versus_low", "versus_high", "p_value")
RESULT_COLUMNS: dict[str, pl.DataType] = {
    "measure": pl.String(),
    **dict.fromkeys(_NUMBERS, pl.Float64()),
    "versus": pl.String(),
    **dict.fromkeys(_TESTED, pl.Float64()),
    **dict.fromkeys(("selection", "chosen", "note"), pl.String()),
}
"""The columns of a table of results after those of the setting, with their types."""

_SETTING = ("table", "data", "model", "loss", "bounding", "nsr", "test_nsr")

FoldSeed = tuple[int, int]  # fold, seed
Setting = tuple[tuple[str, str], ...]  # the row of a table


# ---- selection -------------------------------------------------------------------------------------------------------


def select_trials(
    slots: Iterable[TrialSlot], metadata: Mapping[str, Mapping[str, Any]], measure: str
) -> dict[FoldSeed, TrialSlot]:
    """The selected trial of each fold and seed among the grid points of one setting.

    ``metadata`` has the finished trials; others cannot be selected.
    """
    best: dict[FoldSeed, tuple[float, TrialSlot]] = {}
    for slot in slots:
        if slot.id not in metadata:
            continue
        trial = metadata[slot.id]
        value = trial["mean"][measure] if slot.rule.choose == "each" else trial.get("eval_score", 0.0)
        score = -math.inf if value is None else float(value)
        run = (slot.fold, slot.seed)
        if run not in best or score > best[run][0]:
            best[run] = (score, slot)
    return {run: slot for run, (_, slot) in sorted(best.items())}


# ---- estimates -------------------------------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A mean with its standard error, from ``sampled`` queries (or persons) that were sampled independently.

    Interval and p-value are Student's. For a single fold and seed they are those of `rankbound.Inference` with
    ``interval="t"`` and ``test="t"``, and the p-value is the one that ``compare`` and ``report`` print.
    """

    mean: float
    error: float
    sampled: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval at the level of the default policy."""
        from scipy.special import stdtrit

        half = float(stdtrit(max(self.sampled - 1, 1), 0.5 + Inference().confidence / 2)) * self.error
        return self.mean - half, self.mean + half

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the hypothesis that the mean is 0."""
        from scipy.special import stdtr

        if self.error == 0:
            return 1.0
        return float(2 * stdtr(max(self.sampled - 1, 1), -abs(self.mean) / self.error))


def estimate(parts: Sequence[tuple[Any, Any]], *, pairs: bool = False) -> Estimate:
    """Mean over parts (folds, seeds) of the mean over queries; values of the same query are not independent.

    >>> mean = estimate([(["a", "b", "c", "d"], [0.0, 1.0, 1.0, 0.0])])
    >>> round(mean.mean, 3), round(mean.error, 3)  # the standard deviation over the square root of 4
    (0.5, 0.289)
    """
    filled = [(names, np.asarray(values, dtype=np.float64)) for names, values in parts if len(names)]
    if not filled:
        return Estimate(math.nan, math.nan)
    mean = float(np.mean([values.mean() for _, values in filled]))
    away = np.concatenate([(values - values.mean()) / (len(values) * len(filled)) for _, values in filled])
    names = np.concatenate([np.asarray(part, dtype=np.str_) for part, _ in filled])
    if pairs:
        first, second = np.array([name.split("|") for name in names.tolist()]).T
        together = _sums(np.concatenate((first, second)), np.concatenate((away, away)))
        squares = float((together**2).sum() - (_sums(names, away) ** 2).sum())  # a pair is in both of its persons' sums
    else:
        together = _sums(names, away)
        squares = float((together**2).sum())
    count = len(together)
    return Estimate(mean, math.sqrt(max(squares, 0.0) * count / (count - 1)) if count > 1 else math.nan, count)


def _sums(names: Any, values: Any) -> Any:
    _, code = np.unique(names, return_inverse=True)
    return np.bincount(code, weights=values)


# ---- tables ----------------------------------------------------------------------------------------------------------


def results_table(store: Store, slots: Sequence[TrialSlot], published: pl.DataFrame | None = None) -> pl.DataFrame:
    """A row per setting and measure: published, ours, difference, interval, and the test against another setting."""
    trials = _Trials(store, slots)
    names = dict.fromkeys(name for setting in trials.by_setting for name, _ in setting)
    columns = dict.fromkeys((*_SETTING, *names), "")
    rows = []
    for setting, group in trials.by_setting.items():
        for measure in group[0].rule.report:
            selected = trials.select(group, measure)
            ours = trials.estimate(selected, measure)
            value, remark = None, ""
            if published is not None:
                value = published_number(published, dict(setting), measure, {fold for fold, _ in selected})
                remark = _remark(published, dict(setting), measure)
            difference = None if value is None else ours.mean - value
            numbers = (value, ours.mean, difference, *ours.interval)
            row = columns | dict(setting) | {"measure": measure} | dict(zip(_NUMBERS, numbers, strict=True))
            row |= trials.versus(setting, selected, measure)
            row |= {"selection": group[0].rule.selection, "chosen": _points(selected)}
            rows.append(row | {"note": "; ".join(filter(None, (remark, *trials.notes(group, selected))))})
    schema = dict.fromkeys(columns, pl.String()) | RESULT_COLUMNS if rows else None
    return without_empty_texts(pl.DataFrame(rows, schema=schema).with_columns(pl.col(pl.Float64).fill_nan(None)))


def without_empty_texts(table: pl.DataFrame) -> pl.DataFrame:
    """A table of results without the columns of text that are empty in all of its rows."""
    needed = [name for name, kind in table.schema.items() if kind == pl.Float64 or name == "measure"]
    return table.select(name for name in table.columns if name in needed or (table[name] != "").any())


def score_table(store: Store, slots: Sequence[TrialSlot]) -> pl.DataFrame:
    """A row per selected trial and query: data, variant, system, fold, seed, qid, items, relevant, settings, measures.

    The bounds of measures follow, where the trials have stored them.
    """
    trials, frames = _Trials(store, slots), []
    for setting, group in trials.by_setting.items():
        measures = list(next((trials.metadata[slot.id]["mean"] for slot in group if slot.id in trials.metadata), {}))
        selected = {measure: trials.select(group, measure) for measure in measures}
        for run, slot in selected[measures[0]].items() if measures else ():
            # with choose = "each" the measures of a row come from several trials of a fold, in the same order
            values = [trials.scores(selected[measure][run].id)[measure] for measure in measures]
            labels = _labels(slot) + [
                pl.lit(value).alias(name) for name, value in setting if name not in ("data", "table") and value
            ]
            scores = trials.scores(slot.id)
            bounds = [name for name in scores.columns if is_bound_column(name)]
            frames.append(scores.with_columns(values).select(*labels, *_QUERY_COLUMNS, *measures, *bounds))
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def history_table(store: Store, slots: Sequence[TrialSlot]) -> pl.DataFrame:
    """A row per selected trial, epoch and quantity."""
    trials, frames = _Trials(store, slots), []
    for group in trials.by_setting.values():
        selected = trials.select(group, group[0].rule.select_by)
        frames += [
            store.history(slot.id).select(*_labels(slot), "epoch", "quantity", "value") for slot in selected.values()
        ]
    return pl.concat(frames) if frames else pl.DataFrame()


def examples_table(store: Store, slots: Sequence[TrialSlot]) -> pl.DataFrame:
    """Example pairs of images, a row per image, of the first selected trial of each setting that stored some."""
    trials, frames = _Trials(store, slots), []
    for setting, group in trials.by_setting.items():
        selected = trials.select(group, group[0].rule.select_by)
        slot = next((slot for slot in selected.values() if trials.metadata[slot.id].get("examples")), None)
        if slot is not None:
            table = pl.lit(dict(setting)["table"]).alias("table")
            frames.append(store.examples(slot.id).select(*_labels(slot), table, *EXAMPLE_COLUMNS))
    return pl.concat(frames) if frames else pl.DataFrame()


def _labels(slot: TrialSlot) -> list[pl.Expr]:
    words = {"data": slot.setting["data"], "variant": slot.variant, "system": slot.system}
    numbers = {"fold": slot.fold, "seed": slot.seed}
    labels = [pl.lit(value).alias(name) for name, value in words.items()]
    return labels + [pl.lit(value, dtype=pl.Int64).alias(name) for name, value in numbers.items()]


class _Trials:
    """The slots of a study by setting, and what the store has of their trials; each file is read once."""

    def __init__(self, store: Store, slots: Sequence[TrialSlot]) -> None:
        self._store = store
        self.metadata, self._failures = store.metadata(), store.failures()
        self.by_setting: dict[Setting, list[TrialSlot]] = {}
        for slot in slots:
            self.by_setting.setdefault(tuple(slot.setting.items()), []).append(slot)
        self._scores: dict[str, pl.DataFrame] = {}

    def select(self, group: Iterable[TrialSlot], measure: str) -> dict[FoldSeed, TrialSlot]:
        """The selected trial of each fold and seed, by `select_trials`."""
        return select_trials(group, self.metadata, measure)

    def scores(self, trial: str) -> pl.DataFrame:
        """The scores of a trial, a row per query."""
        if trial not in self._scores:
            self._scores[trial] = self._store.scores(trial)
        return self._scores[trial]

    def _values(self, trial: str, measure: str) -> pl.DataFrame:
        return self.scores(trial).select("qid", pl.col(measure).alias("value")).drop_nulls()

    def estimate(self, selected: Mapping[FoldSeed, TrialSlot], measure: str) -> Estimate:
        """The mean of a measure over selected trials."""
        return _of_frames([self._values(slot.id, measure) for slot in selected.values()], measure)

    def versus(self, setting: Setting, selected: Mapping[FoldSeed, TrialSlot], measure: str) -> dict[str, Any]:
        """The mean paired difference from the setting that this one is tested against, with interval and p-value."""
        empty = {"versus": "", **dict.fromkeys(_TESTED)}
        rule = self.by_setting[setting][0].rule
        wanted = _without_empty(dict(setting) | dict(rule.versus))
        other = next((key for key in self.by_setting if _without_empty(dict(key)) == wanted), None)
        if not rule.versus or other is None or other == setting:
            return empty
        others = self.select(self.by_setting[other], measure)
        frames = [
            self._values(slot.id, measure)
            .join(self._values(others[run].id, measure), on="qid", maintain_order="left")
            .select("qid", (pl.col("value") - pl.col("value_right")).alias("value"))
            for run, slot in selected.items()
            if run in others
        ]
        if not frames:
            return empty
        ahead = _of_frames(frames, measure)
        numbers = (ahead.mean, *ahead.interval, ahead.p_value)
        return {"versus": self.by_setting[other][0].system, **dict(zip(_TESTED, numbers, strict=True))}

    def notes(self, group: list[TrialSlot], selected: Mapping[FoldSeed, TrialSlot]) -> Iterator[str]:
        """What is missing: folds, trials that were not run, trials that failed."""
        expected = {(slot.fold, slot.seed) for slot in group}
        if len(selected) < len(expected):
            yield f"{len(selected)} of {len(expected)} folds and seeds are finished"
        elif undone := sum(slot.id not in self.metadata and slot.id not in self._failures for slot in group):
            yield f"selected among {len(group) - undone} of {len(group)} trials; the others are not finished"
        errors = [self._failures[slot.id] for slot in group if slot.id in self._failures]
        if errors:
            yield f"{len(errors)} of {len(group)} trials failed; first error: {errors[0].splitlines()[0]}"


def _of_frames(frames: Sequence[pl.DataFrame], measure: str) -> Estimate:
    parts = [(frame["qid"].to_numpy(), frame["value"].to_numpy()) for frame in frames]
    return estimate(parts, pairs=measure == PAIRWISE_ACCURACY)


def _without_empty(setting: Mapping[str, str]) -> dict[str, str]:
    """A setting without empty values: models without a loss are tested against those that have one, too."""
    return {name: value for name, value in setting.items() if value}


def _points(selected: Mapping[FoldSeed, TrialSlot]) -> str:
    """The selected grid points, and how often each was selected."""
    counted = Counter(" ".join(f"{k.split('.')[-1]}={v}" for k, v in slot.point.items()) for slot in selected.values())
    return "; ".join(
        f"{point} x{count}" if len(selected) > 1 else point for point, count in counted.most_common() if point
    )


# ---- published numbers -----------------------------------------------------------------------------------------------


def read_published(path: Path, settings: Iterable[str]) -> pl.DataFrame | None:
    """Published numbers: columns of settings (an empty cell matches any), measure, published, optionally fold."""
    if not path.is_file():
        return None
    with polars_explained(path):
        table = pl.read_csv(path, infer_schema=False).fill_null("")
    known = {*settings, "fold", "measure", "published", "note"}
    unknown = [name for name in table.columns if name not in known]
    if unknown or not {"measure", "published"} <= set(table.columns):
        raise DataError(
            f"{path}: columns must be measure, published and settings of the study ({', '.join(sorted(known))}), "
            f"got {', '.join(table.columns)}"
        )
    with polars_explained(path):
        table = table.with_columns(pl.col("published").cast(pl.Float64))
    if not table["published"].is_finite().all():
        raise DataError(f"{path}: published must be finite numbers, got {table['published'].to_list()[:5]}")
    return table


def published_number(table: pl.DataFrame, setting: Mapping[str, str], measure: str, folds: set[int]) -> float | None:
    """The published number of a setting: the mean over the folds that were run, if all of them were published."""
    rows = _published_rows(table, setting, measure)
    if "fold" in table.columns:
        expected = [str(fold) for fold in sorted(folds)]
        rows = rows.filter(pl.col("fold").is_in([*expected, ""]))
        if rows.height and (rows["fold"] != "").all() and set(rows["fold"]) != set(expected):
            return None
    elif rows.height > 1:
        raise DataError(f"published numbers: {rows.height} rows match the setting {dict(setting)} and {measure}")
    return None if rows.is_empty() else float(np.mean(rows["published"].to_numpy()))


def _published_rows(table: pl.DataFrame, setting: Mapping[str, str], measure: str) -> pl.DataFrame:
    keys = [name for name in table.columns if name not in ("fold", "measure", "published", "note")]
    fits = pl.col("measure") == measure
    for name in keys:
        fits &= (pl.col(name) == "") | (pl.col(name) == setting.get(name, ""))
    return table.filter(fits)


def _remark(published: pl.DataFrame, setting: Mapping[str, str], measure: str) -> str:
    """The notes in the file of published numbers about a number, for instance that it is for other data."""
    if "note" not in published.columns:
        return ""
    return "; ".join(filter(None, _published_rows(published, setting, measure)["note"].unique(maintain_order=True)))
