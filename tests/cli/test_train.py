"""rankbound train and rank: from a file to a model to a run."""

from __future__ import annotations

import numpy as np
import pytest

from rankbound.data.letor import read_letor
from rankbound.data.synthetic import synthetic_letor
from rankbound.models import RANKERS, RECOMMENDERS, MLPRanker, load_ranker


def letor_text(data, width=None):
    """Lines of a LETOR file; the zeros at the end of a row are left out."""
    lists = data.lists
    qid = np.repeat(lists.query_ids, lists.sizes)
    lines = []
    for row, (label, query, name) in enumerate(zip(lists.labels, qid, lists.ids, strict=True)):
        features = " ".join(f"{k}:{value!r}" for k, value in enumerate(data.features[row, :width].tolist(), 1))
        lines.append(f"{label} qid:{query} {features} # {name}\n")
    return "".join(lines)


@pytest.fixture
def letor(tmp_path, monkeypatch):
    """A folder with train, vali and test, and qrels of test; the working folder."""
    data = synthetic_letor(queries=60, features=6, seed=4, documents=(4, 15))
    for name, queries in (("train", range(40)), ("vali", range(40, 50)), ("test", range(50, 60))):
        (tmp_path / name).write_text(letor_text(data.take(queries)))
    lists = data.take(range(50, 60)).lists
    qid = np.repeat(lists.query_ids, lists.sizes)
    (tmp_path / "qrels").write_text(
        "".join(f"{q} 0 {d} {label}\n" for q, d, label in zip(qid, lists.ids, lists.labels, strict=True))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


QUICK = ("--epochs", 5, "--param", "hidden=8", "--param", "learning_rate=0.02")


def test_train_then_rank_then_evaluate(cli, letor):
    with (letor / "train").open("a") as file:
        file.write("1 qid:901 1:0.5 # a\n1 qid:901 1:0.25 # b\n0 qid:902 1:0.5 # c\n")  # two queries without a choice
    answer = cli("train", "train", "--valid", "vali", *QUICK, "-m", "nDCG@5", "-m", "AP", "-o", "model", "--json").json
    assert answer["model"] == "MLPRanker"
    assert (answer["queries"], answer["features"], answer["epochs"]) == (42, 6, 5)
    lists = read_letor(letor / "train").lists
    equal = [len(set(query.tolist())) == 1 for query in np.split(lists.labels, lists.offsets[1:-1])]
    assert answer["no_choice_queries"] == sum(equal) >= 2
    assert set(answer["mean"]) == {"train", "validation"}
    loaded = load_ranker("model")
    assert loaded.eval_score_ == pytest.approx(answer["mean"]["validation"]["nDCG@5"])
    assert (loaded.network.hidden, loaded.learning_rate, loaded.monitoring.watch) == (8, 0.02, ("AP",))
    done = cli("rank", "model", "test", "-o", "run", "--json").json
    assert done["documents"] == "ids"
    ours = cli("evaluate", "qrels", "run", "-m", "nDCG@5", "-m", "AP", "--json").json["mean"]
    assert ours["nDCG@5"] > 0.5
    by_file = cli("train", "train", *QUICK, "--valid", "test", "-m", "nDCG@5", "-o", "other", "--json")
    assert by_file.code == 0
    first = (letor / "run").read_text().splitlines()[0].split()
    assert first[1] == "Q0"
    assert first[3] == "1"
    assert first[5] == "rankbound"


def test_runs_tables_and_scores_say_the_same(cli, letor):
    cli("train", "train", *QUICK, "-o", "model")
    for name in ("run.txt", "scores.csv", "scores.parquet"):
        assert cli("rank", "model", "test", "-o", name).code == 0
    assert cli("rank", "model", "test", "-o", "plain.txt", "--format", "scores").code == 0
    import polars as pl

    table = pl.read_csv("scores.csv")
    assert table.equals(pl.read_parquet("scores.parquet").cast({"qid": pl.Int64}))
    assert [float(line) for line in (letor / "plain.txt").read_text().split()] == table["score"].to_list()
    run = {tuple(line.split()[0:3:2]): float(line.split()[4]) for line in (letor / "run.txt").read_text().splitlines()}
    assert run == {(str(q), d): s for q, d, s in table.iter_rows()}


def test_documents_without_names_are_named_by_row_and_left_out_columns_are_zero(cli, letor):
    cli("train", "train", *QUICK, "-o", "model")
    (letor / "narrow").write_text("1 qid:1 1:0.5 2:0.25\n0 qid:1 1:0.1\n")
    answer = cli("rank", "model", "narrow", "-o", "run", "--json").json
    assert answer["documents"] == "rows"
    assert sorted(line.split()[2] for line in (letor / "run").read_text().splitlines()) == ["1", "2"]


def test_config_file_with_the_command_line_going_first(cli, letor):
    (letor / "study.toml").write_text(
        'data = "train"\nmodel = "LinearRanker"\nloss = "AP"\nbounding = "min-max"\nmeasures = "AP"\nepochs = 9\n'
        'seed = 3\noutput = "model"\n[params]\nbatch_size = 7\n"loss.alpha" = 2.0\n'
    )
    answer = cli("train", "--config", "study.toml", "--epochs", 2, "--param", "standardize=false", "--json").json
    assert answer["model"] == "LinearRanker"
    assert answer["epochs"] == 2
    loaded = load_ranker("model")
    assert (loaded.batch_size, loaded.random_state, loaded.standardize, loaded.measure) == (7, 3, False, "AP")
    assert (loaded.loss.alpha, loaded.loss.bounding) == (2.0, "min-max")


@pytest.mark.parametrize("model", [name for name in RANKERS if name not in ("RankCNN", *RECOMMENDERS)])
def test_every_ranker_of_rows_can_be_trained(cli, letor, model):
    few = {"AdaRank": "n_estimators=3", "RankBoost": "n_estimators=3", "CoordinateAscent": "max_sweeps=1"}
    few |= {"LambdaMART": "n_estimators=3", "RandomForestRanker": "n_estimators=3", "SVMmap": "max_planes=5"}
    option = few.get(model) or ("epochs=2" if model.endswith(("Net", "DirectRanker")) or "MLP" in model else None)
    extra = ["--param", option] if option else []
    assert cli("train", "train", "--model", model, *extra, "-o", "model", "--json").json["mean"]["train"]
    assert cli("rank", "model", "test", "-o", "run.csv").code == 0


@pytest.mark.full("takes seconds")
def test_lambdamart_takes_the_loss_as_its_objective_and_checkpoints_are_used(cli, letor):
    trees = ("--param", "n_estimators=3", "-o", "trees", "--json")
    answer = cli("train", "train", "--model", "LambdaMART", "--loss", "lambda-AP", "--bounding", "min-max", *trees).json
    assert (answer["params"]["objective"], answer["params"]["bounding"]) == ("lambda-AP", "min-max")
    for _ in range(2):
        assert cli("train", "train", *QUICK, "--checkpoint", "state", "-o", "model").code == 0
    assert [path.name for path in (letor / "state").iterdir()] == ["epoch-000005"]


def test_attention_scores_the_documents_of_each_query_in_their_context(cli, letor):
    attention = ("--param", "attention_blocks=1", "--param", "attention_heads=2")
    answer = cli("train", "train", "--valid", "vali", *QUICK, *attention, "-o", "model", "--json").json
    loaded, test = load_ranker("model"), read_letor(letor / "test")
    assert loaded.eval_score_ == pytest.approx(answer["mean"]["validation"]["nDCG"])
    assert cli("rank", "model", "test", "-o", "plain.txt", "--format", "scores").code == 0
    expected = loaded.predict(test.features, qid=test.lists.query_of_item).tolist()
    assert [float(line) for line in (letor / "plain.txt").read_text().split()] == expected


def test_a_bounding_without_a_loss_is_that_of_ndcg(cli, letor):
    assert cli("train", "train", *QUICK, "--bounding", "expectation-max", "-o", "model").code == 0
    loaded = load_ranker("model")
    assert (loaded.loss, loaded.bounding) == ("nDCG", "expectation-max")
    cli("train", "train", *QUICK, "-o", "other")
    assert load_ranker("other").loss == "softmax"


def test_a_person_gets_a_table(cli, letor):
    answer = cli("train", "train", "--valid", "vali", *QUICK, "-o", "model")
    assert "measure" in answer.out
    assert "validation" in answer.out
    assert "epoch" in answer.out
    assert answer.err == ""
    assert "written to run" in cli("rank", "model", "test", "-o", "run").out


REFUSED = [
    ("train", "missing DATA"),
    ("train train", "missing -o"),
    ("train absent -o model", "absent: cannot be read: No such file, and no data set of that name"),
    ("train train -o vali", "vali: exists and is not a model folder"),
    ("train train -o model --model Forest", "model must be one of AdaRank"),
    ("train train -o model --model RankCNN", "model must be one of AdaRank"),
    ("train train -o model --model AdaRank --loss nDCG", "AdaRank has no parameter for a loss"),
    ("train train -o model --model LambdaMART --epochs 3", "LambdaMART has no parameter 'epochs'"),
    ("train train -o model --loss nonsense", "loss must be one of"),
    ("train train -o model --bounding sideways", "bounding must be one of"),
    ("train train -o model --param hidden", "--param must be KEY=VALUE"),
    ("train train -o model --param depth=3", "MLPRanker has no parameter 'depth'"),
    ("train train -o model --param loss.depth=3", "does not take these options"),
    ("train train -o model --epochs 0", "epochs must be an integer of at least 1"),
    ("train train -o model -m nDGC", "unknown measure 'nDGC'"),
    ("train train -o model --config absent.toml", "absent.toml: cannot be read"),
    ("train train -o model --config train", "train: is not TOML"),
    ("train train -o model --config odd.toml", "odd.toml: unknown option 'modle'"),
    ("train ml-100k -o model", "ml-100k: interactions of users with items need a recommender"),
    ("train mq2008/first -o model", "a fold must be a number, as in mq2008/1, got 'first'"),
    ("train mq2008/9 -o model", "fold must be one of the folds of mq2008"),
    ("train flat -o model", "labels must differ"),
    ("train words -o model", "words:1:"),
    ("rank train test -o run", "train: is not a model folder"),
    ("rank saved wide -o run", "X has 7 features, but MLPRanker is expecting 6"),
    ("rank saved absent -o run", "absent: cannot be read"),
    ("rank saved test -o run --tag two,words --format sideways", "'sideways'"),
    ("rank saved test -o run --tag a\x1b[2Jb", "--tag must be one word of printable characters, got 'a\\x1b[2Jb'"),
    ("rank saved test -o run --tag a\x00", "--tag must be one word of printable characters, got 'a\\x00'"),
    ("rank saved test -o folder.csv", "folder.csv: is a folder"),
    ("rank saved test", "-o"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_bad_input_is_refused_and_nothing_is_written(cli, letor, arguments, message):
    (letor / "odd.toml").write_text("modle = 1\n")
    (letor / "flat").write_text("1 qid:1 1:0.5\n1 qid:1 1:0.1\n")
    (letor / "words").write_text("good qid:1 1:0.5\n")
    (letor / "wide").write_text("1 qid:1 7:0.5\n")
    (letor / "folder.csv").mkdir()
    X = np.arange(12.0).reshape(2, 6)
    MLPRanker(hidden=(2,), epochs=1).fit(X, [0, 1]).save(letor / "saved")
    before = sorted(letor.rglob("*"))
    answer = cli(*arguments.split())
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("rankbound: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert sorted(letor.rglob("*")) == before


@pytest.mark.real_data
def test_a_fold_brings_its_own_validation_and_test(cli, data_dir, tmp_path):
    answer = cli("train", "mq2008/1", *QUICK, "-o", tmp_path / "model", "--json").json
    assert set(answer["mean"]) == {"train", "validation", "test"}
    assert cli("rank", tmp_path / "model", "mq2008/1", "-o", tmp_path / "run", "--json").json["queries"] == 156
