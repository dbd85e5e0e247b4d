"""Trials of images with ages: who of two is the older? Ranking, regression and classification, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.analysis.image_pairs import example_pairs
from rankbound.data.faces import Faces
from rankbound.data.sampling import age_pairs
from rankbound.data.splits import deal
from rankbound.experiments.sources import Source, digest_of, here, load_whole
from rankbound.experiments.spec import PAIRWISE_ACCURACY
from rankbound.experiments.trial import Fitted, Outcome, history_frame, ranker_of, recorded_by

__all__ = ["run"]

_BACKBONE_SIZE = 224
_SHARES = (0.7, 0.1, 0.2)  # to learn from, to choose the epoch by, to test on; no person is in two of them

_PAIRS = ("RankNet", "DirectRanker")  # learn from pairs, those too that are near in age unless told otherwise


def run(spec: Mapping[str, Any], source: Source) -> Outcome:
    """Learn from 70 % of the persons, choose the epoch by Kendall's tau on 10 %, test on pairs of the others.

    Classification learns, as in the paper, from which face of a pair was the older; all others from the ages. Mirrored
    faces are learned from too, unless a network made features of them; a convolution mirrors by itself. A row of the
    scores is a pair of the test part: its qid names both faces, its value is 1 in the right order, 1/2 for a tie, 0 in
    the wrong one.
    """
    import polars as pl

    faces: Faces = load_whole(source)
    if spec["prepare"].get("first"):
        first = spec["prepare"]["first"]
        faces = Faces(faces.images[:first], faces.ages[:first], faces.ids[:first])
    ages = faces.ages.astype(np.int64)
    part = deal(faces.ids, _SHARES, seed=spec["fold"])
    train, valid, test = (np.flatnonzero(part == number) for number in range(len(_SHARES)))
    gap = spec["min_gap"] + 1
    images = _inputs(source, spec, faces)
    learns_pairs = spec["loss"] in _PAIRS or (spec["loss"] is None and spec["model"] in (*_PAIRS, "RankCNN"))
    ranker = ranker_of(spec, **({"min_gap": float(spec["min_gap"])} if learns_pairs else {}))
    rows: NDArray[Any] = train
    labels: NDArray[Any] = ages[train]
    if _classifies(spec):
        pairs, older = age_pairs(ages[train], train, len(train) // 2, min_gap=gap, seed=spec["fold"])
        rows, labels = train[pairs.ravel()], np.stack((older, 1 - older), axis=1).ravel()
    X, y = images[rows], labels
    if spec["model"] != "RankCNN" and "backbone" not in spec["prepare"]:
        mirrored = _flat(faces.images[:, :, ::-1])[rows]
        X, y = np.concatenate((X, mirrored)), np.concatenate((y, y))
    ranker.fit(X, y, eval_set=(images[valid], ages[valid]))
    pairs, older = age_pairs(ages[test], faces.ids[test], spec["pairs"], min_gap=gap, seed=spec["fold"])
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
    recorded = recorded_by(Fitted(spec, ranker, parts, lambda **changes: ranker_of(spec, **changes)))
    history = history_frame(list(getattr(ranker, "history_", [])), "validation", recorded)
    metadata: dict[str, Any] = {"eval_score": float(ranker.eval_score_), "faces": len(train)}
    metadata |= {"kept_epoch": int(ranker.kept_epoch_)} if hasattr(ranker, "kept_epoch_") else {}
    examples = None
    if spec.get("examples"):
        examples = example_pairs(faces.images[test], ages[test], scores, pairs, spec["examples"])
    return Outcome(table, history, metadata, examples=examples)


def _inputs(source: Source, spec: Mapping[str, Any], faces: Faces) -> NDArray[np.float32]:
    """A row per face: its pixels, or what a network makes of them."""
    if "backbone" not in spec["prepare"]:
        return _flat(faces.images)
    return _features(here(source.files[-1]), digest_of(source), len(faces.ages), source)


@lru_cache(maxsize=1)
def _features(backbone: str, _digest: str, first: int, source: Source) -> NDArray[np.float32]:
    from rankbound.models.backbone import backbone_features

    return backbone_features(load_whole(source).images[:first], backbone, size=_BACKBONE_SIZE)


def _classifies(spec: Mapping[str, Any]) -> bool:
    """Whether a model learns classes: by its loss, its task, or because it does nothing else."""
    said = (spec["loss"], spec["params"].get("task"))
    return "classification" in said or spec["model"] == "LogisticRanker"


def _flat(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return images.reshape(len(images), -1).astype(np.float32)
