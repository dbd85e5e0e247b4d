"""Trials of images with ages: which of two persons is older?

Ranking, regression and classification, as in "Neural networks in ranking" (see ``rankbound reproduce neural-tables``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankbound.data.faces import Faces
from rankbound.data.sampling import age_pairs
from rankbound.data.splits import random_parts
from rankbound.io import cache_folder, is_private_and_writable
from rankbound.models.rankers.backbone import EFFICIENTNET, backbone_features
from rankbound.studies.image_pairs import example_pairs
from rankbound.studies.sources import Source, digest_of, load_whole, path_here
from rankbound.studies.spec import PAIRWISE_ACCURACY
from rankbound.studies.trial import Fitted, Outcome, outcome_of, ranker_of
from rankbound.studies.trial_spec import TrialSpec

_BACKBONE_SIZE = 224
_BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue, as in JPEG
_FRACTIONS = (0.7, 0.1, 0.2)  # training, validation and test; no person is in two of them

_PAIRWISE = ("RankNet", "DirectRanker")  # they learn from pairs, and from pairs of similar age unless min_gap is set


def run(spec: TrialSpec, source: Source) -> Outcome:
    """Train on 70 % of the persons, select the epoch by Kendall's tau on 10 %, and test on pairs of the others.

    As in the paper, classification learns which face of a pair is older; all other models learn from the ages. The
    training data are extended by mirrored faces, unless the table says ``mirror = false``, and except for features of a
    network and for a convolutional network, which mirrors the images itself. Each row of the scores is a pair of test
    images: its qid names both, and its value is 1 for the right order, 1/2 for a tie and 0 for the wrong order.
    """
    faces: Faces = load_whole(source)
    if spec.prepare.first:
        first = spec.prepare.first
        faces = Faces(faces.images[:first], faces.ages[:first], faces.ids[:first])
    ages = faces.ages.astype(np.int64)
    part_of_face = random_parts(faces.ids, _FRACTIONS, seed=spec.fold)
    train, valid, test = (np.flatnonzero(part_of_face == number) for number in range(len(_FRACTIONS)))
    gap = spec.images.min_gap + 1
    images = _inputs(source, spec, faces)
    learns_pairs = spec.loss in _PAIRWISE or (spec.loss is None and spec.model in (*_PAIRWISE, "RankCNN"))
    ranker = ranker_of(spec, **({"min_gap": float(spec.images.min_gap)} if learns_pairs else {}))
    rows: NDArray[Any] = train
    labels: NDArray[Any] = ages[train]
    if _classifies(spec):
        pairs, older = age_pairs(ages[train], train, len(train) // 2, min_gap=gap, seed=spec.fold)
        rows, labels = train[pairs.ravel()], np.stack((older, 1 - older), axis=1).ravel()
    X, y = images[rows], labels
    if spec.images.mirror and spec.model != "RankCNN" and spec.prepare.backbone is None:
        mirrored = _flat(faces.images[:, :, ::-1])[rows]
        X, y = np.concatenate((X, mirrored)), np.concatenate((y, y))
    ranker.fit(X, y, eval_set=(images[valid], ages[valid]))
    pairs, older = age_pairs(ages[test], faces.ids[test], spec.images.pairs, min_gap=gap, seed=spec.fold)
    scores = ranker.predict(images[test])
    ahead = np.sign(scores[pairs[:, 0]] - scores[pairs[:, 1]])
    names = faces.ids[test]
    table = pl.DataFrame(
        {
            "qid": [f"{names[a]}|{names[b]}" for a, b in pairs.tolist()],
            "items": np.full(len(pairs), 2),
            "relevant": np.ones(len(pairs), np.int64),
            PAIRWISE_ACCURACY: 0.5 + 0.5 * np.where(older == 1, ahead, -ahead),
        }
    )
    parts = {"train": (X, y), "validation": (images[valid], ages[valid]), "test": (images[test], ages[test])}
    examples = None
    if spec.images.examples:
        examples = example_pairs(_gray(faces.images[test]), ages[test], scores, pairs, spec.images.examples)
    return outcome_of(Fitted(spec, ranker, parts), table, "validation", {"faces": len(train)}, examples=examples)


def _inputs(source: Source, spec: TrialSpec, faces: Faces) -> NDArray[Any]:
    """A row per face: its pixels, or the features that a network computes from them."""
    if spec.prepare.backbone is None:
        is_color = faces.images.ndim == 4
        return faces.images if is_color and spec.model == "RankCNN" else _flat(faces.images)
    backbone = spec.prepare.backbone if spec.prepare.backbone == EFFICIENTNET else path_here(source.files[-1])
    return _features(backbone, digest_of(source), len(faces.ages), source)


@lru_cache(maxsize=1)
def _features(backbone: str, digest: str, first: int, source: Source) -> NDArray[np.float32]:
    folder = cache_folder("features")
    cache = folder / f"{digest}-{first}.npz" if folder is not None and is_private_and_writable(folder) else None
    return backbone_features(load_whole(source).images[:first], backbone, size=_BACKBONE_SIZE, cache=cache)


def _classifies(spec: TrialSpec) -> bool:
    """Whether a model learns classes: by its loss, by its task, or because it is a classifier."""
    return "classification" in (spec.loss, spec.params.get("task")) or spec.model == "LogisticRanker"


def _flat(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return images.reshape(len(images), -1).astype(np.float32)


def _gray(images: NDArray[np.uint8]) -> NDArray[Any]:
    return images if images.ndim == 3 else images @ _BRIGHTNESS
