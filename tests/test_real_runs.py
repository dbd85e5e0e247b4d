"""What normalized measures claim, on real runs and on rankings by single features of real data sets."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import polars as pl
import pytest
from scipy import stats

import rankbound as rb
from rankbound.cli.main import run as run_cli
from rankbound.data import load_set, synthetic_letor
from rankbound.data.trec import read_qrels, read_run
from rankbound.difficulty.run_values import RunValues
from rankbound.evaluation import evaluate_lists
from rankbound.evaluation.alignment import align_runs
from rankbound.evaluation.significance import holm
from rankbound.measures import BOUNDINGS, parse_measure
from rankbound.protocol import TIES, Protocol
from rankbound.testing.strategies import catalog

pytestmark = pytest.mark.full("evaluates many real runs")

LETOR = ("mq2007", "mq2008", "mq2007-agg", "ohsumed", "mslr-sample", "lightgbm-lambdarank")
PLAIN = [str(measure) for measure in catalog(range(10, 11)) if measure.name != "IPrec"]
SLOW = ["IPrec@0.5"]  # no closed form: every order of ties is evaluated
NAMES = ("nDCG@10", "AP", "RR", "P@10")
ROUNDING = 1e-9


def check_bounds(result):
    for name, bounds in result.bounds.items():
        low, high = np.minimum(bounds.worst, bounds.best), np.maximum(bounds.worst, bounds.best)
        scale = max(1.0, float(np.abs(high).max()))  # DCG has values far above 1
        assert (low - ROUNDING * scale <= result.complete[name]).all(), name
        assert (result.complete[name] <= high + ROUNDING * scale).all(), name


@cache
def covid(data_dir, run):
    folder = data_dir / "trec-covid-round1"
    return read_qrels(folder / "qrels.covid-round1.txt.gz"), read_run(folder / "runs" / run)


RUNS = ("run1.gz", "smith.rm3.gz")

# ---- worst <= value <= best ------------------------------------------------------------------------------------------


@pytest.mark.real_data
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("rule", ["judged", "returned"])
def test_a_real_run_lies_between_its_bounds(data_dir, rule, ties):
    for run in RUNS:
        judged, returned = covid(data_dir, run)
        check_bounds(rb.evaluate(judged, returned, PLAIN, bounds=True, candidates=rule, ties=ties))
        first_stage = returned.select("qid", "docid")
        check_bounds(
            rb.evaluate(
                judged, returned, PLAIN, bounds=True, candidates=first_stage, judged_outside="ignore", ties=ties
            )
        )
    folder = data_dir / "trec-eval-test"
    names = PLAIN + (SLOW if (rule, ties) == ("judged", "average") else [])
    check_bounds(
        rb.evaluate(
            folder / "qrels.comment.test.gz", folder / "results.comment.test.gz", names, bounds=True,
            candidates=rule, ties=ties,
        )
    )  # fmt: skip


@pytest.mark.real_data
@pytest.mark.parametrize("name", LETOR)
def test_rankings_by_single_features_lie_between_their_bounds(data_dir, name):
    data = load_set(name)
    features = data.features
    chosen = np.linspace(0, features.shape[1] - 1, 4).astype(int)
    for feature in chosen:
        scores = np.nan_to_num(np.asarray(features[:, feature], dtype=np.float64))
        for ties in ("average", "input"):
            check_bounds(evaluate_lists(data.lists.with_scores(scores), PLAIN, Protocol(ties=ties), bounds=True))


@pytest.mark.real_data
def test_a_run_with_a_high_precision_is_above_random(data_dir):
    folder = data_dir / "trec-eval-test"
    result = rb.evaluate(
        folder / "qrels.comment.test.gz", folder / "results.comment.test.gz", ["P@10", "AP", "MM(AP)", "EM(AP)"]
    )
    mean = result.mean()
    assert mean["P@10"] > 0.75
    assert 0.5 < mean["MM(AP)"] < 1
    assert 0.2 < mean["EM(AP)"] < 1


# ---- what must not change a value ------------------------------------------------------------------------------------

WRAPPED = [f"{wrapper}(nDCG@10)" for wrapper in BOUNDINGS] + ["EM(AP)", "MM(AP)", "UL2(AP)", "EM(RR)"]


@pytest.mark.real_data
@pytest.mark.parametrize("rule", ["judged", "returned"])
def test_unjudged_documents_and_the_order_of_rows_change_nothing(data_dir, rule):
    judged, returned = covid(data_dir, RUNS[1])
    before = rb.evaluate(judged, returned, WRAPPED, candidates=rule).per_query.sort("qid").drop("qid").to_numpy()
    queries = returned["qid"].unique(maintain_order=True)
    unjudged = pl.DataFrame(
        {
            "qid": np.repeat(queries.to_numpy(), 950),
            "docid": np.tile([f"unjudged{i}" for i in range(950)], len(queries)),
        }
    )
    scores = np.random.default_rng(0).permutation(np.linspace(-50, 50, len(unjudged)))
    longer = pl.concat([returned, unjudged.with_columns(pl.Series("score", scores))])
    for changed in (longer, longer.sample(fraction=1.0, shuffle=True, seed=1)):
        shuffled = judged.sample(fraction=1.0, shuffle=True, seed=2)
        after = rb.evaluate(shuffled, changed, WRAPPED, candidates=rule).per_query.sort("qid").drop("qid").to_numpy()
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)


@pytest.mark.real_data
def test_evaluate_compare_report_and_streaming_agree(data_dir, tmp_path, capsys, monkeypatch):
    judged, first = covid(data_dir, RUNS[0])
    second = covid(data_dir, RUNS[1])[1]
    expected = rb.evaluate(judged, second, WRAPPED).per_query.sort("qid").drop("qid").to_numpy().T
    matrix = align_runs(judged, [first, second], WRAPPED)
    order = np.argsort(np.array(matrix.query_ids))
    np.testing.assert_allclose([matrix.values[name][1][order] for name in WRAPPED], expected, rtol=0, atol=1e-12)
    second.sort("qid", maintain_order=True).write_parquet(tmp_path / "second.parquet")
    monkeypatch.setattr("rankbound.data.large.ROWS", 700)  # many parts
    streamed = rb.evaluate(judged, tmp_path / "second.parquet", WRAPPED).per_query.sort("qid").drop("qid").to_numpy().T
    np.testing.assert_allclose(streamed, expected, rtol=0, atol=1e-12)
    folder = data_dir / "trec-covid-round1"
    paths = [str(folder / "qrels.covid-round1.txt.gz"), *(str(folder / "runs" / run) for run in RUNS)]
    measures = [argument for name in WRAPPED for argument in ("-m", name)]
    means = {}
    for command in (["evaluate"], ["compare", "--resamples", "100"]):
        assert run_cli([*command, *paths, *measures, "--json"]) == 0
        means[command[0]] = json.loads(capsys.readouterr().out)
    printed = [means["evaluate"]["runs"][paths[2]]["mean"], means["compare"]["mean"][paths[2]]]
    for mean in printed:
        np.testing.assert_allclose(list(mean.values()), np.nanmean(expected.astype(float), axis=1), rtol=0, atol=1e-12)
    tables = tmp_path / "tables"
    assert run_cli(["report", *paths, *measures, "-o", str(tmp_path / "p.html"), "--tables", str(tables)]) == 0
    capsys.readouterr()
    shown = [float(x) for file in tables.glob("*.csv") for x in re.findall(r"-?\d+\.\d+", file.read_text())]
    for value in printed[0].values():
        assert np.abs(np.array(shown) - value).min() < 1e-12


# ---- zero means random -----------------------------------------------------------------------------------------------


def queries_of(name):
    return synthetic_letor(queries=100, seed=3).lists if name == "generated" else load_set(name).lists


@cache
def random_and_constant(name, rankings=200):
    """Normalized values of a constant scorer, and the mean over random rankings, of each query."""
    lists = queries_of(name)
    measures = [parse_measure(f"{wrapper}({measure})") for measure in NAMES for wrapper in BOUNDINGS]
    difficulties = {}  # the same for every ranking

    def normalized(scores):
        run = RunValues(lists.with_scores(scores), difficulties=difficulties)
        return {str(each): run.of_queries(each).value for each in measures}  # NaN where there is none

    constant = normalized(np.zeros(len(lists.labels)))
    rng = np.random.default_rng(7)
    total = {measure: np.zeros(len(lists)) for measure in constant}
    for _ in range(rankings):
        for measure, value in normalized(rng.random(len(lists.labels))).items():
            total[measure] += value / rankings
    return constant, total


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["generated", "mq2008", "ohsumed"])
def test_the_mean_of_em_over_random_rankings_is_0(data_dir, name):
    _, random = random_and_constant(name)
    for measure in NAMES:
        assert abs(np.nanmean(random[f"EM({measure})"])) < 0.01, measure
        assert abs(np.nanmean(random[f"UL2C({measure})"])) < 0.01, measure


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["generated", "mq2008", "ohsumed"])
def test_a_constant_scorer_does_not_differ_from_random_rankings(data_dir, name):
    constant, random = random_and_constant(name)
    p_values = {}
    for measure, value in constant.items():
        difference = (value - random[measure])[~np.isnan(value)]
        spread = difference.std() > 1e-12
        p_values[measure] = stats.ttest_1samp(difference, 0.0).pvalue if spread else 1.0
    corrected = dict(zip(p_values, holm(np.array(list(p_values.values()))), strict=True))
    assert min(corrected.values()) > 0.05, {name: p for name, p in corrected.items() if p <= 0.05}
