"""Where lists come from: readers, known data sets, preparation, splits, sampling, generated data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.lazy import front_door

if TYPE_CHECKING:
    from rankbound.data.beir import BeirData, read_beir
    from rankbound.data.catalog import find_entry, known_sets
    from rankbound.data.faces import Faces, read_faces
    from rankbound.data.interactions import Interactions
    from rankbound.data.letor import LetorData, read_letor
    from rankbound.data.preparation import (
        binarize,
        binarized,
        keep_queries,
        keep_users,
        prepare_citeulike,
        prepare_movielens,
        relevant_only,
        scale_per_query,
    )
    from rankbound.data.ratings import read_ratings
    from rankbound.data.sampling import UserLists, age_pairs, aligned, sample_lists
    from rankbound.data.sets import load_fold, load_set
    from rankbound.data.splits import Fold, deal, letor_folds, monte_carlo, user_folds
    from rankbound.data.synthetic import synthetic_images, synthetic_interactions, synthetic_letor

_HOMES = {
    "beir": ("BeirData", "read_beir"),
    "catalog": ("find_entry", "known_sets"),
    "faces": ("Faces", "read_faces"),
    "interactions": ("Interactions",),
    "letor": ("LetorData", "read_letor"),
    "preparation": (
        "binarize",
        "binarized",
        "keep_queries",
        "keep_users",
        "prepare_citeulike",
        "prepare_movielens",
        "relevant_only",
        "scale_per_query",
    ),
    "ratings": ("read_ratings",),
    "sampling": ("UserLists", "age_pairs", "aligned", "sample_lists"),
    "sets": ("load_fold", "load_set"),
    "splits": ("Fold", "deal", "letor_folds", "monte_carlo", "user_folds"),
    "synthetic": ("synthetic_images", "synthetic_interactions", "synthetic_letor"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BeirData",
    "Faces",
    "Fold",
    "Interactions",
    "LetorData",
    "UserLists",
    "age_pairs",
    "aligned",
    "binarize",
    "binarized",
    "deal",
    "find_entry",
    "keep_queries",
    "keep_users",
    "known_sets",
    "letor_folds",
    "load_fold",
    "load_set",
    "monte_carlo",
    "prepare_citeulike",
    "prepare_movielens",
    "read_beir",
    "read_faces",
    "read_letor",
    "read_ratings",
    "relevant_only",
    "sample_lists",
    "scale_per_query",
    "synthetic_images",
    "synthetic_interactions",
    "synthetic_letor",
    "user_folds",
]

__getattr__, __dir__ = front_door(__name__, _HOME, __all__)
