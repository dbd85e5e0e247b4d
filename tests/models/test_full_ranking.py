"""Full ranking of a catalog: compared with loops over users that sort, exclude and count by themselves."""

from __future__ import annotations

import itertools
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
import rankbound.models.recommenders.full_ranking as full_ranking
import rankbound.models.recommenders.top_items as top_items
from rankbound.data.interactions import Interactions
from rankbound.data.ratings import read_ratings
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.measures import parse_measure
from rankbound.measures.registry import definitions
from rankbound.models.base import FittedState
from rankbound.models.recommenders.base import Recommender
from rankbound.models.recommenders.first_ranks import needs_first_ranks_only, needs_relevant_ranks_only
from rankbound.models.recommenders.full_ranking import evaluate_full_ranking, evaluate_recommender
from rankbound.models.recommenders.top_items import relevant_ranks
from tests.tiers import examples


def _table(pairs, users, items):
    chosen = np.array(sorted(pairs), dtype=np.int32).reshape(-1, 2)
    names = np.array([f"u{user:03d}" for user in range(users)]), np.array([f"i{item:03d}" for item in range(items)])
    return Interactions.from_codes(chosen[:, 0], chosen[:, 1], *names)


def _split(users, items, seed, density=0.4):
    """Disjoint training and test interactions; every user has at least one test item."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, (users, items), p=[1 - density, density / 2, density / 2])
    kind[np.arange(users), rng.integers(0, items, users)] = 2
    return tuple(_table(np.argwhere(kind == chosen).tolist(), users, items) for chosen in (1, 2))


def _candidates(train, test, scores, user):
    """Labels and scores of the candidates of a user, by a loop over the items."""
    seen = set(train.items[train.users == user].tolist())
    relevant = set(test.items[test.users == user].tolist())
    items = [item for item in range(scores.shape[1]) if item not in seen]
    return [int(item in relevant) for item in items], [float(scores[user, item]) for item in items]


def _sorted_labels(labels, scores):
    return [label for _, label in sorted(zip(scores, labels, strict=True), key=lambda pair: -pair[0])]


def _oracle(name, labels):
    """The value of a ranking, from the textbook."""
    relevant, top = sum(labels), labels[:10]
    if name == "nDCG@10":
        ideal = sum(1 / log2(rank + 1) for rank in range(1, min(10, relevant) + 1))
        return sum(label / log2(rank + 1) for rank, label in enumerate(top, 1)) / ideal
    if name == "R@10":
        return sum(top) / relevant
    if name == "Success@10":
        return float(any(top))
    if name == "AP@10":
        return sum(sum(labels[:rank]) / rank for rank, label in enumerate(top, 1) if label) / relevant
    assert name == "RR"
    return 1 / (labels.index(1) + 1)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_equal_loops_over_sorted_candidates(dtype):
    train, test = _split(50, 40, seed=1)
    scores = np.random.default_rng(2).permutation(2000).reshape(50, 40).astype(dtype)
    names = ["nDCG@10", "RR", "R@10", "Success@10", "AP@10"]
    result = evaluate_full_ranking(scores.__getitem__, train, test, names)
    assert list(result.measures) == names
    assert result.query_ids.tolist() == train.user_names.tolist()
    for user in range(50):
        labels = _sorted_labels(*_candidates(train, test, scores, user))
        for name in names:
            assert result.values[name][user] == pytest.approx(_oracle(name, labels), abs=1e-12)


@pytest.mark.parametrize("name", ["nDCG@2", "AP@2", "RR@2", "P@1", "AP"])
def test_ties_are_averaged_over_all_orders(name):
    train, test = _split(12, 6, seed=3, density=0.6)
    scores = np.random.default_rng(4).integers(0, 2, (12, 6)).astype(np.float32)
    result = evaluate_full_ranking(scores.__getitem__, train, test, name).values[name]
    for user in range(12):
        labels, own = _candidates(train, test, scores, user)
        values = []
        for order in itertools.permutations(range(len(labels))):
            if all(own[a] >= own[b] for a, b in itertools.pairwise(order)):
                ranking = [float(-position) for position in range(len(order))]
                lists = Lists([labels[item] for item in order], [0, len(order)], ranking)
                values.append(evaluate_lists(lists, name).values[name][0])
        assert result[user] == pytest.approx(np.mean(values), abs=1e-12)


def _catalog():
    for definition in definitions():
        if definition.built_in:
            cutoff = "@3" if definition.cutoff != "none" and definition.at is None else ""
            yield f"{definition.name}{cutoff}"
            if cutoff and definition.cutoff != "required":
                yield definition.name


@examples(15)
@given(users=st.integers(1, 6), items=st.integers(1, 30), levels=st.sampled_from([1, 3, 1000]), seed=st.integers(0, 99))
def test_every_measure_equals_the_evaluation_of_whole_lists(users, items, levels, seed):
    train, test = _split(users, items, seed)
    scores = np.random.default_rng(seed).integers(0, levels, (users, items)).astype(np.float32)
    rows = [_candidates(train, test, scores, user) for user in range(users)]
    offsets = np.concatenate(([0], np.cumsum([len(labels) for labels, _ in rows])))
    lists = Lists(
        np.concatenate([labels for labels, _ in rows]),
        offsets,
        np.concatenate([own for _, own in rows]),
        None,
        train.user_names,
    )
    names = [
        *_catalog(),
        *(f"{wrapper}({name})" for wrapper in ("MM", "EM", "UL2") for name in ("nDCG@3", "AP@3", "RR", "nDCG")),
    ]
    whole, result = (
        evaluate_lists(lists, names, bounds=True),
        evaluate_full_ranking(scores.__getitem__, train, test, names, bounds=True),
    )
    assert any(needs_first_ranks_only(parse_measure(name)) for name in names)
    assert any(needs_relevant_ranks_only(parse_measure(name)) for name in ("nDCG", "AP", "EM(nDCG)", "PairAcc"))
    assert result.measures == whole.measures
    assert result.query_ids.tolist() == whole.query_ids.tolist()
    for name in names:
        np.testing.assert_allclose(result.values[name], whole.values[name], atol=1e-9, err_msg=name)
        assert result.empty[name].tolist() == whole.empty[name].tolist(), name
        assert result.no_choice[name].tolist() == whole.no_choice[name].tolist(), name
    assert result.bounds.keys() == whole.bounds.keys()
    for name, bounds in whole.bounds.items():
        for side in ("worst", "expected", "best"):
            ours = getattr(result.bounds[name], side)
            np.testing.assert_allclose(ours, getattr(bounds, side), atol=1e-9, err_msg=f"{side} of {name}")


def test_ranks_of_relevant_items_equal_counting():
    rng = np.random.default_rng(10)
    labels = rng.choice(np.array([-1, 0, 1], np.int8), (20, 300), p=[0.2, 0.6, 0.2])
    for levels in (5, 100, 10**6):
        scores = rng.integers(0, levels, (20, 300)).astype(np.float64)
        rows, items = np.nonzero(labels == 1)
        order = np.lexsort((scores[rows, items], rows))
        rows, relevant = rows[order], scores[rows, items][order]
        above, equal = relevant_ranks(scores, labels, relevant, np.searchsorted(rows, np.arange(21)))
        for at, row in enumerate(rows):
            others = scores[row][labels[row] == 0]
            assert above[at] == np.count_nonzero(others > relevant[at])
            assert equal[at] == np.count_nonzero(others == relevant[at])


def test_blocks_of_users_change_nothing(monkeypatch):
    train, test = _split(23, 30, seed=5)
    scores = np.random.default_rng(6).normal(size=(23, 30)).astype(np.float32)
    blocks = []

    def score_block(users):
        blocks.append(len(users))
        return scores[users]

    names = ["nDCG@5", "AP", "EM(P@3)"]
    at_once = evaluate_full_ranking(score_block, train, test, names)
    monkeypatch.setattr(full_ranking, "_BLOCK_SCORES", 4 * 30)
    in_blocks = evaluate_full_ranking(score_block, train, test, names)
    assert blocks == [23, 4, 4, 4, 4, 4, 3]
    for name in names:
        np.testing.assert_array_equal(at_once.values[name], in_blocks.values[name])
    assert at_once.query_ids.tolist() == in_blocks.query_ids.tolist()


def test_without_kernels_the_values_are_the_same(monkeypatch):
    train, test = _split(9, 30, seed=7)
    scores = np.random.default_rng(8).normal(size=(9, 30))
    names = ["nDCG@5", "AP@5", "EM(P@3)", "AP", "EM(nDCG)", "U"]
    fast = evaluate_full_ranking(scores.__getitem__, train, test, names)
    monkeypatch.setattr(top_items, "kernel", lambda *_: None)
    slow = evaluate_full_ranking(scores.__getitem__, train, test, names)
    for name in names:
        np.testing.assert_allclose(fast.values[name], slow.values[name], atol=1e-12)


def test_the_scores_of_the_caller_are_not_changed():
    train, test = _split(5, 8, seed=9)
    scores = np.random.default_rng(9).normal(size=(5, 8)).astype(np.float32)
    before = scores.copy()
    evaluate_full_ranking(lambda users: scores[: len(users)], train, test, "nDCG@5")
    np.testing.assert_array_equal(scores, before)


def test_only_users_with_a_relevant_candidate_are_evaluated():
    train = _table([(0, 0), (1, 1), (2, 2)], 4, 4)
    test = _table([(0, 1), (1, 1), (3, 0)], 4, 4)  # user 1 has no test item but a training item, user 2 none at all
    scores = np.tile(np.arange(4.0), (4, 1))
    assert evaluate_full_ranking(scores.__getitem__, train, test, "RR").query_ids.tolist() == ["u000", "u003"]
    one = evaluate_full_ranking(scores.__getitem__, train, test, "RR", users=[3, 2])
    assert one.per_query.rows() == [("u003", 1 / 4)]  # nothing is excluded for a user without training items
    with pytest.raises(DataError, match="must have an interaction"):
        evaluate_full_ranking(scores.__getitem__, train, test, "RR", users=[1, 2])


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((2, 2)), "one column per item"),
        (np.full((2, 3), np.nan), "finite"),
        (np.full((2, 3), np.inf), "finite"),
    ],
)
def test_invalid_scores_are_reported(scores, message):
    train, test = _table([(0, 0)], 2, 3), _table([(0, 1), (1, 2)], 2, 3)
    with pytest.raises(DataError, match=message):
        evaluate_full_ranking(lambda users: scores, train, test, "RR")


def test_invalid_arguments_are_reported():
    train, test = _table([(0, 0)], 2, 3), _table([(0, 1), (1, 2)], 2, 3)
    scores = np.zeros((2, 3))
    with pytest.raises(DataError, match="share their users and items"):
        evaluate_full_ranking(scores.__getitem__, train, _table([(0, 1)], 2, 4), "RR")
    with pytest.raises(ArgumentError, match="codes from 0 to 1, got -1 to 0"):
        evaluate_full_ranking(scores.__getitem__, train, test, "RR", users=[0, -1])
    with pytest.raises(ArgumentError, match="list of user codes"):
        evaluate_full_ranking(scores.__getitem__, train, test, "RR", users=["u000"])
    with pytest.raises(ArgumentError, match="reference runs"):
        evaluate_full_ranking(scores.__getitem__, train, test, "STD(RR)")


# ---- models ----------------------------------------------------------------------------------------------------------


class _Constant(Recommender):
    """Scores the items by their code, the last first."""

    measure = "nDCG@10"

    def _fit_interactions(self, train, held_out, weights):
        pass

    def _score_block(self, users):
        return np.tile(np.arange(len(self.item_ids_), dtype=np.float32), (len(users), 1))

    def _fitted_state(self):
        return FittedState()


def _fitted():
    return _Constant().fit(Interactions.from_columns([10, 10, 20, 30], [1, 4, 2, 3]))


def test_a_model_is_evaluated_on_names():
    model = _fitted()
    test = Interactions.from_columns([20, 10, 10, 99], [4, 3, 1, 4])  # 10 has seen 1 and 4; 99 is unknown
    result = evaluate_recommender(model, test, ["RR", "P@1"])
    assert result.per_query.rows() == [(10, 1.0, 1.0), (20, 1.0, 1.0)]
    assert result.missing_queries == 1


def test_evaluate_takes_a_model_as_a_run():
    model, test = _fitted(), Interactions.from_columns([20, 10, 10, 99], [4, 3, 1, 4])
    result = rb.evaluate(test, model, ["RR", "P@1"], bounds=True)
    assert result.to_dict() == evaluate_recommender(model, test, ["RR", "P@1"], bounds=True).to_dict()
    assert result.signature["RR"] == f"RR|ties:average|empty:skip|cand:catalog|v:{rb.__version__}"
    by_name = rb.evaluate(test, {"first": model, "second": model}, "RR")
    assert by_name.mean() == {"first": {"RR": 1.0}, "second": {"RR": 1.0}}
    with pytest.raises(ArgumentError, match="takes no options of a protocol"):
        rb.evaluate(test, model, "RR", empty="zero")


def test_names_that_are_text_in_one_table_only_are_compared_as_text():
    test = Interactions.from_columns(["20", "x"], ["4", "y"])
    assert evaluate_recommender(_fitted(), test, "RR").per_query.rows() == [(20, 1.0)]


def test_unknown_items_are_relevant_and_tied_at_the_end():
    test = Interactions.from_columns([30, 30], [7, 8])  # candidates of 30: 4, 2, 1, and then 7 and 8 in any order
    result = evaluate_recommender(_fitted(), test, ["R@3", "R@4", "RR"])
    assert result.per_query.rows() == [(30, 0.0, pytest.approx(1 / 2), pytest.approx(1 / 4))]
    mixed = evaluate_recommender(_fitted(), Interactions.from_columns([30, 30], [4, 9]), ["R@3", "RR"])
    assert mixed.per_query.rows() == [(30, 1 / 2, 1.0)]


def test_other_training_items_can_be_excluded(tmp_path):
    test = Interactions.from_columns([10], [3])
    assert evaluate_recommender(_fitted(), test, "RR").mean() == {"RR": 1.0}
    train = Interactions.from_columns([20], [3])  # so that 4 is a candidate of 10
    assert evaluate_recommender(_fitted(), test, "RR", train=train).mean() == {"RR": 1 / 2}
    file = tmp_path / "test.csv"
    file.write_text("user,item\n10,3\n")
    assert evaluate_recommender(_fitted(), file, "RR").mean() == {"RR": 1.0}


def test_what_is_no_model_or_no_table_is_reported():
    test = Interactions.from_columns(["al"], [3])
    with pytest.raises(DataError, match="users of the model"):
        evaluate_recommender(_fitted(), test, "RR")
    with pytest.raises(ArgumentError, match="fitted recommender, got int"):
        evaluate_recommender(3, test, "RR")
    with pytest.raises(DataError, match=r"interactions must be a path, .* got int"):
        evaluate_recommender(_fitted(), 3, "RR")


@pytest.mark.real_data
def test_the_users_of_movielens(data_dir):
    table = read_ratings(data_dir / "ml-100k" / "ml-100k.inter.gz")
    rng = np.random.default_rng(0)
    is_test = rng.random(len(table)) < 0.2
    train, test = table.rows(~is_test), table.rows(is_test)
    scores = rng.normal(size=(len(table.user_names), len(table.item_names))).astype(np.float32)
    result = evaluate_full_ranking(scores.__getitem__, train, test, ["nDCG@10", "R@10", "RR"])
    for row in rng.choice(result.queries, 50, replace=False):
        user = int(np.flatnonzero(table.user_names == result.query_ids[row])[0])
        labels = _sorted_labels(*_candidates(train, test, scores, user))
        for name in result.measures:
            assert result.values[name][row] == pytest.approx(_oracle(name, labels), abs=1e-12)
