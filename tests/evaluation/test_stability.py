"""Stability of system orders over halves of the queries: known answers, loops, and real runs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.alignment import align_runs
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.evaluation.stability import QUANTITIES, disjoint_references, stability, with_standardized
from rankbound.report.numbers import show_number
from rankbound.studies.meta_evaluation import swap_rate


def matrix(queries: int = 12, systems: int = 6, noise: float = 1.0, seed: int = 0) -> ScoreMatrix:
    """Systems whose quality rises evenly, on queries of different difficulty, with noise."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.05, 1, queries)
    value = np.linspace(0, 1, systems)[:, None] + noise * rng.normal(size=(systems, queries)) + rng.normal(size=queries)
    value = scale * value
    names = tuple(f"s{i}" for i in range(systems))
    return ScoreMatrix(names, tuple(range(queries)), {"AP": value, "EM(AP)": value / scale})


def values(table: pl.DataFrame, measure: str = "AP") -> list[float | None]:
    """The three quantities of a measure."""
    return [table.filter(measure=measure, quantity=quantity)["value"].item() for quantity in QUANTITIES]


def test_systems_without_noise_have_the_same_order_on_all_halves():
    assert values(stability(matrix(noise=0))) == [1.0, 0.0, 1.0]


def test_identical_systems_have_no_tau_no_swaps_and_no_significant_pair():
    scores = matrix()
    same = ScoreMatrix(scores.systems, scores.query_ids, {"AP": np.tile(scores.values["AP"][0], (6, 1))})
    assert values(stability(same)) == [None, 0.0, 0.0]


def test_a_wrapper_that_changes_nothing_does_not_differ():
    scores = matrix()
    same = ScoreMatrix(scores.systems, scores.query_ids, {"AP": scores.values["AP"], "MM(AP)": scores.values["AP"] * 3})
    rows = stability(same).filter(measure="MM(AP)")
    assert rows.select("difference", "ci_low", "ci_high").to_numpy() == pytest.approx(0, abs=1e-12)
    assert stability(same).filter(measure="AP")["difference"].to_list() == [None] * 3


def all_halves(queries: int) -> list[np.ndarray]:
    return [np.isin(np.arange(queries), half) for half in itertools.combinations(range(queries), queries // 2)]


@pytest.mark.parametrize("queries", [6, 7])
def test_many_random_splits_approach_the_mean_over_all_splits(queries):
    scores = matrix(queries)
    value = scores.values["AP"]
    pairs = [(value[:, half].mean(axis=1), value[:, ~half].mean(axis=1)) for half in all_halves(queries)]
    tau = np.mean([stats.kendalltau(a, b).statistic for a, b in pairs])
    swaps = np.mean([swap_rate(a, b) for a, b in pairs])
    assert values(stability(scores, splits=20_000))[:2] == pytest.approx([tau, swaps], abs=0.01)


def test_leaving_out_and_undefined_queries_agree_with_a_loop():
    """The replicates of the jackknife, computed anew for each query left out, and queries that do not count."""
    from rankbound.evaluation import stability as module

    scores = matrix(9)
    scores.values["AP"][2, 4] = np.nan  # query 4 does not count
    halves = module._random_halves(np.random.default_rng(3), 9, 5)
    counted = scores.counted("AP")
    tau, swaps = module._agreement(scores.values["AP"], counted, halves)
    for index, out in enumerate([None, *range(9)]):
        kept = counted & (np.arange(9) != (-1 if out is None else out))
        taus, rates = [], []
        for half in halves:
            a, b = (scores.values["AP"][:, kept & side].mean(axis=1) for side in (half, ~half))
            taus.append(stats.kendalltau(a, b).statistic)
            rates.append(swap_rate(a, b))
        assert tau[index] == pytest.approx(np.mean(taus), abs=1e-12)
        assert swaps[index] == pytest.approx(np.mean(rates), abs=1e-12)


def test_the_significant_fraction_is_that_of_corrected_tests():
    scores = matrix(30, noise=0.5)
    p = [stats.ttest_rel(a, b).pvalue for a, b in itertools.combinations(scores.values["AP"], 2)]
    bonferroni = np.mean(np.array(p) * len(p) < 0.05)
    assert 0 < bonferroni < 1
    assert values(stability(scores, inference=Inference(correction="bonferroni")))[2] == pytest.approx(bonferroni)
    uncorrected = np.mean(np.array(p) < 0.01)
    policy = Inference(correction="none", confidence=0.99)
    assert values(stability(scores, inference=policy))[2] == pytest.approx(uncorrected)


def test_intervals_cover_the_difference_that_other_queries_show():
    """EM removes the scale of the queries here, so it is more stable; the interval should say how much more."""
    truth = stability([matrix(20, seed=100 + i) for i in range(60)], splits=20).filter(measure="EM(AP)")["difference"]
    covered = np.zeros(3)
    for seed in range(40):
        rows = stability(matrix(20, seed=seed), splits=60).filter(measure="EM(AP)")
        covered += ((rows["ci_low"] <= truth) & (truth <= rows["ci_high"])).to_numpy()
    assert truth[0] > 0
    assert (covered >= 32).all()  # of 40, at a level of 95 %


def test_the_seed_decides_and_measures_share_the_splits():
    scores = matrix()
    assert stability(scores, seed=1).equals(stability(scores, seed=1))
    assert not stability(scores, seed=1).equals(stability(scores, seed=2))
    alone = stability(scores, ["AP"], seed=1)
    assert values(alone) == values(stability(scores, seed=1))


def test_several_matrices_are_averaged():
    first, second = matrix(seed=1), matrix(seed=2)
    both = values(stability([first, second]))
    assert both[2] == pytest.approx((values(stability(first))[2] + values(stability(second))[2]) / 2)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: stability(matrix(), splits=0), ArgumentError, "splits must be an integer from 1 to 100,000, got 0"),
        (lambda: stability(matrix(), seed=-1), ArgumentError, "seed must be an integer of at least 0, got -1"),
        (lambda: stability(matrix(), ["RR"]), ArgumentError, r"measures must be among AP, EM\(AP\), got 'RR'"),
        (lambda: stability([]), ArgumentError, "at least one matrix"),
        (lambda: stability(matrix(3)), DataError, "at least 4 queries, got 3"),
        (lambda: stability(matrix(systems=1)), DataError, "at least 2 systems, got 1"),
        (lambda: stability([matrix(8), matrix(9)]), DataError, "the same queries"),
        (lambda: with_standardized(matrix(), ["EM(AP)"]), ArgumentError, "a wrapper such as STD"),
        (lambda: with_standardized(matrix(), ["STD(RR)"]), ArgumentError, "must have RR for STD"),
        (lambda: with_standardized(matrix(), ["STD(AP)"], matrix(9)), DataError, "the same queries"),
        (lambda: with_standardized(matrix(), ["STD(AP)"], matrix(systems=1)), DataError, "at least 2 systems"),
        (lambda: disjoint_references(matrix(), ["STD(AP)"], partitions=0), ArgumentError, "partitions must be a pos"),
        (lambda: disjoint_references(matrix(), ["STD(AP)"], groups="ab"), ArgumentError, "one entry for each of 6"),
        (lambda: disjoint_references(matrix(), ["STD(AP)"], groups="aaaaaa"), DataError, "at least 2 groups, got 1"),
        (lambda: disjoint_references(matrix(), ["STD(AP)"], groups="aaaaab"), DataError, "2 systems in each half"),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_halves_of_the_systems_are_disjoint_and_keep_groups_together():
    scores = matrix(systems=11)
    groups = [name in ("s1", "s2", "s3") or name for name in scores.systems]
    halves = disjoint_references(scores, ["STD(AP)"], partitions=4, groups=groups, seed=1)
    assert len(halves) == 8
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        assert set(first.systems) | set(second.systems) == set(scores.systems)
        assert not set(first.systems) & set(second.systems)
        assert abs(len(first.systems) - len(second.systems)) <= 3
        assert len({"s1", "s2", "s3"} & set(first.systems)) in (0, 3)
        expected = with_standardized(first, ["STD(AP)"], second).values["STD(AP)"]
        np.testing.assert_array_equal(first.values["STD(AP)"], expected)


def test_real_runs_are_ordered_alike_by_halves_of_their_topics(data_dir):
    folder = data_dir / "trec-covid-round1"
    paths = sorted((folder / "runs").iterdir())[::10]
    measures = ["nDCG@10", "EM(nDCG@10)"]
    names = [path.name for path in paths]
    scores = align_runs(folder / "qrels.covid-round1.txt.gz", paths, measures, names=names)
    table = stability(with_standardized(scores, ["STD(nDCG@10)", "ECDF(nDCG@10)"]), splits=50)
    assert set(table["queries"]) == {30}
    for name in (*measures, "STD(nDCG@10)", "ECDF(nDCG@10)"):
        tau, swaps, significant = values(table, name)
        assert 0.5 < tau < 1
        assert swaps == pytest.approx((1 - tau) / 2, abs=0.02)
        assert 0 < significant < 1
    rows = table.filter(pl.col("difference").is_not_null())
    assert (rows["ci_low"] < rows["difference"]).all()
    assert (rows["difference"] < rows["ci_high"]).all()


def test_the_page_of_the_study_has_the_numbers_of_its_file():
    page = Path(__file__).parents[2] / "docs" / "results" / "covid-stability.md"
    table = pl.read_csv(page.with_suffix(".csv"))
    protocol, checked = "", 0
    for line in page.read_text().splitlines():
        if line.startswith("## "):
            protocol = {"## All runs": "all runs", "## Disjoint halves": "disjoint halves"}.get(line, "")
        if not line.startswith("| `"):
            continue
        measure, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        expected = []
        for quantity in QUANTITIES:
            row = table.row(
                by_predicate=(pl.col("measure") == measure.strip("`"))
                & (pl.col("quantity") == quantity)
                & (pl.col("references") == protocol),
                named=True,
            )
            low, high = (show_number(row[end], digits=3, sign=True) for end in ("ci_low", "ci_high"))
            difference = show_number(row["difference"], digits=3, sign=True)
            has_difference = row["difference"] is not None
            expected += [
                show_number(row["value"], digits=3),
                f"{difference} ({low} to {high})" if has_difference else "",
            ]
        assert cells == expected
        checked += 1
    assert checked >= 20
