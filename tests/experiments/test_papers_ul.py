"""The study ul-tables: its numbers have their places, and the meta-evaluation is what scipy makes of the scores."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy.stats import kendalltau, ttest_rel

from rankbound.data.synthetic import synthetic_letor
from rankbound.experiments.meta_tables import _PUBLISHED, meta_tables
from rankbound.experiments.results import read_published, results_table, score_table
from rankbound.experiments.spec import load_study
from rankbound.experiments.store import open_store

from .conftest import letor_text
from .papers import published_without_a_setting, run_here

CUTOFFS = (5, 10, 15, 20, 30)
NDCG = "nDCG(dcg='exp-log2')@{}"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Four rankers of the study on data of the MSLR sample's format: scores, meta-evaluation, results."""
    folder = tmp_path_factory.mktemp("ul")
    data = synthetic_letor(queries=80, features=6, seed=3, documents=(12, 40), levels=5)
    (folder / "mslr-sample").mkdir()
    for name, queries in (("train", range(40)), ("test", range(40, 80))):
        (folder / "mslr-sample" / f"msn1.fold1.{name}.5k.txt").write_text(letor_text(data.take(queries)))
    study = load_study("ul-tables")
    study = study.model_copy(update={"tables": study.tables[:1]})
    only = {"model": ["ARank", "RBoost", "RF", "CA"]}
    with pytest.MonkeyPatch.context() as patch, open_store(folder / "store", create=True) as store:
        patch.setenv("RANKBOUND_DATA", str(folder))
        slots = run_here(study, only, store)
        results = results_table(store, slots, read_published(study.published_path, ["data", "model"]))
        return score_table(store, slots), meta_tables(store, slots, results), results


def test_every_published_number_has_a_place():
    study = load_study("ul-tables")
    published = read_published(study.published_path, ["data", "model"])
    assert published.height == 480
    assert published_without_a_setting(study, published) == []


def test_rows_say_what_stands_in(sample):
    results = sample[2]
    beside = results.filter(pl.col("published").is_not_null())
    assert beside.height == 4 * 30
    assert beside["note"].str.contains("MSLR-WEB30K").all()
    row = beside.filter((pl.col("model") == "RBoost") & (pl.col("measure") == NDCG.format(5)))
    assert row["published"].item() == 0.3062


def means(scores, name):
    """Mean over queries and cutoffs of each system."""
    parts = [scores.group_by("system", maintain_order=True).agg(pl.col(name.format(k)).mean()) for k in CUTOFFS]
    return np.mean([part[name.format(k)].to_numpy() for part, k in zip(parts, CUTOFFS, strict=True)], axis=0)


def ours(meta, quantity, measure, of="all"):
    rows = meta.filter((pl.col("quantity") == quantity) & (pl.col("measure") == measure) & (pl.col("set") == of))
    return rows["ours"].item()


def test_meta_evaluation_is_scipys(sample):
    scores, meta, _ = sample
    assert scores["system"].n_unique() == 4
    plain, bounded = means(scores, NDCG), means(scores, f"UL2({NDCG})")
    assert ours(meta, "Kendall tau", "UL2(nDCG@k)") == pytest.approx(kendalltau(plain, bounded).statistic)
    pad = [100 * abs(a - b) / max(a, b) for a, b in combinations(plain, 2)]
    assert ours(meta, "PAD", "nDCG@k") == pytest.approx(np.mean(pad))
    significant = 0
    for k in CUTOFFS:
        columns = [
            part[f"UL1(SP@{k})"].to_numpy() for part in scores.partition_by("system", maintain_order=True)
        ]  # fmt: skip
        significant += sum(ttest_rel(a, b, nan_policy="omit").pvalue < 0.05 for a, b in combinations(columns, 2))
    assert ours(meta, "significant pairs", "UL1(SP@k)") == significant


def test_meta_evaluation_is_compared_with_the_paper(sample):
    meta = sample[1]
    assert meta.columns == [
        "table", "quantity", "measure", "versus", "data", "set", "published", "ours", "difference", "note",
    ]  # fmt: skip
    row = meta.row(
        by_predicate=(pl.col("quantity") == "conflict cases")
        & (pl.col("measure") == "UL2(SP@k)")
        & (pl.col("set") == "uninformative"),
        named=True,
    )
    assert (row["table"], row["versus"], row["published"]) == ("17", "AP@k", 36)
    assert row["difference"] == row["ours"] - 36
    assert "the sample stands in" in row["note"]


def test_every_published_quantity_is_one_that_we_make(sample):
    key = ["quantity", "measure", "versus", "set"]
    published = pl.read_csv(_PUBLISHED).with_columns(pl.col("versus").fill_null(""))
    assert published.height == 150
    of_one_set = published.filter(pl.col("data") == "mslr-sample")
    assert of_one_set.join(sample[1], on=key, how="anti").is_empty()


def test_a_single_ranker_has_no_meta_evaluation(tmp_path):
    study = load_study("ul-tables")
    with open_store(tmp_path, create=True) as store:
        assert meta_tables(store, [], pl.DataFrame()).is_empty()
    assert study.derived == ["meta-evaluation", "real-systems"]


@pytest.mark.real_data
def test_a_trial_on_the_sample(data_dir, tmp_path):
    with open_store(tmp_path, create=True) as store:
        slots = run_here(load_study("ul-tables"), {"table": "MSLR sample", "model": "ARank"}, store)
        table = results_table(store, slots)
    assert table.filter(pl.col("measure") == NDCG.format(10))["ours"].item() > 0.2
