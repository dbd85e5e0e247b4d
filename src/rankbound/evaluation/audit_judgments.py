"""Checks of judgments: what a test set can show at all, and what in it leads to numbers that mean something else.

Every check returns findings; `rankbound.evaluation.audit` runs them and says what they are about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rankbound.data.frames import id_text
from rankbound.difficulty.bounding import difficulty_of
from rankbound.difficulty.pooled import pooled_gain
from rankbound.display import percent, plural
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, Measure, is_defined, rank, values
from rankbound.measures.combinatorics import log_factorials

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty

FAULT, WARNING, NOTE = "fault", "warning", "note"
SEVERITIES = (FAULT, WARNING, NOTE)
LEAK_GAIN, LEAK_Z = 0.9, 5.0  # of the way from random to best, and standard errors from random: no accident
ORDER_GAIN = 0.2
SAMPLED_ROWS = 100_000  # of larger sets a part is looked at first, and all of it only where that is suspicious
HIGH_RANDOM, VERY_HIGH_RANDOM = 0.5, 0.8  # of the best value


@dataclass(frozen=True, slots=True)
class Finding:
    """What is the matter, in a sentence with a number; ``topic`` names the check, and ``run`` the run, if any."""

    severity: str
    topic: str
    text: str
    number: float
    run: str | None = None


class JudgedSet:
    """Judgments without repeated rows, as lists in the order of their file, and what rankings of them can score.

    ``frame`` has qid, docid and label, and with candidates also the mark ``judged``.
    """

    def __init__(self, frame: pl.DataFrame, lead: Measure, ceiling_of: pl.DataFrame | None = None) -> None:
        self.frame, self.lead, self.every_judgment = frame, lead, ceiling_of
        codes = query_codes(frame["qid"])
        order = np.argsort(codes, kind="stable")
        first = np.flatnonzero(np.diff(codes[order], prepend=-1))
        self.query_ids = frame["qid"].gather(order[first])
        self.labels = frame["label"].to_numpy()[order]
        self.documents = frame["docid"].gather(order)
        self.offsets = np.append(first, len(order))
        self.query = np.repeat(np.arange(len(first)), np.diff(self.offsets))

    @cached_property
    def counts(self) -> LabelCounts:
        """The labels of each query."""
        return LabelCounts.from_labels(self.labels, self.offsets)

    @cached_property
    def difficulty(self) -> Difficulty:
        """Worst, expected and best by the lead measure."""
        return difficulty_of(self.lead, self.counts)

    @cached_property
    def defined(self) -> NDArray[np.bool_]:
        """Queries with something relevant."""
        return is_defined(self.counts, self.lead)

    @property
    def has_choice(self) -> bool:
        """Whether rankings of any query differ by the lead measure."""
        return bool((self.defined & self.difficulty.informative).any())

    @property
    def queries(self) -> int:
        """How many there are."""
        return len(self.query_ids)

    def values_in(self, keys: NDArray[np.float64], measure: Measure) -> NDArray[np.float64]:
        """Value of each query with its documents in descending order of these keys; ties keep the order of the file."""
        return values(rank(Lists(self.labels, self.offsets, keys), "input"), measure)

    def gain_and_z(self, keys: NDArray[np.float64]) -> tuple[float, float]:
        """How far this order goes from a random one (0) to the best one (1), and how many standard errors that is.

        The standard error is that of the rank sums of relevant documents under random ranking, which is exact.
        """
        chosen = self.defined & self.difficulty.informative
        if not chosen.any():
            return 0.0, 0.0
        value, known = self.values_in(keys, self.lead), self.difficulty
        gain = pooled_gain(value[chosen], known.expected[chosen], known.best[chosen])
        order = np.lexsort((-keys, self.query))
        rank = np.arange(len(order)) - self.offsets[:-1][self.query]
        relevant = self.labels[order] >= self.lead.rel
        sums = np.bincount(self.query, rank * relevant, minlength=self.queries)
        sizes = np.diff(self.offsets)
        hits = np.bincount(self.query, relevant, minlength=self.queries)
        excess = hits * (sizes - 1) / 2 - sums  # of the rank sum over that of a random order; positive is better
        variance = (hits * (sizes - hits) * (sizes + 1) / 12).sum()
        return gain, float(excess.sum() / math.sqrt(variance)) if variance else 0.0


def query_codes(queries: pl.Series) -> NDArray[np.int64]:
    """The index of each query among the sorted ids."""
    import polars as pl

    if queries.dtype == pl.String:  # sorting the different ones is faster than sorting all
        queries = queries.cast(pl.Enum(queries.unique().sort())).to_physical()
        return queries.to_numpy().astype(np.int64)
    return queries.rank("dense").to_numpy().astype(np.int64) - 1


def sample_queries(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of every k-th query, so that there are about 100,000 of them; all rows of smaller tables."""
    step = len(frame) // SAMPLED_ROWS
    if step < 2:
        return frame
    return frame.filter(frame["qid"].is_in(frame["qid"].unique(maintain_order=True).gather_every(step).implode()))


def drop_repeated(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with the first row of each document of a query."""
    if frame.select("qid", "docid").n_unique() == len(frame):  # much faster than to keep the order of rows
        return frame
    return frame.unique(["qid", "docid"], keep="first", maintain_order=True)


def check_repeated_rows(frame: pl.DataFrame, without_repeated: pl.DataFrame) -> Iterator[Finding]:
    """Documents that are judged more than once in a query."""
    import polars as pl

    if len(without_repeated) == len(frame):
        return
    labels = frame.group_by("qid", "docid").agg(pl.len().alias("rows"), pl.col("label").n_unique().alias("labels"))
    repeated = labels.filter(pl.col("rows") > 1)
    conflicting = repeated.filter(pl.col("labels") > 1).height
    if repeated.height:
        severity = FAULT if conflicting else WARNING
        yield Finding(
            severity,
            "duplicate judgments",
            f"{plural(repeated.height, 'document')} of {plural(repeated['qid'].n_unique(), 'query')} are judged more "
            f"than once, {conflicting:,} of them with different labels; the audit takes the first.",
            repeated.height,
        )


def check_labels(judged: JudgedSet) -> Iterator[Finding]:
    """Labels below 0, labels without a zero, and labels that differ between the first and the last queries."""
    labels = judged.labels
    negative = int((labels < 0).sum())
    if negative:
        yield Finding(
            WARNING,
            "negative labels",
            f"{plural(negative, 'label')} ({percent(negative, len(labels))}) are below 0: they count as 0, in Bpref "
            "and infAP as not judged.",
            negative,
        )
    levels = np.unique(labels)
    if len(levels) > 1 and levels[0] >= judged.lead.rel:
        yield Finding(
            FAULT,
            "label shift",
            f"The lowest of {len(levels)} labels is {levels[0]:g}, so every document counts as relevant (rel = "
            f"{judged.lead.rel:g}): do the labels begin at 1?",
            float(levels[0]),
        )
    means = np.add.reduceat(np.minimum(np.maximum(labels, 0), 1e6), judged.offsets[:-1]) / np.diff(judged.offsets)
    first, last = np.array_split(means, 2)
    if len(last) >= 10:
        error = math.sqrt(first.var(ddof=1) / len(first) + last.var(ddof=1) / len(last))
        if error and abs(first.mean() - last.mean()) > LEAK_Z * error:
            yield Finding(
                WARNING,
                "label shift",
                f"The mean label is {first.mean():.2f} in the first half of the queries and {last.mean():.2f} in the "
                "second: are they judged by the same rules?",
                float(last.mean() - first.mean()),
            )


def check_queries(judged: JudgedSet) -> Iterator[Finding]:
    """Queries without a relevant document, without a choice, saturated, or without power."""
    total = judged.queries
    empty = int((~judged.defined).sum())
    if empty:
        yield Finding(
            FAULT if empty == total else WARNING,
            "queries without relevant documents",
            f"{empty:,} of {plural(total, 'query')} ({percent(empty, total)}) have no relevant document: they are left "
            "out of means, or count as 0.",
            empty,
        )
    known = judged.difficulty
    no_choice = judged.defined & ~known.informative
    count = int(no_choice.sum())
    if count:
        hint = " (for normalized measures, give the candidates)" if count > total / 2 else ""
        yield Finding(
            WARNING,
            "queries without a choice",
            f"In {count:,} of {plural(total, 'query')} ({percent(count, total)}) every ranking of the judged documents "
            f"has the same {judged.lead}{hint}.",
            count,
        )
    chosen = judged.defined & known.informative
    if not chosen.any():
        return
    level, top = float(known.expected[chosen].mean()), float(known.best[chosen].mean())
    if top > 0 and level > HIGH_RANDOM * top:
        yield Finding(
            WARNING if level > VERY_HIGH_RANDOM * top else NOTE,
            "high random level",
            f"A random ranking has {judged.lead} {level:.4f} in the mean, the best one {top:.4f}: a high value says "
            "little here.",
            level,
        )
    best, expected = np.abs(known.best[chosen]), np.abs(known.best - known.expected)[chosen]
    saturated = int((expected < 0.1 * np.maximum(best, np.abs(known.worst[chosen]))).sum())
    if saturated:
        yield Finding(
            WARNING if saturated > total / 4 else NOTE,
            "saturated queries",
            f"In {saturated:,} of {plural(total, 'query')} ({percent(saturated, total)}) a random ranking has more "
            f"than 90 % of the best {judged.lead}.",
            saturated,
        )
    lucky = int((probability_of_ideal(judged.counts.take(np.flatnonzero(chosen)), judged.lead) > 0.05).sum())
    if lucky:
        yield Finding(
            WARNING if lucky > total / 2 else NOTE,
            "queries without power",
            f"In {lucky:,} of {plural(total, 'query')} ({percent(lucky, total)}) a random ranking is ideal with a "
            "probability above 5 %: even the best ranking does not differ from random there.",
            lucky,
        )


def probability_of_ideal(counts: LabelCounts, measure: Measure) -> NDArray[np.float64]:
    """Probability that a random order has the ideal labels at all ranks up to the cutoff and the last relevant one.

    >>> from rankbound.measures import parse_measure
    >>> counts = LabelCounts.from_labels([1, 0, 0, 2, 1, 0], [0, 3, 6])
    >>> probability_of_ideal(counts, parse_measure("nDCG@10")).round(4).tolist()  # 1 / 3 and 1 / 6
    [0.3333, 0.1667]
    """
    log_factorial = log_factorials(int(counts.sizes.max(initial=1)))
    starts = counts.best_ends - counts.counts
    cut = counts.cut(measure.cutoff)[counts.query_of_run]
    seen = np.clip(np.minimum(counts.best_ends, cut) - starts, 0, None)
    seen = np.where(counts.values > 0, seen, 0)
    orders = counts.sum(log_factorial[counts.counts] - log_factorial[counts.counts - seen])
    ranks = counts.sum(seen).astype(np.int64)
    return np.asarray(np.exp(orders + log_factorial[counts.sizes - ranks] - log_factorial[counts.sizes]))


def check_orders(judged: JudgedSet) -> Iterator[Finding]:
    """Orders that give the labels away: that of the rows, that of the document ids, and a fixed position."""
    part = sample_queries(judged.frame)
    sample = judged if part is judged.frame else JudgedSet(part, judged.lead)
    if sample is judged or any(_check_rows(sample, ORDER_GAIN / 2)):
        yield from _check_rows(judged)
    if sample is judged or any(_check_ids(sample, ORDER_GAIN / 2)):
        yield from _check_ids(judged)
    if judged.has_choice:
        yield from _check_position(judged)


def _check_rows(judged: JudgedSet, least_gain: float = ORDER_GAIN) -> Iterator[Finding]:
    rows = -np.arange(len(judged.labels), dtype=np.float64)
    gain, z = max((judged.gain_and_z(keys) for keys in (rows, -rows)), key=lambda found: found[0])
    if z > LEAK_Z and gain > least_gain:
        constant = _mean(judged, judged.values_in(np.zeros(len(rows)), judged.lead))
        expected = _mean(judged, judged.difficulty.expected)
        yield Finding(
            FAULT if gain > LEAK_GAIN else WARNING,
            "order of the rows",
            f"The order of the rows follows the labels: a scorer that gives every document the same score has "
            f"{judged.lead} {constant:.4f} where ties keep this order, and {expected:.4f} where they are averaged.",
            constant,
        )


def _mean(judged: JudgedSet, value: NDArray[np.float64]) -> float:
    return float(value[judged.defined].mean())


def _check_ids(judged: JudgedSet, least_gain: float = ORDER_GAIN) -> Iterator[Finding]:
    import polars as pl

    ids = id_text(judged.documents)
    orders = {"as text": ids.rank("dense").to_numpy().astype(np.float64)}
    numbers = ids.str.extract(r"(\d+)\D*$").cast(pl.Float64, strict=False)
    if numbers.null_count() == 0:
        orders["by their numbers"] = numbers.to_numpy()
    found = [(judged.gain_and_z(sign * keys), name) for name, keys in orders.items() for sign in (1, -1)]
    (gain, z), name = max(found, key=lambda one: one[0][0])
    if z > LEAK_Z and gain > least_gain:
        yield Finding(
            FAULT if gain > LEAK_GAIN else WARNING,
            "document ids",
            f"The order of the document ids {name} goes {percent(gain, 1)} of the way from a random ranking to the "
            f"best one by {judged.lead}: the ids give the labels away.",
            gain,
        )


def _check_position(judged: JudgedSet) -> Iterator[Finding]:
    """Whether the one relevant document of each query stands at the same place."""
    sizes = np.diff(judged.offsets)
    relevant = judged.labels >= judged.lead.rel
    hits = np.bincount(judged.query, relevant, minlength=judged.queries)
    alone = (hits == 1) & (sizes >= 3)
    count = int(alone.sum())
    if count < 5:
        return
    place = (np.arange(len(relevant)) - judged.offsets[:-1][judged.query])[relevant & alone[judged.query]]
    for name, places in (("from the first", place), ("from the last", sizes[alone] - 1 - place)):
        where, times = np.unique(places, return_counts=True)
        most = int(times.argmax())
        expected = (1 / sizes[alone]).sum()
        spread = math.sqrt((1 / sizes[alone] * (1 - 1 / sizes[alone])).sum())
        if times[most] > count / 2 and times[most] - expected > LEAK_Z * spread:
            yield Finding(
                FAULT if times[most] > LEAK_GAIN * count else WARNING,
                "fixed position",
                f"In {times[most]:,} of the {count:,} queries with one relevant document it is row {where[most] + 1} "
                f"{name}; {expected:.1f} would be expected.",
                float(times[most]),
            )
            return


def check_ceiling(judged: JudgedSet) -> Iterator[Finding]:
    """The best that a re-ranking of given candidates can reach by the judgments as a whole."""
    import polars as pl

    every = judged.every_judgment
    if every is None:
        return
    relevant = every.filter(pl.col("label") >= judged.lead.rel)
    missing = relevant.join(judged.frame, on=["qid", "docid"], how="anti").height
    share = ceiling(judged)
    if missing:
        yield Finding(
            FAULT if share < 0.5 else WARNING,
            "relevant documents missing from the candidates",
            f"{missing:,} of {plural(relevant.height, 'relevant document')} ({percent(missing, relevant.height)}) are "
            f"not among the candidates: the best re-ranking has {judged.lead} {share:.4f}.",
            missing,
        )


def ceiling(judged: JudgedSet) -> float:
    """Mean of the lead measure of the best ranking of the candidates, judged by all judgments."""
    import polars as pl

    from rankbound.evaluation.runs import evaluate

    every = judged.every_judgment
    assert every is not None
    best = judged.frame.select("qid", "docid", pl.col("label").cast(pl.Float64).alias("score"))
    return evaluate(every, best, judged.lead, missing="zero").mean()[str(judged.lead)]
