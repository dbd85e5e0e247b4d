"""The study ul-tables: its numbers have their places, and the meta-evaluation is what scipy makes of the scores."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy.stats import kendalltau, ttest_rel

from rankbound.data.synthetic import synthetic_letor
from rankbound.studies.derived import _PUBLISHED, meta_tables, real_systems
from rankbound.studies.results import read_published, results_table, score_table
from rankbound.studies.store import open_store
from rankbound.studies.study_files import load_study

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


@pytest.mark.full("takes seconds")
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


def test_real_systems_are_evaluated_like_rankers(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBOUND_DATA", str(tmp_path))
    (tmp_path / "trec-covid-round1" / "runs").mkdir(parents=True)
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 3, size=(12, 40))
    lines = [f"{topic} 0 d{at} {label}\n" for topic, row in enumerate(labels) for at, label in enumerate(row)]
    (tmp_path / "trec-covid-round1" / "qrels.covid-round1.txt").write_text("".join(lines))
    gains, values = 2.0**labels - 1, []
    for system, noise in enumerate((0.5, 1, 2, 4)):
        order = np.argsort(-(labels + noise * generator.normal(size=labels.shape)), axis=1)
        run = [f"{topic} Q0 d{document} {rank} {-rank} s\n"
               for topic, row in enumerate(order) for rank, document in enumerate(row, 1)]  # fmt: skip
        (tmp_path / "trec-covid-round1" / "runs" / f"system{system}").write_text("".join(run))
        values.append([_ndcg(np.take_along_axis(gains, order, axis=1), k) for k in CUTOFFS])
    significant = sum(
        ttest_rel(values[a][at], values[b][at]).pvalue < 0.05
        for at in range(len(CUTOFFS)) for a, b in combinations(range(4), 2)
    )  # fmt: skip
    with open_store(tmp_path / "store", create=True) as store:
        meta = real_systems(store, [], pl.DataFrame()).rename({"value": "ours"})
    assert set(meta["data"]) == {"trec-covid-round1"}
    assert ours(meta, "significant pairs", "nDCG@k") == significant
    assert ours(meta, "significant fraction", "nDCG@k") == pytest.approx(significant / (6 * len(CUTOFFS)))
    assert {"UL1(SP@k)", "UL2(SP@k)", "UL1(nDCG@k)", "UL2(nDCG@k)"} < set(meta["measure"])


def _ndcg(gains, k):
    """nDCG@k of each row of gains in the order of the ranks."""
    discount = 1 / np.log2(np.arange(2, k + 2))
    return (gains[:, :k] @ discount) / (-np.sort(-gains, axis=1)[:, :k] @ discount)


def test_without_the_runs_there_is_no_table_of_real_systems(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBOUND_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with open_store(tmp_path / "store", create=True) as store:
        assert real_systems(store, [], pl.DataFrame()).is_empty()


@pytest.mark.real_data
def test_a_trial_on_the_sample(data_dir, tmp_path):
    with open_store(tmp_path, create=True) as store:
        slots = run_here(load_study("ul-tables"), {"table": "MSLR sample", "model": "ARank"}, store)
        table = results_table(store, slots)
    assert table.filter(pl.col("measure") == NDCG.format(10))["ours"].item() > 0.2
