"""Tables that a study has in addition to its results: functions that it names under ``derived``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from rankbound.studies.learning import ERROR
from rankbound.studies.meta_evaluation import meta_evaluation
from rankbound.studies.results import Estimate, estimate, history_table, score_table
from rankbound.studies.store import Store
from rankbound.studies.trial_spec import TrialSlot

_NDCG = "nDCG(dcg='exp-log2')"
_EVALUATORS = {_NDCG: "discount 1 / log2(1 + rank)", "LetorNDCG": "discount 1, 1, then 1 / log2(rank), as in LETOR"}
_EMPTY = ("left out", "counted as 0")
_REFERENCE = "ApproxNDCG"
_RUN = ("fold", "seed", "qid")

_PUBLISHED = Path(__file__).with_name("papers") / "ul-tables.meta-evaluation.csv"
_CUTOFFS = (5, 10, 15, 20, 30)
# The first measure of each group is the one that the others are compared with.
_FAMILIES = (
    {"nDCG@k": f"{_NDCG}@{{}}", "UL1(nDCG@k)": f"UL1({_NDCG}@{{}})", "UL2(nDCG@k)": f"UL2({_NDCG}@{{}})"},
    {"AP@k": "AP(div='min')@{}", "UL1(SP@k)": "UL1(SP@{})", "UL2(SP@k)": "UL2(SP@{})"},
)
_QUOTA = {"mq2007": 0.5}  # of the queries are uninformative, and as many ideal: 500 of 1,000 in the paper
_DEFAULT_QUOTA = 0.25
_NOT_PUBLISHED = ("conflict fraction", "significant fraction")
_KEYS = ("quantity", "measure", "versus", "data", "set")
_NOTES = {
    "mslr-sample": "published number is of MSLR-WEB30K, for which the sample stands in",
    "mq2007": "ours is of 85 % of the rows and all 1,692 queries, published of 1,000 queries",
    "mslr-sample | mq2007": "published number is of MSLR-WEB30K, for which the sample stands in, and MQ2007",
}
_RUNS = "trec-covid-round1"


# ---- of the studies of Qin et al. ------------------------------------------------------------------------------------


def evaluators(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """The nDCG of each model by both discounts, with queries without a relevant document left out or counted as 0.

    ``versus_difference`` is the paired difference from ApproxNDCG of the same table.
    """
    number = ("table", "model", "published")
    published = results.filter(pl.col("measure") == _NDCG).select(number) if "published" in results.columns else None
    rows = []
    for table, scores in _tables(store, [slot for slot in slots if slot.rule.selection == "validation"]):
        for measure, discount in _EVALUATORS.items():
            for empty in _EMPTY if measure in scores.columns else ():
                values = pl.col(measure).fill_null(0) if empty == _EMPTY[1] else pl.col(measure)
                of_model = {
                    str(name): frame.select(*_RUN, values.alias("value")).drop_nulls()
                    for (name,), frame in scores.group_by("model", maintain_order=True)
                }
                for model, frame in of_model.items():
                    row = {"table": table, "model": model, "evaluator": discount, "empty queries": empty}
                    rows.append(row | _means(frame, model, _REFERENCE, of_model.get(_REFERENCE)))
    if not rows or published is None:
        return pl.DataFrame()
    return (
        pl.DataFrame(rows, infer_schema_length=None)
        .join(published, on=["table", "model"], how="left", maintain_order="left")
        .with_columns((pl.col("ours") - pl.col("published")).alias("difference"))
        .select(*list(rows[0])[:4], "published", "ours", "difference", *list(rows[0])[5:])
    )


def train_evaluate(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """Each training target by each evaluation measure; differences are from the target that is the measure itself."""
    rows = []
    for table, scores in _tables(store, slots):
        own = [slot for slot in slots if slot.setting["table"] == table]
        trained = {slot.rule.select_by: slot.setting["loss"] for slot in own}
        for measure in own[0].rule.report:
            of_loss = {
                str(name): frame.select(*_RUN, pl.col(measure).alias("value")).drop_nulls()
                for (name,), frame in scores.group_by("loss", maintain_order=True)
            }
            matching = trained.get(measure, "")
            for loss, frame in of_loss.items():
                row = {"table": table, "data": own[0].setting["data"], "trained": loss, "evaluated": measure}
                rows.append(row | _means(frame, loss, matching, of_loss.get(matching)))
    return pl.DataFrame(rows, infer_schema_length=None)


def _tables(store: Store, slots: Sequence[TrialSlot]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The scores of the finished trials of each table of a study."""
    for table, own in _slots_by_table(slots).items():
        scores = score_table(store, own)
        if not scores.is_empty():
            yield table, scores


def _means(values: pl.DataFrame, name: str, versus: str, others: pl.DataFrame | None) -> dict[str, Any]:
    """The mean with its interval, and the paired difference from ``versus``, null where that is missing or the same."""
    mean = _estimate(values)
    row: dict[str, Any] = {"ours": mean.mean, "ci_low": mean.interval[0], "ci_high": mean.interval[1]}
    row |= {"folds": values["fold"].n_unique(), "versus": versus}
    if others is None or name == versus:
        return row | dict.fromkeys(("versus_difference", "versus_low", "versus_high"))
    paired = values.join(others, on=list(_RUN), maintain_order="left")
    ahead = _estimate(paired.with_columns(pl.col("value") - pl.col("value_right")))
    return row | {"versus_difference": ahead.mean, "versus_low": ahead.interval[0], "versus_high": ahead.interval[1]}


def _estimate(values: pl.DataFrame) -> Estimate:
    parts = values.partition_by("fold", "seed", maintain_order=True)
    return estimate([(part["qid"].to_numpy(), part["value"].to_numpy()) for part in parts])


def error_along_training(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """The approximation errors of the trials that recorded them: table, data, system, fold, epoch, train, test."""
    split = pl.col("quantity").str.strip_suffix(f" {ERROR}").alias("split")
    parts = []
    for table, own in _slots_by_table(slots).items():  # two tables may have the same systems
        history = history_table(store, own)
        if not history.is_empty():
            errors = history.filter(pl.col("quantity").str.ends_with(ERROR))
            parts.append(errors.with_columns(split, pl.lit(table).alias("table")))
    errors = pl.concat(parts) if parts else pl.DataFrame()
    if errors.is_empty():
        return pl.DataFrame()
    return errors.pivot(on="split", index=["table", "data", "system", "fold", "epoch"], values="value").sort(
        "table", "data", "system", "fold", "epoch", maintain_order=True
    )


def _slots_by_table(slots: Sequence[TrialSlot]) -> dict[str, list[TrialSlot]]:
    tables: dict[str, list[TrialSlot]] = {}
    for slot in slots:
        tables.setdefault(slot.setting["table"], []).append(slot)
    return tables


# ---- of Karmaker and Feng: which measures distinguish rankers, and real systems, best --------------------------------


def meta_tables(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """Quantity, measure, versus, data, set; table and number of the paper where it has one; ours and the difference.

    The table is empty where fewer than two rankers have been run.
    """

    published = pl.read_csv(_PUBLISHED, schema_overrides={"table": pl.String}).with_columns(
        pl.col("versus").fill_null("")
    )
    scores = _complete(score_table(store, slots))
    tables = []
    for families in _families() if not scores.is_empty() else ():
        quota = {data: _QUOTA.get(data, _DEFAULT_QUOTA) for data in scores["data"].unique()}
        tables.append(meta_evaluation(scores, families, quota=quota))
    if not tables:
        return published.clear()
    return (
        pl.concat(tables)
        .filter(~pl.col("quantity").is_in(_NOT_PUBLISHED))
        .with_columns(pl.col("versus").fill_null(""))
        .join(published, on=list(_KEYS), how="left", maintain_order="left")
        .select(
            pl.col("table").fill_null(""),
            *_KEYS,
            "published",
            pl.col("value").alias("ours"),
            (pl.col("value") - pl.col("published")).alias("difference"),
            pl.when(pl.col("published").is_not_null())
            .then(pl.col("data").replace_strict(_NOTES, default=""))
            .otherwise(pl.lit(""))
            .alias("note"),
        )
    )


def real_systems(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """The meta-evaluation of the official runs of TREC-COVID, which needs no trials; empty if the runs are not here."""
    from rankbound.data.catalog import find_entry
    from rankbound.data.loading import load_set
    from rankbound.data.set_files import present_files
    from rankbound.evaluation.alignment import align_runs

    if present_files(find_entry(_RUNS)) is None:
        return pl.DataFrame(schema=dict.fromkeys(_KEYS, pl.String) | {"value": pl.Float64})
    data = load_set(_RUNS)
    names = [name for families in _families() for family in families.values() for name in family]
    scores = align_runs(data.qrels, list(data.runs.values()), names, names=list(data.runs), data=_RUNS).to_table()
    tables = [meta_evaluation(scores, families, quota=_DEFAULT_QUOTA) for families in _families()]
    return pl.concat(tables).with_columns(pl.col("versus").fill_null(""))


def _families() -> list[dict[str, list[str]]]:
    """The measures of each family of each group, one per cutoff."""
    return [{family: [name.format(k) for k in _CUTOFFS] for family, name in group.items()} for group in _FAMILIES]


def _complete(scores: pl.DataFrame) -> pl.DataFrame:
    """The scores of the data sets on which all rankers of the study were run, if there are at least two rankers."""
    if scores.is_empty():
        return scores
    systems = scores["system"].n_unique()
    whole = pl.col("system").n_unique().over("data") == systems
    return scores.filter(whole) if systems > 1 else scores.clear()


DERIVED: dict[str, Callable[[Store, Sequence[TrialSlot], pl.DataFrame], pl.DataFrame]] = {
    "approximation-error": error_along_training,
    "evaluators": evaluators,
    "train-evaluate": train_evaluate,
    "meta-evaluation": meta_tables,
    "real-systems": real_systems,
}
"""Name -> function of (store, slots of the study, its results table) that returns a table."""
