"""The losses in torch operations, as on other devices: forced on the CPU, and on "meta", a device without data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from tests.tiers import examples

pytest.importorskip("torch")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.losses import LiveTensors
from rankbound.errors import ArgumentError
from rankbound.losses import (
    APLoss,
    LambdaRankLoss,
    NDCGLoss,
    RankNetLoss,
    SoftmaxLoss,
    SoftRankLoss,
    XENDCGLoss,
    noise,
    pair_memory,
    set_pair_memory,
    vectorized,
)
from rankbound.losses.noise import DeviceNoise
from rankbound.losses.padded import _pack, layout_of
from rankbound.measures import unregister
from tests.losses import every_loss
from tests.losses.test_properties import (
    AFFINE,
    BY_DISTRIBUTION,
    LAMBDA,
    NOISY,
    NORMALIZED,
    OTHERS,
    RELU,
    SMOOTH,
    SOFT,
    lists,
    named,
    under,
    value_and_gradient,
)

STOCHASTIC = [
    (NDCGLoss, {"noise": 0.5, "draws": 3}),
    (SoftmaxLoss, {"noise": 1.0, "seed": 4}),
    (XENDCGLoss, {"seed": 1}),
]
CASES = [*SMOOTH, *RELU, *SOFT, *LAMBDA, *NORMALIZED, *NOISY, *OTHERS, *STOCHASTIC]
TOLERANCES = {np.float64: 1e-9, np.float32: 1e-5}


@pytest.fixture
def memory():
    """Set the memory of pairs; the default is restored."""
    yield set_pair_memory
    set_pair_memory(None)


def assert_equals_kernels(loss, case, tolerances=TOLERANCES):
    scores, labels, offsets = case
    for dtype, tolerance in tolerances.items():
        by_kernel = value_and_gradient(loss, scores.astype(dtype), labels, offsets)
        with vectorized():
            ours = value_and_gradient(loss, scores.astype(dtype), labels, offsets)
        for mine, expected in zip(ours, by_kernel, strict=True):
            assert mine.dtype == expected.dtype
            size = max(float(np.abs(expected).max(initial=0)), 0.1)  # terms of size 1 may cancel
            np.testing.assert_allclose(mine, expected, rtol=tolerance, atol=tolerance * size)


@st.composite
def lists_with_empty_ones(draw, **options):
    scores, labels, offsets = draw(lists(**options))
    repeated = draw(st.lists(st.sampled_from(list(offsets)), max_size=2))
    return scores, labels, np.sort([*offsets, *repeated])


# ---- values and gradients --------------------------------------------------------------------------------------------


@named(CASES)
@examples(2)
@given(case=lists_with_empty_ones(longest=30))
def test_equals_the_kernels(cls, options, case):
    for loss in under(cls, options, AFFINE):
        assert_equals_kernels(loss, case)


@named([*SMOOTH, *LAMBDA, *SOFT, *NORMALIZED, *NOISY])
@examples(1)
@given(case=lists_with_empty_ones(longest=6, levels=2))
def test_equals_the_kernels_under_distributions(cls, options, case):
    for loss in under(cls, options, BY_DISTRIBUTION):
        assert_equals_kernels(loss, case, {np.float64: 1e-9, np.float32: 1e-4})


@pytest.fixture
def losses():
    """Every name of a loss, with measures of a user's own, which are removed again."""
    yield list(every_loss.losses())
    for name in ("Own", "OwnCascade", "OwnStop", "OwnPairs"):
        unregister(name)


def test_equals_the_kernels_for_every_name(losses):
    for name, loss in losses:
        tolerance = 1e-7 if name.startswith("Own") else 1e-9  # slopes of their discounts are differences
        for spread in (1.0, 40.0):
            assert_equals_kernels(loss, every_loss.batch(np.float64, spread), {np.float64: tolerance})


def test_equals_the_reference_with_a_strong_ranker():
    case = every_loss.batch(np.float64, 1.0)
    case = case[0][:8], case[1][:8], case[2][:4]
    for bounding in BY_DISTRIBUTION:
        for loss in (NDCGLoss, APLoss, LambdaRankLoss):
            assert_equals_kernels(
                loss(bounding=bounding, ranker_strength=0.7, reduction="none"), case, {np.float64: 1e-9}
            )


@named(CASES)
def test_chunks_change_nothing(cls, options, memory):
    """So little memory that a chunk has one row; and so much that all lists are one chunk."""
    scores, labels, offsets = every_loss.batch(np.float64, 1.0)
    loss = cls(reduction="none", **options)
    results = []
    for megabytes in (1e-4, 64):
        memory(megabytes)
        with vectorized():
            results.append(value_and_gradient(loss, scores, labels, offsets))
    for few, many in zip(*results, strict=True):
        np.testing.assert_allclose(few, many, rtol=1e-11, atol=1e-12 * np.abs(many).max())


@named(CASES)
def test_results_are_repeated_bit_by_bit(cls, options):
    scores, labels, offsets = every_loss.batch(np.float32, 1.0)
    results = []
    for loss in (cls(reduction="none", **options), cls(reduction="none", **options)):
        with vectorized():
            results.append(value_and_gradient(loss, scores, labels, offsets))
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_reductions_weights_and_second_derivatives():
    scores, labels, offsets = every_loss.batch(np.float32, 1.0)
    x, weights = torch.tensor(scores, requires_grad=True), np.arange(5.0)
    for loss in (NDCGLoss(bounding="min-max"), NDCGLoss(reduction="sum"), RankNetLoss(reduction="none")):
        for given_weights in (None, weights, torch.tensor(weights)):
            expected = loss(x, labels, offsets, given_weights)
            with vectorized():
                ours = loss(x, labels, offsets, given_weights)
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    with vectorized(), pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(NDCGLoss()(x, labels, offsets), x, create_graph=True)


def test_empty_batches_and_batches_without_a_choice():
    with vectorized():
        for loss in (NDCGLoss(), LambdaRankLoss("Tau"), SoftmaxLoss()):
            assert loss(torch.zeros(0), [], [0]).item() == 0
            x = torch.zeros(3, requires_grad=True)
            loss(x, [1, 1, 0], [0, 2, 2, 3]).backward()
            assert x.grad.tolist() == [0, 0, 0]


def test_labels_that_change_in_place_are_seen_on_the_cpu():
    loss, labels = NDCGLoss(), torch.tensor([1, 0, 0])
    x = torch.tensor([0.3, 0.2, 0.1])
    with vectorized():
        first = loss(x, labels, [0, 3]).item()
        labels.numpy()[:] = [0, 0, 1]
        assert loss(x, labels, [0, 3]).item() > first


# ---- no copy, no loop, bounded memory --------------------------------------------------------------------------------


class NoSynchronization(TorchDispatchMode):
    """Raises on operations that make a device wait for the host, or the host for a device; counts the others."""

    forbidden = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "item", "unique")

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        self.calls += 1
        assert name not in self.forbidden, name
        if name == "_to_copy":
            assert kwargs.get("device") in (None, args[0].device), "a copy to another device"
        if name in ("index", "index_put", "index_put_"):  # a mask is turned into positions on the host
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "an index by a mask"
        return function(*args, **kwargs)


def prepared(loss, scores, labels, offsets):
    """The scores, and the layout of their plan, which one call has filled."""
    layout = layout_of(loss.plan(labels, offsets), scores.device, scores.dtype, loss._tables, loss._by_pairs)
    loss._by_formula(scores, layout, True)
    return layout


@named(CASES)
def test_nothing_is_copied_to_the_host_once_the_plan_is_known(cls, options, monkeypatch):
    monkeypatch.setattr(noise, "HostNoise", DeviceNoise)
    scores, labels, offsets = every_loss.batch(np.float32, 1.0)
    for loss in under(cls, options, ("none", "min-max")):
        x = torch.tensor(scores, requires_grad=True)
        with vectorized():
            loss(x, labels, offsets).sum().backward()
            with NoSynchronization() as mode:
                loss(x, labels, offsets).sum().backward()
        assert mode.calls > 5


def test_nothing_is_copied_for_distributions():
    scores, labels, offsets = (part[:n] for part, n in zip(every_loss.batch(np.float32, 1.0), (8, 8, 4), strict=True))
    for loss in (NDCGLoss(bounding="log-distribution"), LambdaRankLoss("Tau", bounding="distribution")):
        with vectorized():
            loss(torch.tensor(scores), labels, offsets)
            with NoSynchronization():
                loss(torch.tensor(scores), labels, offsets)


class OneDevice(TorchDispatchMode):
    """Raises on operations with tensors of several devices, which torch allows for indices."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        used = {leaf.device for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.ndim}
        assert len(used) <= 1, f"{function} of tensors on {used}"
        return function(*args, **(kwargs or {}))


@named(CASES)
def test_on_a_device_without_data(cls, options):
    """Scores on "meta" have a shape and no values: whatever looks at a value raises an error."""
    _, labels, offsets = every_loss.batch(np.float32, 1.0)
    offsets = offsets[:-1] if cls is SoftRankLoss else offsets  # without the longest list
    labels = labels[: offsets[-1]]
    for loss in under(cls, options, AFFINE[:2]):
        scores = torch.empty(len(labels), device="meta")
        layout = prepared(loss, scores, labels, offsets)
        with OneDevice():
            losses, gradient, _ = loss._by_formula(scores, layout, True)
        assert losses.device.type == gradient.device.type == "meta"
        assert losses.shape == (len(offsets) - 1,)
        assert gradient.shape == scores.shape


@named(
    [(NDCGLoss, {}), (APLoss, {"form": "ranks"}), (LambdaRankLoss, {"measure": "ERR"}), (RankNetLoss, {}), *SOFT[:1]]
)
def test_the_number_of_operations_does_not_grow_with_the_queries(cls, options):
    counts = []
    for queries in (10, 200):
        rng = np.random.default_rng(0)
        labels, offsets = rng.integers(0, 2, 10 * queries), 10 * np.arange(queries + 1)
        loss, scores = cls(**options), torch.tensor(rng.normal(size=10 * queries))
        layout = prepared(loss, scores, labels, offsets)
        with NoSynchronization() as mode:
            loss._by_formula(scores, layout, True)
        counts.append(mode.calls / len(layout.buckets))
    assert counts[1] <= 1.2 * counts[0]


@named(CASES)
@pytest.mark.parametrize("queries", [1, 12])
def test_memory_of_pairs_is_bounded(cls, options, queries, memory):
    """One long list in many chunks, and short lists in some buckets; tables with an entry per item are allowed."""
    rng, n = np.random.default_rng(0), 72 if cls is SoftRankLoss else 240
    labels, offsets = rng.integers(0, 3, n), n // queries * np.arange(queries + 1)
    loss, scores = cls(**options), torch.tensor(rng.normal(size=n), dtype=torch.float32)
    megabytes = 0.03 if queries > 1 else 0.1
    memory(megabytes)
    layout = prepared(loss, scores, labels, offsets)
    with LiveTensors() as mode:
        loss._by_formula(scores, layout, True)
    if loss._by_pairs:
        assert any(bucket.rows_at_once < bucket.rows for bucket in layout.buckets) or len(layout.buckets) > 1
    assert mode.peak <= megabytes * 2**20 + 40 * 8 * len(scores)


def test_memory_setting(memory):
    assert (pair_memory(), pair_memory("cuda")) == (8, 256)
    memory(32)
    assert (pair_memory(), pair_memory(torch.device("cuda"))) == (32, 32)
    for wrong in (0, -1, float("inf"), True, "1 GB"):
        with pytest.raises(ArgumentError, match="megabytes must be a positive number or None, got"):
            set_pair_memory(wrong)


@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=60), elements=st.sampled_from([1, 5_000, 10**7]))
@examples(30)
def test_buckets_have_every_query_once_and_little_padding(sizes, elements):
    sizes = np.array(sizes)
    rows = np.maximum(sizes // 3, 1)
    buckets = list(_pack(sizes, rows, np.arange(len(sizes)), elements))
    assert sorted(np.concatenate(buckets)) == list(range(len(sizes)))
    for bucket in buckets:
        table = len(bucket) * sizes[bucket].max() * rows[bucket].max()
        pairs = (sizes * rows)[bucket].sum()
        assert len(bucket) == 1 or table <= elements
        assert table - pairs <= max(pairs / 4, 30_000)


# ---- noise on the device ---------------------------------------------------------------------------------------------


def noise_of(scores, seed=0, offsets=None):
    offsets = [0, len(scores)] if offsets is None else offsets
    layout = layout_of(NDCGLoss().plan(np.arange(len(scores)) % 2, offsets), scores.device, scores.dtype, 2.0)
    return DeviceNoise(seed, scores, layout)


def splitmix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_mixing_is_that_of_splitmix():
    numbers = [0, 1, 2, 2**63 - 1, 12345678901234567]
    mixed = noise._mixed(torch.tensor(numbers))
    assert [x % 2**64 for x in mixed.tolist()] == [splitmix(x) for x in numbers]


def test_device_noise_is_a_function_of_seed_scores_and_offsets():
    scores = torch.linspace(-1, 1, 100)
    first = noise_of(scores).gumbel()
    torch.testing.assert_close(noise_of(scores.clone()).gumbel(), first, rtol=0, atol=0)
    other = scores.clone()
    other[50] += 1e-3
    swapped = scores.flip(0)
    for changed in (
        noise_of(other),
        noise_of(swapped),
        noise_of(scores, seed=1),
        noise_of(scores, offsets=[0, 40, 100]),
    ):
        assert (changed.gumbel() != first).sum() > 95
    drawn = noise_of(scores)
    drawn.gumbel()
    assert (drawn.gumbel() != first).sum() > 95  # every call draws anew
    zeros = torch.zeros(4)
    torch.testing.assert_close(noise_of(-zeros).uniform(), noise_of(zeros).uniform(), rtol=0, atol=0)


def test_device_noise_has_the_distributions():
    noise = noise_of(torch.linspace(-3, 3, 20_000, dtype=torch.float64), seed=2**64 - 1)
    for draw, distribution in ((noise.uniform, "uniform"), (noise.gumbel, "gumbel_r"), (noise.logistic, "logistic")):
        assert kstest(draw().numpy(), distribution).pvalue > 1e-3


def test_losses_with_device_noise_are_near_those_with_host_noise(monkeypatch):
    """Other draws, the same distribution: the means over many draws agree."""
    scores, labels, offsets = every_loss.batch(np.float64, 1.0)
    loss, x = NDCGLoss(noise=0.5, draws=400), torch.tensor(scores)
    with vectorized():
        by_host = loss(x, labels, offsets).item()
        monkeypatch.setattr(noise, "HostNoise", DeviceNoise)
        by_device = loss(x, labels, offsets).item()
    assert by_device != by_host
    assert by_device == pytest.approx(by_host, abs=0.01)
