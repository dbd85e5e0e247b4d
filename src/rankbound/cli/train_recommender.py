"""The part of rankbound train that fits recommenders on interactions of users with items."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.cli import output
from rankbound.errors import ArgumentError, DataError
from rankbound.report import numbers

if TYPE_CHECKING:
    from rankbound.data.interactions import Interactions
    from rankbound.data.splits import Fold
    from rankbound.models.recommenders.base import Recommender

COLUMNS = ("user", "item", "rating", "timestamp")
_TABLES = (".csv", ".tsv", ".parquet", ".inter")


def looks_like_interactions(source: str) -> bool:
    """Whether the name of a file or data set says that it holds interactions."""
    from rankbound.data.catalog import known_sets

    if Path(source).exists():
        return Path(source.removesuffix(".gz").removesuffix(".zst")).suffix in _TABLES
    known = known_sets().get(source.partition("/")[0])
    return known is not None and known.kind == "ratings"


def train_recommender(
    model: Recommender, chosen: Mapping[str, Any], target: Path, *, as_json: bool, is_first: bool = True
) -> None:
    """Read interactions, fit the model, and save and report it in the first process."""
    with output.working("reading ..."):
        parts = _read(chosen["data"], chosen)
        held_out = parts.validation if chosen.get("valid") is None else _read(chosen["valid"], chosen).train
    from rankbound.models.options import show_training

    with show_training(model) as has_progress, nullcontext() if has_progress else output.working("training ..."):
        model.fit(parts.train, eval_set=held_out)
    if not is_first:
        return
    model.save(target)
    measured = {"validation": held_out, "test": parts.test}
    _report(model, {role: part for role, part in measured.items() if part is not None}, chosen, target, as_json=as_json)


def _report(
    model: Recommender, held_out: Mapping[str, Interactions], chosen: Mapping[str, Any], target: Path, *, as_json: bool
) -> None:
    names = [str(name) for name in chosen.get("measures") or [model.measure]]
    values = {}
    if held_out:
        from rankbound.models.recommenders.full_ranking import evaluate_recommender

        values = {role: evaluate_recommender(model, part, names).mean() for role, part in held_out.items()}
    seen = model.seen_
    notes = list(seen.notes)
    if seen.ratings is not None and chosen.get("min_rating") is None:
        notes.append("every row is a positive interaction, whatever its rating; --min-rating leaves out lower ones")
    steps = {"epochs": len(model.history_), "kept_epoch": model.kept_epoch_} if hasattr(model, "history_") else {}
    weights = [
        {"model": type(part).__name__, "weight": float(weight)}
        for part, weight in zip(getattr(model, "models_", ()), getattr(model, "weights_", ()), strict=True)
    ]
    if as_json:
        output.print_json(
            {
                "model": type(model).__name__,
                "output": str(target),
                "data": chosen["data"],
                "params": output.plain_params(model),
                "users": model.n_queries_,
                "items": len(model.item_ids_),
                "interactions": len(seen),
                "notes": notes,
                **steps,
                **({"weights": weights} if weights else {}),
                "mean": values,
            }
        )
        return
    title = f"{type(model).__name__} in {target}"
    summary = f"{model.n_queries_:,} users, {len(model.item_ids_):,} items, {len(seen):,} interactions"
    if steps:
        summary += f"; epoch {steps['kept_epoch']} of {steps['epochs']}"
    if weights:
        summary += "; weights " + ", ".join(f"{entry['model']} {entry['weight']:.3g}" for entry in weights)
    if values:
        table = [[name, *(numbers.show_number(values[role][name]) for role in values)] for name in names]
        output.print_table(f"{title}, by full ranking", ["measure", *values], table, note=summary)
    else:
        output.print_note(f"{title}: {summary}")
    for note in notes:
        output.print_note(f"Note: {note}")


def _read(source: str, chosen: Mapping[str, Any]) -> Fold[Any]:
    """Read the interactions of a file, or of a known data set or its fold, with the ratings that count."""
    from rankbound.data.catalog import known_sets
    from rankbound.data.interaction_sources import as_interactions
    from rankbound.data.loading import load_fold, load_set
    from rankbound.data.splits import Fold

    columns = {role: chosen.get(role) for role in COLUMNS}
    name, _, number = source.partition("/")
    if source == "-":
        raise ArgumentError("interactions cannot be read from standard input, because their format is recognized first")
    if Path(source).exists():
        parts = Fold(as_interactions(source, **columns), None, None)
    elif name not in known_sets():
        raise DataError(f"{source}: cannot be read: No such file, and no data set of that name")
    elif known_sets()[name].kind != "ratings":
        kind = known_sets()[name].kind
        raise DataError(f"{name}: is a data set of kind {kind}, expected one of users and items (ratings)")
    elif number and not number.isdecimal():
        raise ArgumentError(f"a fold must be a number, as in {name}/1, got {number!r}")
    else:
        parts = load_fold(name, int(number)) if number else Fold(load_set(name), None, None)
    at_least = chosen.get("min_rating")
    if at_least is None:
        return parts
    return Fold(*(_relevant(part, at_least, source) for part in (parts.train, parts.validation, parts.test)))


def _relevant(table: Interactions | None, at_least: float, source: str) -> Interactions | None:
    from rankbound.data.preparation import relevant_only

    if table is None:
        return None
    if table.ratings is None:
        raise DataError(f"{source}: has no ratings, which --min-rating requires; --rating names their column")
    kept = relevant_only(table, at_least).compact()
    if len(kept) == 0:
        raise DataError(f"{source}: has no rating of at least {at_least:g}, the highest is {table.ratings.max():g}")
    return kept
