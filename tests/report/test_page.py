"""The content of the page, without a browser."""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
import zlib
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

import rankbound as rb
from rankbound.cli.report import check_page_path
from rankbound.difficulty import describe_query_types
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.evaluation.significance import holm
from rankbound.packages import MissingPackageError
from rankbound.report.figures.drawing import FigureOutcome
from rankbound.report.findings import Findings
from rankbound.report.packing import json_for_script, pack_values
from rankbound.report.page import Report, make_report, write_page, write_report
from rankbound.report.system_tests import judge_systems
from rankbound.report.tables import Cell, Table


def write(path, scores, results=None, **options):
    """A page without altair's figures: they have tests of their own."""
    return write_report(path, make_report(scores, results), figures={}, title="Title", **options).read_text()


def unpacked(page: str, name: str) -> bytes:
    """The decompressed content of a script element of the page."""
    packed = re.search(rf'id="{name}">([^<]*)</script>', page).group(1)
    return zlib.decompress(base64.b64decode(packed), -15)


# ---- tests between systems -------------------------------------------------------------------------------------------


def test_p_values_are_those_of_scipy_corrected_over_all_pairs(scores):
    one = scores.filter(pl.col("data") == "set A").drop("AP")
    (verdict,) = judge_systems(ScoreMatrix.from_table(one), inference=Inference(interval="t"))
    value = {name: one.filter(pl.col("system") == name)["nDCG@10"].to_numpy() for name in ("low", "alike", "high")}
    pairs = [("low", "alike"), ("low", "high"), ("alike", "high")]
    corrected = dict(zip(pairs, holm([stats.ttest_rel(value[a], value[b]).pvalue for a, b in pairs]), strict=True))
    assert (verdict.best.system, verdict.versus) == ("high", "high")
    for test in verdict.systems[1:]:
        assert test.p_value == pytest.approx(corrected[test.system, "high"])
        assert test.difference == pytest.approx((value[test.system] - value["high"]).mean())
        assert test.wins == (value[test.system] > value["high"]).sum()
    low, high = stats.t.interval(0.95, 59, value["high"].mean(), stats.sem(value["high"]))
    assert (verdict.best.ci_low, verdict.best.ci_high) == pytest.approx((low, high))


def test_intervals_of_very_many_queries_are_students(rows):
    random = np.random.default_rng(1)
    first, second = random.random(6_000), random.random(6_000)
    (verdict,) = judge_systems(
        ScoreMatrix.from_table(pl.concat([rows("a", {"AP": first}), rows("b", {"AP": second})])), baseline="a"
    )
    test = next(test for test in verdict.systems if test.system == "b")
    expected = stats.ttest_rel(second, first).confidence_interval()
    assert (test.difference_low, test.difference_high) == pytest.approx((expected.low, expected.high))


def test_a_baseline_is_what_the_others_are_compared_with(scores):
    verdict = judge_systems(ScoreMatrix.from_table(scores), baseline="low")[0]
    assert verdict.versus == "low"
    assert {test.system for test in verdict.systems if test.difference is not None} == {"alike", "high"}
    with pytest.raises(ArgumentError, match="baseline must be one of low, alike, high, got 'none'"):
        judge_systems(ScoreMatrix.from_table(scores), baseline="none")


def test_the_smallest_value_wins_where_lower_is_better(rows):
    table = pl.concat([rows("slow", {"U": [4.0, 5.0, 6.0]}), rows("quick", {"U": [1.0, 2.0, 2.0]})])
    (verdict,) = judge_systems(ScoreMatrix.from_table(table))
    assert verdict.best.system == "quick"
    assert verdict.systems[1].losses == 3


# ---- words -----------------------------------------------------------------------------------------------------------


def test_words_name_the_best_the_gap_and_the_verdict(scores):
    found = make_report(scores.filter(pl.col("data") == "set A").filter(pl.col("system") != "alike")).findings
    assert re.match(
        r"high is best by nDCG@10: 0\.\d{4} in the mean over 60 queries, 0\.1\d{3} above low", found.headline
    )
    assert "The difference is significant after correction (p < 0.0001" in found.sentences[0]
    assert any("By type of query" in sentence for sentence in found.sentences)
    assert any("random ranking of the same items would have a mean nDCG@10 of" in said for said in found.sentences)
    assert "AP names the same best system." in found.sentences


def gains(rows, gain, measures=("nDCG@10",), **columns):
    """A system that covers these fractions of the way from random to best on queries of 10 items, 3 relevant."""
    bounds = rb.bounds("nDCG@10", n=10, relevant=3)
    value = bounds.expected + np.asarray(gain) * (bounds.best - bounds.expected)
    return rows("a", {name: gain if name.startswith("EM") else value for name in measures}, **columns)


def test_types_of_queries_are_counted_and_explained(rows, tmp_path):
    table = gains(rows, [0.9, 0.7, 0.3, 0.0, -0.4, -0.4, -0.3])
    no_choice = rows("a", {"nDCG@10": [1.0, 1.0]}).with_columns(qid=pl.Series(["x", "y"]), relevant=pl.lit(10))
    table = pl.concat([table, no_choice.select(table.columns)], how="vertical_relaxed")
    said = make_report(table).findings.sentences
    assert (
        "Types of 9 queries by nDCG@10: 2 ideal, 1 informative, 1 uninformative and 3 below random; 2 queries have no "
        "choice, as all rankings have the same nDCG@10." in said
    )
    page = write(tmp_path / "page.html", table)
    key = re.findall(r'<dt class="type"[^>]*>([^<]*)</dt>\s*<dd>([^<]*)</dd>', page)
    assert dict(key) == {
        f"{name}, {count}": describe_query_types()[name]
        for name, count in [
            ("ideal", 2),
            ("informative", 1),
            ("uninformative", 1),
            ("below random", 3),
            ("no choice", 2),
        ]
    }


def test_queries_without_a_choice_alone(rows):
    table = rows("a", {"AP": [1.0, 1.0]}).with_columns(relevant=pl.lit(10))
    assert "2 queries have no choice, as all rankings have the same AP." in make_report(table).findings.sentences


def test_the_scale_of_normalized_measures_is_explained(rows, tmp_path):
    table = gains(rows, [0.5, 0.25], ("nDCG@10", "EM(nDCG@10)", "AP"))
    said = " ".join(make_report(table).findings.sentences)
    assert (
        "EM(nDCG@10) is 0 for a random ranking of the candidates on average, and 1 for the best ranking. On this "
        "scale, a has a mean of 0.3750." in said
    )
    page = json.loads(re.search(r'id="page">([^<]*)</script>', write(tmp_path / "page.html", table)).group(1))
    assert [measure["scale"] for measure in page["measures"]] == [
        "", "EM(nDCG@10) is 0 for a random ranking of the candidates on average, and 1 for the best ranking.", "",
    ]  # fmt: skip
    lead = make_report(table.drop("nDCG@10", "AP")).findings.sentences
    assert not any("On this scale" in text for text in lead)


def test_a_page_of_a_score_matrix_is_that_of_its_table(scores, tmp_path):
    matrix = ScoreMatrix.from_table(scores)
    assert write(tmp_path / "a.html", matrix) == write(tmp_path / "b.html", scores)
    quota = replace(matrix, type_quota=0.1)
    assert "among the largest 10 %" in write(tmp_path / "c.html", quota)


def test_words_do_not_crown_what_probability_may_have_made(scores):
    found = make_report(scores.filter(pl.col("system") != "high")).findings
    assert "no system is clearly best" in " ".join(found.sentences)
    assert "it may be noise" in " ".join(found.sentences)


def test_words_about_published_numbers(scores, results):
    told = [said for said in make_report(scores, results).findings.sentences if "published" in said]
    assert told == [
        "2 numbers have a published counterpart; 1 of them lies within our 95 % interval. The median gap, ours minus "
        "published, is −0.0550; the widest is −0.1000 (set A, min-max, nDCG@10)."
    ]


def test_words_count_who_is_better_and_worse_than_a_baseline(rows):
    value = np.linspace(0.2, 0.6, 12)
    table = pl.concat(
        [rows("middle", {"AP": value}), rows("top", {"AP": value + 0.2}), rows("low", {"AP": value - 0.1})]
    )
    told = make_report(table, baseline="middle").findings
    assert told.headline.startswith("top is best by AP: 0.6000 in the mean over 12 queries, 0.2000 above middle")
    assert "Of 2 systems compared with middle, 1 are significantly better and 1 significantly worse." in told.sentences


def test_words_about_one_system_on_each_of_two_sets(rows):
    told = make_report(pl.concat([rows("a", {"AP": [0.1, 0.2]}), rows("b", {"AP": [0.3]}, data="set B")])).findings
    assert told.headline == "There is one system on each of 2 data sets: nothing to compare it with."


def test_words_warn_of_systems_with_other_queries_and_tables_leave_a_gap(rows):
    table = pl.concat(
        [rows("a", {"AP": [0.1, 0.2, 0.9], "RR": [1, 1, 1]}), rows("b", {"AP": [0.3, 0.4]})], how="diagonal"
    )
    report = make_report(table)
    assert any(said.startswith("Not all systems have the same queries") for said in report.findings.cautions)
    means = next(one for one in report.tables if one.name == "means")
    assert {row[0].text: row[2].text for row in means.rows} == {"a": "1.0000", "b": "–"}


def test_results_without_a_published_counterpart_say_nothing_of_one(scores, results):
    bare = results.with_columns(pl.lit(None, dtype=pl.Float64).alias("published"), pl.lit(None).alias("difference"))
    assert not any("published" in said for said in make_report(scores, bare).findings.sentences)


def test_many_data_sets_are_counted(rows):
    ahead = {0: -0.1, 1: 0.0}  # of b, on the first two sets; 0.1 on the others
    table = pl.concat(
        rows(system, {"AP": [0.3 + gain + 0.01 * query for query in range(5)]}, data=f"set {place}")
        for place in range(6)
        for system, gain in (("a", 0.0), ("b", ahead.get(place, 0.1)))
    )
    found = make_report(table).findings
    assert found.headline == "By AP, clearly best of 6 data sets: b on 4 and a on 1; on 1 no system is clearly best."


# ---- bad input: a page that says so, or an error ---------------------------------------------------------------------


def test_nothing_at_all_is_an_error(tmp_path):
    with pytest.raises(DataError, match="nothing to report"):
        write_page(tmp_path / "page.html", scores=pl.DataFrame())
    assert not list(tmp_path.iterdir())


def test_data_of_another_kind_are_in_the_results_only(rows, results):
    queries = rows("a", {"AP": [0.5, None]})
    faces = rows("b", {"pairwise accuracy": [1.0, 0.0, 1.0]}, data="faces")
    both = make_report(pl.concat([queries, faces], how="diagonal"), results)
    assert both.scores.data_sets == ("set A",)
    assert both.findings.cautions[-1].startswith("1 query has no value of AP and is left out")
    alone = make_report(faces, results)
    assert (alone.scores, [table.name for table in alone.tables]) == (None, ["published"])


def test_results_without_scores_make_a_page(tmp_path, results):
    page = write(tmp_path / "page.html", None, results)
    assert "no scores of single queries" in page
    assert 'id="scatter"' not in page


def test_one_system(tmp_path, rows):
    page = write(tmp_path / "page.html", rows("only", {"AP": [0.1, 0.5, 0.9]}))
    assert "only has a mean AP of 0.5000 over 3 queries" in page
    assert "There is a single system" in page


def test_one_query(tmp_path, rows):
    page = write(tmp_path / "page.html", pl.concat([rows("a", {"AP": [0.4]}), rows("b", {"AP": [0.6]})]))
    assert "No system is clearly best by AP. b has 0.6000 in the mean over 1 query, 0.2000 above a." in page
    assert "There is one query only" in page
    assert "nan" not in page.lower().split("<script")[0]


def test_all_scores_equal(tmp_path, rows):
    page = write(tmp_path / "page.html", pl.concat([rows(name, {"AP": [0.4, 0.4, 0.4]}) for name in "abc"]))
    assert "All 3 systems have the same AP on every query: nothing tells them apart." in page


def test_systems_without_a_shared_query(tmp_path, rows):
    apart = rows("b", {"AP": [0.6, 0.7]}).with_columns(pl.Series("qid", ["x1", "x2"]))
    page = write(tmp_path / "page.html", pl.concat([rows("a", {"AP": [0.4, 0.5]}), apart]))
    assert "b and a share no query and cannot be compared." in page


def test_no_query_counts(tmp_path, rows):
    page = write(tmp_path / "page.html", rows("a", {"AP": [None, None]}))
    assert "No query has a value of AP" in page


# ---- the file --------------------------------------------------------------------------------------------------------


def test_the_same_input_gives_the_same_page(tmp_path, scores, results):
    pages = [write(tmp_path / name, scores, results, about={"Data": "generated"}) for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_the_page_holds_every_value_to_four_decimals(tmp_path, scores):
    page = write(tmp_path / "page.html", scores)
    metadata = json.loads(re.search(r'id="page">(.*?)</script>', page).group(1))
    assert metadata["systems"] == ["low", "alike", "high"]
    assert [measure["name"] for measure in metadata["measures"]] == ["nDCG@10", "AP"]
    matrix = ScoreMatrix.from_table(scores)
    for number, measure in enumerate(metadata["measures"]):
        values = (
            np.frombuffer(unpacked(page, f"page-values-{number}"), "<i2").reshape(3, 120) / 10.0 ** measure["digits"]
        )
        np.testing.assert_allclose(values, matrix.values[measure["name"]], atol=5.001e-5)


def test_pairs_of_systems_are_packed(tmp_path, rows):
    random = np.random.default_rng(2)
    values = {name: random.random(12) for name in ("a", "b", "c", "d")}
    values["d"][:2] = np.nan  # c and d share ten queries
    table = pl.concat([rows(name, {"AP": value}) for name, value in values.items()])
    page = write(tmp_path / "page.html", table)
    metadata = json.loads(re.search(r'id="page">([^<]*)</script>', page).group(1))
    assert (metadata["alpha"], metadata["confidence"]) == (0.05, 0.95)
    assert metadata["quantile"] == pytest.approx(stats.norm.ppf(0.975))
    packed = np.frombuffer(unpacked(page, "page-pairs-0"), "<i2").reshape(2, 6) / 10.0 ** np.array(
        metadata["pairDigits"]
    ).reshape(2, 1)
    pairs = list(itertools.combinations(values.values(), 2))
    differences = [np.nanmean(first - second) for first, second in pairs]
    levels = holm([stats.ttest_1samp(first - second, 0, nan_policy="omit").pvalue for first, second in pairs])
    np.testing.assert_allclose(packed, [levels, differences], atol=5.001e-5)


def test_pairs_need_three_systems_and_no_baseline(tmp_path, scores):
    assert 'id="page-pairs-0"' in write(tmp_path / "page.html", scores)
    two = scores.filter(pl.col("system") != "high")
    compared = make_report(scores, baseline="low")
    for report in (make_report(two), compared):
        page = write_report(tmp_path / "page.html", report, figures={}, title="Title").read_text()
        assert 'id="page-pairs-0"' not in page
        assert 'id="pairs"' not in page


def test_large_and_missing_values_are_packed():
    packed, digits = pack_values(np.array([12_345.0, -3.25, np.nan]))
    assert digits == 0
    assert np.frombuffer(packed, "<i2").tolist() == [12_345, -3, -32768]
    packed, digits = pack_values(np.array([2_000_000.0]))
    assert np.frombuffer(packed, "<i2")[0] / 10.0**digits == pytest.approx(2_000_000)


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{title}}"


def page_with(path, *tables):
    """A page with these tables and nothing else."""
    report = Report(None, (), Findings("Headline.", (), ()), tables)
    return write_report(path, report, figures={}, title="Title").read_text()


def test_tables_are_escaped(tmp_path):
    rows = ((Cell("a|b_c & 5%"), Cell("−0.5000", bold=True, mark="†")), (Cell("<i>{x}$"), Cell("–", mark="∗")))
    page = page_with(
        tmp_path / "p.html", Table("t", "<T>", ("name", "value"), 1, rows, "Note: <100 %.", pl.DataFrame())
    )
    assert "<caption>&lt;T&gt;</caption>" in page
    assert '<th scope="col">name</th><th scope="col" class="number">value</th>' in page
    assert "<td>a|b_c &amp; 5%</td>" in page
    assert "<td>&lt;i&gt;{x}$</td>" in page
    assert '<td class="number"><strong>−0.5000</strong><sup title="significant">†</sup></td>' in page
    assert '<td class="number">–<sup title="outside our interval">∗</sup></td>' in page
    assert '<p class="note">Note: &lt;100 %.</p>' in page


@pytest.mark.parametrize(
    ("rows", "folded", "rest", "embedded"), [(12, False, 0, 12), (21, True, 1, 21), (10_153, True, 980, 1000)]
)
def test_a_long_table_shows_its_first_rows(tmp_path, rows, folded, rest, embedded):
    cells = tuple((Cell(f"system {number}"), Cell("0.5")) for number in range(rows))
    page = page_with(tmp_path / "p.html", Table("differences", "T", ("name", "value"), 1, cells, "", pl.DataFrame()))
    assert ("<details open>" not in page) == folded
    assert page.count('<tr class="rest">') == rest
    assert page.count("<td>system ") == embedded
    assert (f">Show all {embedded:,} rows</button>" in page) == (rest > 0)
    assert ("first 1,000 of 10,153 rows" in page) == (rows == 10_153)


def test_long_metadata_are_folded(tmp_path, scores):
    runs = ", ".join(f"runs/system{number}.txt" for number in range(143))
    page = write(tmp_path / "page.html", scores, about={"Runs": runs, "Judgments": "qrels.txt"})
    assert f"</summary>{runs}</details>" in page
    assert "<dt>Judgments</dt><dd>qrels.txt</dd>" in page


def test_a_page_without_jinja2_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r'a page needs jinja2: pip install "\.\[report\]"'):
        check_page_path("page.html")


def test_measures_that_would_make_the_page_too_large_are_named(tmp_path, scores, monkeypatch):
    monkeypatch.setattr("rankbound.report.page._LARGEST_VALUES", 10)
    text = write(tmp_path / "page.html", scores)
    assert "AP: they would make this page too large" in text
    assert 'id="page-values-0"' in text
    assert 'id="page-values-1"' not in text


def test_without_altair_there_is_a_page_and_no_figure(tmp_path, scores, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    text = write_page(tmp_path / "page.html", scores=scores).read_text()
    assert "pip install &#34;.[report]&#34; in a checkout of rankbound" in text
    assert 'id="figures"' not in text


def test_a_chart_that_is_too_large_becomes_a_picture(tmp_path, scores, monkeypatch):
    alt = pytest.importorskip("altair")
    chart = alt.Chart(pl.DataFrame({"x": [1, 2]})).mark_point().encode(x="x:Q")
    figures = {"lower-bounds": FigureOutcome("lower-bounds", "Some dots", "A caption.", chart)}
    small = write_report(tmp_path / "a.html", make_report(scores), figures=figures, title="Title").read_text()
    assert "data-chart" in small
    assert small.count('class="gallery"') == 1  # the figures that depend on no data
    monkeypatch.setattr("rankbound.report.page._LARGEST_CHART", 10)
    large = write_report(tmp_path / "b.html", make_report(scores), figures=figures, title="Title").read_text()
    assert '<img alt="Some dots" src="data:image/png;base64,iVBOR' in large
    assert "figure-lower-bounds-chart" not in large


DAMAGE = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "other bytes": lambda content: bytes(byte ^ 0x80 for byte in content[:1000]),
    "one byte": lambda content: content[:-9] + b"x" + content[-8:],
}


@pytest.mark.parametrize("damage", [*DAMAGE, "a folder"])
def test_a_damaged_cache_is_made_again(damage, tmp_path, monkeypatch):
    from rankbound.report import page

    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path))
    page._packed_vega.cache_clear()
    packed = page._packed_vega()
    (kept,) = (tmp_path / "vega").iterdir()
    content = kept.read_bytes()
    if damage == "a folder":
        kept.unlink()
        kept.mkdir()
        (kept / "file").write_text("")
    else:
        kept.write_bytes(DAMAGE[damage](content))
    page._packed_vega.cache_clear()
    assert page._packed_vega() == packed
    assert kept.is_dir() or kept.read_bytes() == content


def test_a_full_cache_refuses_no_page(tmp_path, monkeypatch):
    from rankbound.report import page

    @contextmanager
    def full(path, **_):
        raise DataError(f"{path}: cannot be written: No space left on device")
        yield

    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path))
    monkeypatch.setattr(page, "atomic_write", full)
    page._packed_vega.cache_clear()
    assert page._packed_vega()


def test_names_cannot_become_markup(tmp_path, rows):
    table = pl.concat([rows(EVIL, {"AP": [0.1, 0.2, 0.3]}, data=EVIL), rows("b", {"AP": [0.2, 0.2, 0.4]}, data=EVIL)])
    table = table.with_columns(qid=pl.lit(EVIL) + pl.col("qid"))
    report = make_report(table)
    page = write_report(tmp_path / "p.html", report, figures={}, title=EVIL, about={EVIL: EVIL}).read_text()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;/script&gt;" in page
    assert json_for_script(EVIL) in page


def test_a_page_of_20_000_queries_and_15_systems_is_small(tmp_path):
    random = np.random.default_rng(0)
    names = [f"query {number}" for number in range(20_000)]
    size = random.integers(5, 500, 20_000)
    table = pl.concat(
        pl.DataFrame(
            {"qid": names, "items": size, "relevant": size // 5}
            | {measure: random.random(20_000) for measure in ("nDCG@10", "AP", "RR", "UL2(nDCG@10)")}
        ).select(
            pl.lit("set").alias("data"), pl.lit("").alias("variant"), pl.lit(f"system {system}").alias("system"),
            pl.lit(0).alias("fold"), pl.lit(0).alias("seed"), pl.all(),
        )
        for system in range(15)
    )  # fmt: skip
    write(tmp_path / "page.html", table)
    assert (tmp_path / "page.html").stat().st_size < 5_000_000  # 15 MB with figures
