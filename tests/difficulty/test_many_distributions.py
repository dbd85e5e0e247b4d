"""Properties of all distributions, the smooth distribution, many queries at once, the cache, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.cli.main import run
from rankbound.difficulty.bounds import bounds_of
from rankbound.difficulty.distribution import Distribution, choice, distribution
from rankbound.difficulty.distribution import cache as distribution_cache
from rankbound.difficulty.distribution.many import distributions_of
from rankbound.errors import ArgumentError
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, parse_measure, rank, values
from tests.tiers import examples

MEASURES = [
    "nDCG",
    "nDCG(dcg='exp-log2')@5",
    "DCG@3",
    "ERR@5",
    "AP",
    "AP(div='retrieved')@5",
    "SP@7",
    "P@5",
    "R@5",
    "RR",
]
MEASURES += ["Success@3", "Rprec", "RBP", "RBP(gain='graded')", "nRBP(p=0.95)", "U", "PairAcc", "Tau"]


@pytest.fixture(autouse=True)
def cache_of_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    choice._remembered.cache_clear()
    return tmp_path / "cache" / "distributions"


def direct_smooth_cdf(null: Distribution, x: np.ndarray) -> np.ndarray:
    """Algorithm 2 of the thesis "Metric bounding in learning to rank", as it is written."""
    width = null.scores[-1] - null.scores[0]
    a = len(null.scores) / width if width > 0 else 1.0
    with np.errstate(over="ignore"):
        return np.array([float(null.probabilities @ (1 / (1 + np.exp(-a * (each - null.scores))))) for each in x])


@examples(60)
@given(
    measure=st.sampled_from(MEASURES),
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    depth=st.none() | st.integers(1, 12),
    ranker_strength=st.sampled_from([0.5, 0.5, 0.7]),
)
def test_every_distribution_is_a_distribution(
    measure: str, labels: list[int], depth: int | None, ranker_strength: float
) -> None:
    null = distribution(measure, labels=labels, depth=depth, ranker_strength=ranker_strength, cache=False)
    assert (np.diff(null.scores) > 0).all()
    assert (null.probabilities >= 0).all()
    assert null.probabilities.sum() == pytest.approx(1, abs=1e-12)
    counts = LabelCounts.from_labels(
        labels, [0, len(labels)], None if depth is None else np.minimum([len(labels)], depth)
    )
    bounds = bounds_of(parse_measure(measure), counts)
    low, high = sorted((float(bounds.worst[0]), float(bounds.best[0])))
    assert low - 1e-9 <= null.scores[0]
    assert null.scores[-1] <= high + 1e-9
    if ranker_strength == 0.5:
        assert null.mean == pytest.approx(float(bounds.expected[0]), abs=1e-9)
    x = np.sort(np.concatenate((null.scores, np.linspace(low - 1, high + 1, 50))))
    assert (np.diff(null.cdf(x)) >= 0).all()
    assert (np.diff(null.survival(x)) <= 0).all()
    assert null.cdf(null.scores) + null.survival(null.scores) == pytest.approx(1 + null.probabilities)
    assert (null.quantile(null.cdf(null.scores)) <= null.scores).all()
    q = np.linspace(0, 1, 30)
    assert (null.cdf(null.quantile(q)) >= q - 1e-11).all()
    assert not null.scores.flags.writeable
    assert not null.probabilities.flags.writeable


@examples(40)
@given(st.sampled_from(MEASURES), st.lists(st.integers(0, 2), min_size=1, max_size=9))
def test_smooth_distribution_is_the_sum_of_logistics(measure: str, labels: list[int]) -> None:
    null = distribution(measure, labels=labels, cache=False)
    width = max(null.scores[-1] - null.scores[0], 1.0)
    x = np.linspace(null.scores[0] - 3 * width, null.scores[-1] + 3 * width, 200)
    x = np.sort(np.concatenate((x, null.scores[:50], np.linspace(null.scores[0], null.scores[-1], 397))))
    value, slope = null.smooth_cdf(x), null.smooth_slope(x)
    assert np.abs(value - direct_smooth_cdf(null, x)).max() < 1e-6
    assert (np.diff(value) >= -1e-15).all()
    assert value.min() >= 0
    assert value.max() <= 1
    assert (slope >= 0).all()


@pytest.mark.parametrize(("measure", "n", "p"), [("nDCG", 100, 25), ("AP", 400, 100), ("RBP", 60, 20), ("U", 40, 20)])
def test_smooth_distribution_of_long_lists(measure: str, n: int, p: int) -> None:
    null = distribution(measure, n=n, relevant=p)
    x = np.random.default_rng(0).uniform(null.scores[0] - 0.1, null.scores[-1] + 0.1, 500)
    assert np.abs(null.smooth_cdf(x) - direct_smooth_cdf(null, x)).max() < 1e-6
    h = 1e-3 * (null.scores[-1] - null.scores[0]) / len(null)
    numeric = (null.smooth_cdf(x + h) - null.smooth_cdf(x - h)) / (2 * h)
    assert null.smooth_slope(x) == pytest.approx(numeric, abs=1e-4 * null.smooth_slope(x).max() + 1e-8)


def test_smooth_tails_stay_inside_zero_and_one() -> None:
    null = distribution("P@2", n=6, relevant=3)
    x = np.array([-30.0, -8.0, -5.0, -4.0, 5.0, 6.0])
    far = null.smooth_cdf(x)
    assert far == pytest.approx(direct_smooth_cdf(null, x), rel=1e-6, abs=0)
    assert 0 < far[0] < far[1] < far[2] < far[3]
    assert far[4] < far[5] < 1


def test_scalars_in_scalars_out_and_nan_stays_nan() -> None:
    null = distribution("RR", n=3, relevant=1)
    assert isinstance(null.cdf(0.5), float)
    assert null.cdf(0.5) == pytest.approx(2 / 3)
    assert null.survival(0.5) == pytest.approx(2 / 3)
    assert null.quantile([0, 0.5, 1]).tolist() == pytest.approx([1 / 3, 0.5, 1])
    assert math.isnan(null.cdf(math.nan))
    assert math.isnan(null.smooth_cdf(math.nan))
    with pytest.raises(ArgumentError, match="q must lie between 0 and 1"):
        null.quantile(1.5)


def test_samples_depend_on_the_seed_only() -> None:
    first, again, other = (
        distribution("AP", n=30, relevant=9, method="sampled", samples=500, seed=s) for s in (1, 1, 2)
    )
    assert first.scores.tolist() == again.scores.tolist()
    assert first.scores.tolist() != other.scores.tolist()
    assert first.method == "sampled"


# ---- many queries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
def test_distributions_of_many_queries_equal_one_at_a_time(measure: str) -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 9, 40)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    lists = Lists(
        rng.integers(0, 3, offsets[-1]), offsets, scores=rng.random(offsets[-1]), depths=rng.integers(1, sizes + 1)
    )
    plain = parse_measure(measure)
    many = distributions_of(plain, LabelCounts.from_labels(lists.labels, lists.offsets, lists.depths))
    x = values(rank(lists), plain)
    below, above, (smooth, slope) = many.cdf(x), many.survival(x), many.smooth_cdf(x)
    assert len(many) == 40
    assert lists.depths is not None
    for q in range(40):
        labels = lists.labels[offsets[q] : offsets[q + 1]]
        null = distribution(plain, labels=labels, depth=int(lists.depths[q]))
        assert below[q] == pytest.approx(null.cdf(x[q]), abs=1e-12)
        assert above[q] == pytest.approx(null.survival(x[q]), abs=1e-12)
        assert smooth[q] == pytest.approx(null.smooth_cdf(x[q]), abs=1e-12)
        assert slope[q] == pytest.approx(null.smooth_slope(x[q]), abs=1e-9)
        assert above[q] > 0  # the value of a ranking has a positive probability
        assert below[q] > 0


def test_queries_that_the_measure_cannot_distinguish_share_a_distribution() -> None:
    counts = LabelCounts.from_labels([2, 0, 1, 0, 3, 0, 0, 1, 0], [0, 2, 4, 6, 9])
    assert len(distributions_of(parse_measure("AP"), counts).distributions) == 2
    assert (
        len(distributions_of(parse_measure("nDCG"), counts).distributions) == 2
    )  # one relevant item: its gain cancels
    assert len(distributions_of(parse_measure("DCG"), counts).distributions) == 4


def test_progress_and_empty_input() -> None:
    seen: list[tuple[int, int]] = []
    distributions_of(
        parse_measure("AP"),
        LabelCounts.binary([3, 4, 3], [1, 1, 1]),
        progress=lambda done, all_: seen.append((done, all_)),
    )
    assert seen == [(1, 2), (2, 2)]
    none = distributions_of(parse_measure("AP"), LabelCounts.from_labels(np.zeros(0, dtype=int), [0]))
    assert none.cdf(np.zeros(0)).tolist() == none.smooth_cdf(np.zeros(0))[0].tolist() == []


def test_lookup_requires_one_x_per_query() -> None:
    with pytest.raises(ArgumentError, match="x must hold one number per query, 2"):
        distributions_of(parse_measure("AP"), LabelCounts.binary([3, 4], 1)).cdf(np.zeros(3))


# ---- the cache -------------------------------------------------------------------------------------------------------


def long_distribution() -> Distribution:
    """A distribution that is slow enough to be stored on disk; the cache in memory is cleared first."""
    choice._remembered.cache_clear()
    return distribution("AP", n=120, relevant=30)


def test_cache_returns_the_stored_distribution(cache_of_test: Path) -> None:
    first = long_distribution()
    (file,) = cache_of_test.glob("*")
    stamp = file.stat().st_mtime_ns
    again = long_distribution()
    assert again.scores.tolist() == first.scores.tolist()
    assert again.probabilities.tolist() == first.probabilities.tolist()
    assert again.method == first.method == "dynamic"
    assert file.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not a zip", None])
def test_damaged_file_is_recomputed(cache_of_test: Path, damage: bytes | None) -> None:
    first = long_distribution()
    (file,) = cache_of_test.glob("*.npz")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert long_distribution().probabilities.tolist() == first.probabilities.tolist()
    assert file.read_bytes() == whole


def test_file_with_invalid_probabilities_is_recomputed(cache_of_test: Path) -> None:
    first = long_distribution()
    (file,) = cache_of_test.glob("*.npz")
    np.savez(file, scores=first.scores, probabilities=first.probabilities * 2, method=np.array("dynamic"))
    assert long_distribution().probabilities.tolist() == first.probabilities.tolist()


def test_pickled_arrays_are_rejected(cache_of_test: Path) -> None:
    long_distribution()
    (file,) = cache_of_test.glob("*.npz")
    np.savez(file, scores=np.array([print], dtype=object), probabilities=np.ones(1), method=np.array("dynamic"))
    assert long_distribution().method == "dynamic"


def test_unusable_folder_disables_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "file"))
    assert long_distribution().mean == pytest.approx(long_distribution().mean)
    monkeypatch.setenv("RANKBOUND_CACHE", "")
    assert long_distribution().method == "dynamic"


def test_cache_removes_old_files(cache_of_test: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution_cache, "_MOST_FILES", 7)
    for i in range(20):
        distribution_cache.store(i, (np.zeros(1), np.ones(1), "closed"))
    assert len(list(cache_of_test.iterdir())) <= 7
    assert distribution_cache.load(19) is not None


@pytest.mark.parametrize("is_slow", [False, True])
def test_only_slow_distributions_are_written_to_disk(
    cache_of_test: Path, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    monkeypatch.setattr(choice, "_SLOW", -1.0 if is_slow else math.inf)  # whatever else the machine does
    choice._remembered.cache_clear()
    distribution("P@5", n=100, relevant=20)  # has a closed form
    assert not cache_of_test.exists()
    distribution("nDCG", n=5, relevant=2)
    assert cache_of_test.exists() == is_slow


# ---- the command -----------------------------------------------------------------------------------------------------


def test_command_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["distribution", "AP", "--n", "3", "--relevant", "2", "--quantiles", "0,1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["mean"] == pytest.approx(29 / 36)
    assert answer["quantiles"] == pytest.approx({"0": 7 / 12, "1": 1.0})
    assert answer["method"] == "enumeration"
    assert sum(answer["probabilities"]) == pytest.approx(1)
    assert len(answer["scores"]) == 3


def test_command_bins_long_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["distribution", "nDCG", "--n", "15", "--relevant", "5", "--points", "50", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["scores"]) <= 50
    assert np.dot(answer["scores"], answer["probabilities"]) == pytest.approx(answer["mean"])


def test_command_prints_a_histogram(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["distribution", "nDCG", "--labels", "2,1,0,0,0,1,0,0", "--ranker-strength", "0.7"]) == 0
    out = capsys.readouterr().out
    assert "a ranker of strength 0.7" in out
    assert "quantile 0.95" in out
    assert "█" in out


@pytest.mark.parametrize(
    "arguments",
    [["AP"], ["AP", "--n", "2", "--relevant", "3"], ["AP", "--n", "2", "--relevant", "1", "--quantiles", "2"],
     ["MM(AP)", "--n", "2", "--relevant", "1"], ["AP", "--n", "2", "--relevant", "1", "--points", "0"]],
)  # fmt: skip
def test_command_rejects_bad_input(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["distribution", *arguments]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err.count("\n") == 1
