"""Evaluate recommenders by full ranking: every item of the catalog but the user's training items is a candidate.

Users are scored block by block, so that memory is bounded. Measures with a small cutoff need no more than the first
items of each user and the label counts, most others no more than the ranks of the relevant items; a few need the whole
ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.data.interaction_sources import as_interactions, find_codes, recode_interactions
from rankbound.data.interactions import Interactions
from rankbound.data.sampling import is_among, pair_keys
from rankbound.difficulty.bounding import Bounds, difficulty_of, get_bounding
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import Evaluation, evaluate_lists
from rankbound.evaluation.result import merge_evaluations
from rankbound.lists import Coverage, Lists
from rankbound.measures import LabelCounts, Measure, Ranked, is_defined, parse_measures
from rankbound.models.recommenders.first_ranks import (
    needs_first_ranks_only,
    needs_relevant_ranks_only,
    ranked_by_relevant_items,
    ranked_first_items,
    value_of_ranking,
)
from rankbound.models.recommenders.top_items import first_items
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty

ScoreBlock = Callable[[Any], Any]  # codes of users -> scores of all items [users, items]
ScoreVariants = Callable[[Any], Iterable[Any]]  # codes of users -> such scores of several models, one after the other

_BLOCK_SCORES = 2_000_000  # of one block of users: a few dozen MB with everything that is computed from them
_SEEN = -1  # marks training items among the labels of a block
_LOWEST = float(np.finfo(np.float32).min)  # finite, because kernels are compiled for finite numbers


def evaluate_full_ranking(
    score_block: ScoreBlock,
    train: Interactions,
    test: Interactions,
    measures: Any,
    *,
    users: Any = None,
    bounds: bool = False,
) -> Evaluation:
    """Rank all items but the training items of each user, and evaluate the rankings.

    The candidates of a user are all items of the table but those of the user's training interactions. A candidate is
    relevant (label 1) if the user has a test interaction with it, whatever its rating. Measures are averaged over the
    orders of items with equal scores. Users without a relevant candidate are left out.

    Parameters
    ----------
    score_block:
        Takes an int32 array of user codes and returns the finite scores of all items [users, items].
    train, test:
        Interactions with shared codes: rows of one table, or two tables after `rankbound.data.align_interactions`.
        Test interactions that are training interactions as well are ignored.
    measures:
        Names such as ``"nDCG@10"`` and ``"EM(nDCG@10)"``. With a cutoff of at most 100 only the first items of each
        user are sorted, and for most other measures the items before the relevant ones are counted. ``DB`` and other
        boundings that are not affine take much longer for large catalogs.
    users:
        Codes of the users to evaluate; by default all users with a test interaction.
    bounds:
        Add worst, expected and best of every measure over all rankings of the candidates.

    Returns
    -------
    Evaluation
        Values per user; the ``query_ids`` are the names of the users.

    >>> table = Interactions.from_columns(["al", "al", "bo", "bo"], ["x", "y", "y", "z"])
    >>> is_test = np.array([False, True, False, True])
    >>> scores = np.array([[9.0, 1.0, 2.0], [0.0, 9.0, 1.0]])  # al: z before y, because x is a training item
    >>> result = evaluate_full_ranking(scores.__getitem__, table.rows(~is_test), table.rows(is_test), ["RR", "P@1"])
    >>> result.per_query.rows()
    [('al', 0.5, 0.0), ('bo', 1.0, 1.0)]
    """
    (result,) = evaluate_variants(lambda block: [score_block(block)], train, test, measures, users=users, bounds=bounds)
    return result


def evaluate_variants(
    score_variants: ScoreVariants,
    train: Interactions,
    test: Interactions,
    measures: Any,
    *,
    users: Any = None,
    bounds: bool = False,
) -> list[Evaluation]:
    """Evaluate several models by full ranking in one pass over the users; see `evaluate_full_ranking`.

    ``score_variants`` takes user codes and yields the scores of all items by each model, so that models can share what
    they compute for a block of users. One array of scores is in use at a time.
    """
    requested = _check_measures(measures)
    for name in ("user_names", "item_names"):
        if not np.array_equal(getattr(train, name), getattr(test, name)):
            raise DataError("train and test must share their users and items; see rankbound.data.align_interactions")
    held_out = test.rows(~is_among(pair_keys(test), pair_keys(train)))
    evaluated = _evaluated_users(held_out, users)
    ranking = _FullRanking(train, held_out, requested, bounds)
    step = max(1, _BLOCK_SCORES // max(1, len(train.item_names)))
    blocks = []
    for start in range(0, len(evaluated), step):
        block = evaluated[start : start + step]
        blocks.append([ranking.evaluate(block, scores) for scores in score_variants(block)])
    sizes = len(train.item_names) - train.per_user[evaluated]
    coverage = Coverage(shared_queries=len(evaluated)).with_documents(sizes, sizes)
    protocol = Protocol(candidates="catalog")
    merged = map(merge_evaluations, zip(*blocks, strict=True))
    return [replace(result, coverage=coverage, protocol=protocol) for result in merged]


def evaluate_recommender(
    model: Any,
    test: Any,
    measures: Any = ("nDCG@10", "R@10", "Success@10"),
    *,
    train: Any = None,
    bounds: bool = False,
) -> Evaluation:
    """Evaluate a fitted recommender by full ranking on held-out interactions.

    Parameters
    ----------
    model:
        A fitted `Recommender`.
    test:
        Held-out interactions: whatever `rankbound.data.as_interactions` takes, such as a file or a table. Users and
        items are those of the model with the same names. Users that the model does not know are left out and counted
        in ``missing_queries``. Items that it does not know are relevant, too, and tied below all that it ranks.
    measures, bounds:
        As in `evaluate_full_ranking`.
    train:
        Interactions that are no candidates; by default those that the model was trained on.
    """
    if not hasattr(model, "seen_"):
        raise ArgumentError(f"model must be a fitted recommender, got {type(model).__name__} without training data")
    held_out = as_interactions(test).compact()
    seen = model.seen_ if train is None else as_interactions(train)
    known = find_codes(model.user_ids_, pl.Series(held_out.user_names)) >= 0
    if not known.any():
        raise DataError(
            "test must have users of the model, "
            f"got names such as {held_out.user_names[0]!r} for users such as {model.user_ids_[0]!r}"
        )
    unknown_items = held_out.item_names[find_codes(model.item_ids_, pl.Series(held_out.item_names)) < 0]
    catalog = np.concatenate((model.item_ids_, unknown_items)) if len(unknown_items) else model.item_ids_
    held_out = recode_interactions(held_out, model.user_ids_, catalog)
    seen = recode_interactions(seen, model.user_ids_, catalog)

    def score_block(users: NDArray[np.int32]) -> NDArray[Any]:
        scores = model._score_block(users)
        if not len(unknown_items):
            return np.asarray(scores)
        return np.pad(scores, ((0, 0), (0, len(unknown_items))), constant_values=_LOWEST)

    result = evaluate_full_ranking(score_block, seen, held_out, measures, bounds=bounds)
    missing = int(np.count_nonzero(~known))
    return replace(result, coverage=replace(result.coverage, missing_queries=missing))


def _check_measures(measures: Any) -> Mapping[str, Measure]:
    requested = measures if isinstance(measures, Mapping) else parse_measures(measures)
    for measure in requested.values():
        if measure.is_standardized:
            raise ArgumentError(f"measures must not need reference runs, which full ranking has none of, got {measure}")
    return requested


def _evaluated_users(held_out: Interactions, users: Any) -> NDArray[np.int32]:
    """Return the codes of those of the users that have a relevant candidate."""
    per_user = held_out.per_user
    chosen = np.arange(len(per_user)) if users is None else np.asarray(users)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise ArgumentError(f"users must be a list of user codes, got {chosen.dtype} with shape {chosen.shape}")
    if len(chosen) and (chosen.min() < 0 or chosen.max() >= len(per_user)):
        raise ArgumentError(f"users must be codes from 0 to {len(per_user) - 1}, got {chosen.min()} to {chosen.max()}")
    evaluated: NDArray[np.int32] = chosen[per_user[chosen] > 0].astype(np.int32)
    if len(evaluated) == 0:
        raise DataError("test must have an interaction that is not a training interaction, got none for these users")
    return evaluated


class _FullRanking:
    """What the blocks of users share."""

    def __init__(
        self, train: Interactions, held_out: Interactions, measures: Mapping[str, Measure], bounds: bool
    ) -> None:
        self.measures, self.bounds = measures, bounds
        self.user_names, self.items = train.user_names, len(train.item_names)
        self._seen, self._relevant = ((table.items, table.offsets) for table in (train, held_out))
        self.first = {name: m for name, m in measures.items() if needs_first_ranks_only(m)}
        others = {name: m for name, m in measures.items() if name not in self.first}
        self.counted = {name: m for name, m in others.items() if needs_relevant_ranks_only(m)}
        self.whole = {name: m for name, m in others.items() if name not in self.counted}

    def evaluate(self, users: NDArray[np.int32], scores: Any) -> Evaluation:
        """Evaluate a block of users by their scores of all items."""
        scores = self._check_scores(users, scores)
        seen, relevant = _cells(*self._seen, users), _cells(*self._relevant, users)
        labels = np.zeros((len(users), self.items), np.int8)
        labels[seen], labels[relevant] = _SEEN, 1
        parts = []
        if self.whole:
            parts.append(self._evaluate_whole(users, labels, scores))
        per_user = [np.bincount(rows, minlength=len(users)) for rows, _ in (seen, relevant)]
        counts = LabelCounts.binary(self.items - per_user[0], per_user[1])
        if self.counted:
            ranked = ranked_by_relevant_items(scores, labels, *relevant, counts)
            parts.append(self._evaluate_ranked(users, self.counted, ranked, counts))
        if self.first:
            scores[seen] = _LOWEST
            ranked = self._rank_first_items(labels.ravel(), scores.ravel(), counts)
            parts.append(self._evaluate_ranked(users, self.first, ranked, counts))
        return parts[0] if len(parts) == 1 else _join_parts(parts, self.measures)

    def _check_scores(self, users: NDArray[np.int32], scores: Any) -> NDArray[Any]:
        """Return finite scores of all items [users, items], in an array of our own."""
        scores = np.asarray(scores)
        if scores.shape != (len(users), self.items):
            raise DataError(
                f"scores must have one row per user and one column per item, {(len(users), self.items)}, "
                f"got shape {scores.shape}"
            )
        own: NDArray[Any] = np.array(scores, dtype=np.float32 if scores.dtype == np.float32 else np.float64, order="C")
        if not np.isfinite(own).all():
            raise DataError("scores must be finite, got NaN or infinity")
        return own

    def _evaluate_whole(
        self, users: NDArray[np.int32], labels: NDArray[np.int8], scores: NDArray[np.floating]
    ) -> Evaluation:
        is_candidate = labels != _SEEN
        lists = Lists.of_checked_arrays(
            labels=labels[is_candidate].astype(np.int32),
            offsets=np.concatenate(([0], np.cumsum(np.count_nonzero(is_candidate, axis=1)))),
            scores=scores[is_candidate].astype(np.float64),
            qids=self.user_names[users],
        )
        return evaluate_lists(lists, self.whole, bounds=self.bounds)

    def _rank_first_items(self, labels: NDArray[np.int8], scores: NDArray[np.floating], counts: LabelCounts) -> Ranked:
        cutoff = max(measure.cutoff or 1 for measure in self.first.values())
        order, starts = first_items(scores, np.arange(len(counts) + 1) * self.items, cutoff)
        kept = labels[order] != _SEEN
        order, starts = order[kept], np.concatenate(([0], np.cumsum(kept)))[starts]
        return ranked_first_items(labels[order].astype(np.int32), scores[order], starts, counts)

    def _evaluate_ranked(
        self, users: NDArray[np.int32], measures: Mapping[str, Measure], ranked: Ranked, counts: LabelCounts
    ) -> Evaluation:
        value, empty, no_choice, bounds, complete = {}, {}, {}, {}, {}
        difficulties: dict[Measure, Difficulty] = {}
        for name, measure in measures.items():
            defined = has_value = is_defined(counts, measure.plain)
            difficulty = None
            if measure.bounding != "none" or self.bounds:
                if measure.plain not in difficulties:
                    difficulties[measure.plain] = difficulty_of(measure.plain, counts)
                difficulty = difficulties[measure.plain]
                no_choice[name] = defined & ~difficulty.informative
                if measure.bounding != "none":
                    has_value = defined & get_bounding(measure.bounding).defined(difficulty)
            plain_or_bounded = value_of_ranking(measure, ranked, difficulty)
            value[name], empty[name] = np.where(has_value, plain_or_bounded, np.nan), ~defined
            if difficulty is not None and measure.bounding == "none":
                bounds[name] = Bounds(difficulty.worst, difficulty.expected, difficulty.best)
                complete[name] = plain_or_bounded
        return Evaluation(self.user_names[users], value, empty, bounds, no_choice=no_choice, complete=complete)


def _cells(
    items: NDArray[np.int32], offsets: NDArray[np.int64], users: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the row and the item of each interaction of users, whose rows are in the order of the users."""
    start, count = offsets[users], offsets[users + 1] - offsets[users]
    row = np.repeat(np.arange(len(users)), count)
    at = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(len(row))
    return row, items[at]


def _join_parts(parts: list[Evaluation], names: Mapping[str, Measure]) -> Evaluation:
    """Return one evaluation of the measures of several, which have the same users."""

    def order_values(field: str) -> dict[str, Any]:
        joined = {name: values for part in parts for name, values in getattr(part, field).items()}
        return {name: joined[name] for name in names if name in joined}

    fields: dict[str, Any] = {
        field: order_values(field) for field in ("values", "empty", "bounds", "no_choice", "complete")
    }
    return Evaluation(parts[0].query_ids, **fields)
