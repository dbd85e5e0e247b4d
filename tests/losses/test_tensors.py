"""Forms of tensors that losses take, losses as modules, half precision, and torch.compile."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.errors import ArgumentError, DataError
from rankbound.losses import APLoss, LambdaRankLoss, ListMLELoss, NDCGLoss, SoftmaxLoss, tensor_inputs, vectorized
from rankbound.losses.modules import LossModule

LABELS, OFFSETS = [1, 0, 0, 2, 1, 0], [0, 3, 6]
PATHS = pytest.mark.parametrize("path", [nullcontext, vectorized], ids=["kernels", "vectorized"])


def scores(dtype=torch.float32):
    return torch.tensor([0.1, 0.5, -0.2, 0.3, 0.0, 1.0], dtype=dtype, requires_grad=True)


def nested(values, offsets=OFFSETS):
    return torch.nested.nested_tensor_from_jagged(values, torch.as_tensor(offsets))


# ---- padded and nested -----------------------------------------------------------------------------------------------


@PATHS
@pytest.mark.parametrize("loss", [NDCGLoss(bounding="min-max"), LambdaRankLoss(reduction="none"), SoftmaxLoss()])
def test_all_forms_have_the_same_loss_and_gradient(path, loss):
    flat = scores()
    expected = loss(flat, LABELS, OFFSETS)
    (gradient,) = torch.autograd.grad(expected.sum(), flat)
    x = scores()
    mask = [[1, 1, 1, 0], [1, 1, 1, 0]]
    with path():
        results = [
            loss(nested(x), nested(torch.tensor(LABELS))),
            loss(nested(x), LABELS),
            loss(nested(x), torch.tensor(LABELS)),
            loss(x.reshape(2, 3), np.reshape(LABELS, (2, 3))),
            loss(torch.nn.functional.pad(x.reshape(2, 3), (0, 1)), [[1, 0, 0, 9], [2, 1, 0, 9]], mask=mask),
            loss.padded(torch.nn.functional.pad(x.reshape(2, 3), (0, 1)), [[1, 0, 0, 9], [2, 1, 0, 9]], mask),
        ]
    for result in results:
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], gradient, rtol=1e-5, atol=1e-6)


def test_nested_lists_of_different_lengths_and_none():
    values = torch.tensor([0.5, 0.1, -0.3, 0.2, 0.9], requires_grad=True)
    labels, offsets = torch.tensor([1, 0, 0, 0, 1]), [0, 3, 3, 5]
    result = NDCGLoss(reduction="none")(nested(values, offsets), nested(labels, offsets))
    torch.testing.assert_close(result, NDCGLoss(reduction="none")(values, labels, offsets))
    assert result.shape == (3,)


@PATHS
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda loss: loss(scores(), LABELS), ArgumentError, "offsets are required for flat scores, got None"),
        (
            lambda loss: loss(nested(scores()), LABELS, OFFSETS),
            ArgumentError,
            "offsets must be None where scores are a n",
        ),
        (
            lambda loss: loss(nested(scores()), LABELS, mask=[1]),
            ArgumentError,
            "mask must be None where scores are a nes",
        ),
        (
            lambda loss: loss(scores().reshape(2, 3), [[1, 0, 0]] * 2, OFFSETS, mask=[[1] * 3] * 2),
            ArgumentError,
            "offsets must be None where scores are padded, got list",
        ),
        (
            lambda loss: loss(scores(), nested(torch.tensor(LABELS)), OFFSETS),
            ArgumentError,
            "labels must not be a nested",
        ),
        (
            lambda loss: loss(nested(scores()), nested(torch.tensor(LABELS), [0, 2, 6])),
            DataError,
            r"labels must have lists of the same lengths as the scores, \[3, 3\], got \[2, 4\]",
        ),
        (lambda loss: loss(nested(scores()), LABELS[:5]), DataError, r"labels must be 1-D with offsets\[-1\] = 6"),
        (
            lambda loss: loss(nested(scores()[:, None]), LABELS),
            ArgumentError,
            "nested scores must be contiguous with one",
        ),
        (
            lambda loss: loss(scores().reshape(2, 3), LABELS),
            DataError,
            "scores and labels must be 2-D of one shape, got ",
        ),
        (
            lambda loss: loss(scores().reshape(2, 3), LABELS, OFFSETS),
            DataError,
            "scores must be 1-D with one entry per l",
        ),
        (
            lambda loss: loss(scores().reshape(1, 2, 3), LABELS, OFFSETS),
            DataError,
            "scores must be 1-D with one entry pe",
        ),
        (
            lambda loss: loss(scores()[:5], LABELS, OFFSETS),
            DataError,
            r"scores must be 1-D with one entry per label, \(6",
        ),
        (
            lambda loss: loss(scores(), torch.empty(6, device="meta"), OFFSETS),
            ArgumentError,
            "labels must be on the CPU or on the device of the scores, cpu, got meta",
        ),
        (
            lambda loss: loss(scores().to("meta"), LABELS, OFFSETS),
            ArgumentError,
            "scores must be a dense tensor of real n",
        ),
        (
            lambda loss: loss(scores().to_sparse(), LABELS, OFFSETS),
            ArgumentError,
            "scores must be a dense tensor of real",
        ),
    ],
)
def test_wrong_forms_have_one_clear_error(path, call, error, message):
    with path(), pytest.raises(error, match=message):
        call(NDCGLoss())


# ---- batches that were seen before -----------------------------------------------------------------------------------


@pytest.fixture
def as_on_a_device(monkeypatch):
    """Treat tensors of the CPU as those of another device, which are not to be looked into."""
    monkeypatch.setattr(tensor_inputs, "is_on_host", lambda values: not isinstance(values, torch.Tensor))


def plans_made(loss, monkeypatch):
    made = []
    plan = type(loss).plan
    monkeypatch.setattr(type(loss), "plan", lambda self, *args: made.append(args) or plan(self, *args))
    return made


@pytest.mark.usefixtures("as_on_a_device")
def test_tensors_are_known_by_identity_and_version(monkeypatch):
    loss, labels, offsets = NDCGLoss(), torch.tensor(LABELS), torch.tensor(OFFSETS)
    made = plans_made(loss, monkeypatch)
    with vectorized():
        first = loss(scores(), labels, offsets).item()
        assert loss(scores(), labels, offsets).item() == first
        assert len(made) == 1
        loss(scores(), labels, OFFSETS)  # other offsets, with the same contents
        loss(scores(), labels, list(OFFSETS))  # arrays and lists are compared by their contents
        assert len(made) == 2
        labels[0] = 0
        changed = loss(scores(), labels, OFFSETS).item()
        assert len(made) == 3
        assert changed == NDCGLoss()(scores(), labels, OFFSETS).item() != first
        assert loss(scores(), labels.clone(), OFFSETS).item() == changed  # a copy is another tensor
        assert len(made) == 5


@pytest.mark.usefixtures("as_on_a_device")
def test_padded_and_nested_batches_are_known(monkeypatch):
    loss, table = NDCGLoss(), torch.tensor(LABELS).reshape(2, 3)
    mask, labels = torch.tensor([[True, True, True], [True, True, False]]), nested(torch.tensor(LABELS))
    made = plans_made(loss, monkeypatch)
    with vectorized():
        for _ in range(3):
            loss(scores().reshape(2, 3), table, mask=mask)
        assert len(made) == 1
        with pytest.raises(DataError, match=r"scores must have the shape of the labels, \(2, 3\), got \(3, 2\)"):
            loss(scores().reshape(3, 2), table, mask=mask)
        both = nested(scores(), labels.offsets())
        first = loss(both, labels).item()
        for _ in range(3):
            assert loss(torch.nested.nested_tensor_from_jagged(scores(), both.offsets()), labels).item() == first
        assert len(made) == 2


@pytest.mark.usefixtures("as_on_a_device")
def test_tensors_without_a_version_are_read_in_every_call(monkeypatch):
    with torch.inference_mode():
        labels = torch.tensor(LABELS)
    loss = NDCGLoss()
    made = plans_made(loss, monkeypatch)
    with vectorized():
        loss(scores(), labels, OFFSETS)
        loss(scores(), labels, OFFSETS)
    assert len(made) == 2


def test_scores_are_on_the_path_of_their_device(monkeypatch):
    """There is no other device here: a tensor that says so must not reach the kernels."""
    from rankbound.losses import torch_calls

    seen = []
    monkeypatch.setattr(torch_calls.LossFunction, "apply", lambda *all_of: seen.append(all_of[-1]) or torch.zeros(2))

    class Elsewhere(torch.Tensor):
        @property
        def device(self):
            return torch.device("cuda")

    NDCGLoss(reduction="none")(scores().detach().as_subclass(Elsewhere), LABELS, OFFSETS)
    assert seen == [False]  # not by the kernel


# ---- half precision --------------------------------------------------------------------------------------------------


@PATHS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(path, dtype):
    x = scores(dtype)
    exact = x.detach().float().requires_grad_()
    with path():
        loss = NDCGLoss()(x, LABELS, OFFSETS)
        loss.backward()
        expected = NDCGLoss()(exact, LABELS, OFFSETS)
        expected.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == expected.item()
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad, exact.grad.to(dtype), rtol=0, atol=0)


@PATHS
def test_autocast(path):
    torch.manual_seed(0)
    model, features = torch.nn.Linear(4, 1), torch.randn(6, 4)
    for loss in (NDCGLoss(), LambdaRankLoss(normalization="sqrt"), ListMLELoss()):
        model.zero_grad()
        with path(), torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(features).squeeze(1)
            value = loss(output, LABELS, OFFSETS)
        assert output.dtype == torch.bfloat16
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(loss(output.detach().float(), LABELS, OFFSETS).item(), rel=1e-6)
        value.backward()
        assert model.weight.grad.dtype == torch.float32
        assert model.weight.grad.abs().max() > 0


# ---- modules ---------------------------------------------------------------------------------------------------------


def test_a_module_has_no_state_and_can_be_copied_and_pickled():
    module = NDCGLoss(10, bounding="distribution", alpha=2.0).as_module()
    value = module(scores(), LABELS, OFFSETS)  # a plan is known now, with a distribution that cannot be pickled
    assert isinstance(module, torch.nn.Module)
    assert not module.state_dict()
    assert not list(module.parameters())
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), module.to(torch.float64).eval()):
        assert isinstance(again, LossModule)
        assert again.loss == module.loss
        assert again(scores(), LABELS, OFFSETS).item() == value.item()
    assert repr(module) == "LossModule(NDCGLoss, bounding='distribution', alpha=2.0, k=10)"
    assert repr(torch.nn.Sequential(APLoss().as_module())) == "Sequential(\n  (0): LossModule(APLoss)\n)"


def test_a_module_takes_all_forms():
    module, expected = NDCGLoss().as_module(), NDCGLoss()(scores(), LABELS, OFFSETS).item()
    table = torch.tensor(LABELS).reshape(2, 3)
    assert module(scores(), LABELS, OFFSETS).item() == expected
    assert module(scores().reshape(2, 3), table).item() == pytest.approx(expected)
    assert module(scores().reshape(2, 3), table, mask=torch.ones(2, 3, dtype=torch.bool)).item() == pytest.approx(
        expected
    )
    assert module(nested(scores()), nested(torch.tensor(LABELS))).item() == pytest.approx(expected)
    assert module(scores(), LABELS, OFFSETS, weights=[2.0, 2.0]).item() == pytest.approx(2 * expected)


def test_a_module_is_a_criterion():
    torch.manual_seed(0)
    features = torch.randn(8, 20, 4)
    labels = (features[..., 0] > 0.5).long()
    model, criterion = torch.nn.Linear(4, 1), SoftmaxLoss().as_module()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    history = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = criterion(model(features).squeeze(-1), labels)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < 0.8 * history[0]


# ---- torch.compile ---------------------------------------------------------------------------------------------------


class Ranker(torch.nn.Module):
    def __init__(self, criterion):
        super().__init__()
        self.layer, self.criterion = torch.nn.Linear(4, 1), criterion

    def forward(self, features, labels, offsets):
        return self.criterion(self.layer(features).squeeze(1), labels, offsets) * 2


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(("path", "backend"), [(nullcontext, "aot_eager"), (vectorized, "eager")])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_compiled_models_have_the_same_loss_and_gradient(path, backend):
    torch.manual_seed(0)
    features, labels, offsets = torch.randn(6, 4), torch.tensor(LABELS), torch.tensor(OFFSETS)
    for criterion in (NDCGLoss(), LambdaRankLoss("AP").as_module()):
        model = Ranker(criterion)
        with path():
            expected = model(features, labels, offsets)
            expected.backward()
            gradient = model.layer.weight.grad.clone()
            model.zero_grad()
            torch._dynamo.reset()
            for _ in range(2):
                model.zero_grad()
                value = torch.compile(model, backend=backend)(features, labels, offsets)
                value.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(model.layer.weight.grad, gradient)
