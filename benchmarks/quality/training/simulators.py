"""A generated data set that differs in kind from `rankbound.data.synthetic_letor`: raw features of a web search engine.

`synthetic_letor` has an additive relevance, features scaled to [0, 1] within each query, and labels by quantiles within
each query. Here features are raw and heavy-tailed, what makes a document relevant depends on the query, and labels are
absolute: a grade is the same degree of relevance in every query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankbound.data import LetorData
from rankbound.errors import ArgumentError
from rankbound.lists import Lists

__all__ = ["GRADE_FRACTIONS", "STREAMS", "web_search"]

GRADE_FRACTIONS = (0.70, 0.17, 0.08, 0.035, 0.015)  # of the documents with label 0, 1, 2, 3, 4
STREAMS = ("body", "anchor", "title", "url", "whole page")
QUERY_FEATURES, STREAM_FEATURES, PAGE_FEATURES, NOISE_FEATURES = 4, 5, 7, 12


def web_search(queries: int = 1450, seed: int = 0, documents: tuple[int, int] = (10, 150)) -> LetorData:
    """Generate queries of a web search engine with graded labels from 0 to 4.

    *Latent variables.* A query is navigational (with probability 0.3) or informational, and has a length, a rarity of
    its terms and a breadth. A document has a topical match t, an authority a, a freshness f and a spam score s. Its
    relevance is u = g(t, a, f, s | query) + query offset + noise, where

    - informational: g = w1 tanh(t) + w2 max(a, 0) tanh(t) + w3 f 1[the query is broad] - w4 1[s > 1];
    - navigational: g = w5 1[a > 0.8] (1 + m) + w6 tanh(2 t) - w4 1[s > 1], with m the match of the URL.

    The weights w are drawn for each seed. The standard deviation of the noise is a log-normal variable of the query, so
    that some queries can hardly be learned; the offset makes queries with many and with few relevant documents.

    *Labels* cut u at five levels that are the same for all queries, with the fractions `GRADE_FRACTIONS` of all
    documents: 70 % are not relevant, and some queries have no relevant document. They depend on no ranking and on no
    click.

    *Features* (48 columns, float32): four of the query, constant within it; for each of five text streams a count (zero
    in many documents, with a negative binomial tail), a ratio, a log-normal score, a product with the rarity of the
    query's terms and a minimum; seven of the page (link counts with a Pareto tail, lengths, spam, age, clicks); and 12
    without information, of which half are heavy-tailed and half are constant in most documents.

    >>> data = web_search(queries=20, seed=1)
    >>> data.features.shape[1], sorted(set(data.lists.labels.tolist()))
    (48, [0, 1, 2, 3, 4])
    """
    low, high = documents
    if queries < 1 or not 1 <= low <= high:
        raise ArgumentError(
            f"web_search needs queries >= 1 and 1 <= documents[0] <= documents[1], got {queries} and {documents}"
        )
    rng = np.random.default_rng([seed, 17])
    sizes = np.exp(rng.uniform(np.log(low), np.log(high + 1), queries)).astype(np.int64).clip(low, high)
    query = np.repeat(np.arange(queries), sizes)
    rows = len(query)

    navigational = rng.random(queries) < 0.3
    length = 1 + rng.poisson(np.where(navigational, 0.6, 2.0))
    rarity, breadth = rng.gamma(4.0, 1.0, queries), rng.random(queries)
    difficulty = rng.lognormal(-0.6, 0.6, queries)

    match, authority, fresh, spam = rng.normal(size=(4, rows))
    url_match = rng.random(rows) < 1 / (1 + np.exp(2.0 - 1.5 * match))
    w1, w2, w3, w4, w5, w6 = rng.uniform(0.6, 1.4, 6) * (1.5, 0.8, 0.7, 0.9, 1.2, 0.8)
    topical = np.tanh(match)
    informational = w1 * topical + w2 * np.maximum(authority, 0) * topical + w3 * fresh * (breadth > 0.6)[query]
    destination = w5 * (authority > 0.8) * (1 + url_match) + w6 * np.tanh(2 * match)
    utility = np.where(navigational[query], destination, informational) - w4 * (spam > 1)
    utility += rng.normal(0, 0.5, queries)[query] + difficulty[query] * rng.normal(size=rows)
    cuts = np.quantile(utility, np.cumsum(GRADE_FRACTIONS)[:-1])
    labels = np.searchsorted(cuts, utility).astype(np.int32)

    of_query = np.stack((length, rarity, breadth + rng.normal(0, 0.2, queries), sizes), axis=1)[query]
    streams = [_stream(rng, match, length[query], rarity[query]) for _ in STREAMS]
    page = _page(rng, authority, fresh, spam, url_match, match)
    heavy = rng.pareto(1.5, (rows, NOISE_FEATURES // 2))
    sparse = rng.exponential(1.0, (rows, NOISE_FEATURES // 2)) * (rng.random((rows, NOISE_FEATURES // 2)) < 0.1)
    features = np.concatenate([of_query, *streams, page, heavy, sparse], axis=1).astype(np.float32)
    ids = np.char.add("d", np.arange(rows).astype(np.str_))
    lists = Lists(labels, np.concatenate(([0], np.cumsum(sizes))), None, ids, np.arange(queries) + 1)
    return LetorData(lists, features)


def _stream(
    rng: np.random.Generator, match: NDArray[np.float64], length: NDArray[np.int64], rarity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what a text stream says about the match: each stream sees it through noise and a loss of its own."""
    rows = len(match)
    seen = match + rng.uniform(0.6, 1.8) * rng.normal(size=rows)
    present = rng.random(rows) < 1 / (1 + np.exp(-rng.uniform(-1.0, 1.5) - seen))  # the stream holds a query term
    count = present * (1 + rng.negative_binomial(1.0, 1 / (1 + np.exp(np.clip(seen, -4, 4)))))
    ratio = np.minimum(count / (length * rng.uniform(1, 3)), 1.0)
    score = present * np.exp(0.7 * seen + 0.3 * rng.normal(size=rows))
    least = np.where(count >= length, count // np.maximum(length, 1), 0)
    return np.stack((count, ratio, score, score * rarity, least), axis=1)


def _page(
    rng: np.random.Generator,
    authority: NDArray[np.float64],
    fresh: NDArray[np.float64],
    spam: NDArray[np.float64],
    url_match: NDArray[np.bool_],
    match: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the features of the page: in-links, out-links, lengths of the page and its URL, spam, age, dwell time."""
    rows = len(authority)
    in_links = np.floor(np.exp(1.2 * authority) * (1 + rng.pareto(1.2, rows)))
    out_links = rng.poisson(np.exp(rng.normal(2.5, 0.8, rows)))
    page_length = np.exp(6 + 0.9 * rng.normal(size=rows))
    url_length = rng.poisson(np.where(url_match, 18, 45))
    spam_score = 100 / (1 + np.exp(-spam - 0.5 * rng.normal(size=rows)))
    age = np.exp(5 - 0.8 * fresh + 0.5 * rng.normal(size=rows))
    dwell = (rng.random(rows) < 0.15) * np.exp(0.6 * match + rng.normal(size=rows))  # known for few documents
    return np.stack((in_links, out_links, page_length, url_length, spam_score, age, dwell), axis=1)
