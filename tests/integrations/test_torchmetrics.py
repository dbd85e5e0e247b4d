"""RankingMetric: the values of evaluate in every form of input, however queries are divided, and its errors."""

from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchmetrics")

import torch
from torchmetrics import MetricCollection
from torchmetrics.retrieval import RetrievalNormalizedDCG

import rankbound as rb
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.integrations import RankingMetric

pytestmark = pytest.mark.full("needs a tool that only .venv-all has")

MEASURES = ["nDCG@10", "EM(nDCG@10)", "AP", "ERR@10", "MM(ERR@5)", "UL2(RR)", "DB(nDCG@5)", "AP(mean='geometric')"]
RNG = np.random.default_rng(5)
SIZES = RNG.integers(1, 25, 60)
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)))
QID = np.repeat(RNG.permutation(60) * 1_000_003, SIZES)
LABELS = RNG.integers(0, 4, len(QID))
SCORES = np.round(RNG.normal(size=len(QID)), 1)  # with ties
LISTS = rb.Lists(LABELS, OFFSETS, SCORES)


def filled(measures=MEASURES, **options):
    metric = RankingMetric(measures, **options).set_dtype(torch.float64)
    metric.update(torch.tensor(SCORES), torch.tensor(LABELS), qid=torch.tensor(QID))
    return metric


def padded():
    mask = np.arange(SIZES.max()) < SIZES[:, None]
    scores, labels = np.full(mask.shape, np.nan), np.full(mask.shape, 9)
    scores[mask], labels[mask] = SCORES, LABELS
    return torch.tensor(scores), torch.tensor(labels), torch.tensor(mask)


def bits(metric):
    return {name: value.item().hex() for name, value in metric.compute().items()}


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", ["skip", "zero", "one"])
def test_values_are_those_of_evaluate_in_every_form_of_input(empty):
    expected = rb.evaluate(LISTS, measures=MEASURES, empty=empty)
    scores, labels, mask = padded()
    by_offsets, by_mask = (RankingMetric(MEASURES, empty=empty).set_dtype(torch.float64) for _ in range(2))
    by_offsets.update(SCORES, LABELS, offsets=OFFSETS)  # arrays are accepted too
    by_mask.update(scores, labels, mask=mask)
    for metric in (filled(empty=empty), by_offsets, by_mask):
        values = metric.compute()
        assert list(values) == MEASURES
        assert {name: value.item() for name, value in values.items()} == pytest.approx(expected.mean(), abs=1e-12)
    frame = by_mask.per_query()
    assert frame["qid"].to_list() == list(range(60))
    np.testing.assert_allclose(frame["AP"].to_numpy(), expected.values["AP"], atol=1e-12)
    by_id = filled(empty=empty).per_query()
    assert by_id["qid"].is_sorted()
    first_rows = {int(qid): index for index, qid in enumerate(QID[OFFSETS[:-1]])}
    order = [first_rows[qid] for qid in by_id["qid"].to_list()]
    np.testing.assert_allclose(by_id["ERR@10"].to_numpy(), expected.values["ERR@10"][order], atol=1e-12)


def test_one_measure_has_a_tensor_and_the_default_type_of_torchmetrics():
    metric = RankingMetric("nDCG@10")
    batch = metric(torch.tensor(SCORES), torch.tensor(LABELS), indexes=torch.tensor(QID))
    value = metric.compute()
    assert value.shape == () == batch.shape
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(rb.evaluate(LISTS, measures=["nDCG@10"]).mean()["nDCG@10"], abs=1e-7)
    assert set(RankingMetric(["AP"])(SCORES, LABELS, qid=QID)) == {"AP"}


def test_values_equal_those_of_torchmetrics_and_both_work_in_one_collection():
    collection = MetricCollection(
        {
            "theirs": RetrievalNormalizedDCG(top_k=10, empty_target_action="skip"),
            "ours": RankingMetric("nDCG@10"),
            "EM": RankingMetric("EM(nDCG@10)"),
        }
    )
    for start in range(0, len(QID), 100):
        rows = slice(start, start + 100)  # queries are spread over batches
        batch = torch.tensor(SCORES[rows], dtype=torch.float32), torch.tensor(LABELS[rows])
        collection.update(*batch, indexes=torch.tensor(QID[rows]))
    values = collection.compute()
    assert values["ours"].item() == pytest.approx(values["theirs"].item(), abs=1e-6)
    assert values["EM"].item() == pytest.approx(rb.evaluate(LISTS, measures=["EM(nDCG@10)"]).mean()["EM(nDCG@10)"])
    groups = [sorted(names) for names in collection.compute_groups.values()]
    assert sorted(groups) == [["EM", "ours"], ["theirs"]]  # ours share their state
    collection.reset()
    collection.update(torch.tensor([0.5, 0.1]), torch.tensor([0, 1]), indexes=torch.tensor([7, 7]))
    assert collection.compute()["EM"].item() == -1.0  # E = (1 + d) / 2 and B = 1: (d - E) / (B - E)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_scores_in_half_precision_are_ranked_as_they_are(precision):
    scores = torch.tensor(np.random.default_rng(1).normal(size=len(QID))).to(precision)
    metric = RankingMetric(MEASURES).set_dtype(torch.float64)
    metric.update(scores, torch.tensor(LABELS), qid=torch.tensor(QID))
    expected = rb.evaluate(LISTS.with_scores(scores.double().numpy()), measures=MEASURES).mean()
    assert {name: value.item() for name, value in metric.compute().items()} == pytest.approx(expected, abs=1e-12)


def test_a_metric_in_half_precision_keeps_ids_and_scores():
    """Only the results get the type: ids above 2,048 would clash in 16 bits."""
    metric = filled("AP")
    for changed in (metric.clone().set_dtype(torch.float16), metric.clone().to(torch.float16), metric.clone().half()):
        changed.update([0.5], [1], qid=[int(QID.max()) + 1])
        assert len(changed.per_query()) == 61
        np.testing.assert_array_equal(changed.per_query()["AP"].to_numpy()[:60], metric.per_query()["AP"].to_numpy())
    assert metric.clone().set_dtype(torch.float16).compute().dtype == torch.float16


def test_ties_in_the_order_of_the_input():
    metric = RankingMetric("RR", ties="input")
    metric.update([0.5, 0.5], [0, 1], qid=[1, 1])
    assert metric.compute().item() == 0.5
    average = RankingMetric("RR")
    average.update([0.5, 0.5], [0, 1], qid=[1, 1])
    assert average.compute().item() == 0.75


def test_interval_is_that_of_evaluate():
    metric = filled(["AP", "EM(AP)"])
    evaluation = rb.evaluate(rb.Lists.from_qid(LABELS, QID, SCORES), measures=["AP", "EM(AP)"])
    expected = evaluation.interval(0.9, method="t")
    interval = metric.interval(0.9, method="t")
    assert list(interval) == list(expected)
    for name, ends in expected.items():
        assert interval[name] == pytest.approx(ends, abs=1e-12)


def test_higher_is_better_follows_the_measures():
    assert RankingMetric(["nDCG", "EM(U)"]).higher_is_better is True
    assert RankingMetric("U").higher_is_better is False
    assert RankingMetric(["nDCG", "U"]).higher_is_better is None


def test_no_query_with_a_value_is_nan():
    metric = RankingMetric("nDCG@10")
    metric.update([0.5, 0.1], [0, 0], offsets=[0, 2])
    assert torch.isnan(metric.compute())
    assert metric.per_query()["nDCG@10"].to_list() == [None]


def test_queries_without_items_have_no_value():
    metric = RankingMetric("RR")
    metric.update([0.5, 0.1], [0, 1], offsets=[0, 0, 2, 2])
    assert metric.compute().item() == 0.5
    assert metric.per_query()["RR"].to_list() == [None, 0.5, None]
    nothing = RankingMetric("RR")
    nothing.update(torch.zeros(0), torch.zeros(0), offsets=[0, 0, 0])
    assert torch.isnan(nothing.compute())


def test_groups_have_means_and_a_worst_one():
    languages = {int(qid): "de" if index % 3 else "en" for index, qid in enumerate(QID[OFFSETS[:-1]])}
    metric = filled(["nDCG@10", "U"], groups=languages)
    expected = rb.evaluate(rb.Lists.from_qid(LABELS, QID, SCORES), measures=["nDCG@10", "U"], groups=languages)
    values = {name: value.item() for name, value in metric.compute().items()}
    for row in expected.by_group:
        assert values[f"{row.measure}_group={row.group}"] == pytest.approx(row.mean, abs=1e-12)
    means = {name: [values[f"{name}_group=de"], values[f"{name}_group=en"]] for name in ("nDCG@10", "U")}
    assert values["nDCG@10_worst_group"] == min(means["nDCG@10"])
    assert values["U_worst_group"] == max(means["U"])  # lower is better
    assert [row.mean for row in metric.evaluation().by_group] == pytest.approx([row.mean for row in expected.by_group])


def test_groups_of_one_measure_make_a_dict_and_a_batch_may_have_no_entry():
    table = pl.DataFrame({"qid": [1, 2], "language": ["de", "en"], "length": ["short", "short"]})
    metric = RankingMetric("RR", groups=table).set_dtype(torch.float64)
    batch = metric([0.1, 0.9], [1, 0], qid=[3, 3])
    assert {name: value.item() for name, value in batch.items()} == {
        "RR": 0.5,
        "RR_language=(none)": 0.5,
        "RR_worst_language": 0.5,
        "RR_length=(none)": 0.5,
        "RR_worst_length": 0.5,
    }
    metric.update([0.9, 0.1, 0.1, 0.9], [1, 0, 1, 0], qid=[1, 1, 2, 2])
    values = {name: value.item() for name, value in metric.compute().items()}
    assert (values["RR_language=de"], values["RR_language=en"], values["RR_length=short"]) == (1.0, 0.5, 0.75)
    other = RankingMetric("RR", groups={"a": "x"})
    other.update([0.9], [1], qid=[1])
    with pytest.raises(DataError, match="do the query ids match"):
        other.evaluation()


# ---- state -----------------------------------------------------------------------------------------------------------


def test_reset_clone_copy_and_pickle():
    metric = filled()
    value = bits(metric)
    others = [metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))]
    metric.reset()
    assert [metric.update_count, *(len(state) for state in metric.metric_state.values())] == [0, 0, 0, 0, 0]
    for other in others:
        assert bits(other) == value
        assert len(other.per_query()) == 60
    metric.update([0.5, 0.1], [0, 1], qid=[3, 3])
    assert metric.compute()["AP"].item() == 0.5
    assert metric.evaluation().queries == 1


def test_the_value_of_a_batch_does_not_disturb_the_whole():
    metric = RankingMetric("AP").set_dtype(torch.float64)
    for query in range(60):
        items = slice(OFFSETS[query], OFFSETS[query + 1])
        batch = metric(SCORES[items], LABELS[items], offsets=[0, SIZES[query]])
        expected = rb.evaluate(LISTS, measures=["AP"]).values["AP"][query]
        assert batch.item() == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert metric.compute().item() == pytest.approx(rb.evaluate(LISTS, measures=["AP"]).mean()["AP"], abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_items_and_queries_changes_no_bit(seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice([0, 0.3, 0.7, 1.1], len(LABELS))  # sums of them depend on the order in which they are added
    whole = RankingMetric(MEASURES).set_dtype(torch.float64)
    whole.update(SCORES, labels, qid=QID)
    first, second = (RankingMetric(MEASURES).set_dtype(torch.float64) for _ in range(2))
    rows = rng.permutation(len(QID))
    for index, part in enumerate(np.array_split(rows, 7)):  # items of one query are in different metrics
        (first, second)[index % 2].update(SCORES[part], labels[part], qid=QID[part])
    second.merge_state(first)
    assert bits(second) == bits(whole)
    assert second.per_query().equals(whole.per_query())
    assert second.interval(resamples=100) == whole.interval(resamples=100)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_queries_without_ids_changes_no_bit(seed):
    rng = np.random.default_rng(seed)
    whole, parts = (RankingMetric(MEASURES).set_dtype(torch.float64) for _ in range(2))
    whole.update(SCORES, LABELS, offsets=OFFSETS)
    for queries in np.array_split(rng.permutation(60), 7):
        items = np.concatenate([np.arange(OFFSETS[query], OFFSETS[query + 1]) for query in queries])
        parts.update(SCORES[items], LABELS[items], offsets=np.concatenate(([0], np.cumsum(SIZES[queries]))))
    assert bits(parts) == bits(whole)
    assert parts.interval(resamples=100) == whole.interval(resamples=100)


# ---- processes -------------------------------------------------------------------------------------------------------

WORKER = """
import json, sys
import numpy as np, torch
from rankbound.integrations import RankingMetric

rank, store, data = int(sys.argv[1]), sys.argv[2], json.load(open(sys.argv[3]))
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
results = []
for case in data["cases"]:
    metric = RankingMetric(data["measures"]).set_dtype(torch.float64)
    for form, batch in case[rank]:
        scores, labels, queries = (np.array(values) for values in batch)
        metric.update(torch.tensor(scores), torch.tensor(labels), **{form: torch.tensor(queries)})
    try:
        values = {name: value.item().hex() for name, value in metric.compute().items()}
        rows = metric.per_query()
        results.append([values, rows.height, rows["qid"].sum(), sum(len(part) for part in metric.scores)])
    except ValueError as error:
        results.append(str(error))
json.dump(results, open(f"{store}.{rank}.json", "w"))
torch.distributed.destroy_process_group()
"""


def _rows(rows):
    return ["qid", [SCORES[rows].tolist(), LABELS[rows].tolist(), QID[rows].tolist()]]


def _queries(queries):
    items = np.concatenate([np.arange(OFFSETS[query], OFFSETS[query + 1]) for query in queries])
    ends = np.concatenate(([0], np.cumsum(SIZES[queries])))
    return ["offsets", [SCORES[items].tolist(), LABELS[items].tolist(), ends.tolist()]]


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric RankingMetric was called before")
def test_two_processes_give_the_value_of_one_bit_for_bit(tmp_path):
    rows, queries = np.random.default_rng(8).permutation(len(QID)), np.random.default_rng(9).permutation(60)
    cases = {
        "items at random": [[_rows(rows[:300]), _rows(rows[300:350])], [_rows(rows[350:])]],
        "alternating items": [[_rows(np.arange(0, len(QID), 2))], [_rows(np.arange(1, len(QID), 2))]],
        "one process without items": [[], [_rows(np.arange(len(QID)))]],
        "queries at random": [[_queries(queries[:11]), _queries(queries[11:25])], [_queries(queries[25:])]],
        "one process without queries": [[_queries(queries)], []],
        "ids in one process only": [[_rows(rows[:300])], [_queries(queries)]],
        "nothing": [[], []],
    }
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"measures": MEASURES, "cases": list(cases.values())}))
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    store = tmp_path / "store"
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(rank), store, data], env=environment) for rank in range(2)
    ]
    try:
        assert [worker.wait(timeout=240) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
    results = [json.loads((tmp_path / f"store.{rank}.json").read_text()) for rank in range(2)]
    without_ids = RankingMetric(MEASURES).set_dtype(torch.float64)
    without_ids.update(SCORES, LABELS, offsets=OFFSETS)
    expected = {True: bits(filled()), False: bits(without_ids)}
    ids = {True: int(QID[OFFSETS[:-1]].sum()), False: sum(range(60))}
    for rank in range(2):
        found = dict(zip(cases, results[rank], strict=True))
        assert found.pop("ids in one process only").startswith("every update of a metric must give qid, or none")
        assert found.pop("nothing").startswith("there are no queries to evaluate")
        for name, (values, height, sum_of_ids, local) in found.items():
            has_ids = "items" in name
            assert values == expected[has_ids], name
            assert (height, sum_of_ids) == (60, ids[has_ids])
            batches = cases[name][rank]
            assert local == sum(len(batch[0]) for _, batch in batches)  # the own items are there again afterwards


# ---- errors ----------------------------------------------------------------------------------------------------------

ONES = torch.ones(4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((ONES, ONES), {}, r"update needs exactly one of qid \(or indexes\), offsets or mask, got none of them"),
        ((ONES, ONES), {"qid": ONES.long(), "offsets": [0, 4]}, "exactly one of .* got qid and offsets"),
        ((ONES, ONES), {"qid": ONES.long(), "indexes": ONES.long()}, "two names of one argument"),
        ((ONES, ONES[:3]), {"qid": ONES.long()}, r"labels must have the shape of scores, \(4,\), got \(3,\)"),
        ((ONES, ONES), {"qid": ONES[:2].long()}, r"qid must have the shape of scores, \(4,\), got \(2,\)"),
        ((ONES, ONES), {"qid": ONES}, "qid must be integers, got torch.float32"),
        ((ONES, ONES), {"qid": ["a"] * 4}, "qid must be numbers, got <U1 such as 'a'"),
        ((ONES, ONES), {"offsets": [0, 3]}, "offsets must end with the number of items, 4, got 3"),
        ((ONES, ONES), {"offsets": [0, 3, 2, 4]}, "offsets must never decrease, got 3 then 2"),
        ((ONES, ONES), {"offsets": [1, 4]}, r"offsets must begin with 0, got \[1\]"),
        ((ONES[None], ONES[None]), {"offsets": [0, 4]}, r"scores must be 1-D with offsets, got shape \(1, 4\)"),
        ((ONES, ONES), {"mask": ONES.bool()}, r"scores must be 2-D with a mask, got shape \(4,\)"),
        ((ONES[None], ONES[None]), {"mask": ONES[None, :2].bool()}, r"mask must have the shape of scores, \(1, 4\)"),
        ((ONES[None], ONES[None]), {"mask": 2 * ONES[None]}, "mask must be true or false everywhere, got 2.0"),
        ((ONES, ONES.to("meta")), {"offsets": [0, 4]}, "labels must be on the device of scores, cpu, got meta"),
        ((ONES, ONES), {"qid": ONES.long().to("meta")}, "qid must be on the device of scores, cpu, got meta"),
        ((ONES / 0, ONES), {"offsets": [0, 4]}, "scores must be finite, got inf at position 0"),
        ((ONES, torch.tensor([0, 1, np.nan, 2])), {"offsets": [0, 4]}, "labels must be finite, got nan at position 2"),
        ((ONES * 1j, ONES), {"offsets": [0, 4]}, "scores must be a dense tensor of real numbers, got torch.complex64"),
        ((["a", "b"], [1, 0]), {"offsets": [0, 2]}, "scores must be numbers, got <U1 such as 'a'"),
    ],
)
def test_a_batch_that_cannot_be_used_is_refused_and_not_kept(arguments, options, message):
    metric = RankingMetric("AP")
    with pytest.raises((ArgumentError, DataError), match=message):
        metric.update(*arguments, **options)
    assert all(len(state) == 0 for state in metric.metric_state.values())


def test_settings_are_checked_when_the_metric_is_made():
    with pytest.raises(ArgumentError, match="ties must be one of average, input, got 'docid'"):
        RankingMetric(ties="docid")
    with pytest.raises(ArgumentError, match="empty must be one of skip, zero, one, got 'neg'"):
        RankingMetric(empty="neg")
    with pytest.raises(MeasureError, match="unknown measure 'nDGC'; nearest names: nDCG"):
        RankingMetric("nDGC")
    with pytest.raises(ArgumentError, match=r"measures must need no reference runs, got STD\(AP\)"):
        RankingMetric("STD(AP)")
    with pytest.raises(ArgumentError, match="measures must name at least one measure"):
        RankingMetric([])


def test_compute_without_update_warns_and_is_an_error():
    with (
        pytest.warns(UserWarning, match="was called before the ``update`` method"),
        pytest.raises(DataError, match="there are no queries to evaluate: call update before compute"),
    ):
        RankingMetric().compute()


def test_ids_are_given_in_every_update_or_in_none():
    metric = RankingMetric("AP")
    metric.update(ONES, ONES, qid=ONES.long())
    metric.update(ONES, ONES, offsets=[0, 4])
    with pytest.raises(DataError, match="every update of a metric must give qid, or none of them"):
        metric.compute()


def test_without_torchmetrics_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "rankbound.integrations.torchmetrics")
    with pytest.raises(ImportError, match=r'needs torchmetrics: pip install "\.\[torchmetrics\]"'):
        importlib.import_module("rankbound.integrations.torchmetrics")
