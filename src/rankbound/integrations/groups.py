"""Means by groups of queries, under names that the logs of trainers can hold."""

from __future__ import annotations

import numpy as np

from rankbound.evaluation import Evaluation
from rankbound.evaluation.groups import NO_GROUP, QueryGroups
from rankbound.measures import parse_measure


def name_of_group(measure: str, attribute: str, group: str) -> str:
    """The name of the mean over a group.

    >>> name_of_group("nDCG@10", "language", "de")
    'nDCG@10_language=de'
    """
    return f"{measure}_{attribute}={group}"


def means_by_group(evaluation: Evaluation, groups: QueryGroups | None) -> dict[str, float]:
    """The mean of each measure over each group, and the worst of each attribute; empty without groups.

    The worst mean is the lowest one, or the highest one where lower values are better. Groups without a value do not
    count. Unlike `Evaluation.with_groups` it takes queries of which no one has an entry, as a batch may have.

    >>> from rankbound.evaluation.groups import read_groups
    >>> evaluation = Evaluation(["q1", "q2", "q3"], {"RR": np.array([1.0, 0.5, 0.2])}, {})
    >>> means_by_group(evaluation, read_groups({"q1": "a", "q2": "b", "q3": "b"}))
    {'RR_group=a': 1.0, 'RR_group=b': 0.35, 'RR_worst_group': 0.35}
    """
    result: dict[str, float] = {}
    query_ids = np.asarray(evaluation.query_ids)
    for attribute, known in ({} if groups is None else groups.attributes).items():
        group_of_query = np.array([known.get(str(name), NO_GROUP) for name in query_ids.tolist()], dtype=np.str_)
        for measure, values in evaluation.values.items():
            means = {}
            for group in np.unique(group_of_query).tolist():
                chosen = group_of_query == group
                mean = Evaluation(query_ids[chosen], {measure: values[chosen]}, {}).mean()[measure]
                if np.isfinite(mean):
                    means[name_of_group(measure, attribute, group)] = mean
            if means:
                worst = max if parse_measure(measure).is_lower_better else min
                result |= {**means, f"{measure}_worst_{attribute}": worst(means.values())}
    return result
