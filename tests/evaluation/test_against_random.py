"""On how many queries is a run better than random: counts, corrections, combinations, candidates, and real runs."""

from __future__ import annotations

import json
from math import comb, sqrt

import numpy as np
import polars as pl
import pytest
from scipy import stats

import rankbound as rb
from rankbound.difficulty.p_values import PValues
from rankbound.errors import ArgumentError
from rankbound.evaluation.against_random import OUTCOMES, AgainstRandom, systems_against_random


def made(better, worse=None, choice=None, gain=None, smallest=None, **policy):
    """A result with these p-values."""
    better = np.asarray(better, dtype=float)
    worse = 1 - better if worse is None else np.asarray(worse, dtype=float)
    choice = np.ones(len(better), dtype=bool) if choice is None else np.asarray(choice)
    smallest = np.full(len(better), 1e-6) if smallest is None else np.asarray(smallest, dtype=float)
    gain = np.where(better < 0.5, 0.1, -0.1) if gain is None else np.asarray(gain, dtype=float)
    p = PValues(better, worse, smallest, choice, gain)
    return AgainstRandom("AP", np.arange(len(better)), p, rb.Inference(**policy))


def generated(queries=40, items=30, relevant=5, seed=0):
    """Judgments with the same number of relevant documents in each query."""
    random = np.random.default_rng(seed)
    return {
        f"q{i}": {f"d{j}": int(rank < relevant) for j, rank in enumerate(random.permutation(items))}
        for i in range(queries)
    }


def run_of(qrels, score):
    """A run whose scores are ``score(label, random number)``."""
    random = np.random.default_rng(1)
    return {
        q: {d: float(score(label, random.random())) for d, label in documents.items()} for q, documents in qrels.items()
    }


def test_outcomes_are_corrected_over_queries_with_a_choice():
    result = made(
        [0.01, 0.02, 0.5, 0.99, 1.0], worse=[1, 0.98, 0.5, 0.012, 1.0], choice=[True, True, True, True, False]
    )
    # Holm over four queries: 4 * 0.01, 3 * 0.02, ...; the query without a choice counts nowhere
    np.testing.assert_allclose(result.corrected[0], [0.04, 0.06, 1, 1, 1])
    np.testing.assert_allclose(result.corrected[1], [1, 1, 1, 0.048, 1])
    assert result.outcomes.tolist() == ["better", "no evidence", "no evidence", "worse", "no choice"]
    assert (result.queries, result.better, result.no_evidence, result.worse, result.no_choice) == (4, 1, 2, 1, 1)
    assert result.better_by_correction == {"holm": 1, "benjamini-hochberg": 2, "none": 2}
    assert made([0.01, 0.02, 0.5], correction="none").better == 2
    assert made([0.01, 0.02, 0.5], confidence=0.995).better == 0


def test_the_combination_leaves_out_queries_without_a_choice():
    p = np.random.default_rng(0).random(30)
    choice = np.arange(30) % 3 > 0
    result = made(np.where(choice, p, 1.0), choice=choice)
    assert result.combined["fisher"] == pytest.approx(stats.combine_pvalues(p[choice]).pvalue, rel=1e-9)
    assert result.combined == pytest.approx(made(p[choice]).combined)
    assert set(result.combined) == {"fisher", "fisher_mid_p", "higher_criticism", "harmonic_mean"}


def test_counts_above_the_expected_value_and_the_estimated_fraction():
    result = made(
        [0.001] * 6 + [0.6] * 2 + [1.0] * 2, choice=[True] * 8 + [False] * 2, gain=[1.0] * 6 + [-1.0] * 2 + [0.0] * 2
    )
    assert result.above_expected == 6
    assert result.fraction_better == pytest.approx(1 - 2 * 2 / 8)
    assert np.isnan(made([1.0], choice=[False]).fraction_better)
    assert made([0.3, 0.3, 0.3], smallest=[0.001, 0.05, 0.2]).out_of_reach == 2


def test_nothing_to_test_is_no_evidence():
    result = made([1.0, 1.0], choice=[False, False])
    assert (result.better, result.worse, result.no_evidence, result.no_choice) == (0, 0, 0, 2)
    assert set(result.combined.values()) == {1.0}


@pytest.mark.parametrize("measure", ["nDCG@10", "AP", "P@5", "U"])
def test_a_perfect_ranking_is_better_on_all_queries_and_its_reverse_is_worse(measure):
    qrels = generated()
    best = rb.against_random(qrels, run_of(qrels, lambda label, noise: label + noise / 2), measure)[measure]
    assert best.better == best.queries == best.above_expected == 40
    assert max(best.combined.values()) < 0.001
    assert best.fraction_better == 1.0
    # of C(30, 5) sets of ranks, one is best; P@5 and nDCG@10 do not see more
    assert best.p_values.smallest[0] == pytest.approx(1 / comb(30, 5), rel=1e-4)
    worst = rb.against_random(qrels, run_of(qrels, lambda label, noise: noise / 2 - label), measure)[measure]
    assert worst.better == 0
    assert min(worst.combined["fisher"], worst.combined["fisher_mid_p"], worst.combined["harmonic_mean"]) > 0.9
    if measure in ("AP", "U"):  # a cutoff hides how bad it is
        assert worst.worse == 40


def test_a_constant_scorer_is_never_better():
    qrels = generated(queries=60)
    for measure, result in rb.against_random(
        qrels, run_of(qrels, lambda *_: 0), ["nDCG@10", "AP", "RR", "P@1"]
    ).items():
        assert (result.better, result.worse) == (0, 0), measure
        assert result.better_by_correction["none"] == 0
        assert min(result.combined.values()) > 0.5


def test_random_rankings_keep_the_level_of_every_combination():
    """300 random runs on 12 queries: each combined p-value is at most a with a probability of about a at most."""
    qrels = generated(queries=12, items=12, relevant=3)
    labels = np.concatenate([list(documents.values()) for documents in qrels.values()])
    random = np.random.default_rng(4)
    combined = []
    for _ in range(300):
        lists = rb.Lists(labels, np.arange(13) * 12, random.random(len(labels)))
        combined.append(rb.against_random(lists, measures="AP", inference=rb.Inference(resamples=500))["AP"])
    for level in (0.01, 0.05, 0.1, 0.25):
        noise = 4 * sqrt(level * (1 - level) / 300)
        for name in combined[0].combined:
            fraction = np.mean([result.combined[name] <= level for result in combined])
            assert fraction <= level + noise, name
        # the probability of any false "better" with Holm's correction
        policy = rb.Inference(confidence=1 - level)
        false = [AgainstRandom("AP", result.query_ids, result.p_values, policy).better > 0 for result in combined]
        assert np.mean(false) <= level + noise
    # not because nothing is ever small
    assert np.mean([result.combined["fisher"] <= 0.25 for result in combined]) > 0.1


def test_a_normalized_measure_is_tested_as_its_plain_one():
    qrels = generated(queries=8)
    run = run_of(qrels, lambda label, noise: label / 2 + noise)
    results = rb.against_random(qrels, run, ["EM(nDCG@10)", "nDCG@10", "UL2(AP)", "map"])
    assert list(results) == ["nDCG@10", "map"]
    np.testing.assert_array_equal(
        results["map"].p_values.better, rb.against_random(qrels, run, "AP")["AP"].p_values.better
    )


def test_unjudged_documents_and_the_order_of_rows_change_nothing():
    qrels = generated(queries=6)
    run = run_of(qrels, lambda label, noise: label / 2 + noise)
    longer = {q: documents | {f"x{i}": 5.0 - i for i in range(20)} for q, documents in run.items()}
    reversed_rows = {q: dict(reversed(documents.items())) for q, documents in reversed(run.items())}
    for measure in ("nDCG@10", "AP"):
        expected = dict(rb.against_random(qrels, run, measure)[measure].per_query.select("qid", "p_better").iter_rows())
        for other in (longer, reversed_rows):
            actual = dict(
                rb.against_random(qrels, other, measure)[measure].per_query.select("qid", "p_better").iter_rows()
            )
            assert actual == pytest.approx(expected, abs=1e-12)


def test_candidates_that_were_not_returned_are_tied_below():
    qrels = {"q": {"a": 1, "b": 0, "c": 0, "d": 0}}
    result = rb.against_random(qrels, {"q": {"b": 1.0}}, "RR")["RR"]
    assert result.p_values.better[0] == pytest.approx((0.5 + 0.75 + 1) / 3)  # a at rank 2, 3 or 4
    assert rb.against_random(qrels, {"q": {"b": 1.0}}, "RR", candidates="returned")["RR"].no_choice == 1


def test_queries_without_a_choice_have_p_1():
    qrels = {"all": {"a": 1, "b": 1}, "none": {"a": 0, "b": 0}, "one": {"a": 1, "b": 0}}
    result = rb.against_random(qrels, {q: {"a": 2.0, "b": 1.0} for q in qrels}, "AP")["AP"]
    assert result.p_values.better.tolist() == [1.0, 1.0, 0.5]
    assert result.outcomes.tolist() == ["no choice", "no choice", "no evidence"]
    assert result.out_of_reach == 1


def test_parquet_in_parts_gives_the_same(tmp_path, monkeypatch):
    from rankbound.data import large

    random = np.random.default_rng(2)
    table = pl.DataFrame(
        {"qid": np.repeat(np.arange(30), 12), "label": random.integers(0, 2, 360), "score": random.random(360)}
    )
    table.write_parquet(tmp_path / "scored.parquet", row_group_size=60)
    whole = rb.against_random(rb.Lists.from_frame(table), measures=["AP", "U"])
    monkeypatch.setattr(large, "ROWS", 60)
    streamed = rb.against_random(str(tmp_path / "scored.parquet"), measures=["AP", "U"])
    for measure in whole:
        np.testing.assert_array_equal(whole[measure].p_values.better, streamed[measure].p_values.better)


def test_an_evaluation_can_be_summarized_later():
    qrels = generated(queries=5)
    run = run_of(qrels, lambda label, noise: label + noise)
    evaluation = rb.evaluate(qrels, run, "AP", against_random=True)
    assert rb.against_random(evaluation)["AP"].to_dict() == rb.against_random(qrels, run, "AP")["AP"].to_dict()
    assert {"AP p better", "AP p worse"} <= set(evaluation.per_query.columns)
    with pytest.raises(ArgumentError, match=r"must have p-values: evaluate\(..., against_random=True\)"):
        rb.against_random(rb.evaluate(qrels, run, "AP"))
    with pytest.raises(ArgumentError, match="takes no others"):
        rb.against_random(evaluation, run)


def test_the_summary_is_json_and_the_frame_has_a_row_per_query():
    qrels = generated(queries=4)
    result = rb.against_random(qrels, run_of(qrels, lambda label, noise: label + noise), "nDCG@10")["nDCG@10"]
    summary = json.loads(json.dumps(result.to_dict()))
    assert summary["better"] + summary["no_evidence"] + summary["worse"] + summary["no_choice"] == 4
    assert result.per_query["qid"].to_list() == list(qrels)
    assert set(result.per_query["outcome"]) <= set(OUTCOMES)
    assert repr(result) == "AgainstRandom(nDCG@10: better on 4 of 4 queries, worse on 0; no choice on 0)"


def test_systems_of_a_score_matrix():
    qrels = generated(queries=10)
    good, random = (run_of(qrels, score) for score in (lambda label, noise: label + noise, lambda _, noise: noise))
    comparison = rb.compare(
        random, good, qrels=qrels, measures=["EM(AP)", "RR"], names=["random", "good"], against_random=True
    )
    tests = systems_against_random(comparison.scores)
    assert tests["good"].to_dict() == rb.against_random(qrels, good, "AP")["AP"].to_dict()
    assert tests["random"].better == 0
    assert list(systems_against_random(comparison.scores, rb.Inference(confidence=0.9), ["good"])) == ["good"]
    some = comparison.scores.select(np.arange(10) < 4)
    assert systems_against_random(some)["good"].queries == 4
    assert systems_against_random(rb.compare(random, good, qrels=qrels, measures="AP").scores) == {}
    lists = [rb.Lists.from_dicts(qrels, run) for run in (random, good)]
    aligned = rb.compare(*lists, measures="AP", names=["random", "good"], against_random=True).scores
    assert systems_against_random(aligned)["good"].to_dict() == tests["good"].to_dict()


@pytest.mark.real_data
def test_a_run_of_trec_covid_is_better_than_random_on_many_topics(data_dir, capsys):
    folder = data_dir / "trec-covid-round1"
    run = sorted((folder / "runs").iterdir())[0]
    results = rb.against_random(str(folder / "qrels.covid-round1.txt.gz"), str(run), ["nDCG@10", "AP"])
    for result in results.values():
        with capsys.disabled():
            print(f"\n{run.name}: {result}, {result.combined}")
        assert result.queries == 30
        assert result.better >= 10
        assert result.better > result.worse
        assert result.combined["fisher"] < 1e-6
        assert result.combined["harmonic_mean"] < 1e-4
        assert 0 <= result.p_values.better.min() <= result.p_values.better.max() <= 1
