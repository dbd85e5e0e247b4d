"""The methods by name. A variant is one line; its references are the methods that it is compared with."""

from __future__ import annotations

from benchmarks.quality.training.networks import Network
from benchmarks.quality.training.protocols import Method
from benchmarks.quality.training.trees import CatBoost, LightGBM, Ours, XGBoost
from rankbound.errors import ArgumentError

__all__ = ["METHODS", "chosen_methods"]

EM = {"bounding": "expectation-max"}
EB = {"bounding": "expectation"}
BOTH = ("lambdarank", "ours")
_ALL: tuple[Method, ...] = (
    LightGBM("lambdarank", "lambdarank", ()),
    LightGBM("rank_xendcg", "rank_xendcg"),
    XGBoost("XGBoost rank:ndcg", "rank:ndcg", ("lambdarank",)),
    CatBoost("CatBoost YetiRank", "YetiRank", BOTH),
    LightGBM("ours", Ours()),
    LightGBM("ours, bounding", Ours(options=EM), BOTH),
    LightGBM("ours, weights", Ours(), BOTH, weights=EM),
    LightGBM("lambdarank, weights", "lambdarank", weights=EM),
    LightGBM("ours, expectation", Ours(options=EB), BOTH),
    LightGBM("lambdarank, expectation weights", "lambdarank", weights=EB | {"form": "plain", "effective": None}),
    LightGBM("smooth nDCG", Ours("NDCGLoss"), BOTH),
    LightGBM("smooth nDCG, bounding", Ours("NDCGLoss", EM), ("lambdarank", "smooth nDCG")),
    XGBoost("ours in XGBoost", Ours()),
    XGBoost("ours in XGBoost, bounding", Ours(options=EM), ("XGBoost rank:ndcg", "ours in XGBoost")),
    Network("network softmax", {"loss": "softmax"}, ("lambdarank",)),
    Network("network nDCG", {"loss": "nDCG"}),
    Network("network nDCG, bounding", {"loss": "nDCG", **EM}, ("network softmax", "network nDCG")),
    Network("network LambdaRank", {"loss": "lambda-nDCG"}),
)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}


def chosen_methods(names: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the methods of names, in the order of `METHODS`; without any, all methods.

    >>> chosen_methods(["ours", "lambdarank"])
    ('lambdarank', 'ours')
    """
    for name in names:
        if name not in METHODS:
            raise ArgumentError(f"methods must be among {'; '.join(METHODS)}, got {name!r}")
    return tuple(name for name in METHODS if name in names) if names else tuple(METHODS)
