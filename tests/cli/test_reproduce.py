"""rankbound reproduce: lists, estimates, runs, writes, and reports errors."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from rankbound.data.synthetic import synthetic_letor
from rankbound.report.numbers import say_p, show_interval, show_number
from rankbound.studies import load_study
from rankbound.studies.runner import tally_of

STUDY = """
title = "Which is better?"
[[tables]]
data = { letor = "queries" }
models = [{ model = "RegressionRanker" }, { model = "AdaRank", name = "ada" }]
measures = ["nDCG", "AP"]
versus = { model = "ada" }
[quick]
only = { model = "ada" }
first = 10
"""
PUBLISHED = "model,measure,published\nada,nDCG,0.5\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a study on generated queries and a published number."""
    (tmp_path / "queries").mkdir()
    data = synthetic_letor(queries=40, features=6, seed=4, documents=(4, 15))
    for name, queries in (("train", range(20)), ("vali", range(20, 30)), ("test", range(30, 40))):
        lists, rows = data.take(queries).lists, data.take(queries).features.tolist()
        qid = np.repeat(lists.query_ids, lists.sizes)
        lines = [
            f"{label} qid:{query} {' '.join(f'{at}:{value!r}' for at, value in enumerate(row, 1))}\n"
            for label, query, row in zip(lists.labels, qid, rows, strict=True)
        ]
        (tmp_path / "queries" / f"{name}.txt").write_text("".join(lines))
    (tmp_path / "mine.toml").write_text(STUDY)
    (tmp_path / "mine.published.csv").write_text(PUBLISHED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full("takes seconds")
def test_rows_have_the_documented_form_and_are_kept(cli, folder):
    first = cli("reproduce", "mine.toml", "--json", "--jobs", 1, "--results", "kept").json
    assert first["trials"] == {"total": 2, "before": 0, "ran": 2, "failed": 0}
    assert [(row["model"], row["measure"]) for row in first["rows"]] == [
        ("RegressionRanker", "nDCG"), ("RegressionRanker", "AP"), ("ada", "nDCG"), ("ada", "AP"),
    ]  # fmt: skip
    row = first["rows"][2]
    assert row["published"] == 0.5
    assert row["difference"] == pytest.approx(row["ours"] - 0.5)
    assert row["ci_low"] < row["ours"] < row["ci_high"]
    assert first["rows"][0]["versus"] == "ada"
    assert first["rows"][0]["versus_difference"] == pytest.approx(first["rows"][0]["ours"] - row["ours"])
    assert Path(first["page"]).name == "report.html"
    assert "Which is better?" in Path(first["page"]).read_text()
    with (folder / "kept" / "mine.csv").open() as stream:
        written = list(csv.DictReader(stream))
    assert [float(line["ours"]) for line in written] == pytest.approx([r["ours"] for r in first["rows"]], abs=1e-6)
    text = (folder / "kept" / "mine.md").read_text()
    assert "Which is better?" in text
    assert " of 1 published values lie in our 95 % intervals" in text
    again = cli("reproduce", "mine.toml", "--no-page", "--json").json
    assert again["trials"] == {"total": 2, "before": 2, "ran": 0, "failed": 0}
    assert again["rows"] == first["rows"]
    shown = cli("reproduce", "mine.toml", "--only", "model=ada", "--no-page")
    assert shown.code == 0
    assert show_number(row["difference"], sign=True) in shown.out
    assert show_interval(row["ci_low"], row["ci_high"]) in shown.out
    assert "RegressionRanker" not in shown.out
    printed, ahead = cli("reproduce", "mine.toml", "--no-run", "--no-page").out, first["rows"][0]
    assert f"{show_number(ahead['versus_difference'], sign=True)}, {say_p(ahead['p_value'])} (ada)" in printed


@pytest.mark.full("takes seconds")
def test_a_dry_run_counts_and_a_quick_run_is_small(cli, folder):
    plan = cli("reproduce", "mine.toml", "--dry-run", "--json", "--jobs", 2).json
    assert (plan["trials"], plan["waiting"], plan["settings"], plan["seconds"]) == (2, 2, 2, 10)
    assert not (folder / "rankbound-results").exists()
    quick = cli("reproduce", "mine.toml", "--quick", "--no-page", "--json", "--jobs", 1).json
    assert quick["study"] == "mine-quick"
    assert {row["model"] for row in quick["rows"]} == {"ada"}
    later = cli("reproduce", "mine.toml", "--quick", "--dry-run", "--json", "--jobs", 1).json
    assert (later["trials"], later["waiting"]) == (1, 0)
    assert "0 of 1 trials" in cli("reproduce", "mine.toml", "--quick", "--dry-run").out


def test_an_interrupted_run_reports_what_is_kept(cli, folder, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("rankbound.studies.study.run_trials", stopped)
    answer = cli("reproduce", "mine.toml", "--no-page")
    assert answer.code != 0
    assert "interrupted; 0 finished trials are in rankbound-results/mine; running the study again" in answer.err


def test_a_page_without_results_is_reported(cli, folder, monkeypatch):
    monkeypatch.setattr("rankbound.studies.study.run_trials", lambda slots, store, **_: tally_of(slots, store))
    answer = cli("reproduce", "mine.toml", "--json")
    assert answer.json["page"] is None
    assert "no page was written: there is nothing to report" in answer.err


def test_a_dry_run_over_a_damaged_store_counts_everything(cli, folder):
    store = folder / "rankbound-results" / "mine"
    store.mkdir(parents=True)
    (store / "trials.sqlite").write_bytes(b"no database" * 99)
    plan = cli("reproduce", "mine.toml", "--dry-run", "--jobs", 1)
    assert "note: rankbound-results/mine/trials.sqlite: is damaged" in plan.err
    assert "2 of 2 trials" in plan.out


@pytest.mark.full("takes seconds")
def test_what_is_done_can_be_shown_without_running_more(cli, folder):
    assert cli("reproduce", "mine.toml", "--no-run").code == 2  # there is no store yet
    assert not (folder / "rankbound-results").exists()
    cli("reproduce", "mine.toml", "--only", "model=ada", "--no-page", "--jobs", 1)
    shown = cli("reproduce", "mine.toml", "--no-run", "--no-page", "--json").json
    assert shown["trials"] == {"total": 2, "before": 1, "ran": 0, "failed": 0}
    ours = {row["model"]: row["ours"] for row in shown["rows"] if row["measure"] == "nDCG"}
    assert ours["ada"] > 0
    assert ours["RegressionRanker"] is None


def test_the_list_names_all_studies(cli):
    names = [study["name"] for study in cli("reproduce", "--list", "--json").json["studies"]]
    assert {"thesis-5.1", "insights-fig1"} <= set(names)
    assert "thesis-5.1" in cli("reproduce", "--list").out


@pytest.fixture
def two_known(folder, monkeypatch):
    """Let a study of the folder and one whose data cannot be had be the known ones."""
    needs = 'title = "Needs data"\n[[tables]]\ndata = "td2003"\nmodel = "AdaRank"\nmeasures = "AP"\n'
    (folder / "needs.toml").write_text(needs)
    monkeypatch.setenv("RANKBOUND_DATA", str(folder))
    paths = {name: str(folder / f"{name}.toml") for name in ("mine", "needs")}
    monkeypatch.setattr("rankbound.studies.all_studies.known_studies", lambda: dict.fromkeys(paths, ""))
    for name in ("all_studies.load_study", "study.load_study"):
        monkeypatch.setattr(f"rankbound.studies.{name}", lambda text: load_study(paths.get(text, text)))


@pytest.mark.full("takes seconds")
def test_all_studies_are_run_by_one_command(cli, two_known, folder):
    planned = cli("reproduce", "--all", "--dry-run", "--jobs", 1)
    assert "needs: td2003 cannot be downloaded by a program and is not here" in planned.out
    assert "About" in planned.out
    assert not (folder / "stores").exists()
    plan = cli("reproduce", "--all", "--dry-run", "--json").json
    assert [(study["study"], study["waiting"]) for study in plan["studies"]] == [("mine", 2)]
    assert list(plan["left_out"]) == ["needs"]
    assert plan["seconds"] == sum(study["seconds"] for study in plan["studies"])
    done = cli(
        "reproduce", "--all", "--jobs", 1, "--store", "stores", "--results", "tables", "--no-page", "--json"
    ).json
    assert [study["trials"]["ran"] for study in done["studies"]] == [2]
    assert list(done["left_out"]) == ["needs"]
    assert (folder / "stores" / "mine" / "trials.sqlite").is_file()
    assert (folder / "tables" / "mine.csv").is_file()
    shown = cli("reproduce", "--all", "--no-run", "--store", "stores", "--no-page")
    assert "0 run now, 2 done before" in shown.out
    assert cli("reproduce", "--all", "--no-run", "--store", "empty", "--no-page", "--json").json["studies"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a study is required"),
        (("mine.toml", "--all"), "--all runs all studies as they are and cannot be combined with STUDY"),
        (("--all", "--only", "nsr=1"), "cannot be combined with --only"),
        (("thesis",), "unknown study 'thesis': did you mean"),
        (("mine.toml", "--only", "model"), "--only must be KEY=VALUE"),
        (("mine.toml", "--only", "modell=ada"), "unknown key 'modell'; this study has"),
        (("mine.toml", "--only", "model=adam"), "model must be one of RegressionRanker, ada, got adam"),
        (("mine.toml", "--data", "nowhere"), "data: nowhere is not a folder"),
        (("mine.toml", "--jobs", -1), "jobs must be a positive integer, 0 or None, got -1"),
        (("mine.toml", "--cluster", "local:x"), "cluster local:N needs a number of workers"),
        (("mine.toml", "--cluster", "host"), "cluster must be local:N or the address of a scheduler"),
        (("mine.toml", "--store", "mine.toml"), "mine.toml: is a file, expected the folder of a store"),
    ],
)
def test_bad_input_is_refused(cli, folder, arguments, message):
    answer = cli("reproduce", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_missing_data_say_what_to_fetch_and_where(cli, folder, monkeypatch, tmp_path):
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    (folder / "data").mkdir()
    answer = cli("reproduce", "thesis-hidden", "--quick", "--data", folder / "data")
    assert answer.code == 2
    assert "mq2008 is not here" in answer.err
    assert "Download MQ2008.rar from the origin" in answer.err
    assert (
        f"Put S1.txt, S2.txt, S3.txt, S4.txt, S5.txt (plain, .gz or .zst) into {folder / 'data' / 'mq2008'}"
        in answer.err
    )
    assert not (folder / "rankbound-results").exists()
    (folder / "queries" / "test.txt").rename(folder / "elsewhere.txt")
    assert "queries: expected files named train... and test..." in cli("reproduce", "mine.toml").err
