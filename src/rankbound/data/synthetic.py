"""Generated data, deterministic by seed, whose queries and users are as heterogeneous as those of real data."""

from __future__ import annotations

import numpy as np

from rankbound.data.faces import Faces
from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData
from rankbound.data.preparation import scale_per_query
from rankbound.errors import ArgumentError
from rankbound.lists import Lists


def synthetic_letor(
    queries: int = 200,
    features: int = 20,
    seed: int = 0,
    documents: tuple[int, int] = (5, 120),
    levels: int = 3,
) -> LetorData:
    """Generate queries with graded labels, some of them hard and some easy.

    The number of documents, the fraction of relevant ones and the noise differ between queries. The relevance of a
    document is a nonlinear function of a few features, the same for all queries; the other features carry no
    information. Features are scaled to [0, 1] within each query, as in LETOR. A few queries have no relevant document.

    >>> data = synthetic_letor(queries=30, seed=3)
    >>> data.features.shape[1], int(data.lists.labels.max())
    (20, 2)
    """
    low, high = documents
    if queries < 1 or features < 4 or levels < 2 or not 1 <= low <= high:
        raise ArgumentError("synthetic_letor needs queries >= 1, features >= 4, levels >= 2, 1 <= documents[0] <= [1]")
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(low), np.log(high + 1), queries)).astype(np.int64).clip(low, high)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    query = np.repeat(np.arange(queries), sizes)
    useful = rng.choice(features, max(3, features // 4), replace=False)
    weights = rng.normal(1.0, 0.4, len(useful))
    values = rng.gamma(1.5, 1.0, (len(query), features)) * rng.lognormal(0, 0.5, (queries, features))[query]
    raw = np.log1p(values[:, useful]) @ weights + 0.8 * np.tanh(values[:, useful[0]] - values[:, useful[1]])
    noise = rng.lognormal(-0.7, 0.7, queries)[query] * rng.normal(0, 1, len(query))
    relevance = (raw - np.bincount(query, raw)[query] / sizes[query]) / max(float(raw.std()), 1e-9) + noise
    order = np.lexsort((-relevance, query))
    quantile = np.empty(len(query), np.float64)
    quantile[order] = (np.arange(len(query)) - offsets[query] + 0.5) / sizes[query]
    fraction = rng.beta(1.2, 3.5, queries) * (rng.random(queries) > 0.04)  # of documents with a label above 0
    labels = np.zeros(len(query), np.int32)
    for level in range(1, levels):
        labels += (quantile < (fraction * 0.4 ** (level - 1))[query]).astype(np.int32)
    ids = np.char.add("d", np.arange(len(query)).astype(np.str_))
    lists = Lists(labels, offsets, None, ids, np.arange(queries) + 1)
    return LetorData(lists, scale_per_query(values, offsets))


def synthetic_interactions(users: int = 200, items: int = 400, seed: int = 0, factors: int = 8) -> Interactions:
    """Generate ratings with long-tailed popularity, latent tastes and users of very different activity.

    >>> table = synthetic_interactions(users=40, items=60, seed=5)
    >>> len(table.user_names), int(table.per_user.min()) >= 5
    (40, True)
    """
    if users < 1 or items < 10 or factors < 1:
        raise ArgumentError(f"synthetic_interactions needs users >= 1, items >= 10, factors >= 1; got {users}, {items}")
    rng = np.random.default_rng(seed)
    popularity = -1.3 * np.log(rng.permutation(items) + 5.0)
    tastes, traits = rng.normal(0, 1, (users, factors)), rng.normal(0, 1, (items, factors))
    liking = tastes @ traits.T / np.sqrt(factors)
    activity = np.clip(rng.lognormal(np.log(items / 12), 0.8, users), 5, items / 2).astype(np.int64)
    appeal = (
        popularity + 1.2 * liking + rng.gumbel(0, 1, (users, items))
    )  # Gumbel noise: the best k are a sample without replacement
    rank = np.argsort(np.argsort(-appeal, axis=1), axis=1)
    user, item = np.nonzero(rank < activity[:, None])
    stars = 3.4 + 0.9 * liking[user, item] + rng.normal(0, 0.6, len(user))
    when = 1_500_000_000 + rng.integers(0, 10**8, len(user))
    return Interactions.from_columns(user + 1, item + 1, np.clip(np.rint(2 * stars) / 2, 0.5, 5.0), when)


def synthetic_images(count: int = 600, size: int = 16, seed: int = 0) -> Faces:
    """Generate gray images of a noisy disc with wrinkles; age increases the size of the disc and the wrinkles.

    >>> faces = synthetic_images(count=20, seed=1)
    >>> faces.images.shape, faces.images.dtype.name
    ((20, 16, 16), 'uint8')
    """
    if count < 1 or size < 8:
        raise ArgumentError(f"synthetic_images needs count >= 1 and size >= 8, got {count} and {size}")
    rng = np.random.default_rng(seed)
    ages = rng.integers(2, 81, count)
    y, x = np.mgrid[0:size, 0:size] / (size - 1) - 0.5
    center = rng.normal(0, 0.06, (2, count, 1, 1))
    radius = np.hypot(y - center[0], x - center[1])
    grown = 0.18 + 0.25 * (ages[:, None, None] / 80) + rng.normal(0, 0.015, (count, 1, 1))
    disc = 1 / (1 + np.exp((radius - grown) * 40))
    wrinkles = 0.25 * (ages[:, None, None] / 80) * np.sin(radius * 60 + rng.uniform(0, 6, (count, 1, 1)))
    light = rng.uniform(0.7, 1.0, (count, 1, 1))
    gray = 255 * np.clip(light * disc * (0.75 + wrinkles) + rng.normal(0, 0.05, (count, size, size)), 0, 1)
    return Faces(gray.astype(np.uint8), ages.astype(np.int16), np.arange(count))
