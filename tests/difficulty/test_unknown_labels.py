"""Ranges over unknown labels against brute force: every labeling of every unjudged document, one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rankbound.difficulty.run_values import RunValues
from rankbound.difficulty.unknown import label_ranges
from rankbound.difficulty.unknown.differences import difference_ranges
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.lists import Lists
from rankbound.measures import definitions, is_defined, parse_measure, rank, values
from rankbound.measures.pairwise import Pairwise
from rankbound.testing import oracles
from tests import tiers

MEASURES = (
    "nDCG", "nDCG@3", "nDCG(dcg='exp-log2')@5", "LetorNDCG@4", "DCG@3", "ToyDCG@4", "ERR@4", "ToyCascade@3", "RR",
    "RR@2", "Success@2", "P@3", "R@3", "R(rel=2)@2", "AP", "AP@3", "AP(rel=2)", "AP(div='min')@3", "AP(div='k')@4",
    "SP@3", "Rprec", "Rprec(mult=0.5)", "RBP", "RBP(rel=2)@3", "RBP(gain='graded')", "nRBP", "nRBP@4", "SetP", "SetR",
    "SetF", "SetP@3", "NumRet", "NumRet(rel=1)", "NumRel", "NumQ", "IPrec@0.3", "U", "PairAcc", "Tau", "ToyPairs",
    "Judged@3",
)  # fmt: skip
REFUSED = ("Bpref", "infAP", "AP(div='retrieved')", "STD(nDCG@3)", "EM(nDCG@3)")
SLOW_IN_TIES = ("IPrec@0.3",)  # goes through the orders of ties
MOST_LABELINGS = 4**7
LISTS = 10_000


def _query(rng, grades, ties, most_unknown=7):
    """Labels, judged, scores and depth of one query, with at most so many returned documents without a judgment."""
    n, missing = int(rng.integers(1, 10)), int(rng.integers(0, 4))
    judged = rng.random(n) > rng.choice([0.2, 0.5, 0.8])
    judged[np.flatnonzero(~judged)[most_unknown:]] = True
    judged = np.append(judged, np.ones(missing, dtype=bool))
    labels = np.where(judged, rng.integers(0, grades, n + missing), 0)
    scores = rng.permutation(n) if ties == "none" else rng.integers(0, 3, n)
    return labels, judged, np.append(scores.astype(float), np.full(missing, -np.inf)), n


def _lists(queries):
    labels, judged, scores, depths = zip(*queries, strict=True)
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in labels])))
    ids = np.concatenate([[f"d{(7 * i) % 13}" for i in range(len(part))] for part in labels])
    return Lists(np.concatenate(labels), offsets, np.concatenate(scores), ids, None, depths, np.concatenate(judged))


def _labelings(query, grades):
    """The query once for every labeling of its returned documents without a judgment."""
    labels, judged, scores, n = query
    unknown = np.flatnonzero(~judged)
    every = np.array(list(itertools.product(range(grades), repeat=len(unknown)))).reshape(grades ** len(unknown), -1)
    copies = np.tile(labels, (len(every), 1))
    copies[:, unknown] = every
    return [(copy, judged, scores, n) for copy in copies]


def _brute_force(ranked, measure, starts):
    defined = is_defined(ranked.counts, measure)
    value = np.where(defined, values(ranked, measure), np.nan)
    low, high = (reduce.reduceat(value, starts) for reduce in (np.fmin, np.fmax))
    return low, high, np.logical_or.reduceat(~defined, starts)


@pytest.mark.cases(8)
@pytest.mark.parametrize("ties", ["none", "average", "docid"])
@pytest.mark.parametrize("grades", [2, 3, 4])
def test_ranges_are_those_of_all_labelings(grades, ties):
    rng = np.random.default_rng(grades)
    number = -(-LISTS // 9)
    for start in range(0, number if tiers.some(range(5)) == list(range(5)) else 40, 40):
        queries = [_query(rng, grades, ties) for _ in range(min(40, number - start))]
        every = [_labelings(query, grades) for query in queries]
        starts = np.cumsum([0, *(len(part) for part in every[:-1])])
        policy = "docid" if ties == "docid" else "average"
        depth = [None, 2, 5][start // 40 % 3] if ties == "none" else None
        if depth is not None:  # what stands below the depth has label 0
            every = [
                [part for part in labelings if not (part[0] * ~part[1])[np.argsort(-part[2])[depth:]].any()]
                for labelings in every
            ]
            starts = np.cumsum([0, *(len(part) for part in every[:-1])])
        ranked = rank(_lists(list(itertools.chain.from_iterable(every))), policy, depth)
        chosen = [name for name in MEASURES if ties != "average" or name not in SLOW_IN_TIES]
        found = label_ranges(_lists(queries), chosen, ties=policy, depth=depth, grades=range(grades))
        for name in chosen:
            low, high, empty = _brute_force(ranked, parse_measure(name), starts)
            np.testing.assert_allclose(found[name].low, low, atol=1e-12, rtol=0, err_msg=name)
            np.testing.assert_allclose(found[name].high, high, atol=1e-12, rtol=0, err_msg=name)
            np.testing.assert_array_equal(found[name].may_be_empty, empty, err_msg=name)


def test_every_measure_of_the_catalog_has_a_range_or_is_refused():
    covered = {parse_measure(name).name for name in MEASURES}
    refused = {parse_measure(name).name for name in REFUSED}
    assert {definition.name for definition in definitions()} == covered | refused


@pytest.mark.parametrize("name", [name for name in MEASURES if name not in ("NumQ", "Judged@3")])
def test_ranges_agree_with_oracles(name):
    rng = np.random.default_rng(5)
    for _ in range(5):
        labels, judged, scores, n = query = _query(rng, 3, "none", most_unknown=4)
        order = np.argsort(-scores, kind="stable")
        measure = parse_measure(name)
        found = label_ranges(_lists([query]), name, grades=[0, 1, 2])[name]
        pairs = isinstance(measure.definition, Pairwise)
        value = [
            oracles.value(name, copy[order].tolist(), n)
            for copy, *_ in _labelings(query, 3)
            if not pairs or len(set(measure.definition.levels(measure, copy).tolist())) > 1  # else it is not defined
        ]
        if (labels[judged] >= max(measure.rel, 1)).any() and len(set(labels.tolist())) > 1:  # always defined
            assert found.low[0] == pytest.approx(min(value), abs=1e-12)
            assert found.high[0] == pytest.approx(max(value), abs=1e-12)


def test_width_of_rbp_is_its_residual():
    lists = _lists([_query(np.random.default_rng(seed), 2, "none") for seed in range(50)])
    found = label_ranges(lists, "RBP(p=0.7)", grades=[0, 1])["RBP(p=0.7)"]
    for q in range(50):
        items = slice(lists.offsets[q], lists.offsets[q + 1])
        order = np.argsort(-lists.scores[items])
        ranks = np.flatnonzero(~lists.judged[items][order])  # from 0
        known = bool((lists.labels[items] > 0).any())
        residual = sum(0.3 * 0.7**rank for rank in ranks)
        least = 0.0 if known or len(ranks) == 0 else 0.3 * 0.7 ** ranks[-1]  # something is relevant wherever it counts
        assert np.nan_to_num(found.high[q] - found.low[q]) == pytest.approx(residual - least, abs=1e-12)


@pytest.mark.parametrize("name", ["nDCG@3", "AP", "Rprec", "RBP", "ERR@4", "RBP(gain='graded')", "IPrec@0.3", "nRBP"])
def test_judging_a_document_never_widens_a_range(name):
    rng = np.random.default_rng(11)
    for _ in range(40):
        labels, judged, scores, n = _query(rng, 3, "average" if name != "IPrec@0.3" else "none")
        before = label_ranges(_lists([(labels, judged, scores, n)]), name, grades=[0, 1, 2])[name]
        for document in np.flatnonzero(~judged):
            for label in range(3):
                more, now = labels.copy(), judged.copy()
                more[document], now[document] = label, True
                after = label_ranges(_lists([(more, now, scores, n)]), name, grades=[0, 1, 2])[name]
                if not np.isnan(after.low[0]):
                    assert before.low[0] <= after.low[0] + 1e-12
                    assert after.high[0] <= before.high[0] + 1e-12


@pytest.mark.parametrize("name", MEASURES)
def test_a_fully_judged_run_has_no_width(name):
    rng = np.random.default_rng(3)
    queries = [(labels, np.ones_like(judged), scores, n) for labels, judged, scores, n in
               (_query(rng, 3, "average") for _ in range(20))]  # fmt: skip
    lists, measure = _lists(queries), parse_measure(name)
    found = label_ranges(lists, name)[name]
    ranked = rank(lists)
    value = np.where(is_defined(ranked.counts, measure), values(ranked, measure), np.nan)
    np.testing.assert_array_equal(found.low, value)
    np.testing.assert_array_equal(found.high, value)


@pytest.mark.parametrize("name", ["nDCG", "AP", "R@3", "nDCG@3"])
def test_ranges_of_a_query_do_not_depend_on_the_others(name):
    rng = np.random.default_rng(8)
    queries = [_query(rng, 3, "none") for _ in range(30)]
    long = 3_000
    judged = rng.random(long) > 0.5
    queries.append((np.where(judged, rng.integers(0, 3, long), 0), judged, rng.random(long), long))
    together = label_ranges(_lists(queries), name, grades=[0, 1, 2])[name]
    for q, query in enumerate(queries):
        alone = label_ranges(_lists([query]), name, grades=[0, 1, 2])[name]
        np.testing.assert_array_equal(together.low[q], alone.low[0])
        np.testing.assert_array_equal(together.high[q], alone.high[0])


@pytest.mark.parametrize("name", ["EM(nDCG@3)", "MM(AP)", "DB(P@2)", "UL2(RR)", "EB(R@2)", "UL1(nDCG(dcg='exp-log2'))"])
def test_normalized_measures_with_candidates(name):
    rng = np.random.default_rng(21)
    for _ in range(6):
        labels, judged, _, _ = query = _query(rng, 3, "none", most_unknown=3)
        candidates = rng.random(len(labels)) > 0.2
        candidates |= judged

        def listed(queries, mask=candidates):
            lists = _lists(queries)
            arrays = {key: getattr(lists, key) for key in ("labels", "offsets", "scores", "ids", "depths", "judged")}
            return Lists(**arrays, candidates=np.tile(mask, len(queries)))

        value = RunValues(listed(_labelings(query, 3))).of_queries(parse_measure(name)).value
        found = label_ranges(listed([query]), name, grades=[0, 1, 2])[name]
        if not np.isnan(value).all():
            assert found.low[0] == pytest.approx(np.nanmin(value), abs=1e-12)
            assert found.high[0] == pytest.approx(np.nanmax(value), abs=1e-12)


@pytest.mark.parametrize("name", REFUSED)
def test_measures_without_an_exact_range_are_refused(name):
    lists = _lists([_query(np.random.default_rng(0), 2, "none")])
    with pytest.raises(MeasureError, match=r"range over (unknown|their) labels"):
        label_ranges(lists, name)


@pytest.mark.parametrize("grades", [[], [[0, 1]], [0, -1], ["high"], [0, np.nan], range(100)])
def test_wrong_grades(grades):
    lists = _lists([_query(np.random.default_rng(0), 2, "none")])
    with pytest.raises(ArgumentError, match="grades must"):
        label_ranges(lists, "P@2", grades=grades)


def test_judgments_with_many_labels_need_grades():
    lists = Lists(np.arange(100) / 10, [0, 100], np.arange(100.0), judged=np.arange(100) > 3)
    with pytest.raises(DataError, match="give the grades"):
        label_ranges(lists, "DCG")
    assert label_ranges(lists, "DCG", grades=[0, 1])["DCG"].high[0] > label_ranges(lists, "DCG", grades=[0])["DCG"].high


def test_long_lists_of_measures_without_closed_form_are_refused():
    judged = np.arange(40) % 2 == 0
    lists = Lists(np.where(judged, np.arange(40) % 5, 0), [0, 40], np.arange(40.0), judged=judged)
    wide = Lists(np.tile(lists.labels, 50), np.arange(51) * 40, np.tile(lists.scores, 50), judged=np.tile(judged, 50))
    with pytest.raises(MeasureError, match="goes through"):
        label_ranges(wide, "PairAcc")


# ---- differences -----------------------------------------------------------------------------------------------------

SHARED = ("nDCG@3", "nDCG", "nDCG(dcg='exp-log2')@2", "LetorNDCG@4", "DCG@3", "ToyDCG@4", "P@3", "R@3", "R(rel=2)@2",
          "RBP", "RBP(rel=2)@3", "nRBP@4", "nRBP", "NumRet(rel=1)")  # fmt: skip
BOUNDED = ("AP", "RR", "ERR@3", "Rprec", "SetP", "SetR", "RBP(gain='graded')", "Success@2")
DOCUMENTS = [f"d{i}" for i in range(8)]


def _two_runs(rng, grades, ties):
    judged = {d: int(rng.integers(0, grades)) for d in DOCUMENTS if rng.random() < 0.5} or {"z": 1}
    runs = []
    for _ in range(2):
        n = int(rng.integers(1, 8))
        scores = rng.permutation(n) if ties == "docid" else rng.integers(0, 3, n)
        runs.append({str(d): float(s) for d, s in zip(rng.permutation(DOCUMENTS)[:n], scores, strict=True)})
    return judged, runs


@pytest.mark.parametrize("grades", [2, 3])
@pytest.mark.parametrize("ties", ["average", "docid"])
def test_differences_are_those_of_all_labelings(grades, ties):
    rng = np.random.default_rng(17)
    for _ in range(len(tiers.some(range(150), 15))):
        judged, runs = _two_runs(rng, grades, ties)
        unknown = sorted({d for run in runs for d in run} - set(judged))
        if grades ** len(unknown) > 250:
            continue
        every = itertools.product(range(grades), repeat=len(unknown))
        qrels = {f"q{i}": judged | dict(zip(unknown, labels, strict=True)) for i, labels in enumerate(every)}
        ranked = [rank(Lists.from_dicts(qrels, dict.fromkeys(qrels, run)), ties) for run in runs]
        lists = [Lists.from_dicts({"q": judged}, {"q": run}) for run in runs]
        for name in SHARED + BOUNDED:
            measure = parse_measure(name)
            value = [np.where(is_defined(r.counts, measure), values(r, measure), np.nan) for r in ranked]
            difference = value[1] - value[0]
            found = difference_ranges(lists, name, ties=ties, grades=range(grades))
            assert found.is_exact == (name in SHARED)
            assert found.may_be_empty[0, 0] == np.isnan(difference).any()
            if np.isnan(difference).all():
                continue
            low, high = np.nanmin(difference), np.nanmax(difference)
            if found.is_exact:
                assert found.low[0, 0] == pytest.approx(low, abs=1e-12), name
                assert found.high[0, 0] == pytest.approx(high, abs=1e-12), name
            else:
                assert found.low[0, 0] <= low + 1e-12, name
                assert found.high[0, 0] >= high - 1e-12, name
            signs = set(np.sign(np.where(np.abs(difference) < 1e-12, 0, difference)).tolist())
            if found.is_decided[0, 0]:
                assert len(signs) == 1, name
            elif found.is_exact and not found.may_be_empty[0, 0]:
                assert len(signs) > 1, name


def test_pairs_of_many_runs_are_those_of_two():
    rng = np.random.default_rng(4)
    qrels = {
        f"q{i}": {d: int(rng.integers(0, 3)) for d in DOCUMENTS if rng.random() < 0.5} | {"z": 1} for i in range(5)
    }
    runs = [{q: {d: float(rng.random()) for d in DOCUMENTS if rng.random() < 0.8} for q in qrels} for _ in range(4)]
    lists = [Lists.from_dicts(qrels, run) for run in runs]
    for name in ("nDCG@3", "P@3", "R@3"):
        every = difference_ranges(lists, name, grades=[0, 1, 2])
        for row, (first, second) in enumerate(itertools.combinations(range(4), 2)):
            alone = difference_ranges([lists[first], lists[second]], name, grades=[0, 1, 2])
            np.testing.assert_allclose(every.low[row], alone.low[0], atol=1e-14)
            np.testing.assert_allclose(every.high[row], alone.high[0], atol=1e-14)


def test_runs_to_compare_need_ids_and_the_same_queries():
    lists = Lists.from_dicts({"q": {"a": 1}}, {"q": {"a": 1.0}})
    other = Lists.from_dicts({"r": {"a": 1}}, {"r": {"a": 1.0}})
    with pytest.raises(ArgumentError, match="the same queries"):
        difference_ranges([lists, other], "P@1")
    with pytest.raises(ArgumentError, match="ids"):
        difference_ranges([lists, Lists([1], [0, 1], [1.0])], "P@1")
    with pytest.raises(ArgumentError, match="at least two"):
        difference_ranges([lists], "P@1")
