"""Rankers on OHSUMED, fold 1: S1 to S3 to learn from, S5 to be judged on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankbound.data import read_letor
from rankbound.data.letor import LetorData
from rankbound.models import AdaRank, CoordinateAscent, LambdaMART, RankBoost, Ranker, SVMmap
from rankbound.models.measuring import mean_measure

pytestmark = pytest.mark.full("trains on real data")

MEASURE = "nDCG(dcg='exp-log2')"


@pytest.fixture(scope="module")
def fold(data_dir: Path) -> tuple[LetorData, LetorData]:
    sets = [data_dir / "ohsumed" / "QueryLevelNorm" / f"S{number}.txt.gz" for number in range(1, 6)]
    return read_letor(sets[:3]), read_letor(sets[4])


@pytest.mark.real_data
@pytest.mark.parametrize(
    "ranker",
    [
        AdaRank(MEASURE),
        RankBoost(measure=MEASURE),
        CoordinateAscent(MEASURE, n_restarts=1, max_sweeps=4),
        LambdaMART(learning_rate=0.03, num_leaves=15, measure=MEASURE),
        SVMmap(C=3.0),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_better_than_the_best_single_feature(ranker: Ranker, fold: tuple[LetorData, LetorData]) -> None:
    train, test = fold
    candidates = [sign * train.features[:, k] for sign in (1, -1) for k in range(train.features.shape[1])]
    measure = str(ranker.measure)
    best = max(mean_measure(train.lists, candidate, measure) for candidate in candidates)
    X, y, qid = train.features, train.lists.labels, train.lists.query_of_item
    on_train = ranker.fit(X, y, qid=qid).score(X, y, qid=qid)
    on_test = mean_measure(test.lists, ranker.predict(test.features), MEASURE)
    print(f"{type(ranker).__name__}: {measure} train {on_train:.4f} (best feature {best:.4f}); test nDCG {on_test:.4f}")
    assert on_train > best
    assert on_test > 0.58  # a random order has 0.486
