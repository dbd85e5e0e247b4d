"""Distillation: a student at its teacher is at rest; the rest against formulas written with loops."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.errors import ArgumentError, DataError
from rankbound.losses import (
    DistillationLoss,
    RankNetLoss,
    SoftmaxLoss,
    get_loss,
    gradient_and_hessian,
    vectorized,
)

KINDS = ("listwise", "pairwise")
OFFSETS = np.array([0, 6, 7, 7, 16])
RNG = np.random.default_rng(1)
TEACHER, STUDENT = 3 * RNG.normal(size=16), RNG.normal(size=16)


def value_and_gradient(loss, scores, labels, offsets, dtype=torch.float64):
    scores = torch.tensor(scores, dtype=dtype, requires_grad=True)
    value = loss(scores, labels, offsets)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value.detach(), gradient.numpy()


def by_hand(kind, student, teacher, temperature, teacher_temperature):
    """The loss of one list, written with loops."""
    f, t = [x / temperature for x in student], [x / teacher_temperature for x in teacher]
    if kind == "listwise":
        mass, teacher_mass = sum(map(math.exp, f)), sum(map(math.exp, t))
        return -sum(math.exp(t[i]) / teacher_mass * math.log(math.exp(f[i]) / mass) for i in range(len(f)))
    costs = []
    for i, j in combinations(range(len(f)), 2):
        p, target = 1 / (1 + math.exp(f[j] - f[i])), 1 / (1 + math.exp(t[j] - t[i]))
        costs.append(-target * math.log(p) - (1 - target) * math.log(1 - p))
    return sum(costs) / len(costs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("temperature", "teacher_temperature"), [(1.0, None), (2.0, None), (0.5, 3.0)])
def test_the_formula(kind, temperature, teacher_temperature):
    loss = DistillationLoss(
        kind, temperature=temperature, teacher_temperature=teacher_temperature, reduction="none"
    )  # fmt: skip
    values, gradient = value_and_gradient(loss, STUDENT, TEACHER, OFFSETS)
    for q, (lo, hi) in enumerate(pairwise(OFFSETS)):
        expected = 0.0
        if hi - lo > 1:
            softening = teacher_temperature or temperature
            expected = by_hand(kind, STUDENT[lo:hi], TEACHER[lo:hi], temperature, softening)
        assert values[q].item() == pytest.approx(expected, rel=1e-12)
    with vectorized():
        by_formula = value_and_gradient(loss, STUDENT, TEACHER, OFFSETS)
    np.testing.assert_allclose(values, by_formula[0], rtol=1e-12)
    np.testing.assert_allclose(gradient, by_formula[1], atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 5.0])
def test_a_student_at_its_teacher_is_at_rest(kind, dtype, temperature):
    loss = DistillationLoss(kind, temperature=temperature)
    value, gradient = value_and_gradient(loss, TEACHER + 11.0, TEACHER, OFFSETS, dtype)  # a constant changes nothing
    assert np.abs(gradient).max() < (1e-6 if dtype == torch.float32 else 1e-14)
    moved, _ = value_and_gradient(loss, TEACHER + 0.1 * STUDENT, TEACHER, OFFSETS, dtype)
    assert moved > value


@pytest.mark.parametrize("kind", KINDS)
def test_the_excess_over_the_minimum_is_a_divergence(kind):
    """Listwise: KL(teacher | student). Pairwise: the mean of the KL of coins."""
    loss, offsets = DistillationLoss(kind), [0, 6]
    f, t = torch.tensor(STUDENT[:6]), torch.tensor(TEACHER[:6])
    excess = loss(f, t, offsets) - loss(t, t, offsets)
    if kind == "listwise":
        expected = torch.nn.functional.kl_div(f.log_softmax(0), t.log_softmax(0), reduction="sum", log_target=True)
    else:
        i, j = torch.triu_indices(6, 6, 1)
        p, q = torch.sigmoid(f[i] - f[j]), torch.sigmoid(t[i] - t[j])
        expected = (q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()).mean()
    assert excess.item() == pytest.approx(expected.item(), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_hessian_is_the_second_derivative(kind):
    loss, step = DistillationLoss(kind, temperature=1.5), 1e-5
    _, hessian = gradient_and_hessian(loss, STUDENT, TEACHER, OFFSETS)
    for i in range(len(STUDENT)):
        up, down = STUDENT.copy(), STUDENT.copy()
        up[i] += step
        down[i] -= step
        slopes = [gradient_and_hessian(loss, near, TEACHER, OFFSETS)[0][i] for near in (up, down)]
        assert hessian[i] == pytest.approx((slopes[0] - slopes[1]) / (2 * step), abs=1e-7)


def test_a_cold_teacher_gives_hard_labels():
    """A teacher of temperature near 0 is a list of pairs in order, or one relevant item."""
    ranks = np.array([2.0, 0.0, 3.0, 1.0])
    scores = torch.tensor(STUDENT[:4])
    pairs = DistillationLoss("pairwise", teacher_temperature=1e-3)(scores, ranks, [0, 4])
    assert pairs.item() == pytest.approx(RankNetLoss()(scores, ranks, [0, 4]).item(), rel=1e-12)
    top = DistillationLoss(teacher_temperature=1e-3)(scores, ranks, [0, 4])
    assert top.item() == pytest.approx(SoftmaxLoss()(scores, ranks == 3, [0, 4]).item(), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hot_teacher_wants_equal_scores(kind):
    loss = DistillationLoss(kind, teacher_temperature=1e6)
    _, gradient = value_and_gradient(loss, np.zeros(6), TEACHER[:6], [0, 6])
    assert np.abs(gradient).max() < 1e-5
    value, gradient = value_and_gradient(loss, [2.0, 0.0], [5.0, -5.0], [0, 2])
    probability = 1 / (1 + math.exp(-2.0))
    np.testing.assert_allclose(gradient, [probability - 0.5, 0.5 - probability], atol=1e-5)
    assert value.item() == pytest.approx(-math.log(probability * (1 - probability)) / 2, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_negative_scores_of_a_teacher_are_scores(kind):
    """A constant on the teacher's side changes nothing either, which a cut at 0 would break."""
    loss = DistillationLoss(kind, reduction="sum")
    before = value_and_gradient(loss, STUDENT, TEACHER - 100.0, OFFSETS)
    after = value_and_gradient(loss, STUDENT, TEACHER + 100.0, OFFSETS)
    assert before[0].item() == pytest.approx(after[0].item(), rel=1e-12)
    np.testing.assert_allclose(before[1], after[1], atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_which_queries_are_informative(kind):
    """Equal scores of a teacher are a statement; a single item and an empty list are none."""
    loss = DistillationLoss(kind)
    assert loss.no_choice([1.0, 1.0, 5.0], [0, 2, 3, 3]).tolist() == [False, True, True]
    _, gradient = value_and_gradient(loss, [3.0, 1.0, 7.0], [1.0, 1.0, 5.0], [0, 2, 3, 3])
    assert gradient[0] > 0.1
    assert gradient[1] == pytest.approx(-gradient[0])
    assert gradient[2] == 0
    assert loss(torch.zeros(0), [], [0]).item() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_of_both(kind, dtype):
    """Two items with the teacher sure of the first: -log of its probability, and a teacher who is sure either way."""
    loss = DistillationLoss(kind)
    value, gradient = value_and_gradient(loss, [-1e4, 1e4], [1e4, -1e4], [0, 2], dtype)
    assert value.item() == pytest.approx(2e4)
    np.testing.assert_allclose(gradient, [-1.0, 1.0])
    value, gradient = value_and_gradient(loss, [1e4, -1e4, 1e4], [1e4, -1e4, 1e4], [0, 3], dtype)
    assert value.item() == pytest.approx(math.log(2) / (1 if kind == "listwise" else 3))  # of the tie alone
    np.testing.assert_allclose(gradient, 0, atol=1e-15)


def test_long_lists_of_pairs():
    """Longer than one product of probabilities, with scores too far apart for exponentials, too."""
    n = 1300
    rng = np.random.default_rng(2)
    for spread in (1.0, 400.0):
        student, teacher = spread * rng.normal(size=n), rng.normal(size=n)
        loss = DistillationLoss("pairwise", reduction="none")
        value, gradient = value_and_gradient(loss, student, teacher, [0, n])
        with vectorized():
            by_formula = value_and_gradient(loss, student, teacher, [0, n])
        assert value.item() == pytest.approx(by_formula[0].item(), rel=1e-11)
        np.testing.assert_allclose(gradient, by_formula[1], atol=1e-14)


def test_a_linear_student_learns_the_order_of_its_teacher():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(60, 4))
    teacher = features @ [2.0, -1.0, 0.5, 0.0] + 1.0
    offsets = [0, 20, 40, 60]
    for kind in KINDS:
        weights = torch.zeros(4, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([weights], lr=0.2)
        for _ in range(120):
            optimizer.zero_grad()
            DistillationLoss(kind)(torch.tensor(features) @ weights, teacher, offsets).backward()
            optimizer.step()
        np.testing.assert_allclose(weights.detach(), [2.0, -1.0, 0.5, 0.0], atol=0.02)


@pytest.mark.parametrize(("options", "message"), [
    ({"kind": "pointwise"}, "kind must be 'listwise' or 'pairwise', got 'pointwise'"),
    ({"temperature": -1.0}, "temperature must be a number from 1e-6 to 1e6, got -1.0"),
    ({"temperature": None}, "temperature must be a number from 1e-6 to 1e6, got None"),
    ({"teacher_temperature": 0}, "teacher_temperature must be a number from 1e-6 to 1e6, got 0"),
])  # fmt: skip
def test_options_that_are_refused(options, message):
    with pytest.raises(ArgumentError) as error:
        DistillationLoss(**options)
    assert str(error.value) == message


@pytest.mark.parametrize("kind", KINDS)
def test_bad_scores_of_a_teacher_are_refused(kind):
    loss, scores = DistillationLoss(kind), torch.zeros(3)
    for teacher, message in (
        ([0.0, float("nan"), 1.0], "labels must be finite, got nan at position 1"),
        ([0.0, 1.0], "labels must be 1-D with offsets\\[-1\\] = 3 entries, got 2"),
        ([0.0, 1e31, 1.0], "labels must be at most 1e\\+30 in magnitude, got 1e\\+31"),
        (["a", "b", "c"], "labels must be numbers"),
    ):
        with pytest.raises(DataError, match=message):
            loss(scores, teacher, [0, 3])
    value, gradient = value_and_gradient(loss, [0.0, 0.0], [1e30, -1e30], [0, 2])
    assert value.item() == pytest.approx(math.log(2))
    np.testing.assert_allclose(gradient, [-0.5, 0.5])


def test_losses_by_name():
    assert get_loss("distillation") == DistillationLoss("listwise")
    assert get_loss("distillation-pairs", temperature=2.0) == DistillationLoss("pairwise", temperature=2.0)
