"""Pages of results: every table and figure of the papers has a row, every number comes from a table."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl
import pytest

from rankbound.studies.figures.catalog import FIGURES
from rankbound.studies.study_files import known_studies, load_study

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"


@pytest.fixture(scope="module")
def pages():
    sys.path.insert(0, str(DOCS))
    import results_pages

    yield results_pages
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def claims(pages):
    import results_claims

    return results_claims


@pytest.fixture(scope="module")
def tables(pages):
    import results_tables

    return results_tables


@pytest.fixture(scope="module")
def bounding(pages):
    import metric_bounding

    return metric_bounding


def numbered(kind: str, *numbers: int | str) -> set[str]:
    return {f"{kind} {number}" for number in numbers}


PUBLISHED = {  # every numbered table and figure of the papers
    "westerborg": numbered("table", "1.1", "2.1", "2.2", "2.3", "2.4", "3.1", "3.2", "3.3", "5.1")
    | numbered("figure", "1.1", *(f"3.{n}" for n in range(1, 8)), *(f"5.{n}" for n in range(1, 11))),
    "li-wu": numbered("table", 1, 2, 3) | numbered("figure", *range(1, 9)),
    "qin": numbered("table", 1, 2, 3) | numbered("figure", *range(1, 6)),
    "li": numbered("table", 1) | numbered("figure", *range(1, 6)),
    "karmaker-feng": numbered("table", *range(1, 22)) | numbered("figure", 1, 2, 3),
}


def test_no_table_or_figure_is_missing(pages):
    rows = pages.coverage(RESULTS)
    assert {paper.key for paper in pages.load_papers(RESULTS)} == set(PUBLISHED)
    for paper, items in PUBLISHED.items():
        listed = [row["item"] for row in rows if row["paper"] == paper]
        assert items <= set(listed)
        assert len(set(listed)) == len(listed)
    assert {row["paper"] for row in rows} == set(PUBLISHED)


@pytest.mark.full("takes seconds")
def test_every_row_names_something_that_exists(pages, claims):
    for row in pages.coverage(RESULTS):
        kind, _, name = row["how"].partition(":")
        if kind == "figure":
            assert name in FIGURES, row
        elif kind == "test":
            assert (ROOT / name).is_file(), row
        else:
            assert kind in ("", "notation", "command"), row
        stem = row["results"].partition("::")[0].split("*")[0]
        assert not stem or any(study.startswith(stem.rstrip("-")) for study in known_studies()), row
        assert row["results"] or row["how"], row
        assert set(row["status"].values()) <= set(claims.SHORT)
        if claims.IMPOSSIBLE in row["status"].values():
            assert row["reason"], row


@pytest.mark.full("takes seconds")
def test_every_paper_has_a_page_with_its_numbers(pages, tables):
    made, charts = pages.result_pages(RESULTS)
    for paper in pages.load_papers(RESULTS):
        page = made[f"results/{paper.key}.md"]
        for path in paper.files(RESULTS):
            assert f"\n## {path.stem}\n" in page
        for finding in pages.findings(RESULTS, paper):
            assert f"| {finding.verdict.claim} | **{finding.word}** |" in page
    table = tables.read_table(RESULTS / "thesis-5.1.csv")
    first = table.row(0, named=True)
    shown = f"| {first['published']:.4f} | {first['ours']:.4f} | {first['difference']:.4f} |"
    assert shown in made["results/westerborg.md"]
    assert "Published numbers next to *1: web pages, mq2007* are of MSLR-WEB10K." in made["results/li-wu.md"]
    kept = [*RESULTS.glob("*--*.svg"), *RESULTS.glob("*--*.png")]
    assert kept
    assert all(any(f"]({path.name})" in page for page in made.values()) for path in kept)
    assert tables.find_figure("marginal-means-by-data-ndcg") == "marginal-means-by-data"
    shown_charts = {name for name in charts if any(f"]({Path(name).name})" in page for page in made.values())}
    assert shown_charts == set(charts)
    written = {f"{paper.key}.md" for paper in pages.load_papers(RESULTS)} | {"metric-bounding.md", "other.md"}
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert all(f"results/{name}" in navigation for name in written)


def test_the_overview_shows_every_paper(pages):
    text = pages.overview(RESULTS)
    for paper in pages.load_papers(RESULTS):
        assert f"[{paper.short}]({paper.key}.md)" in text
        known = {finding.verdict.claim for finding in pages.findings(RESULTS, paper)}
        assert known & set(paper.headlines), paper.key


@pytest.mark.full("takes seconds")
def test_the_committed_pages_are_those_of_the_tables(pages):
    """Otherwise, `python docs/results_pages.py` writes them anew."""
    made, charts = pages.result_pages(RESULTS)
    made["results/index.md"] = pages.fill_overview((RESULTS / "index.md").read_text("utf-8"), pages.overview(RESULTS))
    for name, page in made.items():
        assert (DOCS / name).read_text("utf-8") == page, name
    assert all((DOCS / name).is_file() for name in charts)
    assert all((DOCS / "figures" / f"{name}.svg").is_file() for name in pages.figures_without_data())


LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)?(#[^)]*)?\)")


def test_links_and_images_resolve_in_the_repository():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    for page in pages:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
        for path, anchor in LINK.findall(text):
            if re.match(r"[a-z]+:", path):
                continue
            target = page.parent / path if path else page
            generated = target.parent.name == "notebooks"  # pages of the site, made from examples/notebooks
            assert generated or target.exists(), f"{page.relative_to(ROOT)}: {path}"
            if anchor and target.suffix == ".md" and not generated:
                assert anchor[1:] in anchors(target), f"{page.relative_to(ROOT)}: {path}{anchor}"


def anchors(page):
    """The anchors of the headings of a page, as code hosts and the site make them."""
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    named = re.findall(r"\{ ?#([\w.-]+) ?\}", text) + re.findall(r"id=\"([\w.-]+)\"", text)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain} | set(named)


@pytest.fixture
def folder(tmp_path):
    """Two studies: a coverage of them that has each status."""
    head = "table,data,model,loss,bounding,nsr,measure,published,ours,difference,ci_low,ci_high\n"
    (tmp_path / "mine-a.csv").write_text(head + "T,ohsumed,M,nDCG,none,,AP,0.5,0.6,0.1,0.55,0.65\n")
    (tmp_path / "coverage.csv").write_text(
        "paper,item,shows,results,paper_data,other_data,how,reason\n"
        "p,table 1,x,mine-*,ohsumed,mq2008,,\n"
        "p,table 2,x,mine-*,td2004,ohsumed,,TD2004 is gone\n"
        "p,table 3,x,mine-*,td2004,,,TD2004 is gone\n"
        "p,table 4,x,mine-*,mq2007,mq2008,,\n"
        "p,table 5,x,,,,notation,\n"
        "p,figure 1,x,,,,figure:lower-bounds,\n"
        "p,table 6,x,mine-*::U,ohsumed,,,\n"
        "p,table 7,x,mine-*,ohsumed td2003,,,\n"
    )
    return tmp_path


def test_the_status_on_each_data_set_follows_from_the_tables(claims, folder):
    statuses = {row["item"]: row["status"] for row in claims.coverage(folder)}
    assert statuses == {
        "table 1": {"ohsumed": claims.PAPERS_DATA},
        "table 2": {"td2004": claims.IMPOSSIBLE, "ohsumed": claims.OTHER_DATA},
        "table 3": {"td2004": claims.IMPOSSIBLE},
        "table 4": {"mq2007": claims.WAITING},
        "table 5": {"": claims.NOTHING},
        "figure 1": {"": claims.NO_DATA},
        "table 6": {"ohsumed": claims.WAITING},
        "table 7": {"ohsumed": claims.PAPERS_DATA, "td2003": claims.WAITING},
    }
    assert claims.show_status(statuses["table 2"]) == "data not available: td2004; on other data: ohsumed"
    assert claims.show_status(statuses["table 5"]) == "nothing to compute"


def test_rows_that_are_not_run_are_counted_and_are_no_results(claims, tmp_path):
    (tmp_path / "mine-a.csv").write_text(
        "table,data,measure,ours\nT,mq2007,AP,0.5\nT,mq2007,nDCG,\nT,mq2008,AP,\nU,mq2007,AP,\n"
    )
    (tmp_path / "coverage.csv").write_text(
        "paper,item,shows,results,paper_data,other_data,how,reason\n"
        "p,table 1,x,mine-*::T,mq2007,,,\np,table 2,x,mine-*::T,mq2008,,,\np,table 3,x,mine-*::U,mq2007,,,\n"
    )
    first, second, third = claims.coverage(tmp_path)
    assert first["status"] == {"mq2007": claims.PAPERS_DATA}
    assert (second["status"], third["status"]) == ({"mq2008": claims.WAITING}, {"mq2007": claims.WAITING})
    assert "1 rows of mq2007 are not run yet" in first["details"]


@pytest.mark.parametrize(
    ("change", "word", "counts"),
    [
        ({"limit": 2}, "mixed", (2, 1, 0)),
        ({"limit": 0}, "confirmed", (3, 0, 0)),
        ({"limit": 3, "expect": "below"}, "partly confirmed", (2, 0, 1)),
        ({"than": {"measure": ["b", "a"]}, "by": ["data"]}, "confirmed", (1, 0, 0)),
        ({"than": {"measure": ["a", "b"]}, "by": ["data"]}, "refuted", (0, 1, 0)),
        ({"limit": 0, "where": {"absent": ["x"]}}, "not tested", (0, 0, 0)),
    ],
)
def test_claims_about_single_numbers(claims, change, word, counts):
    table = pl.DataFrame({"data": ["x", "x", "y"], "measure": ["a", "b", "b"], "ours": [1.0, 3.0, 2.5]})
    finding = claims.judge_entry({"claim": "c", "table": "t", "column": "ours"} | change, table)
    assert (finding.verdict.word, tuple(finding.verdict[1:])) == (word, counts)
    assert "confirmed" not in finding.word  # nothing is, without an interval
    assert "refuted" not in finding.word


# ---- meta-analysis ---------------------------------------------------------------------------------------------------


def test_the_best_loss_by_each_measure(pages):
    study = load_study("insights-other")
    means = {  # loss -> RR, AP, nDCG, of which the loss is selected by one
        "RR": (0.9, 0.1, 0.1),
        "AP": (0.1, 0.9, 0.9),
        "nDCG": (0.2, 0.2, 0.8),
        "other": (1.0, 1.0, 1.0),  # is no loss of the study
    }
    rows = [
        {"data": data, "loss": loss, "measure": measure, "ours": value}
        for data in ("a", "b")
        for loss, values in means.items()
        for measure, value in zip(("RR", "AP", "nDCG"), values, strict=True)
    ]
    lines = pages.best_losses(pl.DataFrame(rows), study)
    assert "In 4 of 6 cases" in lines[1]
    assert lines[-2:] == ["| a | RR | AP | AP |", "| b | RR | AP | AP |"]
    assert pages.best_losses(pl.DataFrame(rows[:2]), study) == []  # too few losses
    assert pages.best_losses(pl.DataFrame(rows), None) == []


def test_which_differences_are_pooled(bounding, tmp_path):
    head = "data,loss,bounding,nsr,measure,versus,versus_difference,versus_low,versus_high,selection\n"
    rows = [
        "ml-1m,nDCG,none,1,nDCG,,,,,validation",  # the reference
        "ml-1m,nDCG,min-max,1,nDCG,nDCG · none,0.01,0.00,0.02,validation",
        "ml-1m,nDCG,min-max,1,nDCG,AP · none,0.09,0.08,0.10,validation",  # another loss
        "ml-1m,nDCG,min-max,1,nDCG,nDCG · none,0.09,0.08,0.10,test",  # selected on test data
        "mq2007,nRBP,expectation,,nRBP,nRBP · none,0.03,0.01,0.05,validation",
    ]
    (tmp_path / "thesis-5.1.csv").write_text(head + "\n".join(rows) + "\n")
    (tmp_path / "thesis-5.1-k.csv").write_text(head + rows[1] + "\n")  # other measures of the same models
    (tmp_path / "unknown.csv").write_text(head + rows[1] + "\n")
    effects = bounding.all_effects(tmp_path)
    assert effects.select("data", "difference", "group").rows() == [
        ("ml-1m", 0.01, "nDCG AP RR: min-max, sampled"),
        ("mq2007", 0.03, "nRBP: any affine bounding, complete"),
    ]


def test_the_pooled_effects_are_those_of_the_tables(bounding):
    pooled = bounding.pooled_effects(RESULTS)
    assert pooled.effects.height == pooled.groups["rows"].sum()
    assert pooled.effects.filter(pl.col("high") <= pl.col("low")).is_empty()
    trees = pooled.groups.row(by_predicate=pl.col("group") == "trees: expectation", named=True)
    table = pl.read_csv(RESULTS / "training-expectation.csv").filter(
        (pl.col("method") == "ours, expectation")
        & (pl.col("reference") == "ours")
        & ~pl.col("set").str.starts_with("simulator")
    )
    assert trees["sets"] == trees["rows"] == table.height
    assert table["difference"].min() < trees["mean"] < table["difference"].max()
    assert all(f"{row['mean']:+.4f}" in pooled.answer for row in pooled.groups.to_dicts() if row["verdict"] == "hurts")
