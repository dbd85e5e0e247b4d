"""Numbers, types and settings beyond every limit: the right value, or one line on stderr and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HUGE = "99999999999999999999999"  # beyond 64 bits
COMMAND = "import sys; from rankbound.cli.main import run; sys.exit(run())"
LETOR = "".join(f"{row % 3} qid:{row // 4} 1:{row % 5} 2:{row % 7}\n" for row in range(40))
STUDY = """title = "t"
{top}
[[tables]]
data = {{ letor = "train.txt" }}
model = "LinearRanker"
measures = ["nDCG"]
split = "query-folds"
folds = 3
{table}
"""


def refused(answer, *messages: str) -> None:
    assert answer.code == 2, answer
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1, answer.err
    assert answer.err.startswith("rankbound: ")
    for message in messages:
        assert message in answer.err


@pytest.mark.parametrize("command", ["bounds", "distribution"])
def test_a_depth_beyond_the_list_changes_nothing(cli, command):
    query = (command, "nDCG", "--n", 10, "--relevant", 2, "--json")
    assert cli(*query, "--depth", HUGE).json == cli(*query).json


@pytest.mark.parametrize("command", ["evaluate qrels run", "compare qrels run other"])
def test_a_depth_beyond_every_run_changes_nothing(cli, files, command):
    arguments = [*command.split(), "-m", "nDCG", "--json"]
    assert cli(*arguments, "--depth", HUGE).json["mean"] == cli(*arguments).json["mean"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"bounds nDCG --n {HUGE} --relevant 2", f"n must be at most 100,000,000, got {HUGE}"),
        (f"bounds nDCG --n 10 --relevant {HUGE}", f"relevant must be at most 100,000,000, got {HUGE}"),
        (f"distribution AP --n 9 --relevant 2 --method sampled --samples {HUGE}", "samples must be at most"),
        ("compare qrels run other --resamples 100000000000", "resamples must be at most 10,000,000"),
        (f"compare qrels run other --resamples {HUGE}", "resamples must be at most 10,000,000"),
        ("compare qrels run other --confidence 0.9999999999999999", "confidence must be at most 1 - 1e-09"),
        ("evaluate qrels run --confidence 0.9999999999999999", "confidence must be at most 1 - 1e-09"),
        ("report qrels run -o page.html --confidence 0.9999999999999999", "confidence must be at most 1 - 1e-09"),
        (f"demo -o demo --seed {HUGE}", f"--seed must be an integer from 0 to 2^63 - 1, got {HUGE}"),
        (f"demo -o demo --queries {HUGE}", f"--queries must be at least 10 and at most 1,000,000, got {HUGE}"),
        ("evaluate qrels/ run", "qrels/: is a file, and a file name does not end in a slash"),
        ("evaluate qrels run/", "run/: is a file, and a file name does not end in a slash"),
    ],
)
def test_numbers_beyond_their_limits_are_refused(cli, files, command, message):
    before = sorted(files.iterdir())
    refused(cli(*command.split()), message)
    assert sorted(files.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--param learning_rate=x", "learning_rate must be a finite number, got 'x'"),
        ("--param learning_rate=1,2", "learning_rate must be a finite number, got (1, 2)"),
        ("--param learning_rate=1e300", "learning_rate must be a positive number below 1e38, got 1e+300"),
        ("--param learning_rate=nan", "learning_rate must be a finite number, got nan"),
        ("--param hidden=99999999999", "hidden must be at most 100,000,000"),
        ("--param hidden=99999999,99999999", "the network must fit into memory"),
        (f"--param hidden={HUGE}", "hidden must be at most 100,000,000"),
        (f"--param batch_size={HUGE}", "batch_size must be below 2^63"),
        ("--param dropout=x", "dropout must be a finite number, got 'x'"),
        ("--param weight_decay=x", "weight_decay must be a finite number, got 'x'"),
        ("--param checkpoint=5", "checkpoint must be a text or a path or None, got 5"),
        (f"--seed {HUGE}", f"random_state must be an integer from 0 to 2^64 - 1 or None, got {HUGE}"),
        ("--model LambdaMART --param learning_rate=x", "learning_rate must be a finite number, got 'x'"),
        ("--model LambdaMART --param learning_rate=-1", "learning_rate must be above 0 and at most 1e+38, got -1"),
        ("--model LambdaMART --param num_leaves=1", "num_leaves must be from 2 to 131072, got 1"),
        ("--model LambdaMART --param num_leaves=x", "num_leaves must be an integer, got 'x'"),
        ("--model LambdaMART --param subsample=2", "subsample must be above 0 and at most 1, got 2"),
        ("--model LambdaMART --param reg_lambda=-1", "reg_lambda must be"),
        ("--model LambdaMART --param max_depth=x", "max_depth must be an integer, got 'x'"),
        (f"--model LambdaMART --seed {HUGE}", "random_state must be an integer from 0 to 2^64 - 1 or None"),
    ],
)
def test_parameters_of_a_ranker_are_refused(files, capfd, options, message):
    from rankbound.cli.main import run

    (files / "train.txt").write_text(LETOR)
    code = run(["train", "train.txt", "-o", "model", *options.split()])
    captured = capfd.readouterr()  # of the file descriptors, to which LightGBM writes
    lines = captured.err.splitlines()
    assert (code, captured.out, len(lines)) == (2, "", 1), captured
    assert message in lines[0]
    assert not (files / "model").exists()


def test_a_file_of_training_data_has_no_slash_at_its_end(cli, files):
    (files / "train.txt").write_text(LETOR)
    refused(cli("train", "train.txt/", "-o", "model"), "train.txt/: cannot be read", "does not end in a slash")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("data = 1", "data must be a text, got 1"),
        ('data = ["train.txt"]', "data must be a text, got ['train.txt']"),
        ("data = 2020-01-01", "data must be a text"),
        ("output = 5", "output must be a text, got 5"),
        ('output = "a\\u0000b"', "output must be a text without NUL characters"),
        ("valid = 5", "valid must be a text, got 5"),
        ("model = 5", "model must be a text, got 5"),
        ("loss = 5", "loss must be a text, got 5"),
        ("bounding = 5", "bounding must be a text, got 5"),
        ("checkpoint = 5", "checkpoint must be a text, got 5"),
        ("measures = 5", "measures must be a measure or a list of measures, got 5"),
        ("measures = [5]", "measures must be a measure or a list of measures, got [5]"),
        ("seed = true", "seed must be an integer, got True"),
        ('epochs = "x"', "epochs must be an integer, got 'x'"),
        ("params = 5", "params must be a table, got 5"),
    ],
)
def test_wrong_types_in_a_configuration_are_refused(cli, files, line, message):
    (files / "train.txt").write_text(LETOR)
    others = {"data": 'data = "train.txt"', "output": 'output = "model"'}
    others.pop(line.partition(" ")[0], None)
    (files / "c.toml").write_text("\n".join([*others.values(), line]))
    refused(cli("train", "--config", "c.toml"), f"c.toml: {message}")
    assert not (files / "model").exists()


@pytest.mark.parametrize(
    ("top", "table", "message"),
    [
        ("", f"seeds = [{HUGE}]", "tables[0].seeds[0]: must be an integer of 64 bits"),
        ("", "seeds = [-1]", "tables[0].seeds[0]: input should be greater than or equal to 0, got -1"),
        ("", "params = { learning_rate = nan }", "tables[0].params.learning_rate: must be a finite number, got nan"),
        ("", "grid = { learning_rate = [0.1, inf] }", "tables[0].grid.learning_rate[1]: must be a finite number"),
        ("", "prepare = { fill = nan }", "tables[0].prepare.fill: must be a finite number, got nan"),
        ("", "prepare = { binarize = inf }", "tables[0].prepare.binarize: must be a finite number, got inf"),
        ("", "prepare = { relevant_from = -inf }", "tables[0].prepare.relevant_from: must be a finite number"),
        ("", "seconds = inf", "tables[0].seconds: must be a finite number, got inf"),
        ("", 'name = "a\\u0000b"', "tables[0].name: must be a text without NUL characters"),
        ('name = "a\\u0000b"', "", "study.toml: name: must be a text without NUL characters, got 'a\\x00b'"),
    ],
)
def test_values_of_a_study_are_refused(cli, files, top, table, message):
    (files / "train.txt").write_text(LETOR)
    (files / "study.toml").write_text(STUDY.format(top=top, table=table))
    refused(cli("reproduce", "study.toml", "--store", "store", "--jobs", 1), message)
    assert not (files / "store").exists()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tls://127.0.0.1:1", "cluster tls:// needs certificates"),
        ("ucx://127.0.0.1:1", "cluster ucx:// needs the package distributed-ucxx"),
        ("tls://", "cluster needs host and port of a scheduler"),
        ("tcp://", "cluster needs host and port of a scheduler"),
        ("local:99999999999", "cluster local:N needs a number of workers up to 1000"),
        ("local:" + "9" * 5_000, "cluster local:N needs a number of workers up to 1000, got 'local:9{50,60}"),
        ("local:\u0661", "cluster local:N needs a number of workers up to 1000"),
        ("tcp://here:" + "9" * 5_000, "cluster needs host and port of a scheduler"),
    ],
)
def test_clusters_that_cannot_be_used_are_refused(address, message):
    pytest.importorskip("distributed")
    from rankbound.errors import ArgumentError
    from rankbound.parallel import open_client

    with pytest.raises(ArgumentError, match=message), open_client(address):
        pass


@pytest.mark.full("starts processes")
@pytest.mark.filterwarnings("ignore")  # those of distributed
def test_a_local_cluster_talks_to_its_own_processes_alone():
    """Whoever could connect, as every user of the machine can to a port of loopback, would run code as the owner."""
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    from rankbound.parallel import open_client
    from rankbound.parallel.clusters import workers_of

    with open_client("local:1") as (client, _):
        assert client.submit(sum, [1, 2]).result() == 1 + 2
        known = workers_of(client)
        addresses = [client.scheduler.address, *known, *(worker["nanny"] for worker in known.values())]
        assert [address.partition("://")[0] for address in addresses] == ["tls"] * 3
        for address in addresses:
            port = address.rpartition(":")[2]
            stranger = distributed.Security.temporary()  # who has a certificate, but another one
            for theirs, security in ((f"tcp://127.0.0.1:{port}", None), (f"tls://127.0.0.1:{port}", stranger)):
                with pytest.raises(OSError, match=r"CommClosed|reset|certificate|timed out|closed"):
                    distributed.Client(theirs, security=security, timeout=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("POLARS_MAX_THREADS", value) for value in ("0", "x", "65535", "9" * 5_000, "\u0661")],
)
def test_numbers_of_threads_in_the_environment_are_checked(name, value, files):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "evaluate", "qrels", "run"],
        env={**os.environ, name: value}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    message = f"rankbound: {name} must be between 1 and 1024 or not be set, got {value!r:.60}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_a_measure_that_is_no_name_is_read_or_refused():
    ir_measures = pytest.importorskip("ir_measures")
    import rankbound as rb
    from rankbound.errors import MeasureError

    qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"a": 1.0, "b": 2.0}}
    assert rb.evaluate(qrels, run, [ir_measures.AP @ 10]).mean() == {"AP@10": 1 / 2}
    with pytest.raises(MeasureError, match="a measure must be a name such as 'nDCG@10', got 5"):
        rb.evaluate(qrels, run, [5])
