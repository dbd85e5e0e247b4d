"""rankbound train on interactions, and rankbound recommend."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound import models
from rankbound.models import RECOMMENDERS, Popularity, Recommender, evaluate_recommender, load_ranker

USABLE = [name for name in RECOMMENDERS if issubclass(getattr(models, name), Recommender)]
FEW = {
    "Blend": ["--param", "models=EASE,ItemKNN,ItemKNN", "--param", "ItemKNN.neighbors=3"],
    "ImplicitALS": ["--epochs", "2", "--param", "factors=4"],
    "MatrixFactorization": ["--epochs", "2"],
}


@pytest.fixture
def ratings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ratings of users by text and of items by numbers with leading zeros."""
    rng = np.random.default_rng(0)
    liked = rng.random((12, 9)) < 0.4
    liked[np.arange(12), np.arange(12) % 9] = True  # everybody has an item, and everything a user
    user, item = np.nonzero(liked)
    frame = pl.DataFrame({"user": [f"u{u}" for u in user], "item": [f"{i:03}" for i in item]})
    frame = frame.with_columns(pl.Series("rating", rng.integers(1, 6, len(user))))
    frame.write_csv(tmp_path / "ratings.csv")
    frame.rename({"user": "customer", "item": "sku", "rating": "likes"}).write_parquet(tmp_path / "shop.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(ratings: Path) -> Popularity:
    popularity = Popularity().fit(ratings / "ratings.csv")
    popularity.save("model")
    return popularity


# ---- train -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", USABLE)
def test_every_recommender_can_be_trained_and_recommends(cli, ratings, name):
    answer = cli("train", "ratings.csv", "--model", name, *FEW.get(name, []), "-o", "model", "--json").json
    table = pl.read_csv("ratings.csv")
    assert (answer["model"], answer["users"], answer["interactions"]) == (name, table["user"].n_unique(), table.height)
    assert answer["items"] == table["item"].n_unique()
    assert "every row is a positive interaction" in answer["notes"][-1]
    assert cli("recommend", "model", "-k", 3, "-o", "top.parquet").code == 0
    assert pl.read_parquet("top.parquet").equals(load_ranker("model").recommend(k=3))


def test_columns_and_the_lowest_rating_can_be_named(cli, ratings):
    options = ["--user", "customer", "--item", "sku", "--rating", "likes", "--min-rating", 4]
    answer = cli("train", "shop.parquet", "--model", "Popularity", *options, "-o", "model", "--json").json
    likes = pl.read_parquet("shop.parquet").filter(pl.col("likes") >= 4)
    assert (answer["interactions"], answer["items"]) == (likes.height, likes["sku"].n_unique())
    assert answer["notes"] == []
    (ratings / "study.toml").write_text(
        'data = "shop.parquet"\nmodel = "Popularity"\nuser = "customer"\nitem = "sku"\nrating = "likes"\n'
        'min_rating = 4\noutput = "again"\n'
    )
    assert cli("train", "--config", "study.toml").code == 0
    assert load_ranker("again").recommend().equals(load_ranker("model").recommend())


@pytest.mark.parametrize("name", ["EASE", "MatrixFactorization"])
def test_held_out_interactions_are_measured_by_full_ranking(cli, ratings, name):
    table = pl.read_csv("ratings.csv", infer_schema=False)
    table.filter(pl.int_range(pl.len()) % 3 > 0).write_csv("train.csv")
    table.filter(pl.int_range(pl.len()) % 3 == 0).write_csv("valid.csv")
    options = ["--model", name, *FEW.get(name, []), "--valid", "valid.csv", "-m", "nDCG@5", "-m", "R@5"]
    answer = cli("train", "train.csv", *options, "-o", "model", "--json").json
    means = evaluate_recommender(load_ranker("model"), "valid.csv", ["nDCG@5", "R@5"]).mean()
    assert answer["mean"] == {"validation": pytest.approx(means)}
    assert load_ranker("model").eval_score_ == pytest.approx(means["nDCG@5"])
    shown = cli("train", "train.csv", *options, "-o", "model")
    assert shown.out.startswith(f"{name} in model, by full ranking\n")


def test_a_blend_has_the_parameters_of_its_models_and_reports_their_weights(cli, ratings):
    table = pl.read_csv("ratings.csv", infer_schema=False)
    table.filter(pl.int_range(pl.len()) % 3 > 0).write_csv("train.csv")
    table.filter(pl.int_range(pl.len()) % 3 == 0).write_csv("valid.csv")
    params = ["models=EASE,ImplicitALS", "EASE.l2=3", "ImplicitALS.factors=4", "weight_steps=4"]
    options = [text for param in params for text in ("--param", param)]
    options = ["train.csv", "--model", "Blend", *options, "--seed", 5, "--valid", "valid.csv", "-m", "R@3"]
    answer = cli("train", *options, "-o", "model", "--json").json
    expected = models.Blend(
        [models.EASE(l2=3, measure="R@3"), models.ImplicitALS(factors=4, measure="R@3")],
        weight_steps=4, measure="R@3", random_state=5,
    ).fit("train.csv", eval_set="valid.csv")  # fmt: skip
    assert [entry["model"] for entry in answer["weights"]] == ["EASE", "ImplicitALS"]
    assert [entry["weight"] for entry in answer["weights"]] == expected.weights_.tolist()
    assert answer["mean"]["validation"]["R@3"] == pytest.approx(expected.eval_score_)
    assert load_ranker("model").recommend().equals(expected.recommend())
    shown = cli("train", *options, "-o", "model").out
    assert f"weights EASE {expected.weights_[0]:.3g}, ImplicitALS {expected.weights_[1]:.3g}" in shown


@pytest.mark.real_data
def test_known_data_sets_and_their_ratings(cli, tmp_path, data_dir):
    options = ["--model", "Popularity", "--min-rating", 4, "-o", tmp_path / "model"]
    assert cli("train", "ml-100k", *options, "--json").json["interactions"] == 55375  # stated by the data set


def test_training_prints_counts_and_notes(cli, ratings):
    with (ratings / "ratings.csv").open("a") as stream:
        stream.write("u0,000,5\nu0,000,4\n")
    answer = cli("train", "ratings.csv", "--model", "EASE", "-o", "model")
    assert answer.out.startswith("EASE in model: 12 users, 9 items, ")
    assert "repeated pairs of user and item were dropped" in answer.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "ratings.csv",
            "ratings.csv: interactions of users with items need a recommender: --model Blend, EASE, .*no --model",
        ),
        ("ratings.csv --model AdaRank", "need a recommender: .* got AdaRank"),
        ("ml-100k", "ml-100k: interactions of users with items need a recommender"),
        ("letor --model AdaRank --min-rating 3", "--min-rating must be left out unless --model is one of Blend, EASE"),
        ("letor --user u", "--user must be left out unless"),
        (
            "ratings.csv --model EASE --user who",
            "ratings.csv:1: the user column .* 'who'; the columns are user, item, r",
        ),
        (
            "shop.parquet --model EASE",
            "a column for the user, got the columns customer, sku, likes; name it with .*--user",
        ),
        ("ratings.csv --model EASE --min-rating 6", "ratings.csv: has no rating of at least 6, the highest is 5"),
        ("shop.parquet --model EASE --user customer --item sku --min-rating 4", "has no ratings, which --min-rating"),
        ("nothing.csv --model EASE", "nothing.csv: cannot be read: No such file, and no data set"),
        ("mq2008 --model EASE", "mq2008: is a data set of kind letor, expected one of users and items"),
        ("ml-100k/x --model EASE", "a fold must be a number"),
        ("- --model EASE", "cannot be read from standard input"),
        ("empty.csv --model EASE", "empty.csv: has no interaction"),
        ("ratings.csv --model EASE --param l3=1", "EASE has no parameter 'l3'; it has l2, max_memory"),
        ("ratings.csv --model EASE --param l2=0", "l2 must be above 0, got 0"),
        ("ratings.csv --model EASE --loss nDCG", "EASE has no parameter for a loss"),
        (
            "ratings.csv --model Blend --param models=EASE,Eas",
            "models must be names of recommenders .*got 'Eas'",
        ),
        ("ratings.csv --model Blend --param models=3", "models must be names of recommenders .*got 3"),
        ("ratings.csv --model Blend --param EASE.l3=1", "EASE has no parameter 'l3'; it has l2, max_memory"),
        (
            "ratings.csv --model Blend --param ItemKNN.neighbors=1",
            "ItemKNN.neighbors must be a parameter of one of the models EASE, ImplicitALS, got 'ItemKNN'",
        ),
        ("ratings.csv --model Blend --param weights=1,2,3", "weights must be 2 numbers of at least 0, .*got .1, 2, 3."),
        (
            "ratings.csv --model Blend --epochs 3",
            "Blend has no parameter 'epochs'; it has measure, models",
        ),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(cli, ratings, arguments, message):
    (ratings / "empty.csv").write_text("user,item\n")
    (ratings / "letor").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n")
    answer = cli("train", *arguments.split(), "-o", "model")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert re.search(message, answer.err), answer.err
    assert not (ratings / "model").exists()


# ---- recommend -------------------------------------------------------------------------------------------------------


def test_tables_and_runs_have_the_same_lists(cli, model):
    for name in ("top.parquet", "top.csv", "top.json", "top.trec"):
        answer = cli("recommend", "model", "-k", 4, "-o", name, "--json").json
        assert answer["output"] == name
    expected = model.recommend(k=4)
    assert answer["users"] == 12
    assert answer["rows"] == expected.height
    assert pl.read_parquet("top.parquet").equals(expected)
    text = {"item": pl.String, "rank": pl.Int32, "score": pl.Float32}
    assert pl.read_csv("top.csv", schema_overrides=text).equals(expected)
    lines = [f"{user} Q0 {item} {rank} {score} rankbound" for user, item, rank, score in expected.rows()]
    assert Path("top.trec").read_text().splitlines() == lines


def test_users_and_items_from_files(cli, model, ratings):
    (ratings / "users.txt").write_text("u3\n\nnobody \nu1\nu3\n")
    (ratings / "stock.csv").write_text("movieId,price\n002,5\n008,1\n001,2\n999,9\n")
    options = ["--users", "users.txt", "--items", "stock.csv", "--include-seen", "-k", 2]
    answer = cli("recommend", "model", *options, "-o", "top.parquet", "--json").json
    assert (answer["users"], answer["unknown_users"]) == (3, 1)
    assert answer["notes"] == ["1 of 3 users have no training interactions and get the most popular items"]
    with pytest.warns(UserWarning, match="1 of 3"):
        expected = model.recommend(["u3", "nobody", "u1"], 2, exclude_seen=False, filter_items=["001", "002", "008"])
    assert pl.read_parquet("top.parquet").equals(expected)
    spoken = cli("recommend", "model", *options, "-o", "top.parquet")
    assert "6 items for 3 users written to top.parquet" in spoken.out
    assert "rankbound: warning: 1 of 3 users have no training interactions" in spoken.err


def test_users_of_a_file_have_the_type_of_the_training_data(cli, ratings):
    Popularity().fit(([5, 5, 7], ["a", "b", "a"])).save("model")
    (ratings / "users.txt").write_text("7\n5\n")
    assert cli("recommend", "model", "--users", "users.txt", "-o", "top.parquet").code == 0
    assert pl.read_parquet("top.parquet")["user"].to_list() == [7]  # the user 5 has all items


UNUSUAL = [
    "-a",
    "@b",
    "=c",
    "+d",
    "'e",
    'f"g',
    '"h"',
    "i,j",
    "k\nl",
    " m",
    "n ",
    "=1+1",
    "-1",
    "+2",
    "#o",
    "007",
    "7",
    "null",
]


def write_rows(path, header, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def read_rows(path):
    with path.open(newline="") as stream:
        return [*csv.DictReader(stream)]


def test_unusual_ids_survive_split_train_recommend_and_evaluate(cli, ratings):
    """From file to file with any ids: evaluate prints the value of the lists that Python's csv module reads."""
    rng = np.random.default_rng(1)
    liked = rng.random((len(UNUSUAL), len(UNUSUAL))) < 0.4
    pairs = [(f"{UNUSUAL[u]}{'' if u % 2 else '!'}", UNUSUAL[i]) for u, i in zip(*np.nonzero(liked), strict=True)]
    write_rows(ratings / "shop.csv", ["user", "item"], pairs)
    assert cli("data", "split", "shop.csv", "-o", "split", "--test", "0.3").code == 0
    parts = {part: [(row["user"], row["item"]) for row in read_rows(ratings / f"split/{part}.csv")]
             for part in ("train", "test")}  # fmt: skip
    assert sorted(parts["train"] + parts["test"]) == sorted(pairs)
    assert cli("train", "split/train.csv", "--model", "Popularity", "-o", "model").code == 0
    write_rows(ratings / "users.csv", ["user", "age"], [(user, 3) for user in dict.fromkeys(user for user, _ in pairs)])
    for name in ("top.csv", "top.parquet"):
        answer = cli("recommend", "model", "-k", 5, "--users", "users.csv", "-o", name, "--json").json
        assert answer["unknown_users"] == 0
        assert answer["notes"] == []
    rows = [(row["user"], row["item"]) for row in read_rows(ratings / "top.csv")]
    assert rows == pl.read_parquet("top.parquet").select("user", "item").rows()
    held_out, lists = {}, {}
    for user, item in parts["test"]:
        held_out.setdefault(user, {})[item] = 1
    for row in read_rows(ratings / "top.csv"):
        lists.setdefault(row["user"], {})[row["item"]] = float(row["score"])
    expected = rb.evaluate(held_out, lists, ["nDCG@5", "RR"])
    for name in ("top.csv", "top.parquet"):
        found = cli(
            "evaluate", "split/test.csv", name, "-m", "nDCG@5", "-m", "RR", "--per-query", "q.csv", "--json"
        ).json
        assert found["mean"] == pytest.approx(expected.mean())
        assert {row["qid"] for row in read_rows(ratings / "q.csv")} == set(held_out)


def test_unusual_ids_survive_rank_and_evaluate(cli, ratings):
    """The names of documents in comments of LETOR, in a table and a run that evaluate reads again."""
    names = [name for name in UNUSUAL if name.strip() == name and not set(name) & set(" \n#")]
    lines = [f"{at % 3} qid:{at % 2 + 1} 1:{at % 5} #docid = {name}\n" for at, name in enumerate(names)]
    (ratings / "letor.txt").write_text("".join(sorted(lines, key=lambda line: line.split()[1])))
    models.AdaRank(n_estimators=1).fit([[0.0], [1.0]], [0, 1]).save("linear")
    for name, form in (("run.csv", ["--format", "table"]), ("run.trec", [])):
        assert cli("rank", "linear", "letor.txt", "-o", name, *form).code == 0
    assert {row["docid"] for row in read_rows(ratings / "run.csv")} == set(names)
    values = [cli("evaluate", "letor.txt", name, "-m", "AP", "--json").json["mean"] for name in ("run.csv", "run.trec")]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nowhere -o top.csv", "nowhere: is not a model folder"),
        ("linear -o top.csv", "linear: holds AdaRank, which ranks rows of features, use 'rankbound rank'"),
        ("model -o top.csv -k 0", "Invalid value for '-k'"),
        ("model -o folder", "folder: is a folder, expected a file name"),
        ("model -o top.csv --users no.txt", "no.txt: cannot be read: No such file"),
        ("model -o top.csv --users empty.txt", "empty.txt: has no user"),
        ("model -o top.csv --users stock.csv", "stock.csv: no column for the user .*; it has item, price"),
        ("model -o top.csv --items users.txt", "users.txt: has no item of the training data, the first is 'u1'"),
        ("model -o top.csv --users binary", "binary: must be text in UTF-8, one id per line"),
        ("model -o top.trec --tag", "requires an argument"),
        ("spaced -o top.trec", "top.trec: ids in a TREC run must have no spaces, got the user 'a b'"),
    ],
)
def test_bad_requests_are_one_line_and_write_nothing(cli, model, ratings, arguments, message):
    models.AdaRank(n_estimators=1).fit([[0.0], [1.0]], [0, 1]).save("linear")
    Popularity().fit((["a b", "c"], ["x", "y"])).save("spaced")
    (ratings / "folder").mkdir()
    (ratings / "empty.txt").write_text("\n")
    (ratings / "users.txt").write_text("u1\n")
    (ratings / "binary").write_bytes(b"\xff\xfe\x00")
    (ratings / "stock.csv").write_text("item,price\n002,5\n")
    before = sorted(ratings.iterdir())
    answer = cli("recommend", *arguments.split())
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert re.search(message, answer.err), answer.err
    assert sorted(ratings.iterdir()) == before


def test_rank_refuses_a_recommender(cli, model, ratings):
    (ratings / "letor").write_text("1 qid:1 1:0.5\n")
    answer = cli("rank", "model", "letor", "-o", "run")
    assert (answer.code, "holds the recommender Popularity, use 'rankbound recommend'" in answer.err) == (2, True)


@pytest.mark.full("takes seconds")
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_killed_command_leaves_the_old_file_and_a_second_run_writes_the_same(cli, model, ratings):
    assert cli("recommend", "model", "-o", "whole.csv").code == 0
    (ratings / "top.csv").write_text("old")
    code = (
        "import os, signal, sys\n"
        "from rankbound.cli.main import run\n"
        "from rankbound.io import writing\n"
        "writing.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"  # before the rename
        "run(['recommend', 'model', '-o', 'top.csv'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert (ratings / "top.csv").read_text() == "old"
    assert cli("recommend", "model", "-o", "top.csv").code == 0
    assert (ratings / "top.csv").read_bytes() == (ratings / "whole.csv").read_bytes()
