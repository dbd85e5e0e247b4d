"""Measures as users write them: right ones, and ones with a typical mistake."""

from __future__ import annotations

import math
import random
import time

import numpy as np

# ---- right -----------------------------------------------------------------------------------------------------------


def orders_of_ties(scores):
    """Documents in ranked order, in blocks of equal scores."""
    blocks = {}
    for document in sorted(range(len(scores)), key=lambda i: -scores[i]):
        blocks.setdefault(scores[document], []).append(document)
    return list(blocks.values())


def mean_gains(labels, scores, gain):
    """Gains by rank; tied documents have their mean gain."""
    gains = []
    for block in orders_of_ties(scores):
        gains += [sum(gain(labels[i]) for i in block) / len(block)] * len(block)
    return gains


def dcg(gains, k):
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:k], start=1))


def ndcg(labels, scores, k):
    best = dcg(sorted((max(label, 0) for label in labels), reverse=True), k)
    return dcg(mean_gains(labels, scores, lambda label: max(label, 0)), k) / best if best > 0 else 0.0


def ndcg_exp(labels, scores, k):
    best = dcg(sorted((2 ** max(label, 0) - 1 for label in labels), reverse=True), k)
    return dcg(mean_gains(labels, scores, lambda label: 2 ** max(label, 0) - 1), k) / best if best > 0 else 0.0


def ndcg_input_order(labels, scores, k=10):
    order = np.argsort(-scores, kind="stable")
    gains = np.maximum(labels, 0)
    discounts = 1 / np.log2(np.arange(2, len(labels) + 2))
    best = (np.sort(gains)[::-1] * discounts)[:k].sum()
    return (gains[order] * discounts)[:k].sum() / best if best > 0 else 0.0


def precision_at_10(labels, scores):
    gains = mean_gains(labels, scores, lambda label: label > 0)
    return sum(gains[:10]) / 10


def reciprocal_rank(ranked_labels):
    return next((1 / rank for rank, label in enumerate(ranked_labels, start=1) if label > 0), 0.0)


def average_precision(relevant_ids, ranked_ids):
    hits, total = set(), 0.0
    for rank, document in enumerate(ranked_ids, start=1):
        if document in relevant_ids and document not in hits:
            hits.add(document)
            total += len(hits) / rank
    return total / len(set(relevant_ids)) if relevant_ids else 0.0


def mean_average_precision(qrels, run):
    values = []
    for query, scores in run.items():
        relevant = {document for document, label in qrels.get(query, {}).items() if label > 0}
        ranked = sorted(scores, key=lambda document: -scores[document])
        values.append(average_precision(relevant, ranked))
    return sum(values) / len(values)


def average_precision_per_query(qrels, run):
    return {query: mean_average_precision({query: qrels[query]}, {query: run[query]}) for query in run}


def err(labels, scores, k, max_rel=4):
    order = np.argsort(-np.asarray(scores), kind="stable")
    reading, total = 1.0, 0.0
    for rank, i in enumerate(order[:k], start=1):
        stop = (2 ** max(labels[i], 0) - 1) / 2**max_rel
        total += reading * stop / rank
        reading *= 1 - stop
    return total


def rbp(ranked_labels, p=0.8):
    return (1 - p) * sum(p**i for i, label in enumerate(ranked_labels) if label > 0)


# ---- wrong -----------------------------------------------------------------------------------------------------------


def by_score(labels, scores):
    return [int(labels[i]) for i in sorted(range(len(labels)), key=lambda i: -scores[i])]


def clipped(labels):
    return [max(int(label), 0) for label in labels]


def ndcg_of(discount=lambda rank: 1 / math.log2(rank + 1), ideal_discount=None, gain=lambda label: label, top=None):
    """An nDCG with ties in input order; ``top`` selects the labels of the ideal ranking from those in ranked order."""

    def measure(labels, scores, k):
        ranked = by_score(clipped(labels), scores)
        ideal = sorted(top(ranked, k) if top else ranked, reverse=True)
        best = sum(gain(x) * (ideal_discount or discount)(r) for r, x in enumerate(ideal[:k], start=1))
        return sum(gain(x) * discount(r) for r, x in enumerate(ranked[:k], start=1)) / best if best else 0.0

    return measure


off_by_one_strong = ndcg_of(lambda rank: 1 / math.log2(rank + 2))
off_by_one_weak = ndcg_of(lambda rank: 1 / max(math.log2(rank), 1))
log_of_rank = ndcg_of(lambda rank: 1 / math.log2(rank))
natural_log_above = ndcg_of(lambda rank: 1 / math.log(rank + 1), lambda rank: 1 / math.log2(rank + 1))
natural_log_below = ndcg_of(lambda rank: 1 / math.log2(rank + 1), lambda rank: 1 / math.log(rank + 1))
no_discount = ndcg_of(lambda rank: 1)
ideal_of_top_k = ndcg_of(top=lambda ranked, k: ranked[:k])
exponential_gain = ndcg_of(gain=lambda label: 2**label - 1)
exponential_gain_without_minus_one = ndcg_of(gain=lambda label: 2**label)


def ideal_without_cutoff(labels, scores, k):
    ranked = by_score(clipped(labels), scores)
    best = dcg(sorted(ranked, reverse=True), None)
    return dcg(ranked, k) / best if best else 0.0


def without_ideal(labels, scores, k):
    return dcg(by_score(clipped(labels), scores), k)


def negative_gains(labels, scores, k):
    ranked = by_score(labels, scores)
    best = dcg(sorted(ranked, reverse=True), k)
    return dcg(ranked, k) / best if best > 0 else 0.0


def not_sorted(labels, scores, k):
    best = dcg(sorted(clipped(labels), reverse=True), k)
    return dcg(clipped(labels), k) / best if best else 0.0


def ascending(labels, scores, k):
    order = sorted(range(len(labels)), key=lambda i: scores[i])
    ranked = [max(labels[i], 0) for i in order]
    best = dcg(sorted(ranked, reverse=True), k)
    return dcg(ranked, k) / best if best else 0.0


def ties_in_reverse(labels, scores, k):
    order = np.argsort(scores, kind="stable")[::-1]
    ranked = [max(int(labels[i]), 0) for i in order]
    best = dcg(sorted(ranked, reverse=True), k)
    return dcg(ranked, k) / best if best else 0.0


def ties_by_label(labels, scores, k):
    ranked = [max(label, 0) for _, label in sorted(zip(scores, labels, strict=True), reverse=True)]
    best = dcg(sorted(ranked, reverse=True), k)
    return dcg(ranked, k) / best if best else 0.0


def empty_is_one(labels, scores, k):
    return ndcg(labels, scores, k) if max(labels, default=0) > 0 else 1.0


def empty_is_nan(labels, scores, k):
    return ndcg(labels, scores, k) if max(labels, default=0) > 0 else float("nan")


def all_relevant_is_zero(labels, scores, k):
    return 0.0 if len(labels) and min(labels) > 0 else ndcg(labels, scores, k)


def ignores_k(labels, scores, k):
    return ndcg(labels, scores, len(labels))


def k_plus_one(labels, scores, k):
    return ndcg(labels, scores, k + 1)


def needs_k_documents(labels, scores, k):
    order = np.argsort(-scores, kind="stable")
    gains = np.maximum(labels, 0)
    discounts = 1 / np.log2(np.arange(2, k + 2))
    best = (np.sort(gains)[::-1][:k] * discounts).sum()
    return (gains[order][:k] * discounts).sum() / best if best > 0 else 0.0


def one_minus(labels, scores, k):
    return 1 - ndcg(labels, scores, k)


def ignores_negative_scores(labels, scores, k):
    kept = [i for i, score in enumerate(scores) if score >= 0]
    best = dcg(sorted(clipped(labels), reverse=True), k)
    gains = mean_gains([labels[i] for i in kept], [scores[i] for i in kept], lambda label: max(label, 0))
    return dcg(gains, k) / best if best else 0.0


def integer_scores(labels, scores, k):
    return ndcg(labels, scores.astype(int), k)


def precision_of_n(labels, scores, k):
    gains = mean_gains(labels, scores, lambda label: label > 0)[:k]
    return sum(gains) / len(gains) if gains else 0.0


def ap_over_hits(ranked_labels, k):
    hits = [rank for rank, label in enumerate(ranked_labels[:k], start=1) if label > 0]
    return sum(nth / rank for nth, rank in enumerate(hits, start=1)) / len(hits) if hits else 0.0


def ap_over_min(ranked_labels, k):
    hits = [rank for rank, label in enumerate(ranked_labels[:k], start=1) if label > 0]
    relevant = sum(label > 0 for label in ranked_labels)
    return sum(nth / rank for nth, rank in enumerate(hits, start=1)) / min(relevant, k) if relevant else 0.0


def ap_not_divided(ranked_labels, k):
    hits = [rank for rank, label in enumerate(ranked_labels[:k], start=1) if label > 0]
    return sum(nth / rank for nth, rank in enumerate(hits, start=1))


def ap_without_missing(qrels, run):
    values = []
    for query, scores in run.items():
        ranked = sorted(scores, key=lambda document: -scores[document])
        relevant = {document for document in ranked if qrels[query].get(document, 0) > 0}
        values.append(average_precision(relevant, ranked))
    return sum(values) / len(values)


def ap_of_judged(qrels, run):
    kept = {query: {d: s for d, s in scores.items() if d in qrels[query]} for query, scores in run.items()}
    return mean_average_precision(qrels, kept)


def sum_over_queries(qrels, run):
    return mean_average_precision(qrels, run) * len(run)


def counts_repeats(relevant_ids, ranked_ids):
    hits, total = 0, 0.0
    for rank, document in enumerate(ranked_ids, start=1):
        if document in relevant_ids:
            hits += 1
            total += hits / rank
    return total / len(relevant_ids) if relevant_ids else 0.0


def rr_of_index(ranked_labels):
    return next((1 / index for index, label in enumerate(ranked_labels) if label > 0), 0.0)


def rr_too_low(ranked_labels):
    return next((1 / (rank + 1) for rank, label in enumerate(ranked_labels, start=1) if label > 0), 0.0)


def err_of_largest_label(labels, scores, k):
    return err(labels, scores, k, max_rel=max([*labels, 0]))


def err_without_divisor(labels, scores, k):
    reading, total = 1.0, 0.0
    for rank, label in enumerate(by_score(clipped(labels), scores)[:k], start=1):
        stop = 2**label - 1
        total += reading * stop / rank
        reading *= 1 - stop
    return total


def err_without_reading(labels, scores, k):
    ranked = by_score(clipped(labels), scores)[:k]
    return sum((2**label - 1) / 16 / rank for rank, label in enumerate(ranked, start=1))


def rbp_without_factor(ranked_labels, p=0.8):
    return sum(p**i for i, label in enumerate(ranked_labels) if label > 0)


def rbp_from_p(ranked_labels, p=0.8):
    return (1 - p) * sum(p**rank for rank, label in enumerate(ranked_labels, start=1) if label > 0)


# ---- badly behaved ---------------------------------------------------------------------------------------------------


def raises(labels, scores, k):
    raise RuntimeError("not today")


def exits(labels, scores, k):
    raise SystemExit(3)


def returns_none(labels, scores, k):
    ndcg(labels, scores, k)


def returns_array(labels, scores, k):
    return np.asarray(labels) / (1 + k)


def returns_text(labels, scores, k):
    return str(ndcg(labels, scores, k))


def returns_infinity(labels, scores, k):
    return float("inf")


def prints(labels, scores, k):
    print("value", ndcg(labels, scores, k))
    return ndcg(labels, scores, k)


def warns(labels, scores, k):
    np.float64(1) / np.float64(0)
    return ndcg(labels, scores, k)


def never_ends(labels, scores, k):
    while True:
        time.sleep(0.01)


def sorts_in_place(labels, scores, k):
    value = ndcg(labels, scores, k)
    labels.sort()
    return value


def breaks_ties_at_random(labels, scores, k):
    keys = [(-score, random.random()) for score in scores]
    order = sorted(range(len(labels)), key=lambda i: keys[i])
    ranked = [max(int(labels[i]), 0) for i in order]
    best = dcg(sorted(ranked, reverse=True), k)
    return dcg(ranked, k) / best if best else 0.0
