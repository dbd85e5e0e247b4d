"""The study of bounding for recommenders: fits are resumed, settings selected on validation data, users paired."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import bounding_recommenders as study
from benchmarks.quality import bounding_report
from benchmarks.quality.training.store import Job, Record, Store
from rankbound.data import Interactions
from rankbound.data.synthetic import synthetic_interactions

pytestmark = pytest.mark.full("tests of the benchmarks")


def _without_ratings(name: str) -> Interactions:
    table = synthetic_interactions(users=60, items=80, seed=len(name))
    return Interactions.from_columns(table.users, table.items)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small data sets, and few methods with few epochs."""
    monkeypatch.setattr(study, "load_set", _without_ratings)
    sets = {name: study.Reduced(5, users=40) for name in ("one", "three")}
    chosen = ("EASE", "nDCG, none, 1 to 5", "nDCG, expectation-max, 1 to 5")
    methods = {name: method for name, method in study.METHODS.items() if name in chosen}
    for module in (study, bounding_report):
        monkeypatch.setattr(module, "SETS", sets)
        monkeypatch.setattr(module, "METHODS", methods)
        monkeypatch.setattr(module, "SPLITS", (0, 1))
    assert len(methods) == len(chosen)
    study.parts.cache_clear()
    yield
    study.parts.cache_clear()


def test_cells_are_methods_with_the_loss_of_their_name() -> None:
    assert len({method.name for method in study.METHODS.values()}) == len(study.METHODS)
    assert {len(method.settings) for method in study.METHODS.values()} == {2}
    for method in study.METHODS.values():
        if method.loss:
            model = method.make(**method.settings[0])
            assert (model.loss, model.bounding, model.negatives) == (method.loss, method.bounding, method.negatives)


def test_a_run_fits_what_is_missing_and_the_report_compares_users(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    arguments = ["--store", str(folder), "--output", str(tmp_path)]
    assert study.main(["run", "one", "EASE", *arguments]) == 0
    assert "4 fits, 4 of them are missing" in capsys.readouterr().err
    assert study.main(["run", *arguments]) == 0
    assert "24 fits, 20 of them are missing" in capsys.readouterr().err
    monkeypatch.setattr(study, "fit", lambda *_: pytest.fail("all fits are in the store"))
    assert study.main(["run", *arguments]) == 0
    assert study.main(["report", *arguments]) == 0
    page = (tmp_path / "bounding-recommenders.md").read_text()
    assert "| expectation-max, nDCG AP RR | full ranking | " in page
    assert "Not computed yet" not in page
    with (tmp_path / "bounding-recommenders-differences.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["comparison"] == "expectation-max, nDCG, 1 to 5"]
    store = Store(folder)

    def best(dataset: str, protocol: str, method: str) -> Record:
        """The values of users, averaged over the splits, with the setting that is best on validation data in each."""
        chosen = []
        for split in (0, 1):
            records = [store.read(Job(dataset, protocol, f"{method}, setting {n}", split, split)) for n in (0, 1)]
            chosen.append(max(records, key=lambda record: record.about["validation"]))
        assert chosen[0].queries.tolist() == chosen[1].queries.tolist()
        return Record(chosen[0].queries, (chosen[0].values + chosen[1].values) / 2, {})

    for protocol in study.PROTOCOLS:
        means = []
        for dataset in ("one", "three"):
            bounded, plain = (best(dataset, protocol, f"nDCG, {b}, 1 to 5") for b in ("expectation-max", "none"))
            assert bounded.queries.tolist() == plain.queries.tolist()
            means.append(np.mean(bounded.values - plain.values))
        found = {row["sets"]: float(row["difference"]) for row in rows if row["protocol"] == protocol}
        expected = {"one": means[0], "three": means[1], "one three": np.mean(means)}
        assert found == {sets: pytest.approx(value, abs=5e-5) for sets, value in expected.items()}


def test_intervals_of_differences_are_those_of_the_paired_bootstrap(tmp_path: Path, small: None) -> None:
    store, random = Store(tmp_path), np.random.default_rng(1)
    users = np.array([f"u{number}" for number in range(200)])
    plain = random.random(200)
    for method, values in (("nDCG, none, 1 to 5", plain), ("nDCG, expectation-max, 1 to 5", plain + 0.1)):
        for number in range(2):
            for protocol in study.PROTOCOLS:
                about = {"validation": 0.5, "settings": {}, "epoch": 1, "cpu_seconds": 60.0}
                job = Job("one", protocol, f"{method}, setting {number}", 0, 0)
                store.write(job, Record(users, values, about))
    results = bounding_report.Results(store)
    pairs = [("one", "nDCG, expectation-max, 1 to 5", "nDCG, none, 1 to 5")]
    difference = results.difference("full", pairs, "x", "none")
    assert difference is not None
    # a constant difference has an interval of no width, whatever the spread of the values
    assert (difference.difference, difference.low, difference.high) == tuple([pytest.approx(0.1, abs=1e-9)] * 3)
    assert difference.verdict == "better"
    assert results.fits == 4
    assert results.seconds == 4 * 60.0
    assert results.difference("full", [("three", "EASE", "EASE")], "x", "none") is None
