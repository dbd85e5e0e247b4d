"""Tables of the studies of Qin et al. that compare evaluators, and training targets with evaluation measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rankbound.studies.store import Store
from rankbound.studies.trial_spec import TrialSlot

if TYPE_CHECKING:
    import polars as pl

_NDCG = "nDCG(dcg='exp-log2')"
_EVALUATORS = {_NDCG: "discount 1 / log2(1 + rank)", "LetorNDCG": "discount 1, 1, then 1 / log2(rank), as in LETOR"}
_EMPTY = ("left out", "counted as 0")
_REFERENCE = "ApproxNDCG"
_RUN = ("fold", "seed", "qid")


def evaluators(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """The nDCG of each model by both discounts, with queries without a relevant document left out or counted as 0.

    ``versus_difference`` is the paired difference from ApproxNDCG of the same table.
    """
    import polars as pl

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
    import polars as pl

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
    from rankbound.studies.results import score_table

    for table in dict.fromkeys(slot.setting["table"] for slot in slots):
        scores = score_table(store, [slot for slot in slots if slot.setting["table"] == table])
        if not scores.is_empty():
            yield table, scores


def _means(values: pl.DataFrame, name: str, versus: str, others: pl.DataFrame | None) -> dict[str, Any]:
    """The mean with its interval, and the paired difference from ``versus``, null where that is missing or the same."""
    import polars as pl

    mean = _estimate(values)
    row: dict[str, Any] = {"ours": mean.mean, "ci_low": mean.interval[0], "ci_high": mean.interval[1]}
    row |= {"folds": values["fold"].n_unique(), "versus": versus}
    if others is None or name == versus:
        return row | dict.fromkeys(("versus_difference", "versus_low", "versus_high"))
    paired = values.join(others, on=list(_RUN), maintain_order="left")
    ahead = _estimate(paired.with_columns(pl.col("value") - pl.col("value_right")))
    return row | {
        "versus_difference": ahead.mean,
        "versus_low": ahead.interval[0],
        "versus_high": ahead.interval[1],
    }


def _estimate(values: pl.DataFrame) -> Any:
    from rankbound.studies.results import estimate

    parts = values.partition_by("fold", "seed", maintain_order=True)
    return estimate([(part["qid"].to_numpy(), part["value"].to_numpy()) for part in parts])
