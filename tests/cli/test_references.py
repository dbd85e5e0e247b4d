"""rankbound references and stability, and the option --reference."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import rankbound as rb

MEASURES = ["nDCG@5", "STD(nDCG@5)", "STDU(nDCG@5)", "ECDF(nDCG@5)"]


@pytest.fixture
def systems(files):
    """Judgments of 12 queries, and a folder of six runs of rising quality."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (12, 8))
    lines = [f"{q} 0 d{d} {label}\n" for q, row in enumerate(labels) for d, label in enumerate(row)]
    (files / "judged").write_text("".join(lines))
    (files / "runs").mkdir()
    for number in range(6):
        scores = number * labels + 4 * rng.random((12, 8))
        lines = [f"{q} Q0 d{d} 1 {score:.6f} t\n" for q, row in enumerate(scores) for d, score in enumerate(row)]
        (files / "runs" / f"team{number % 3}-{number}").write_text("".join(lines))
    (files / "runs" / ".hidden").write_text("no run")
    return files


def runs(folder):
    return sorted(str(path.relative_to(folder)) for path in (folder / "runs").iterdir() if path.name[0] != ".")


def test_references_writes_a_file_of_scores(cli, systems):
    answer = cli("references", "judged", "runs", "-m", "nDCG@5", "-o", "factors.json", "--json").json
    assert answer == {
        "runs": runs(systems), "measures": ["nDCG@5"], "queries": 12, "incomplete_queries": 0, "flat_queries": 0,
        "file": "factors.json",
    }  # fmt: skip
    loaded = rb.difficulty.ReferenceScores.load("factors.json")
    expected = [rb.evaluate("judged", path, "nDCG@5").values["nDCG@5"] for path in runs(systems)]
    np.testing.assert_array_equal(loaded.values["nDCG@5"], expected)
    text = cli("references", "judged", *runs(systems)[:2], "-o", "factors.json").out
    assert text.startswith("References: 2 runs")


@pytest.mark.full("takes seconds")
def test_evaluate_and_compare_take_runs_folders_and_files_of_scores(cli, systems):
    first, second, *others = runs(systems)
    expected = rb.evaluate("judged", first, MEASURES, references=runs(systems)).mean()
    cli("references", "judged", "runs", "-m", "nDCG@5", "-o", "factors.json")
    names = [part for name in MEASURES for part in ("-m", name)]
    for references in (["runs"], ["factors.json"], [first, second, *others]):
        given = [part for path in references for part in ("--reference", path)]
        answer = cli("evaluate", "judged", first, *names, *given, "--json").json
        assert answer["mean"] == pytest.approx(expected)
        assert answer["references"] == "6 runs"
        answer = cli("compare", "judged", first, second, *names, *given, "--json").json
        assert answer["mean"][first] == pytest.approx(expected)
        assert answer["references"] == "6 runs"
    assert cli("evaluate", "judged", first, *names, "--reference", "runs").out.rstrip().endswith("references: 6 runs")
    assert "references: 6 runs" in cli("compare", "judged", first, second, *names, "--reference", "runs").out
    summary = cli("evaluate", "judged", first, second, *names, "--reference", "runs", "--json").json["runs"]
    assert summary[first]["mean"] == pytest.approx(expected)
    answer = cli("report", "judged", first, second, *names, "--reference", "runs", "-o", "page.html")
    assert answer.code == 0, answer.err


@pytest.mark.full("takes seconds")
def test_stability_prints_tables_and_writes_rows(cli, systems):
    line = ("stability", "judged", *runs(systems), "-m", "nDCG@5", "-m", "AP", "--splits", "20", "--partitions", "2")
    answer = cli(*line, "--same-prefix", "5", "--rows", "rows.csv")
    assert answer.code == 0, answer.err
    assert "nDCG@5, 6 runs; reference runs of STD, STDU and ECDF: all of them" in answer.out
    assert "AP, 3 runs; halves of the runs, with the other half as reference runs" in answer.out
    rows = pl.read_csv("rows.csv")
    assert set(rows["references"]) == {"all runs", "disjoint halves"}
    measures = rows.filter(references="all runs", quantity="Kendall tau", plain="nDCG@5")["measure"].to_list()
    assert measures[0] == "nDCG@5"
    assert {"MM(nDCG@5)", "EM(nDCG@5)", "DB(nDCG@5)", "STD(nDCG@5)", "ECDF(nDCG@5)"} < set(measures)
    again = cli(*line, "--same-prefix", "5", "--json").json
    assert pl.DataFrame(again["rows"], infer_schema_length=None).select(rows.columns).equals(rows)
    few = cli(*line[:-1], "0", "--wrapper", "EM", "--json").json["rows"]
    assert {row["measure"] for row in few} == {"nDCG@5", "EM(nDCG@5)", "AP", "EM(AP)"}
    assert {row["references"] for row in few} == {"all runs"}


def test_a_half_of_the_runs_is_evaluated_with_the_other_half_as_references(systems):
    from rankbound.evaluation.stability import compare_normalizations

    by_name = {path: path for path in runs(systems)}
    groups = [path.split("-")[0] for path in by_name]
    options = {"splits": 10, "partitions": 1, "groups": groups, "wrappers": ["STD"]}
    table = compare_normalizations("judged", by_name, "AP", **options)
    assert table.filter(references="disjoint halves")["systems"].unique().to_list() == [3]
    with pytest.raises(rb.errors.ArgumentError, match=r"measures must be plain, .* got EM\(AP\)"):
        compare_normalizations("judged", by_name, "EM(AP)")
    with pytest.raises(rb.errors.ArgumentError, match=r"wrappers must be among MM, .*, ECDF, got 'XX'"):
        compare_normalizations("judged", by_name, "AP", wrappers=["XX"])
    # UL1 needs values that are never negative
    kinds = compare_normalizations("judged", by_name, "Tau", wrappers=["UL1", "EM"], partitions=0)["measure"]
    assert set(kinds) == {"Tau", "EM(Tau)"}


BAD = [
    ("evaluate judged runs/team0-0 -m STD(AP)", "STD(AP) needs reference runs"),
    ("compare judged runs/team0-0 runs/team1-1 -m ECDF(AP)", "ECDF(AP) needs reference runs"),
    ("evaluate judged runs/team0-0 -m AP --reference runs", "references are for standardized measures"),
    (
        "evaluate judged runs/team0-0 -m STD(AP) --reference runs/team0-0",
        "references must be at least 2 different runs",
    ),
    ("evaluate judged runs/team0-0 -m STD(AP) --reference other --reference run", "no query in common"),
    ("compare judged runs/team0-0 runs/team1-1 -m STD(AP) --reference other --reference run", "no query in common"),
    ("evaluate judged runs/team0-0 -m STD(AP) --reference absent.json", "absent.json"),
    ("evaluate judged runs/team0-0 -m STD(AP) --reference bad.json", "bad.json: expected a file of reference scores"),
    ("evaluate judged runs/team0-0 -m STD(AP) --reference bad.json --reference run", "runs or one .json file"),
    ("evaluate judged runs/team0-0 -m STD(AP) --reference runs --reference runs", "is named twice"),
    ("references judged runs", "-o"),
    (
        "references judged runs -o factors.txt",
        "factors.txt: the name of a file of reference scores must end with .json",
    ),
    ("references judged runs/team0-0 -o f.json", "references must be at least 2 different runs, got 1"),
    ("references judged empty -o f.json", "empty: is a folder without files, expected runs"),
    ("references judged runs other -o f.json", "other: "),
    ("references judged runs -o folder.json", "folder.json: is a folder"),
    ("references judged runs runs -o f.json", "is named twice"),
    ("stability judged runs/team0-0", "runs must be at least 2, got 1"),
    ("stability judged runs/team0-0 runs/team1-1 --splits 0", "splits must be an integer from 1 to 100,000, got 0"),
    ("stability judged runs/team0-0 runs/team1-1 --partitions -1", "--partitions must not be negative, got -1"),
    ("stability judged runs/team0-0 runs/team1-1", "at least 2 systems in each half, got 1 and 1"),
    ("stability judged runs/team0-0 runs/team1-1 --same-prefix 0", "--same-prefix must be a positive integer, got 0"),
    ("stability judged runs/team0-0 runs/team1-1 -m EM(AP)", "measures must be plain"),
    ("stability judged runs/team0-0 runs/team1-1 --wrapper Q", "wrappers must be among"),
    ("stability judged runs/team0-0 runs/team1-1 --rows t.xls", "t.xls: the name of a table must end with"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(cli, systems, arguments, message):
    for folder in ("empty", "folder.json"):
        (systems / folder).mkdir()
    (systems / "bad.json").write_text("{}")
    before = sorted(systems.rglob("*"))
    answer = cli(*arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("rankbound: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert sorted(systems.rglob("*")) == before
