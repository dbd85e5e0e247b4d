"""The sentences of pages on generated comparisons: every number and every claim, computed again from the score table.

The oracle takes a sentence apart and knows only the table of values, NumPy, and the p-values that the page prints.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.report.findings import Findings, find_words
from rankbound.report.page import Report, make_report
from rankbound.report.system_tests import judge_systems

TYPES = {
    "ideal queries": "ideal",
    "informative queries": "informative",
    "uninformative queries": "uninformative",
    "queries below random": "below random",
    "queries without a choice": "no choice",
}
NUMBER = r"([+−]?\d\.\d{4})"
ON_TYPE = rf"({'|'.join(TYPES)}) \({NUMBER} on ([\d,]+)(?:, fewer than 5)?\)"


class Data:
    """A generated score table, and its values by data set, system and query."""

    def __init__(self, rows: Any, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.baseline = "a" if random.random() < 0.4 else None
        self.lead = "U" if random.random() < 0.2 else str(random.choice(["nDCG@10", "AP"]))
        sets = ["set A", "set B"][: random.integers(1, 3)]
        names = "abcd"[: random.integers(2, 5)]
        frames = []
        for data in sets:
            queries = int(random.integers(1, 40))
            ease, relevant = random.normal(0.3, 0.5, queries), random.choice([3, 3, 3, 10], queries)
            for name in names:
                gain = random.choice([0.0, 0.0, 0.3, -0.3]) * (random.random(queries) < 0.7)
                gain = np.minimum(1, ease + gain + random.choice([0.0, 0.05]) * random.normal(size=queries))
                columns = {measure: self._values(measure, gain, relevant) for measure in (self.lead, "RR")}
                frame = rows(name, columns, data=data).with_columns(pl.Series("relevant", relevant))
                frames.append(frame.filter(pl.Series(random.random(queries) > random.choice([0.0, 0.0, 0.2]))))
        self.table = pl.concat(frames, how="vertical_relaxed")
        self.values: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
        for row in self.table.iter_rows(named=True):
            for measure in (self.lead, "RR"):
                self.values[row["data"], measure, row["system"]][row["qid"]] = row[measure]

    @staticmethod
    def _values(measure: str, gain: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        """Values that cover a fraction of the way from random to best, or to worst where it is negative."""
        bounds = [rb.bounds(measure, n=10, relevant=int(count)) for count in relevant]
        best, expected, worst = (
            np.array([float(getattr(b, s)) for b in bounds]) for s in ("best", "expected", "worst")
        )
        return np.where(
            gain > 0, expected + gain * (best - expected), expected + np.maximum(gain, -1) * (expected - worst)
        )

    def shared(self, data: str, measure: str, one: str, two: str) -> list[str]:
        return [q for q in self.values[data, measure, one] if q in self.values[data, measure, two]]

    def difference(self, data: str, measure: str, one: str, two: str, queries: list[str] | None = None) -> float:
        chosen = self.shared(data, measure, one, two) if queries is None else queries
        return float(np.mean([self.values[data, measure, one][q] - self.values[data, measure, two][q] for q in chosen]))

    def mean(self, data: str, measure: str, system: str) -> float:
        return float(np.mean([*self.values[data, measure, system].values()]))

    def types(self, data: str) -> dict[str, str]:
        """The type of each query of a data set, as the table of types has it."""
        matrix = ScoreMatrix.from_table(self.table)
        chosen = matrix.in_data_set(matrix.data_sets.index(data))
        kinds = matrix.query_types(self.lead)[chosen]
        return dict(zip(np.asarray(matrix.query_ids)[chosen].tolist(), kinds.tolist(), strict=True))

    @property
    def sets(self) -> list[str]:
        return sorted({data for data, _, _ in self.values})


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def close(text: str, value: float) -> bool:
    return abs(number(text) - value) <= 0.5000001e-4


def said(report: Report) -> list[str]:
    return [report.findings.headline, *report.findings.sentences]


def with_set(report: Report, data: Data) -> list[tuple[str, str]]:
    """Each sentence about a data set, with the set: several sets have a paragraph each, which names it."""
    found = []
    for text in said(report):
        named = re.match(r"On (set [AB]), ", text)
        if named or len(data.sets) == 1:
            found.append((named.group(1) if named else data.sets[0], text))
    return found


CASES = range(80)


@pytest.fixture(scope="module")
def cases(rows) -> list[tuple[Data, Report]]:
    made = []
    for seed in CASES:
        data = Data(rows, seed)
        if len(data.table) and (data.baseline is None or "a" in set(data.table["system"])):
            made.append((data, make_report(data.table, baseline=data.baseline)))
    return made


def p_of_pairs(report: Report) -> dict[tuple[str, str, str, str], tuple[float, float]]:
    """p-value and difference of each tested pair: data set, measure, system, versus."""
    table = next((table.data for table in report.tables if table.name == "differences"), None)
    return (
        {}
        if table is None
        else {
            (row["data"], row["measure"], row["system"], row["versus"]): (row["p_value"], row["difference"])
            for row in table.iter_rows(named=True)
        }
    )


def sign_of(data: Data) -> int:
    return -1 if data.lead == "U" else 1


def test_gains_by_type_are_those_of_all_types_that_occur(cases):
    """The two types are the extremes among all types but those that the sentence itself leaves out, with the reason."""
    kinds, checked = {"gains": 0, "loses": 0, "left out": 0}, 0
    for data, report in cases:
        for data_set, text in with_set(report, data):
            match = re.search(
                rf"By type of query, (\w) (.*? on {ON_TYPE} and .*? on {ON_TYPE})(; left out: .*?)?\.(?= |$)", text
            )
            if match is None:
                assert "By type of query" not in text
                continue
            one, two = match.group(1), re.search(r"(?:over|to) (\w) on", text).group(1)
            types, gaps, counts = data.types(data_set), {}, {}
            for kind in set(types.values()):
                queries = [q for q in data.shared(data_set, data.lead, one, two) if types[q] == kind]
                if queries:
                    gaps[kind] = data.difference(data_set, data.lead, one, two, queries)
                    counts[kind] = len(queries)
            stated = re.findall(ON_TYPE, match.group(0))
            for kind, gap, count in stated:
                assert close(gap, gaps[TYPES[kind]]), text
                assert number(count) == counts[TYPES[kind]], text
            assert {TYPES[kind] for kind, _, _ in stated} | between(gaps, stated[:2], data) == set(gaps), text
            left_out = {TYPES[kind] for kind, _, _ in stated[2:]}
            assert left_out == {kind for kind in gaps if counts[kind] < 5 or kind == "no choice"}, text
            remaining = {kind: sign_of(data) * gap for kind, gap in gaps.items() if kind not in left_out}
            ends = [TYPES[kind] for kind, _, _ in stated[:2]]
            high, low = ends if " gains " in match.group(2)[:8] or match.group(2).startswith("gains") else ends[::-1]
            assert remaining[high] == max(remaining.values())
            assert remaining[low] == min(remaining.values())
            if match.group(2).startswith("loses"):
                assert max(remaining.values()) <= 0, text
            elif "loses" in match.group(2):
                assert min(remaining.values()) < 0 < max(remaining.values()), text
            else:
                assert min(remaining.values()) >= 0, text
            kinds["loses" if "loses" in text else "gains"] += 1
            kinds["left out"] += bool(left_out)
            checked += 1
    assert checked > 30
    assert min(kinds.values()) > 5


def between(gaps: dict[str, float], ends: list[tuple[str, str, str]], data: Data) -> set[str]:
    """The types that a sentence need not name, because they lie between its two."""
    low, high = sorted(gaps[TYPES[kind]] for kind, _, _ in ends)
    return {kind for kind, gap in gaps.items() if low <= gap <= high}


def test_the_best_system_its_mean_and_its_lead(cases):
    checked = 0
    for data, report in cases:
        for data_set, text in with_set(report, data):
            match = re.search(
                rf"(\w) (?:is best by [\w@]+:|has) {NUMBER} in the mean over (\d+) quer(?:y|ies), "
                rf"(?:{NUMBER} (above|below)|the same as)(?: the next,)? (\w)\b",
                text,
            )
            if match is None:
                continue
            best, mean, queries, gap, direction, other = match.groups()
            assert close(mean, data.mean(data_set, data.lead, best))
            assert int(queries) == len(data.values[data_set, data.lead, best])
            means = {
                s: sign_of(data) * data.mean(data_set, data.lead, s)
                for d, m, s in list(data.values)
                if (d, m) == (data_set, data.lead)
            }
            assert means[best] == max(means.values())
            true = data.difference(data_set, data.lead, best, other)
            assert close(gap or "0.0000", abs(true))
            assert direction is None or (true > 0) == (direction == "above")
            if "is best by" in text:
                assert sign_of(data) * true > 0, text
                pairs = p_of_pairs(report)
                key = next(
                    (k for k in ((data_set, data.lead, best, other), (data_set, data.lead, other, best)) if k in pairs),
                    None,
                )
                assert key is None or pairs[key][0] < 0.05, text
            checked += 1
    assert checked > 60


def test_what_is_called_significant(cases):
    checked = 0
    for data, report in cases:
        pairs = p_of_pairs(report)
        for data_set, text in with_set(report, data):
            for found in re.finditer(
                r"The difference is (not )?significant after correction \(p (=|<) (\d\.\d{4})", text
            ):
                values = [p for (d, m, _, _), (p, _) in pairs.items() if (d, m) == (data_set, data.lead)]
                agreeing = [p for p in values if (p < 1e-4 if found[2] == "<" else close(found[3], p))]
                assert agreeing, text
                assert any((p >= 0.05) == bool(found[1]) for p in agreeing), text
                checked += 1
            match = re.search(r"(\w) is significantly better than (\d+) of the (\d+) other systems( that share)?", text)
            if match:
                mine = {s: v for (d, m, s, v_), v in pairs.items() if (d, m, v_) == (data_set, data.lead, match[1])}
                assert int(match[3]) == len(mine)
                assert int(match[2]) == sum(p < 0.05 and sign_of(data) * gap < 0 for p, gap in mine.values())
                checked += 1
            match = re.search(
                r"Of (\d+) systems compared with (\w), (\d+) are significantly better and (\d+) significantly worse",
                text,
            )
            if match:
                mine = {s: v for (d, m, s, v_), v in pairs.items() if (d, m, v_) == (data_set, data.lead, match[2])}
                clear = [sign_of(data) * gap for p, gap in mine.values() if p < 0.05]
                assert int(match[1]) == len(mine)
                assert [int(match[3]), int(match[4])] == [sum(g > 0 for g in clear), sum(g < 0 for g in clear)]
                checked += 1
    assert checked > 60


def test_counts_of_data_sets_types_measures_and_queries(cases):
    checked = defaultdict(int)
    for data, report in cases:
        matrix = ScoreMatrix.from_table(data.table)
        for text in said(report):
            if match := re.match(r"Types of (\d+) quer(?:y|ies) by", text):
                kinds = [kind for name in data.sets for kind in data.types(name).values()]
                assert int(match[1]) == len(kinds)
                for count, kind in re.findall(r"(\d+) (ideal|informative|uninformative|below random)", text):
                    assert int(count) == kinds.count(kind), text
                stated = re.search(r"(\d+) quer(?:y has|ies have) no choice", text)
                assert int(stated[1] if stated else 0) == kinds.count("no choice")
                checked["types"] += 1
            if match := re.match(rf"A random ranking of .* would have a mean \S+ of {NUMBER}\.", text):
                expected = matrix.expected_values(data.lead)
                measured = np.isfinite(matrix.values[data.lead]).any(axis=0) & np.isfinite(expected)
                bounds = [
                    float(rb.bounds(data.lead, n=10, relevant=count).expected)
                    for count in data.table.unique(["data", "qid"])["relevant"].to_list()
                ]
                assert measured.sum() == len(bounds)
                assert close(match[1], float(np.mean(bounds)))
                checked["random"] += 1
            if text.startswith(("RR names the same", "Another system is best", "By ", "On ")):
                checked["measures"] += check_bests(text, data)
        for text in report.findings.cautions:
            if match := re.match(r"(?:On (set [AB]), i|I)ntervals rest on (\d+) queries", text):
                name = match[1] or data.sets[0]
                best = min(
                    (s for d, m, s in list(data.values) if (d, m) == (name, data.lead)),
                    key=lambda s: -sign_of(data) * data.mean(name, data.lead, s),
                )
                assert int(match[2]) == len(data.values[name, data.lead, best])
                checked["few"] += 1
    assert min(checked[name] for name in ("types", "random", "measures", "few")) > 5, dict(checked)


def bests(data: Data, data_set: str, measure: str) -> set[str]:
    sign = -1 if measure == "U" else 1
    means = {s: sign * data.mean(d, m, s) for d, m, s in list(data.values) if (d, m) == (data_set, measure)}
    return {name for name, mean in means.items() if mean >= max(means.values()) - 1e-12} if len(means) > 1 else set()


def check_bests(text: str, data: Data) -> int:
    """Sentences about other measures: 1 if it was one."""
    if text == "RR names the same best system.":
        for name in data.sets:
            if bests(data, name, data.lead) and bests(data, name, "RR"):
                assert bests(data, name, data.lead) & bests(data, name, "RR")
        return 1
    if text.startswith("Another system is best by other measures: "):
        for system, data_set in re.findall(r"(\w) by RR(?: on (set [AB]))?", text):
            assert system in bests(data, data_set or data.sets[0], "RR")
        return 1
    return 0


def test_no_set_has_a_best_system_that_its_tests_do_not_show(cases):
    """By the headline over several sets, a system is best where it is significantly ahead of the next one."""
    checked = 0
    for data, report in cases:
        headline = report.findings.headline
        if not headline.startswith("By ") or ("clearly best" in headline and "no system" in headline.split(";")[0]):
            continue
        for name in re.findall(r"\b([abcd]) (?:on|is best)", headline):
            leads = [
                one
                for data_set in data.sets
                for one in bests(data, data_set, data.lead)
                if is_ahead(data, report, data_set, one)
            ]
            assert name in leads, headline
            checked += 1
    assert checked > 3


def is_ahead(data: Data, report: Report, data_set: str, one: str) -> bool:
    """Whether the next system is worse by the p-value of the pair or, where it has none, by the letters."""
    sign = sign_of(data)
    names = sorted(
        {s for d, m, s in data.values if (d, m) == (data_set, data.lead)},
        key=lambda name: -sign * data.mean(data_set, data.lead, name),
    )
    if len(names) < 2 or not data.shared(data_set, data.lead, *names[:2]):
        return False
    pairs, found = p_of_pairs(report), names[:2]
    p = [pairs[key][0] for key in ((data_set, data.lead, *found), (data_set, data.lead, *found[::-1])) if key in pairs]
    verdict = next(v for v in report.verdicts if (v.data_set, v.measure) == (data_set, data.lead))
    letters = {test.system: set(test.letters) for test in verdict.systems}
    differ = p[0] < 0.05 if p else not letters[names[0]] & letters[names[1]]
    return one == names[0] and differ and sign * data.difference(data_set, data.lead, *names[:2]) > 0


def test_a_small_type_that_goes_the_other_way_is_named(rows):
    """Three queries of one type lose while all others gain: the sentence says so."""
    bounds = rb.bounds("nDCG@10", n=10, relevant=3)
    at = lambda gain: bounds.expected + np.asarray(gain) * (bounds.best - bounds.expected)  # noqa: E731
    one, two = [1.0] * 12 + [0.6] * 12 + [-0.4] * 3, [0.8] * 12 + [0.2] * 12 + [-0.2] * 3
    table = pl.concat([rows("a", {"nDCG@10": at(one)}), rows("b", {"nDCG@10": at(two)})])
    (text,) = [text for text in make_report(table).findings.sentences if text.startswith("By type of query")]
    small = float(np.mean(at([-0.4] * 3) - at([-0.2] * 3)))
    assert small < 0
    assert text.endswith(f"; left out: queries below random (−{-small:.4f} on 3, fewer than 5).")


def test_a_best_system_that_is_worse_on_shared_queries_is_not_called_best(rows):
    """a has the higher mean, over easier queries of its own, and is worse wherever both have a value."""
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.01, 20)
    one = rows("a", {"AP": [*(0.3 + noise), *([0.9] * 20)]})
    two = rows("b", {"AP": 0.4 + noise + random.normal(0, 0.01, 20)})
    for baseline in (None, "b", "a"):
        found: Findings = make_report(pl.concat([one, two]), baseline=baseline).findings
        assert found.headline.startswith("No system is clearly best by AP. a has ")
        assert re.search(r"0\.\d{4} below b", found.headline)
        assert not any("significantly better than 1" in text for text in found.sentences)


@pytest.mark.parametrize("seed", range(30))
def test_published_numbers_are_counted_and_compared(scores, seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 7))
    ours, published = random.random(count), np.where(random.random(count) < 0.3, np.nan, random.random(count))
    known = np.isfinite(published)
    low, high = ours - random.random(count), ours + random.random(count)
    table = pl.DataFrame({"data": [f"set {n}" for n in range(count)], "measure": ["AP"] * count, "ours": ours,
                          "published": published, "difference": ours - published,
                          "ci_low": low, "ci_high": high}).fill_nan(None)  # fmt: skip
    found = [text for text in make_report(scores, table).findings.sentences if "published" in text]
    if not known.any():
        assert found == []
        return
    (text,) = found
    match = re.match(
        rf"(\d+) numbers? ha(?:s|ve) a published counterpart; (\d+) of them lies? within our 95 % interval\. "
        rf"The median gap, ours minus published, is {NUMBER}; the widest is {NUMBER} \(set (\d), AP\)\.$",
        text,
    )
    assert match, text
    gaps = (ours - published)[known]
    inside = ((low <= published) & (published <= high))[known]
    assert [int(match[1]), int(match[2])] == [known.sum(), inside.sum()]
    assert close(match[3], float(np.median(gaps)))
    assert close(match[4], gaps[np.abs(gaps).argmax()])
    assert int(match[5]) == np.flatnonzero(known)[np.abs(gaps).argmax()]


@pytest.mark.parametrize(
    ("test", "queries", "cautions"), [("wilcoxon", 1_001, 1), ("wilcoxon", 1_000, 0), ("t", 1_001, 0)]
)
def test_a_caution_about_wilcoxon_with_many_queries(test, queries, cautions):
    values = np.random.default_rng(0).random((2, queries))
    scores = ScoreMatrix(("a", "b"), tuple(range(queries)), {"AP": values})
    found = find_words(scores, judge_systems(scores, inference=Inference(test=test, interval="t")))
    assert sum("Wilcoxon" in caution for caution in found.cautions) == cautions
