"""The file of a study: what is read, and how mistakes are reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankbound.errors import ArgumentError, DataError
from rankbound.studies.expansion import expand, make_quick, select
from rankbound.studies.figures import check_figure_names
from rankbound.studies.results import published_number, read_published
from rankbound.studies.study_files import known_studies, load_study

from .conftest import ROWS, USERS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("bounding =", "bouding ="), r"mine.toml: tables\[0\].bouding: unknown key; did you mean bounding\?"),
        (("title =", "titel = 'x'\ntitle ="), r"mine.toml: titel: unknown key; did you mean title\?"),
        (('"nDCG", "AP"]\nbounding', '"nDGC"]\nbounding'), r"tables\[0\].loss\[0\]: loss must be one of .* got 'nDGC'"),
        (('measures = ["nDCG", "AP"]', 'measures = ["nDCG", "Map10"]'), r"tables\[0\].measures\[1\]: .*Map10"),
        (("min-max", "minmax"), r"tables\[0\].bounding\[1\]: bounding must be one of none, .* got 'minmax'"),
        (
            ("MatrixFactorization", "MatrixFactorizer"),
            r"tables\[0\].model: .*MatrixFactorization.* got 'MatrixFactorizer'",
        ),
        (
            ("MatrixFactorization", "MLPRanker"),
            r"tables\[0\].model: recommenders \(.*\) are the models for users",
        ),
        (("factors = 4", "factor = 4"), r"tables\[0\].model: MatrixFactorization has no parameter 'factor'"),
        (("nsr = 1\n", ""), r"tables\[0\].nsr: the lists of users need negative items"),
        (("nsr = 1\n", "nsr = 1\ntest = 'all'\n"), r"tables\[0\].test\[0\]: .*'sampled' or 'full', got 'all'"),
        (("nsr = 1\n", "nsr = 'one'\n"), r"tables\[0\].nsr\[0\]: .*number.* got 'one'"),
        (("versus =", "choose = 'each'\nversus ="), r'tables\[0\]: choose = "each" requires selection = "test"'),
        (("versus =", "select_by = { nDCG = 'nDCG' }\nversus ="), r"tables\[0\].select_by: has no measure for .*'AP'"),
        (("versus =", "select_by = 'RR'\nversus ="), r"tables\[0\].select_by: must be one of the measures .* got 'RR'"),
        (("versus =", "report = ['RR']\nversus ="), r"tables\[0\].report\[0\]: must be one of the measures"),
        (
            ("versus =", "prepare = { binarized = 1 }\nversus ="),
            r"tables\[0\].prepare.binarized: .*did you mean binarize",
        ),
        (("versus =", "record = ['x']\nversus ="), r"tables\[0\].record\[0\]: must be one of the registered recorders"),
        (("data = {", "data = { letor = 'letor',"), r"tables\[0\].data: data must name one of letor, ratings, faces"),
        (
            ("versus =", "selection = 'test'\ntrain_on_validation = true\nversus ="),
            r"tables\[0\].train_on_validation: applies to queries only, not to ratings data",
        ),
        (
            ("versus =", "train_on_validation = true\nversus ="),
            r'tables\[0\]: train_on_validation requires selection = "test" or "last"',
        ),
        (("[[tables]]", "derived = ['x']\n[[tables]]"), r"derived\[0\]: must be one of"),
    ],
)
def test_mistakes_are_reported_with_file_and_key(study, change, message):
    text = USERS.replace(*change)
    assert text != USERS
    with pytest.raises(ArgumentError, match=message):
        study(text)


def test_other_files_are_refused(study, folder):
    with pytest.raises(DataError, match=r"mine.toml: is not valid TOML: Invalid value"):
        study("title = ")
    with pytest.raises(ArgumentError, match="a study needs at least one"):
        study("title = 'x'")
    with pytest.raises(DataError, match=r"absent.toml: cannot be read: No such file"):
        load_study("absent.toml")
    with pytest.raises(ArgumentError, match=r"unknown study 'thesis-5': did you mean .*thesis-5.1"):
        load_study("thesis-5")


def test_every_combination_becomes_a_trial(plan):
    slots = plan(USERS)
    assert len(slots) == 2 * 2 * 2 * 2  # losses, boundings, folds, rates
    assert len({slot.trial.id for slot in slots}) == len(slots)
    assert {slot.system for slot in slots} == {"nDCG · none", "nDCG · min-max", "AP · none", "AP · min-max"}
    assert {slot.variant for slot in slots} == {"NSR 1"}
    rates = select(slots, {"learning_rate": "0.1", "loss": ["nDCG"]})
    assert [slot.metadata["fold"] for slot in rates] == ["0", "1", "0", "1"]
    with pytest.raises(ArgumentError, match=r"only: unknown key 'los'; this study has .*loss"):
        select(slots, {"los": "AP"})
    with pytest.raises(ArgumentError, match=r"only: loss must be one of AP, nDCG, got RR"):
        select(slots, {"loss": "RR"})


def test_identity_is_the_content_of_spec_and_data(plan, folder):
    first = {slot.trial.id for slot in plan(USERS)}
    renamed = USERS.replace('title = "Users"', 'title = "Others"').replace(
        "[[tables]]", '[[tables]]\nname = "a"\nseconds = 1'
    )
    assert {slot.trial.id for slot in plan(renamed, "other")} == first  # names and estimates are no part of it
    assert not {slot.trial.id for slot in plan(USERS.replace("epochs = 4", "epochs = 5"))} & first
    with (folder / "ratings.csv").open("a") as stream:
        stream.write("999,1,4.0\n")
    assert not {slot.trial.id for slot in plan(USERS)} & first


def test_losses_boundings_and_ratios_have_options(plan):
    text = USERS.replace(
        'loss = ["nDCG", "AP"]', 'loss = [{ loss = "nDCG", name = "steep", options = { alpha = 10 } }]'
    )
    text = text.replace('["none", "min-max"]', '["none", { bounding = "log-distribution", ranker_strength = 0.7 }]')
    text = text.replace("nsr = 1", "nsr = [1, 2]\ntest_nsr = 1").replace(
        "learning_rate = [", '"loss.beta" = [2.0], learning_rate = ['
    )
    systems = {(slot.system, slot.variant) for slot in plan(text)}
    assert ("steep · log-distribution, ranker_strength 0.7", "NSR 2, tested at 1") in systems
    specs = [slot.trial.spec for slot in plan(text)]
    assert {spec.loss_options["alpha"] for spec in specs} == {10}
    assert {spec.loss_options["beta"] for spec in specs} == {2.0}
    assert {spec.loss_options.get("ranker_strength") for spec in specs} == {None, 0.7}
    assert {(spec.users.nsr, spec.users.test_nsr) for spec in specs} == {(1, 1), (2, 1)}


def test_defaults_are_shared_and_tables_have_their_own(study):
    text = "title = 'x'\n[defaults]\nmeasures = ['AP']\nmodel = 'AdaRank'\n[[tables]]\ndata = { letor = 'letor' }\n"
    assert study(text).tables[0].measures == ["AP"]
    own = study(text + "measures = 'nDCG'\n")
    assert own.tables[0].measures == ["nDCG"]
    with pytest.raises(ArgumentError, match=r"defaults.measure: unknown key; did you mean measures\?"):
        study(text.replace("measures =", "measure ="))


def test_a_quick_study_is_small_and_has_a_name_of_its_own(study):
    text = USERS + "[quick]\nonly = { fold = 0 }\nparams = { epochs = 1 }\ngrid = {}\nfirst = 10\n"
    quick = make_quick(study(text))
    assert (quick.name, quick.store_name) == ("mine-quick", "mine-quick")
    specs = [slot.trial.spec for slot in select(expand(quick), study(text).quick.only)]
    assert len(specs) == 4
    assert {spec.params["epochs"] for spec in specs} == {1}
    assert {spec.prepare.first for spec in specs} == {10}


def test_a_study_can_report_the_trials_of_another(study, plan, folder):
    plan(USERS, "first")
    study("title = 'x'\ntrials_of = 'first'\nreport = ['AP']\n", "second")
    second = load_study("second.toml")
    assert second.store_name == "first"
    assert {slot.identified().id for slot in expand(second)} == {slot.trial.id for slot in plan(USERS, "first")}
    assert {slot.rule.report for slot in expand(second)} == {("AP",)}


def test_folders_and_files_of_queries(plan, folder):
    assert {slot.trial.spec.fold for slot in plan(ROWS)} == {1}
    for number in (1, 2):
        (folder / "folds" / f"Fold{number}").mkdir(parents=True)
        for file in (folder / "letor").iterdir():
            (folder / "folds" / f"Fold{number}" / file.name).write_bytes(file.read_bytes())
    assert {slot.trial.spec.fold for slot in plan(ROWS.replace('"letor" }', '"folds" }'))} == {1, 2}
    files = '["letor/train.txt", "letor/vali.txt", "letor/test.txt"]'
    assert {slot.trial.spec.fold for slot in plan(ROWS.replace('"letor" }', f"{files} }}"))} == {1, 2, 3}
    single = plan(ROWS.replace('"letor" }', '"letor/train.txt" }\nfolds = 3'))
    assert {(slot.trial.spec.split, slot.trial.spec.fold) for slot in single} == {("query-folds", n) for n in range(3)}
    with pytest.raises(DataError, match=r"nowhere: no such file or folder"):
        plan(ROWS.replace('"letor" }', '"nowhere" }'))
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: expected train and test files"):
        plan(ROWS.replace('"letor" }', '"empty" }'))
    with pytest.raises(ArgumentError, match="folds must be at least 3"):
        plan(ROWS.replace('"letor" }', '"letor/train.txt" }\nfolds = 2'))


@pytest.mark.parametrize("name", known_studies())
def test_studies_that_come_with_the_package(name):
    """They can be read, all their published numbers belong to a setting, and --quick leaves something."""
    study = load_study(name)
    slots = expand(study, fetch=False)
    assert study.title
    check_figure_names(study.figures)
    settings = {(tuple(slot.setting.items()), measure) for slot in slots for measure in slot.rule.report}
    published = read_published(study.published_path, {key for slot in slots for key in slot.setting})
    if published is not None:
        if "table" in published.columns:  # optional tables are left out where their data are absent
            published = published.filter(published["table"].is_in([slot.setting["table"] for slot in slots]))
        folds = {int(fold) for fold in published["fold"]} if "fold" in published.columns else {0}
        numbers = [published_number(published, dict(setting), measure, folds) for setting, measure in settings]
        per_number = len(folds) if "fold" in published.columns else 1
        assert sum(value is not None for value in numbers) * per_number >= published.height
    assert select(expand(make_quick(study), fetch=False), study.quick.only)


def test_the_thesis_has_sixty_settings_and_numbers(study):
    slots = expand(load_study("thesis-5.1"), fetch=False)
    main = [slot for slot in slots if "highest" not in slot.setting["table"]]
    assert len({tuple(slot.setting.items()) for slot in main}) == 60
    assert {slot.trial.spec.selection for slot in slots} == {"validation"}


def test_the_examples_of_the_guide_can_be_read(study, folder):
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "own-study.md"
    examples = re.findall(r"```toml\n(.*?)```", guide.read_text(), flags=re.DOTALL)
    assert len(examples) == 2
    (folder / "letor").rename(folder / "queries")
    (folder / "ratings.csv").rename(folder / "choices.csv")
    assert [len(expand(study(text))) for text in examples] == [2 * 2 * 2 * 2 * 5, 2 + 1 + 1]
