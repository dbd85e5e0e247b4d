"""Export of rankers to files that other programs read.

==============  ====================================================  ================================================
format          rankers                                               read by
==============  ====================================================  ================================================
onnx            networks that score each row alone, linear models     ONNX Runtime and other runtimes
xgboost-json    sums of trees                                         ``model/xgboost+json`` of the learning-to-rank
                                                                      plugins of Elasticsearch and OpenSearch
ranklib         linear models, sums of trees                          RankLib; ``model/ranklib`` of these plugins
lightgbm        trees of one LightGBM model                           ``lightgbm.Booster(model_file=...)``
==============  ====================================================  ================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.packages import MissingPackageError, needed_by

with needed_by("rankbound.models"):
    from sklearn.utils.validation import check_is_fitted

from rankbound.errors import ArgumentError, DataError
from rankbound.io import atomic_write
from rankbound.models.onnx import onnx_content
from rankbound.models.tree_formats import has_trees, ranklib_ensemble, trees_of, xgboost_tree
from rankbound.models.tree_text import trees_alone

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models.base import Ranker


# what comes of a loaded model whose parts do not fit each other; an ArgumentError is a ValueError
_DAMAGE = (KeyError, IndexError, TypeError, ValueError, OverflowError)


def export_ranker(
    ranker: Ranker, path: str | PathLike[str], format: str, feature_names: Sequence[str] | None = None
) -> None:
    """Write a fitted ranker in a format of other programs; the file is written completely or not at all.

    Parameters
    ----------
    format:
        ``onnx``, ``xgboost-json``, ``ranklib`` or ``lightgbm``; see `export_onnx`, `export_xgboost_json`,
        `export_ranklib` and `export_lightgbm`. A format that the ranker cannot have raises ArgumentError, and the
        message lists those that it can have.
    feature_names:
        For ``xgboost-json``: the names of the features in the search engine, in the order of the columns. The other
        formats refer to features by position.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from rankbound.models import LambdaMART
    >>> ranker = LambdaMART(n_estimators=1, min_child_samples=1).fit([[0.0], [1.0]], [0, 1])
    >>> export_formats(ranker)
    ('xgboost-json', 'ranklib', 'lightgbm')
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_ranker(ranker, f"{folder}/model.json", "xgboost-json", feature_names=["bm25"])
    ...     Path(f"{folder}/model.json").read_text()[:42]
    '[{"nodeid": 0, "depth": 0, "split": "bm25"'
    """
    if format not in FORMATS:
        raise ArgumentError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if feature_names is not None and format != "xgboost-json":
        raise ArgumentError(f"feature_names must be None unless format is xgboost-json, got names for {format}")
    check_is_fitted(ranker)
    names = _names(ranker, feature_names) if format == "xgboost-json" else []
    try:
        content = FORMATS[format](ranker, names)
    except ArgumentError as error:
        possible = ", ".join(export_formats(ranker)) or "none of the formats"
        raise ArgumentError(f"{error}; this {type(ranker).__name__} can be exported as {possible}") from error
    except _DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"this {type(ranker).__name__} is damaged and cannot be exported: {reason}") from error
    _write(path, content)


def export_formats(ranker: Ranker) -> tuple[str, ...]:
    """Return the formats that a fitted ranker can be exported to; empty if there are none."""
    check_is_fitted(ranker)
    names, possible = [f"f{k}" for k in range(ranker.n_features_in_)], []
    for format, content in FORMATS.items():
        try:
            content(ranker, names)
        except _DAMAGE:
            continue
        except MissingPackageError:  # the file only lacks its package
            pass
        possible.append(format)
    return tuple(possible)


def export_ranklib(ranker: Ranker, path: str | PathLike[str]) -> None:
    """Write a linear ranker as a RankLib model of the type "Coordinate Ascent", or trees as one of type "LambdaMART".

    Features are numbered from 1, and numbers are 32-bit when RankLib reads them. The intercept of a linear ranker is
    left out, because it changes no ranking. RankLib reads a missing value as 0; trees that were trained with missing
    values and send them elsewhere are refused. Trees are written as by `export_xgboost_json` otherwise.
    """
    check_is_fitted(ranker)
    _write(path, _ranklib(ranker, []))


def export_xgboost_json(ranker: Ranker, path: str | PathLike[str], feature_names: Sequence[str] | None = None) -> None:
    """Write a tree ranker in the format of XGBoost's dump: a JSON list of trees whose values are added.

    Thresholds are 32-bit, as in XGBoost. LightGBM goes left where x <= t, XGBoost where x < t: the written threshold is
    the next 32-bit number above t, so that every 32-bit x takes the same branch. The sum is the score of
    `Ranker.predict`; if that is the probability of one of two labels, the sum is its logit, which ranks alike.
    Classification by boosting with more than two labels is not a sum of trees and is refused.

    Parameters
    ----------
    feature_names:
        Names in the order of the columns, as in the search engine's feature set. The default is the names of the
        training frame, or f0, f1, ... without a frame.
    """
    check_is_fitted(ranker)
    _write(path, _xgboost_json(ranker, _names(ranker, feature_names)))


def export_lightgbm(ranker: Ranker, path: str | PathLike[str]) -> None:
    """Write a tree ranker as LightGBM's model text, which ``lightgbm.Booster(model_file=path)`` reads.

    Features have LightGBM's own names, Column_0, Column_1, ... Scores of the booster are those of `Ranker.predict`; for
    classification of two labels, its score is the probability of the higher one. Rankers that consist of several
    LightGBM models, one per level of the labels, are refused.
    """
    check_is_fitted(ranker)
    _write(path, _lightgbm(ranker, []))


# ---- the content of each format --------------------------------------------------------------------------------------


def _onnx(ranker: Any, names: list[str]) -> bytes:
    return onnx_content(ranker)


def _xgboost_json(ranker: Any, names: list[str]) -> bytes:
    return json.dumps([xgboost_tree(tree, names) for tree in trees_of(ranker)]).encode()


def _ranklib(ranker: Any, names: list[str]) -> bytes:
    weights = _weights(ranker)
    if weights is not None:
        kind = "Coordinate Ascent"
        text = " ".join(f"{feature}:{weight!r}" for feature, weight in enumerate(weights.tolist(), 1)) + "\n"
    elif has_trees(ranker):
        kind, text = "LambdaMART", "\n" + ranklib_ensemble(list(trees_of(ranker)))
    else:
        raise ArgumentError(f"ranklib requires a linear ranker or a tree ranker, got {type(ranker).__name__}")
    return f"## {kind}\n## Trained as = {type(ranker).__name__}\n{text}".encode()


def _lightgbm(ranker: Any, names: list[str]) -> bytes:
    boosters = getattr(getattr(ranker, "model_", ranker), "boosters_", [])
    if len(boosters) != 1:
        models = f"with {len(boosters)} of them" if boosters else "without any"
        raise ArgumentError(f"lightgbm requires a ranker of one LightGBM model, got {type(ranker).__name__} {models}")
    return trees_alone(boosters[0].model_to_string()).encode()


FORMATS: Mapping[str, Callable[[Any, list[str]], bytes]] = MappingProxyType(
    {"onnx": _onnx, "xgboost-json": _xgboost_json, "ranklib": _ranklib, "lightgbm": _lightgbm}
)


def _weights(ranker: Any) -> NDArray[np.float64] | None:
    """Return the weights of a linear ranker; None for other rankers."""
    ranker = getattr(ranker, "model_", ranker)  # a RegressionRanker wraps another ranker
    coef = getattr(ranker, "coef_", None)
    if coef is not None and coef.ndim == 2 and len(coef) == 1:
        coef = coef[0]  # logistic: the probability increases with the sum
    return None if coef is None or coef.ndim != 1 else np.asarray(coef, dtype=np.float64)


def _names(ranker: Ranker, feature_names: Sequence[str] | None) -> list[str]:
    width = int(ranker.n_features_in_)
    if feature_names is None:
        feature_names = getattr(ranker, "feature_names_in_", [f"f{k}" for k in range(width)])
    names = [str(name) for name in feature_names]
    if len(names) != width or len(set(names)) != width:
        raise ArgumentError(f"feature_names must have {width} different entries, got {len(names)}: {names!r:.80}")
    return names


def _write(path: str | PathLike[str], content: bytes) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
