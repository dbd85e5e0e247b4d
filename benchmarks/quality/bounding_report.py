"""The results of `benchmarks.quality.bounding_recommenders`: tables and a page from the records of a store."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.bounding_recommenders import (
    BOUNDINGS,
    CELLS,
    LOSSES,
    MEASURE,
    METHODS,
    NEGATIVES,
    PEERS,
    PROTOCOLS,
    SETS,
    SPLITS,
    Method,
    job_of,
    parts,
)
from benchmarks.quality.training.store import Job, Record, Store
from rankbound.difficulty.queries import difficulty_of
from rankbound.evaluation.resampling import resampled_means
from rankbound.io import atomic_write
from rankbound.losses import get_loss
from rankbound.measures import LabelCounts

NAME = "bounding-recommenders"
_NORMALIZED = "nDCG AP RR"  # losses that are measures from 0 to 1
_RESAMPLES = 10_000


@dataclass(frozen=True, eq=False)
class Selected:
    """The records of the settings that are best on the validation parts, one for each split."""

    records: tuple[Record, ...]

    @property
    def values(self) -> NDArray[np.float64]:
        """Values of users, averaged over splits."""
        return np.asarray(np.mean([record.values for record in self.records], axis=0))

    @property
    def validation(self) -> float:
        """The mean of the validation parts."""
        return float(np.mean([record.about["validation"] for record in self.records]))

    @property
    def settings(self) -> str:
        """The settings of the splits."""
        return "; ".join(
            ", ".join(f"{name}={value}" for name, value in record.about["settings"].items()) for record in self.records
        )

    @property
    def epochs(self) -> str:
        """The epochs of the splits."""
        return " ".join(str(record.about["epoch"]) for record in self.records if record.about["epoch"] is not None)


@dataclass(frozen=True)
class Difference:
    """A mean paired difference with its 95 % interval over users; over several sets, the mean of their means."""

    protocol: str
    comparison: str
    minus: str
    sets: str
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        return "better" if self.low > 0 else "worse" if self.high < 0 else "not distinguishable"


class Results:
    """The selected settings of all methods that are complete, and bootstrap means of their values.

    Only splits with all fits count, or the first one if none has all.
    """

    def __init__(self, store: Store) -> None:
        self.selected: dict[tuple[str, str, str], Selected] = {}
        self.draws: dict[tuple[str, str, str], NDArray[np.float64]] = {}
        self.seconds = 0.0
        self.fits = 0
        self.splits = [split for split in SPLITS if all(map(store.has, _jobs(split)))] or [SPLITS[0]]
        for method in METHODS.values():
            for dataset in SETS:
                self._add(store, dataset, method)
        for dataset in SETS:
            for protocol in PROTOCOLS:
                keys = [key for key in self.selected if key[:2] == (dataset, protocol)]
                if keys:
                    columns = np.stack([self.selected[key].values for key in keys], axis=1)
                    means = resampled_means(columns, _RESAMPLES, 0)  # the same users for all methods
                    self.draws |= dict(zip(keys, means, strict=True))

    def _add(self, store: Store, dataset: str, method: Method) -> None:
        for protocol in PROTOCOLS:
            best = []
            for split in self.splits:
                jobs = [job_of(dataset, protocol, method, number, split) for number in range(len(method.settings))]
                records = store.read_all(jobs)
                if protocol == PROTOCOLS[0]:
                    self.fits += len(records)
                    self.seconds += sum(record.about["cpu_seconds"] for record in records.values())
                if len(records) == len(jobs):
                    best.append(max(records.values(), key=lambda record: record.about["validation"]))
            if len(best) == len(self.splits):
                self.selected[dataset, protocol, method.name] = Selected(tuple(best))

    def difference(
        self, protocol: str, pairs: Sequence[tuple[str, str, str]], comparison: str, minus: str
    ) -> Difference | None:
        """Return the mean over pairs (set, method, other method) of the mean differences of users; None without any."""
        known = [
            ((dataset, protocol, one), (dataset, protocol, other))
            for dataset, one, other in pairs
            if {(dataset, protocol, one), (dataset, protocol, other)} <= self.selected.keys()
        ]
        if not known:
            return None
        means = [float((self.selected[a].values - self.selected[b].values).mean()) for a, b in known]
        draws = np.mean([self.draws[a] - self.draws[b] for a, b in known], axis=0)
        low, high = np.percentile(draws, (2.5, 97.5))
        sets = " ".join(dict.fromkeys(a[0] for a, _ in known))
        return Difference(protocol, comparison, minus, sets, float(np.mean(means)), float(low), float(high))


def _jobs(split: int) -> list[Job]:
    return [
        job_of(dataset, PROTOCOLS[-1], method, number, split)
        for method in METHODS.values()
        for dataset in SETS
        for number in range(len(method.settings))
    ]


def differences(results: Results) -> list[Difference]:
    """Return what bounding changes, for each cell and on average, and how our best loss compares with other models."""
    found: list[Difference | None] = []
    for protocol in PROTOCOLS:
        for bounding in BOUNDINGS[1:]:
            cells = [cell for cell in CELLS if bounding in CELLS[cell]]
            of_measures = [cell for cell in cells if cell[0] != "nRBP"]
            groups = {f"{bounding}, {_NORMALIZED}": of_measures}
            groups |= {
                f"{bounding}, {_NORMALIZED}, {_words(negatives)}": [
                    cell for cell in of_measures if cell[1] == negatives
                ]
                for negatives in NEGATIVES
            }
            groups |= {f"{_bounding(*cell, bounding)}, {cell[0]}, {_words(cell[1])}": [cell] for cell in cells}
            for name, members in groups.items():
                pairs = [(dataset, *_pair(loss, bounding, n)) for loss, n in members for dataset in SETS]
                found.append(results.difference(protocol, pairs, name, "none"))
                if len(members) == 1 and name.count(", ") == 2 and _NORMALIZED not in name:
                    found += [results.difference(protocol, [pair], name, "none") for pair in pairs]
        best = best_of_ours(results, protocol)
        for peer in PEERS:
            pairs = [(dataset, method, peer) for dataset, method in best.items()]
            found.append(results.difference(protocol, pairs, "our best loss", peer))
            found += [results.difference(protocol, [pair], "our best loss", peer) for pair in pairs]
    return [entry for entry in found if entry is not None]


def best_of_ours(results: Results, protocol: str) -> dict[str, str]:
    """Return for each set which of our losses is best on the validation part."""
    best = {}
    for dataset in SETS:
        ours = [key for key in results.selected if key[:2] == (dataset, protocol) and key[2] not in PEERS]
        if ours:
            best[dataset] = max(ours, key=lambda key: results.selected[key].validation)[2]
    return best


def _bounding(loss: str, _negatives: str | int, bounding: str) -> str:
    """Return the name of a bounding; the three boundings of nRBP's loss are one."""
    return "any bounding" if loss == "nRBP" else bounding


def _pair(loss: str, bounding: str, negatives: str | int) -> tuple[str, str]:
    """Return the names of a bounded cell and of the same without bounding."""
    return f"{loss}, {bounding}, {_words(negatives)}", f"{loss}, none, {_words(negatives)}"


def _words(negatives: str | int) -> str:
    return "all" if negatives == "all" else f"1 to {negatives}"


# ---- files -----------------------------------------------------------------------------------------------------------


def write_report(store: Store, folder: Path) -> list[Path]:
    """Write the values, the differences and the page."""
    results = Results(store)
    rows = differences(results)
    values = [
        [dataset, protocol, method, chosen.settings, chosen.epochs, len(chosen.values),
         f"{chosen.validation:.4f}", f"{chosen.values.mean():.4f}",
         *(f"{bound:.4f}" for bound in np.percentile(results.draws[dataset, protocol, method], (2.5, 97.5)))]
        for (dataset, protocol, method), chosen in sorted(results.selected.items())
    ]  # fmt: skip
    header = ["set", "protocol", "method", "settings", "epochs", "users", "validation", MEASURE, "ci_low", "ci_high"]
    written = [folder / f"{NAME}.csv", folder / f"{NAME}-differences.csv", folder / f"{NAME}.md"]
    _write_csv(written[0], header, values)
    _write_csv(
        written[1],
        ["protocol", "comparison", "minus", "sets", "difference", "ci_low", "ci_high", "verdict"],
        [
            [
                d.protocol,
                d.comparison,
                d.minus,
                d.sets,
                *(f"{x:+.4f}" for x in (d.difference, d.low, d.high)),
                d.verdict,
            ]
            for d in rows
        ],
    )
    with atomic_write(written[2]) as temporary:
        temporary.write_text("\n".join(_page(results, rows)) + "\n", encoding="utf-8")
    return written


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _page(results: Results, rows: Sequence[Difference]) -> list[str]:
    complete = {method for _, _, method in results.selected}
    missing = [name for name in METHODS if name not in complete]
    lines = [
        "# Does bounding help recommenders?",
        "",
        *_verdict(rows),
        "",
        "## How it was computed",
        "",
        f"`python -m benchmarks.quality.bounding_recommenders run --store DIR` made {results.fits} fits in "
        f"{results.seconds / 60:.0f} minutes of one core, and `report --store DIR` made this page. A run that is "
        "interrupted continues with the first fit that is missing. "
        f"{len(results.splits)} of {len(SPLITS)} planned splits are complete and count here.",
        "",
        *_METHOD,
        "",
        *(["Not computed yet: " + ", ".join(missing) + ".", ""] if missing else []),
        *_markdown(["set", "users", "items", "interactions", "k-core"], map(_set_row, SETS)),
        "",
        f"## {MEASURE} of all methods",
    ]
    for protocol in PROTOCOLS:
        lines += ["", _TITLES[protocol], "", *_values_table(results, protocol)]
    lines += ["", "## What bounding changes", ""]
    lines += ["Mean differences to the same loss without bounding, over losses, negatives and sets."]
    for protocol in PROTOCOLS:
        lines += ["", _TITLES[protocol], ""]
        over_sets = [d for d in rows if d.protocol == protocol and d.minus == "none" and " " in d.sets]
        lines += _markdown(
            ["bounding, loss, negatives", "sets", "difference", "verdict"], map(_difference_row, over_sets)
        )
    lines += ["", "## Our best loss compared with other models", ""]
    lines += ["The loss, bounding and negatives that are best on the validation part of each set, under each protocol."]
    for protocol in PROTOCOLS:
        best = best_of_ours(results, protocol)
        lines += ["", _TITLES[protocol], ""]
        lines += [f"- {dataset}: {method}" for dataset, method in best.items()]
        against = [d for d in rows if d.protocol == protocol and d.minus in PEERS]
        lines += ["", *_markdown(["minus", "sets", "difference", "verdict"], (_peer_row(d) for d in against))]
    return lines


_TITLES = {"full": "**Full ranking**", "sampled": "**Sampled lists**, 5 other items for each relevant one"}


def _verdict(rows: Sequence[Difference]) -> list[str]:
    lines = []
    for protocol, words in (("full", "full ranking"), ("sampled", "sampled lists")):
        for entry in rows:
            average = entry.comparison in [f"{bounding}, {_NORMALIZED}" for bounding in BOUNDINGS[1:]]
            if entry.protocol == protocol and " " in entry.sets and (average or ", nRBP, " in entry.comparison):
                lines.append([entry.comparison, words, _interval(entry), entry.verdict])
    return [
        *_ANSWER,
        "",
        f"Differences in {MEASURE} to the same loss without bounding, on average over the data sets, and over the",
        "negatives where they are not named:",
        "",
        *_markdown(["bounding, loss, negatives", "protocol", "difference", "verdict"], lines),
        "",
        *_EXPLANATION,
        "",
        *_weights_table(),
    ]


# Written by hand: compare it with the tables when the results change.
_ANSWER = """\
Hardly, with one exception. Losses that are measures from 0 to 1 (nDCG, AP, RR) gain at most 0.004 on average from
min-max and expectation-max: nDCG with the whole catalog gains a little under both protocols, and most other differences
cannot be distinguished from none or changed their sign when splits were added. They lose from expectation when lists
have the whole catalog, because it gives most weight to users with few items; only AP with sampled negatives gains a
little from it. The exception is the loss of nRBP, which is not normalized: it is the number of pairs in the wrong
order, so that users with many items dominate, and every affine bounding divides it by the number of pairs. With sampled
negatives that helps clearly; with the whole catalog the two protocols disagree. Bounded or not, none of these losses is
better than softmax where there is much data (MovieLens, CiteULike-a). On the sparse sets, the validation part selects
nDCG with min-max (Epinions) or nRBP without bounding (Amazon) under full ranking, where EASE and implicit ALS have
higher values than all of them. RR hardly learns: only the first relevant item of a user has a gradient. So the default
remains softmax without bounding.""".splitlines()

_METHOD = """\
The data sets are **reduced**, because the whole study had to fit into an hour of one core: ratings of at least 4 where
there are ratings, a k-core, and at most 1,000 of its users at random. Each random split has its own seed of the models:
20 % of a user's interactions are for testing and 16 % for validation. `MatrixFactorization` has 64 factors and cosine
similarity, at most 40 epochs, and the temperatures 0.1 and 0.25; EASE, implicit ALS and BPR have two settings as well.
Setting and epoch are selected by nDCG@10 on the validation part: the epoch under full ranking, the setting under the
protocol of the test. Lists for training have all other items of the catalog, or 5 sampled ones for each positive item,
drawn anew in every epoch. The bounding `distribution` is left out: it is not affine, and an epoch takes about 15 times
as long. Boundings whose weights differ by less than a tenth on every set are left out, too, and averages are over those
that are left.

Values of users are averaged over splits. Intervals are 95 % bootstrap intervals of the paired differences of users; for
a mean over sets or losses, the users of each set are drawn, and the same users for all losses. They do not cover what
other splits and seeds would change, which makes them too narrow, and they are not corrected for the number of
comparisons.""".splitlines()

_EXPLANATION = """\
An affine bounding is nothing but a weight for each user: 1 / (B - W) for min-max, 1 / E for expectation and 1 / (B - E)
for expectation-max, where W, E and B are the worst, expected and best value of the user's list. The table shows how
unequal the weights are: the 95th percentile of the users' weights divided by the 5th, from the least to the greatest
ratio of the sets. Where it is near 1, the bounding cannot change the model. The boundings of nRBP's loss have the same
weights, up to a factor.
""".splitlines()


def _weights_table() -> list[str]:
    """Return a table of how much the weights of users differ, by loss, negatives and bounding."""
    rows = []
    for loss in LOSSES:
        target = get_loss(loss).target  # type: ignore[attr-defined]
        for negatives in NEGATIVES:
            ratios = np.array([_weight_ratios(dataset, target, negatives) for dataset in SETS])
            cells = [f"{low:.2f} to {high:.2f}" for low, high in zip(ratios.min(0), ratios.max(0), strict=True)]
            rows.append([f"{loss}, {_words(negatives)}", *cells])
    return _markdown(["loss, negatives", *BOUNDINGS[1:]], rows)


def _weight_ratios(dataset: str, target: Any, negatives: str | int) -> list[float]:
    """Return the 95th percentile of users' weights over the 5th for each bounding."""
    train = parts(dataset).fitting
    positives = train.per_user[train.per_user > 0]
    catalog = len(np.unique(train.items))
    sizes = np.full(len(positives), catalog)
    if negatives != "all":
        sizes = np.minimum(positives * (1 + int(negatives)), catalog)
    bounds = difficulty_of(target, LabelCounts.binary(sizes, positives))
    spreads = (bounds.best - bounds.worst, bounds.expected, bounds.best - bounds.expected)
    return [float(np.divide(*np.percentile(1 / np.abs(spread), (95, 5)))) for spread in spreads]


def _set_row(name: str) -> list[str]:
    data = parts(name)
    count = len(data.train) + len(data.test)
    shape = len(data.train.user_names), len(data.train.item_names), count
    return [name, *(f"{number:,}" for number in shape), str(SETS[name].core)]


def _values_table(results: Results, protocol: str) -> list[str]:
    names = [name for name in METHODS if any((dataset, protocol, name) in results.selected for dataset in SETS)]
    rows = []
    for name in names:
        found = [results.selected.get((dataset, protocol, name)) for dataset in SETS]
        rows.append([name, *("–" if chosen is None else f"{chosen.values.mean():.4f}" for chosen in found)])
    return _markdown(["method", *SETS], rows)


def _interval(d: Difference) -> str:
    return f"{d.difference:+.4f} ({d.low:+.4f} to {d.high:+.4f})"


def _difference_row(d: Difference) -> list[str]:
    return [d.comparison, str(len(d.sets.split())), _interval(d), d.verdict]


def _peer_row(d: Difference) -> list[str]:
    return [d.minus, d.sets if " " not in d.sets else "mean of all", _interval(d), d.verdict]


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *rows]]
