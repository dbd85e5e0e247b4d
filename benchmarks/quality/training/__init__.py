"""Training methods for ranking compared on nine data sets: trees of three libraries, our objectives, our networks.

    python -m benchmarks.quality.training run --store DIR [--sets development|confirmation|NAME] [--methods NAME]
    python -m benchmarks.quality.training report --store DIR -o docs/results

A record is what one method reaches on the test queries of one fold with one seed under one protocol: nDCG@10 with the
gain 2^label - 1 of each query. ``run`` computes the records that the store does not have yet, so that it can be
interrupted and run in parts; ``report`` compares each method with its references, query by query.

=============  ==================================================================================================
module         what it holds
=============  ==================================================================================================
sets           the data sets, their folds, and which of them are for development and which for confirmation
simulators     the generated data set that is not part of the package
ndcg           nDCG@10 of all queries at once
protocols      the settings that every method tries, and the rule that selects a round and a setting
methods        the methods by name
trees          how LightGBM, XGBoost and CatBoost are trained
networks       how MLPRanker is trained
store          the records on disk
runner         the plan of a run, worker processes, progress
analysis       paired differences, intervals, tests, wins and losses
report         the tables: terminal, CSV files, page
=============  ==================================================================================================

The sets of each role were named before the first run: defaults may be chosen by results on development sets only.
"""
