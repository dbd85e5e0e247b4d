"""rankbound weights: formats, forms, what is reported, and what is refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankbound.difficulty import difficulty_weights, query_weights

LETOR = "2 qid:7 1:0.5 #docid = a\n0 qid:7 1:0.1 #docid = b\n1 qid:9 1:0.3 #docid = c\n1 qid:9 1:0.3 #docid = d\n"
EXPECTED = difficulty_weights([2, 0, 1, 1], [7, 7, 9, 9])


@pytest.fixture
def labeled(files):
    """One small data set in three formats."""
    (files / "letor.txt").write_text(LETOR)
    (files / "judged").write_text("7 0 a 2\n7 0 b 0\n9 0 c 1\n9 0 d 1\n")
    pl.DataFrame({"qid": [7, 7, 9, 9], "label": [2, 0, 1, 1]}).write_csv("data.csv")
    return files


@pytest.fixture
def uneven(files):
    """Nine queries with one of 4 documents relevant, and one with 39 of 40."""
    queries = [[1, 0, 0, 0]] * 9 + [[1] * 39 + [0]]
    qid = np.repeat([f"q{q}" for q in range(10)], [len(query) for query in queries])
    pl.DataFrame({"qid": qid, "label": np.concatenate(queries)}).write_csv("uneven.csv")
    return np.concatenate(queries), qid


@pytest.mark.parametrize("name", ["letor.txt", "judged", "data.csv"])
def test_weights_of_every_format(cli, labeled, name):
    answer = cli("weights", name, "--json").json
    assert answer["weights"] == pytest.approx(EXPECTED.tolist())
    assert [str(qid) for qid in answer["qid"]] == ["7", "9"]
    assert (answer["queries"], answer["no_choice_queries"], answer["rows"]) == (2, 1, 4)
    shown = cli("weights", name)
    assert [line.split("\t")[0] for line in shown.out.splitlines()] == ["7", "9"]
    assert shown.err == (
        "1 of 2 queries without a choice (all rankings have the same nDCG): weight 0\n"
        f"effective sample fraction 1.000; median weight {EXPECTED[0]:.4g}, maximum {EXPECTED[0]:.4g}, 0 capped\n"
    )


def test_weights_per_row_as_text_and_table(cli, labeled):
    shown = cli("weights", "letor.txt", "--per", "row", "-o", "w.txt")
    assert shown.out.startswith("4 weights written to w.txt\n1 of 2 queries without a choice")
    assert np.loadtxt("w.txt") == pytest.approx(np.repeat(EXPECTED, 2))
    answer = cli("weights", "letor.txt", "--normalize", "-o", "w.csv", "--json").json
    assert "weights" not in answer
    assert pl.read_csv("w.csv")["weight"].to_list() == [1.0, 0.0]


def test_weights_per_row_need_the_order_of_the_file(cli, labeled):
    lines = LETOR.splitlines(keepends=True)
    (labeled / "mixed.txt").write_text("".join(lines[i] for i in (0, 2, 1, 3)))
    assert cli("weights", "mixed.txt", "--json").code == 0
    answer = cli("weights", "mixed.txt", "--per", "row", "-o", "w.txt")
    assert answer.code == 2
    assert "rows of a query must be contiguous" in answer.err
    assert not (labeled / "w.txt").exists()


def test_weights_from_standard_input(shell, labeled):
    answer = shell("weights", "-", "--format", "letor", "--json", stdin=LETOR.encode())
    assert answer.json["weights"] == pytest.approx(EXPECTED.tolist())


def test_options_are_those_of_the_function(cli, uneven):
    for flags, options in (
        ([], {}),
        (["--form", "plain"], {"form": "plain"}),
        (["--form", "sqrt", "--cap", 1.5], {"form": "sqrt", "cap": 1.5}),
        (
            ["--form", "plain", "--effective", 0.8, "--normalize"],
            {"form": "plain", "effective": 0.8, "normalize": True},
        ),
        (["--form", "plain", "--effective", 0], {"form": "plain", "effective": None}),
    ):
        expected = query_weights(*uneven, **options)
        answer = cli("weights", "uneven.csv", *flags, "--json").json
        assert answer["weights"] == pytest.approx(expected.weights.tolist())
        assert {name: answer[name] for name in expected.summary()} == pytest.approx(expected.summary())
        assert {name: answer[name] for name in options} == options
        assert (answer["effective_sample_fraction"] < 0.5) == bool(answer["warnings"])


def test_uneven_weights_are_capped_and_exact_ones_warn(cli, uneven):
    capped = cli("weights", "uneven.csv", "--form", "plain", "-o", "w.csv")
    median = query_weights(*uneven, form="plain").median
    # nine weights of 1 and one of c: (9 + c)^2 = 5 (9 + c^2), so c = 6
    expected = f"effective sample fraction 0.500; median weight {median:.4g}, maximum {6 * median:.4g}, 1 capped\n"
    assert capped.out.endswith(expected)
    assert capped.err == ""
    exact = cli("weights", "uneven.csv", "--form", "plain", "--effective", 0, "-o", "w.csv")
    assert exact.code == 0
    assert exact.err.startswith(
        "rankbound: warning: the weights have an effective sample fraction of 0.15 (median 2.78"
    )
    assert exact.err.count("\n") == 1
    assert ", 0 capped" in exact.out
    by_row = cli("weights", "uneven.csv", "--form", "plain", "--effective", 0, "--per", "row", "--json")
    assert by_row.json["warnings"] == [exact.err.removeprefix("rankbound: warning: ").strip()]
    assert len(by_row.json["weights"]) == by_row.json["rows"] == 9 * 4 + 40


def test_queries_without_a_choice_only(cli, files):
    (files / "same").write_text("a 0 d1 1\na 0 d2 1\n")
    assert cli("weights", "same").err == "1 of 1 queries without a choice (all rankings have the same nDCG): weight 0\n"
    answer = cli("weights", "same", "--json").json
    assert (answer["effective_sample_fraction"], answer["median"], answer["capped"]) == (None, None, 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--effective", 2], "effective must be None, or greater than 0 and at most 1, got 2.0"),
        (["--effective", "nan"], "effective must be None, or greater than 0 and at most 1, got nan"),
        (["--cap", 0], "cap must be None or a finite number greater than 0, got 0.0"),
        (["--form", "x"], "'x' is not one of 'plain', 'sqrt'"),
    ],
)
def test_bad_settings_are_refused_and_nothing_is_written(cli, uneven, files, flags, message):
    answer = cli("weights", "uneven.csv", *flags, "-o", "w.csv")
    assert answer.code == 2
    assert message in answer.err
    assert answer.out == ""
    assert not (files / "w.csv").exists()
