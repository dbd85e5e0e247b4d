"""Models that one or several processes fit, with checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbound.models import DirectRanker, MatrixFactorization, MLPRanker, Monitoring, Optimizer, VectorModel


def queries(seed, count=33):
    """Queries of different lengths; some have equal labels only."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, count)
    X = rng.normal(size=(sizes.sum(), 5)).astype(np.float32)
    y = np.clip(np.round(X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X)) / 2), 0, 2).astype(int)
    return X, y, np.repeat(np.arange(count), sizes)


def interactions(seed, users=40, items=25):
    """Users with 1 to 8 items, as names."""
    rng = np.random.default_rng(seed)
    rows = [(f"u{u}", f"i{i}") for u in range(users) for i in rng.choice(items, rng.integers(1, 9), replace=False)]
    return [user for user, _ in rows], [item for _, item in rows]


def coded_lists(seed):
    rng = np.random.default_rng(seed)
    users, items = np.repeat(np.arange(30), 6), np.concatenate([rng.permutation(20)[:6] for _ in range(30)])
    return users, items, rng.integers(0, 3, 180)


def mlp(**options):
    def fit(folder, epochs):
        # 33 queries in batches of 16: the last batch has one, so that the second process has none
        ranker = MLPRanker(hidden=(8,), epochs=epochs, learning_rate=0.01, checkpoint=folder, patience=None, **options)
        X, y, qid = queries(1)
        ranker.fit(X, y, qid=qid, eval_set=queries(2))
        return ranker, ranker.predict(queries(3)[0], qid=queries(3)[2]), ranker.score(*queries(3)[:2], queries(3)[2])

    return fit


def direct_ranker(folder, epochs):
    ranker = DirectRanker(hidden=(4,), epochs=epochs, checkpoint=folder, batch_size=5)
    X, y, qid = queries(1)
    ranker.fit(X, y, qid=qid, sample_weight=np.linspace(0.5, 2, len(y)))
    return ranker, ranker.predict(queries(3)[0]), ranker.score(*queries(3)[:2], queries(3)[2])


def factorization(**options):
    def fit(folder, epochs):
        settings = {"factors": 4, "epochs": epochs, "batch_size": 13, "init": 0.3, "checkpoint": folder}
        settings |= options | {"checkpoint_every": 1, "eval_every": 1}
        model = MatrixFactorization(**settings)
        model.fit(interactions(1), eval_set=interactions(2))
        return model, model.user_vectors_ @ model.item_vectors_.T, model.eval_score_

    return fit


def factorization_of_codes(folder, epochs):
    model = MatrixFactorization(
        4,
        "noisy-lambda-nDCG",
        epochs=epochs,
        batch_size=7,
        optimizer=Optimizer(l2=0.01),
        vectors=VectorModel(init=0.3),
        monitoring=Monitoring(checkpoint=folder, checkpoint_every=1, eval_every=1),
    )
    model.fit(*coded_lists(1), eval_set=coded_lists(2))
    return model, model.user_vectors_ @ model.item_vectors_.T, model.eval_score_


MODELS = {
    "mlp": mlp(),
    "lists": mlp(loss="nDCG", bounding="expectation-max", attention_blocks=1, attention_heads=2, list_size=4),
    "classes": mlp(loss="classification"),
    "direct": direct_ranker,
    "catalog": factorization(user_model="both", biases=True, activity_exponent=0.5),
    "sampled": factorization(negatives=2, negative_candidates=2, loss="nDCG", user_model="history"),
    "softmax": factorization(negatives=3, sampling="popularity", optimizer="sgd", reduction="mean", l2=0.1),
    "codes": factorization_of_codes,
}


def fitted(folder, epochs):
    """What is compared, by model: scores, the measure of test data, and the history."""
    found = {}
    for name, fit in MODELS.items():
        model, scores, measure = fit(Path(folder) / name, epochs)
        # the gradient of a constant that is added to all scores is 0 up to rounding, which Adam turns into steps
        found[name] = {
            "scores": np.ravel(scores - scores.mean()).tolist(),
            "measure": measure,
            "history": model.history_,
        }
    return found
