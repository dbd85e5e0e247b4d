"""run_study and plan_study: the Python entry to studies, which the command calls."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from pathlib import Path

import polars as pl
import pytest

import rankbound as rb
from rankbound.cli.main import run
from rankbound.errors import ArgumentError, DataError
from rankbound.models.parameters import check_parameters
from rankbound.parallel import import_modules, module_digests
from rankbound.studies import (
    Outcome,
    Study,
    StudyProgress,
    TrialSlot,
    TrialSpec,
    known_studies,
    load_study,
    open_store,
    plan_study,
    show_progress,
)
from rankbound.studies.runner import Tally, run_trials
from rankbound.studies.trial import ranker_of
from rankbound.studies.worker import Failure

from .conftest import ROWS
from .papers import expand_table

TWO = """
title = "Two models"
derived = []
[[tables]]
data = { letor = "letor" }
models = [{ model = "RegressionRanker" }, { model = "AdaRank", name = "ada" }]
measures = ["nDCG", "AP"]
versus = { model = "ada" }
[[claims]]
claim = "Regression is better"
where = { model = "RegressionRanker" }
[quick]
only = { model = "ada" }
first = 10
"""
MODULE = """
from rankbound.studies.trial import RECORDERS


def constant(fitted):
    return [(0, "constant of my module", {value})]


RECORDERS["constant"] = constant
"""
RECORDED = """
title = "A recorder of the user"
[[tables]]
data = { letor = "letor" }
model = "AdaRank"
measures = "AP"
record = ["constant"]
"""


@pytest.fixture
def module(folder, tmp_path_factory, monkeypatch):
    """Write a module into a folder on the path of this process and of its workers."""
    modules = tmp_path_factory.mktemp("modules")
    monkeypatch.syspath_prepend(modules)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")]))

    def write(name: str, text: str) -> str:
        (modules / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
        return name

    yield write
    from rankbound.studies.trial import RECORDERS

    RECORDERS.pop("constant", None)
    for file in modules.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.fixture
def command(capsys):
    """Call the command line in this process and return the JSON object that it prints."""

    def call(*arguments):
        assert run([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


@pytest.mark.full("takes seconds")
def test_one_call_runs_a_study_and_the_next_one_finds_everything_done(study, folder):
    study(TWO)
    reports: list[StudyProgress] = []
    result = rb.run_study("mine.toml", jobs=0, page=True, results="written", progress=reports.append)
    assert vars(result.tally) == {"total": 2, "before": 0, "ran": 2, "failed": 0}
    assert result.results["measure"].to_list() == ["nDCG", "AP"] * 2
    assert result.claims[0].claim == "Regression is better"
    assert result.store.is_dir()
    assert result.page == result.store / "report.html"
    assert [file.name for file in result.files] == ["mine.csv", "mine.md"]
    trials = [report for report in reports if report.stage == "trials"]
    assert [(report.done, report.total) for report in trials] == [(0, 2), (1, 2), (2, 2)]
    assert {report.slot.system for report in trials[1:]} == {"RegressionRanker", "ada"}
    assert [report.stage for report in reports if report.stage != "trials"] == ["study", "data", "page"]
    again = rb.run_study(folder / "mine.toml", run=False)
    assert (again.tally.ran, again.tally.before, again.page) == (0, 2, None)
    assert again.results.equals(result.results)
    loaded = rb.run_study(load_study("mine.toml"), only={"model": "ada"}, run=False)
    assert loaded.results["model"].unique().to_list() == ["ada"]
    with pytest.raises(AttributeError):
        result.page = None


@pytest.mark.parametrize("versus", ['{ model = "net", loss = "RankNet" }', '{ model = "ada", loss = "" }'])
def test_models_with_and_without_a_loss_are_tested_against_each_other(study, folder, versus):
    net = '{ model = "LinearRanker", name = "net", loss = "RankNet", params = { epochs = 1 } }'
    study(TWO.replace("models = [", f"models = [{net}, ").replace('{ model = "ada" }\n[[', f"{versus}\n[["))
    results = rb.run_study("mine.toml", jobs=0).results
    own = {"net": "net · RankNet · none", "RegressionRanker": "RegressionRanker", "ada": "ada"}
    tested = dict(results.filter(measure="nDCG").select("model", "versus").iter_rows())
    baseline = next(name for name in own if name in versus)
    assert tested == {name: own[baseline] if name != baseline else "" for name in own}
    means = dict(results.filter(measure="nDCG").select("model", "ours").iter_rows())
    for model, difference in results.filter(measure="nDCG").select("model", "versus_difference").iter_rows():
        expected = None if model == baseline else pytest.approx(means[model] - means[baseline])
        assert difference == expected


def test_results_of_pieces_come_together_in_one_table(study, folder):
    study(TWO)
    first = rb.run_study("mine.toml", only={"model": "ada"}, jobs=0, store="one", results="written")
    text = Path("written/mine.csv").read_text()
    rb.run_study("mine.toml", only={"model": "RegressionRanker"}, jobs=0, store="other", results="written")
    table = pl.read_csv("written/mine.csv")
    assert table["model"].to_list() == ["RegressionRanker"] * 2 + ["ada"] * 2  # the order of the study
    assert table["note"].to_list() == ["", ""] + ["of an earlier run"] * 2
    assert table["ours"].to_list()[2:] == pytest.approx(first.results["ours"].to_list(), abs=1e-6)
    assert "- rows of an earlier run: 2 of 4" in Path("written/mine.md").read_text()
    rb.run_study("mine.toml", only={"model": "ada"}, store="other", run=False, results="written")  # has no such trial
    assert pl.read_csv("written/mine.csv")["note"].to_list() == ["of an earlier run"] * 4
    rb.run_study("mine.toml", jobs=0, store="one", results="written")  # both: nothing of an earlier run remains
    whole = Path("written/mine.csv").read_text()
    assert "earlier" not in whole
    assert text.splitlines()[1].split(",")[:4] == whole.splitlines()[3].split(",")[:4]


def test_results_come_with_the_figures_that_the_study_names(study, folder):
    study('figures = ["best-counts", "training-paths"]\n' + TWO)
    result = rb.run_study("mine.toml", jobs=0, results="written")
    assert [file.name for file in result.files] == ["mine.csv", "mine.md", "mine--best-counts.svg"]
    assert all(file.is_file() for file in result.files)
    study('figures = ["pies"]\n' + TWO)
    with pytest.raises(ArgumentError, match=r"figures\[0\]: must be one of .* got 'pies'"):
        rb.run_study("mine.toml", jobs=0, store="new", results="written")
    assert not Path("new").exists()  # nothing has run


def test_rows_that_are_no_part_of_the_study_are_dropped(study, folder):
    study(TWO)
    rb.run_study("mine.toml", jobs=0, results="written")
    study(TWO.replace('name = "ada"', 'name = "other"').replace("ada", "other"))
    rb.run_study("mine.toml", jobs=0, store="new", only={"model": "other"}, results="written")
    assert pl.read_csv("written/mine.csv")["model"].to_list() == ["RegressionRanker"] * 2 + ["other"] * 2
    Path("written/mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"mine\.csv: must be a table of results"):
        rb.run_study("mine.toml", store="new", run=False, results="written")


@pytest.mark.full("takes seconds")
def test_the_command_prints_what_the_call_returns(study, folder, command):
    study(TWO)
    printed = command("reproduce", "mine.toml", "--jobs", 1, "--no-page")
    result = rb.run_study("mine.toml", run=False)
    expected = json.loads(json.dumps(result.to_dict()))
    assert printed | {"trials": None} == expected | {"trials": None}
    planned = command("reproduce", "mine.toml", "--dry-run", "--jobs", 1)
    assert planned == plan_study("mine.toml", jobs=1).to_dict()
    listed = command("reproduce", "--list")["studies"]
    assert {entry["name"]: entry["title"] for entry in listed} == known_studies()


def test_a_plan_counts_what_remains(study, folder):
    study(TWO)
    plan = plan_study("mine.toml", jobs=2)
    assert (plan.trials, plan.waiting, plan.settings, plan.workers, plan.seconds) == (2, 2, 2, 2, 10)
    assert not plan.store.exists()
    rb.run_study("mine.toml", only={"model": ["ada"]}, jobs=0)
    assert plan_study("mine.toml").waiting == 1
    quick = plan_study("mine.toml", quick=True)
    assert (quick.study.name, quick.trials, quick.waiting) == ("mine-quick", 1, 1)


@pytest.mark.full("takes seconds")
def test_numbers_do_not_depend_on_where_trials_run(plan, folder, tmp_path):
    slots = plan(ROWS)[:3]
    stores = []
    for jobs in (0, 2):
        with open_store(tmp_path / f"{jobs}", create=True) as store, store.locked():
            assert run_trials(slots, store, jobs=jobs).ran == 3
            stores.append([store.scores(slot.id) for slot in slots])
    assert all(here.equals(there) for here, there in zip(*stores, strict=True))


def test_data_sets_of_other_tables_may_be_absent(study, folder, monkeypatch):
    """--only requires the data of the tables that it selects from, and what is known of the others remains."""
    table = '[[tables]]\nname = "{0}"\ndata = "{0}"\nmodel = "AdaRank"\nmeasures = ["AP"]\n'
    sets = ("mq2008", "ohsumed-letor2")
    study('title = "Two data sets"\n' + "".join(map(table.format, sets)))
    required = []

    def files(entry):
        if entry.name not in present:
            raise DataError(f"{entry.name} is not on this machine")
        required.append(entry.name)
        return [folder / "letor" / "train.txt"]

    monkeypatch.setattr("rankbound.studies.sources._entry_files", files)
    monkeypatch.setattr("rankbound.studies.study.run_trials", lambda slots, *_, **__: Tally(len(slots), 0, 0, 0))
    for name in sets:
        present = {name}
        result = rb.run_study("mine.toml", only={"data": name}, store="store")
        assert result.tally.total == 5
        assert set(required) == {name}
        required.clear()
    with open_store("store") as opened:
        assert {slot.setting["data"] for slot in opened.slots("mine")} == set(sets)
        assert len(opened.slots("mine")) == 10
    for options in ({}, {"only": {"table": list(sets)}}):
        with pytest.raises(DataError, match="mq2008 is not on this machine"):
            rb.run_study("mine.toml", store="store", **options)


def test_a_study_is_expanded_and_selected_once(study, monkeypatch):
    from rankbound.studies import study as module

    study(RECORDED.replace('record = ["constant"]', ""))
    calls = []
    for name in ("expand_tables", "select"):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, _f=function, _n=name, **k: calls.append(_n) or _f(*a, **k))
    rb.run_study("mine.toml", only={"model": "AdaRank"}, jobs=0, results="results", page=True)
    assert calls == ["expand_tables", "select"]


def test_optional_tables_without_data_are_left_out_of_the_files_too(study):
    own = RECORDED.replace('record = ["constant"]', "")
    study(
        own
        + own[own.index("[[tables]]") :]
        .replace("[[tables]]", "[[tables]]\noptional = true")
        .replace('letor = "letor"', 'letor = "nowhere"')
    )
    result = rb.run_study("mine.toml", jobs=0, results="results")
    assert any("left out" in note for note in result.notes)
    assert result.files[0].is_file()


def test_the_data_folder_applies_to_this_call_only(study, folder, monkeypatch):
    monkeypatch.setenv("RANKBOUND_DATA", "/before")
    environment = dict(os.environ)
    (folder / "data" / "epinions").mkdir(parents=True)
    (folder / "data" / "epinions" / "trust_data.txt").write_text("1 2 1\n2 1 1\n")
    study(
        'title = "t"\n[[tables]]\ndata = "epinions"\nmodel = "MatrixFactorization"\nnsr = 1\nloss = "nDCG"\n'
        'measures = "AP"\n'
    )
    assert plan_study("mine.toml", data=folder / "data").trials == 5
    assert dict(os.environ) == environment
    with pytest.raises(ArgumentError, match="data: nowhere is not a folder"):
        rb.run_study("mine.toml", data="nowhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": -2}, "jobs must be a positive integer, 0 or None, got -2"),
        ({"only": {"model": "adam"}}, "only: model must be one of RegressionRanker, ada, got adam"),
        ({"page": "page.txt"}, "page must be an .html file, got page.txt"),
        ({"page": "letor.html"}, "page must be a file, got the folder letor.html"),
        ({"modules": "one"}, "modules must be a list of module names, got the string 'one'"),
        ({"modules": ["../x"]}, r"modules must be names as in an import statement, got '\.\./x'"),
        ({"modules": ["no_such_module"]}, "modules: no_such_module cannot be imported: ModuleNotFoundError"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(study, folder, options, message):
    study(TWO)
    (folder / "letor.html").mkdir()
    with pytest.raises(ArgumentError, match=message):
        rb.run_study("mine.toml", **options)
    assert not (folder / "rankbound-results").exists()


# ---- modules of users ------------------------------------------------------------------------------------------------


def recorded(store) -> list[float]:
    with open_store(store) as opened:
        return opened.history_table("mine").filter(pl.col("quantity") == "constant of my module")["value"].to_list()


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("where", [{"jobs": 1}, {"jobs": 0}, {"cluster": "local:1"}])
@pytest.mark.filterwarnings("ignore")  # those of distributed
def test_every_kind_of_worker_imports_the_modules(folder, module, where):
    if "cluster" in where:
        pytest.importorskip("cryptography")
    (folder / "mine.toml").write_text(RECORDED)
    with pytest.raises(ArgumentError, match=r"record\[0\]: must be one of the registered recorders"):
        rb.run_study("mine.toml", **where)
    result = rb.run_study("mine.toml", modules=[module("my_recorders", MODULE.format(value=7.0))], **where)
    assert result.tally.failed == 0
    assert recorded(result.store) == [7.0]


def test_trials_run_again_when_a_module_has_changed(folder, module):
    (folder / "mine.toml").write_text(RECORDED)
    for value in (1.0, 22.0):  # of another length: Python may not notice a change within one second
        result = rb.run_study("mine.toml", modules=[module("my_recorders", MODULE.format(value=value))], jobs=0)
        assert (result.tally.ran, recorded(result.store)) == (1, [value])
    assert rb.run_study("mine.toml", modules=["my_recorders"], jobs=0).tally.ran == 0


HITS = """
import rankbound as rb

rb.measures.additive("MyHits", gain=lambda label: (label > 0) * 1.0, discount="constant")
"""
MEASURED = """
title = "A measure of the user"
[[tables]]
data = { letor = "letor" }
model = "AdaRank"
measures = ["MyHits@5", "P@5"]
"""


@pytest.fixture
def forget():
    yield
    if "MyHits" in [definition.name for definition in rb.measures.definitions()]:
        rb.measures.unregister("MyHits")


def check_hits(store) -> None:
    """The measure is the number of relevant items in the top 5, divided by the largest such number."""
    with open_store(store) as opened:
        scores = opened.score_table("mine").filter(pl.col("relevant") > 0)
    largest = pl.min_horizontal(5, "relevant")
    assert scores.height > 3
    assert scores["MyHits@5"].to_list() == pytest.approx(scores.select(pl.col("P@5") * 5 / largest)["P@5"].to_list())


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("where", [{"jobs": 1}, {"jobs": 0}, {"cluster": "local:1"}])
@pytest.mark.filterwarnings("ignore")  # those of distributed
def test_a_measure_of_a_module_is_known_to_every_kind_of_worker(folder, module, forget, where):
    if "cluster" in where:
        pytest.importorskip("cryptography")
    (folder / "mine.toml").write_text(MEASURED)
    with pytest.raises(ArgumentError, match=r"measures\[0\]: unknown measure 'MyHits@5'"):
        rb.run_study("mine.toml", **where)
    result = rb.run_study("mine.toml", modules=[module("my_measures", HITS)], **where)
    assert vars(result.tally) == {"total": 1, "before": 0, "ran": 1, "failed": 0}
    check_hits(result.store)


@pytest.mark.filterwarnings("ignore")
def test_a_measure_of_this_process_is_for_trials_in_this_process(folder, forget):
    pytest.importorskip("cryptography")
    (folder / "mine.toml").write_text(MEASURED)
    exec(HITS, {})
    for where in ({"jobs": 1}, {"cluster": "local:1"}):
        with pytest.raises(ArgumentError, match=r"workers do not know MyHits@5, which is registered in this process"):
            rb.run_study("mine.toml", **where)
    result = rb.run_study("mine.toml", jobs=0)
    assert (result.tally.before, result.tally.failed) == (0, 0)
    check_hits(result.store)


@pytest.mark.full("takes seconds")
def test_the_module_of_the_guide_works(folder, module):
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "own-study.md").read_text()
    (text,) = re.findall(r"```py\n(.*?)```", guide, flags=re.DOTALL)
    (line,) = re.findall(r"`(measures = .*?)`", guide)
    (folder / "mine.toml").write_text(MEASURED.replace('measures = ["MyHits@5", "P@5"]', line))
    try:
        result = rb.run_study("mine.toml", modules=[module("my_measures", text)], jobs=1)
        assert result.tally.failed == 0
        assert result.results["measure"].to_list() == ["ZipfDCG@10", "nDCG@10"]
    finally:
        rb.measures.unregister("ZipfDCG")


@pytest.mark.full("takes seconds")
def test_the_command_imports_modules(folder, module, command):
    (folder / "mine.toml").write_text(RECORDED)
    name = module("my_recorders", MODULE.format(value=3.0))
    answer = command("reproduce", "mine.toml", "--module", name, "--jobs", 1, "--no-page")
    assert answer["trials"]["failed"] == 0
    assert recorded(answer["store"]) == [3.0]


def test_a_study_file_cannot_import_anything(folder, module, tmp_path):
    module("evil", f"open({str(tmp_path / 'was_here')!r}, 'w')")
    for text in (f'modules = ["evil"]{RECORDED}', RECORDED.replace("record", "modules")):
        (folder / "mine.toml").write_text(text)
        with pytest.raises(ArgumentError, match="modules: unknown key"):
            rb.run_study("mine.toml", jobs=0)
    assert not (tmp_path / "was_here").exists()


def test_workers_refuse_another_module_than_that_of_the_runner(module):
    digests = module_digests([module("mine_alone", "x = 1")])
    import_modules(digests)
    with pytest.raises(DataError, match="mine_alone of this worker is not the one that the study was started with"):
        import_modules({"mine_alone": "0" * 32})
    with pytest.raises(DataError, match="gone_away cannot be imported by this worker: ModuleNotFoundError"):
        import_modules({"gone_away": "0" * 32})


# ---- display ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_stderr(plan, monkeypatch, capsys, terminal):
    first, second = plan(ROWS)[:2]
    outcome = Outcome(pl.DataFrame(), pl.DataFrame(), {"eval_score": 0.75})
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with show_progress() as progress:
        for stage in ("study", "data"):
            progress(StudyProgress(stage))
        progress(StudyProgress("note", "left out: [a table]"))
        progress(StudyProgress("trials", total=2))
        progress(StudyProgress("trials", done=1, total=2, slot=first, result=outcome))
        progress(StudyProgress("trials", done=2, total=2, slot=second, result=Failure("out of luck\ntraceback")))
        progress(StudyProgress("page"))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "left out: [a table]" in printed.err
    if not terminal:
        assert printed.err == f"left out: [a table]\nfailed: {second.system}: out of luck\n"


# ---- types -----------------------------------------------------------------------------------------------------------


def test_specs_and_slots_survive_json(plan):
    for slot in plan(ROWS):
        assert TrialSpec.model_validate_json(slot.trial.spec.to_json()) == slot.trial.spec
        read = TrialSlot.from_json(slot.to_json())
        assert (read.id, read.setting, read.rule, read.point) == (slot.id, slot.setting, slot.rule, slot.point)
        assert read.trial.source.files == ()  # paths belong to one machine
    with pytest.raises(ValueError, match="frozen"):
        slot.trial.spec.seed = 3
    with pytest.raises(ValueError, match="validation error"):
        TrialSlot.from_json('{"trial": {}}')


def test_values_that_json_cannot_express_are_refused(study):
    for value, message in (("nan", "must be a finite number, got nan"), ("1979-05-27", "must be a number, a string")):
        with pytest.raises(ArgumentError, match=rf"tables\[0\].params.n_restarts: {message}"):
            study(ROWS.replace("n_restarts = 1", f"n_restarts = {value}"))


def test_functions_have_few_positional_parameters():
    import importlib
    import pkgutil

    import rankbound.studies as package

    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for entry in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            positional = [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]
            assert len(positional) <= 6, f"{module.__name__}.{name}"
    assert isinstance(load_study("thesis-5.1"), Study)


@pytest.mark.parametrize("name", sorted(known_studies()))
def test_every_model_of_a_study_accepts_its_parameters(name):
    study = load_study(name)
    checked = set()
    for table in study.tables:
        for slot in expand_table(study, table):
            spec = slot.trial.spec
            if (key := f"{spec.model} {spec.params} {spec.loss} {spec.bounding} {spec.loss_options}") not in checked:
                checked.add(key)
                check_parameters(ranker_of(spec))
    assert checked or study.trials_of
