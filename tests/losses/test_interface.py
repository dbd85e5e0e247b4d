"""How losses are called, and what they refuse."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import rankbound.losses
from rankbound.errors import ArgumentError, DataError
from rankbound.losses import (
    APLoss,
    DirectRankerLoss,
    ERRLoss,
    LambdaRankLoss,
    NDCGLoss,
    NRBPLoss,
    PointwiseLoss,
    PrecisionLoss,
    RRLoss,
    SmoothMeasureLoss,
    get_loss,
)

LABELS, OFFSETS = [1, 0, 0, 2, 1, 0], [0, 3, 6]


def scores(dtype=torch.float32):
    return torch.tensor([0.1, 0.5, -0.2, 0.3, 0.0, 1.0], dtype=dtype, requires_grad=True)


def test_labels_and_offsets_may_be_tensors_arrays_or_lists():
    expected = NDCGLoss()(scores(), LABELS, OFFSETS).item()
    for convert in (
        torch.tensor,
        np.array,
        lambda x: torch.tensor(x, dtype=torch.int32),
        lambda x: np.array(x, np.uint8),
    ):
        assert NDCGLoss()(scores(), convert(LABELS), convert(OFFSETS)).item() == expected
    assert NDCGLoss()(scores(), torch.tensor(LABELS, dtype=torch.float32), OFFSETS).item() == expected


def test_fractional_labels():
    half = NDCGLoss(gain="linear", alpha=1e3)(torch.tensor([1.0, 0.0, 2.0]), [0.5, 0.0, 0.25], [0, 3]).item()
    ideal = 0.5 + 0.25 / np.log2(3)
    assert half == pytest.approx(-(0.25 + 0.5 / np.log2(3)) / ideal, rel=1e-6)


@pytest.mark.parametrize(
    "loss", [NDCGLoss(), APLoss(bounding="min-max", reduction="sum"), LambdaRankLoss(reduction="none")]
)
def test_padded_equals_flat(loss):
    flat = scores()
    value = loss(flat, LABELS, OFFSETS)
    mask = torch.tensor([[True, True, True, False], [True, False, True, True]])
    padded = torch.full((2, 4), float("nan"))
    padded[mask] = flat.detach()
    padded.requires_grad_()
    labels = torch.full((2, 4), 99)
    labels[mask] = torch.tensor(LABELS)
    again = loss.padded(padded, labels, mask)
    torch.testing.assert_close(again, value)
    (gradient,) = torch.autograd.grad(value.sum(), flat)
    (padded_gradient,) = torch.autograd.grad(again.sum(), padded)
    torch.testing.assert_close(padded_gradient[mask], gradient)
    assert (padded_gradient[~mask] == 0).all()


def test_weights_multiply_queries():
    each = NDCGLoss(reduction="none")(scores(), LABELS, OFFSETS)
    weighted = NDCGLoss(reduction="sum")(scores(), LABELS, OFFSETS, weights=[2.0, 0.5])
    assert weighted.item() == pytest.approx(2 * each[0].item() + 0.5 * each[1].item())
    with pytest.raises(DataError, match="weights must have one entry per query"):
        NDCGLoss()(scores(), LABELS, OFFSETS, weights=[1.0])


def test_queries_without_a_choice_are_named_and_have_no_loss_and_no_gradient():
    labels, offsets = [1, 0, 0, 1, 1, 0], [0, 2, 3, 5, 6]
    for loss in (NDCGLoss(reduction="none", bounding="expectation-max"), APLoss(reduction="none"), LambdaRankLoss()):
        assert loss.no_choice(labels, offsets).tolist() == [False, True, True, True]
    flat = scores()
    values = NDCGLoss(reduction="none")(flat, labels, offsets)
    (gradient,) = torch.autograd.grad(values.sum(), flat)
    assert values[1:].tolist() == [0, 0, 0]
    assert gradient[2:].tolist() == [0, 0, 0, 0]


def test_labels_that_change_in_place_are_seen():
    """The plan of the last labels is kept, by their content."""
    loss, labels = NDCGLoss(), np.array(LABELS)
    before = loss(scores(), labels, OFFSETS).item()
    labels[:] = labels[::-1].copy()
    assert loss(scores(), labels, OFFSETS).item() != before
    assert loss(scores(), labels, OFFSETS).item() == NDCGLoss()(scores(), labels, OFFSETS).item()


def test_gradient_of_a_gradient_is_refused():
    x = scores()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(NDCGLoss()(x, LABELS, OFFSETS), x, create_graph=True)


def test_half_precision_goes_through_float32():
    x = scores(torch.bfloat16)
    NDCGLoss()(x, LABELS, OFFSETS).backward()
    assert x.grad.dtype == torch.bfloat16
    assert torch.isfinite(x.grad).all()


def test_empty_batch():
    for reduction in ("mean", "sum"):
        assert NDCGLoss(reduction=reduction)(torch.zeros(0), [], [0]).item() == 0
    assert NDCGLoss(reduction="none")(torch.zeros(0), [], [0, 0, 0]).tolist() == [0, 0]


def test_losses_are_values():
    assert NDCGLoss(alpha=2.0) == NDCGLoss(alpha=2.0) != NDCGLoss()
    loss = NDCGLoss(10, bounding="min-max")
    loss(scores(), LABELS, OFFSETS)
    assert pickle.loads(pickle.dumps(NDCGLoss(10, bounding="min-max"))) == loss
    assert repr(loss).startswith("NDCGLoss(reduction='mean', bounding='min-max', ranker_strength=None, noise=0.0")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: NDCGLoss(reduction="avg"), ArgumentError, "reduction must be one of mean, sum, none, got 'avg'"),
        (lambda: NDCGLoss(alpha=0), ArgumentError, "alpha must be a positive number, got 0"),
        (lambda: NDCGLoss(0), ArgumentError, "k must be a positive integer or None, got 0"),
        (lambda: NDCGLoss(gain="log"), ArgumentError, "gain must be 'exp' or 'linear', got 'log'"),
        (lambda: NDCGLoss(sigmoid="step"), ArgumentError, "sigmoid must be one of logistic, tanh, arctan, erf, relu"),
        (lambda: RRLoss(form="both"), ArgumentError, "form must be 'scores' or 'ranks', got 'both'"),
        (lambda: APLoss(form="both"), ArgumentError, "form must be 'scores' or 'ranks', got 'both'"),
        (lambda: NRBPLoss(3), ArgumentError, "a cutoff needs a persistence p"),
        (lambda: NRBPLoss(p=1.0), ArgumentError, "p must lie between 0 and 1, got 1.0"),
        (lambda: PrecisionLoss(None), ArgumentError, "PrecisionLoss needs a cutoff k"),
        (lambda: RRLoss(rel=-1), ArgumentError, "rel must be a positive number, got -1"),
        (lambda: ERRLoss(max_rel=0), ArgumentError, "max_rel must be a positive number, got 0"),
        (lambda: LambdaRankLoss("Bpref"), ArgumentError, "measure must be one that has a loss, nDCG, .* got 'Bpref'"),
        (
            lambda: LambdaRankLoss("EM(AP)"),
            ArgumentError,
            r"measure must be one that has a loss, nDCG, .* got 'EM\(AP\)'",
        ),
        (
            lambda: LambdaRankLoss("AP", published=True),
            ArgumentError,
            "published is for rank-biased precision only, got 'AP'",
        ),
        (lambda: SmoothMeasureLoss("AP(div='retrieved')"), ArgumentError, "measure must be one that has a loss"),
        (lambda: DirectRankerLoss(cost="abs"), ArgumentError, "cost must be 'square' or 'tanh', got 'abs'"),
        (lambda: PointwiseLoss("rank"), ArgumentError, "kind must be 'regression' or 'classification', got 'rank'"),
        (lambda: get_loss("nDGC"), ArgumentError, "loss must be one of nDCG, DCG.*got 'nDGC': unknown measure 'nDGC'"),
        (lambda: get_loss("Bpref"), ArgumentError, "loss must be one of nDCG, DCG.*got 'Bpref'"),
        (lambda: get_loss("RankNet", bounding="min-max"), ArgumentError, "'RankNet' does not take these options"),
        (lambda: get_loss(NDCGLoss(), alpha=2.0), ArgumentError, "options need the name of a loss"),
        (lambda: NDCGLoss()([0.1], [1], [0, 1]), ArgumentError, "scores must be a torch tensor, got list"),
        (lambda: NDCGLoss()(scores(), LABELS, [1, 6]), DataError, r"offsets must begin with 0, got \[1\]"),
        (lambda: NDCGLoss()(scores(), LABELS, [0, 4, 2, 6]), DataError, "offsets must never decrease, got 4 then 2"),
        (lambda: NDCGLoss()(scores(), LABELS[:5], OFFSETS), DataError, r"labels must be 1-D with offsets\[-1\] = 6"),
        (lambda: NDCGLoss()(scores()[:5], LABELS, OFFSETS), DataError, "scores must be 1-D with one entry per label"),
        (lambda: NDCGLoss()(scores() / 0, LABELS, OFFSETS), DataError, "scores must be finite, got inf at position 0"),
        (lambda: NDCGLoss()(scores(), [np.nan] * 6, OFFSETS), DataError, "labels must be finite"),
        (lambda: NDCGLoss()(scores(), ["a"] * 6, OFFSETS), DataError, "labels must be numbers"),
        (lambda: NDCGLoss()(scores(), [2000] * 6, OFFSETS), DataError, "labels must be at most 1000"),
        (lambda: NDCGLoss().padded(scores(), LABELS, [True] * 6), DataError, "must be 2-D of one shape"),
    ],
)
def test_errors_name_argument_rule_and_what_came(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", rankbound.losses.loss_names(2))
def test_every_name_gives_a_loss(name):
    value = get_loss(name)(scores(), LABELS, OFFSETS)
    assert torch.isfinite(value)


def test_the_public_list():
    assert all(hasattr(rankbound.losses, name) for name in rankbound.losses.__all__)
    assert rankbound.losses.LOSS_BOUNDINGS == (
        "none", "min-max", "expectation", "expectation-max", "distribution", "log-distribution",
    )  # fmt: skip
