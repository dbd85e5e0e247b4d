"""rankbound demo: trains LightGBM with its own objective and with ours on generated data, and writes a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError
from rankbound.packages import check_packages
from rankbound.report import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.evaluation import Evaluation
    from rankbound.lists import Lists
    from rankbound.report.findings import Findings

PLAIN, NORMALIZED = "nDCG@10", "EM(nDCG@10)"
MEASURES = (PLAIN, NORMALIZED, "MM(nDCG@10)", "DB(nDCG@10)", "UL2(nDCG@10)", "AP")
# fraction of queries, fewest and most documents, smallest and largest fraction of relevant documents
KINDS_OF_QUERIES = ((0.85, 4, 9, 0.6, 0.95), (0.1, 15, 40, 0.2, 0.5), (0.05, 50, 100, 0.02, 0.06))
SIGNAL = (0.5, 0.45, 0.4, 0.3, 0.1, 0.0, 0.0, 0.0)  # coefficient of the label in each feature; noise has deviation 1
WEAK = 4  # the feature that is used alone as a ranker
BUILT_IN, OURS = "lambdarank", "rankbound"  # LightGBM's objective, and `rankbound.losses.lightgbm_objective`
ROUNDS = 60
TREES = {"num_leaves": 7, "learning_rate": 0.1, "min_data_in_leaf": 10, "num_threads": 1, "deterministic": True}
MOST_QUERIES = 1_000_000


def demo(
    folder: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files; created if it does not exist.")
    ],
    queries: Annotated[int, typer.Option(metavar="N", help="Number of training queries, and of test queries.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the data and of training.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Train LightGBM with its own objective and with rankbound's on generated queries, and compare them.

    Two untrained rankers serve as baselines: a single feature, and the sum of all features. The command writes
    report.html (a page with figures and every query), qrels.txt, a run of each ranker, per_query.csv, summary.json, the
    queries as LETOR files (queries/train.txt, queries/test.txt), and study.toml, a study of them for `rankbound
    reproduce`.

    \b
    Example:
      rankbound demo -o demo-files
      rankbound reproduce demo-files/study.toml
    """
    from rankbound.evaluation import evaluate_lists
    from rankbound.evaluation.comparison import compare

    if not 10 <= queries <= MOST_QUERIES:
        raise ArgumentError(f"--queries must be at least 10 and at most {MOST_QUERIES:,}, got {queries}")
    if not 0 <= seed < 2**63:
        raise ArgumentError(f"--seed must be an integer from 0 to 2^63 - 1, got {seed}")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ArgumentError(f"{folder}: is a file, expected a folder")
    check_packages("demo", "lightgbm", "jinja2")
    train, test = generate(queries, seed, "t"), generate(queries, seed + 1, "q")
    rankers = {
        "one feature": test.lists.with_scores(test.features[:, WEAK]),
        "feature sum": test.lists.with_scores(test.features.sum(axis=1)),
    }
    history = []
    for name in (BUILT_IN, OURS):
        with output.working(f"training {name} ..."):
            scores, means = _train(name, train, test, seed)
        rankers[name] = test.lists.with_scores(scores)
        history.append(_history(name, means, seed))
    with output.working("evaluating ..."):
        evaluations = {name: evaluate_lists(lists, MEASURES, bounds=True) for name, lists in rankers.items()}
        comparison = compare(*rankers.values(), measures=(PLAIN, NORMALIZED), names=tuple(rankers), seed=seed)
        random_ranking = evaluate_lists(test.lists.with_scores([0.0] * len(test.lists.labels)), MEASURES)
    page = Path(folder) / "report.html"
    summary = {
        "queries": queries,
        "seed": seed,
        "mean": {name: evaluation.mean() for name, evaluation in evaluations.items()},
        "random_order": random_ranking.mean(),
        "comparison": comparison.to_dict(),
        "page": str(page),
    }
    with output.working("writing the page ..."):
        _write_files(Path(folder), rankers, evaluations, summary)
        _write_study(Path(folder), {"train": train, "test": test})
        findings = _write_page(page, rankers, history, queries, seed)
    if as_json:
        output.print_json(summary)
    else:
        _print(folder, evaluations | {"random ranking": random_ranking}, findings)


# ---- data and rankers ------------------------------------------------------------------------------------------------


class Generated(NamedTuple):
    """Lists with labels, and the features of their documents."""

    lists: Lists
    features: NDArray[np.float64]


def generate(queries: int, seed: int, prefix: str) -> Generated:
    """Generate many short queries on which any ranking scores well, some longer ones, and a few with rare relevance."""
    import numpy as np

    from rankbound.lists import Lists

    random = np.random.default_rng(seed)
    labels = []
    for kind in random.choice(len(KINDS_OF_QUERIES), size=queries, p=[kind[0] for kind in KINDS_OF_QUERIES]):
        _, fewest, most, low, high = KINDS_OF_QUERIES[kind]
        size = int(random.integers(fewest, most + 1))
        relevant = max(1, round(random.uniform(low, high) * size))
        labels.append(
            random.permutation(np.repeat([2, 1, 0], [relevant // 3, relevant - relevant // 3, size - relevant]))
        )
    offsets = np.concatenate(([0], np.cumsum([len(query) for query in labels])))
    flat = np.concatenate(labels)
    names = np.array([f"{prefix}{number:03d}" for number in range(1, queries + 1)])
    documents = np.array(
        [f"{name}-d{number}" for name, query in zip(names, labels, strict=True) for number in range(len(query))]
    )
    features = flat[:, None] * np.array(SIGNAL) + random.normal(size=(len(flat), len(SIGNAL)))
    return Generated(Lists(flat, offsets, None, documents, names), features)


def _train(name: str, train: Generated, test: Generated, seed: int) -> tuple[Any, dict[str, NDArray[np.float64]]]:
    """Train trees; return their scores of the test documents and, by measure, the mean on the test queries by round."""
    import lightgbm

    from rankbound.integrations.lightgbm import LightGBMRecorder
    from rankbound.losses import lightgbm_objective

    data = lightgbm.Dataset(train.features, train.lists.labels, group=train.lists.sizes)
    held_out = data.create_valid(test.features, test.lists.labels, group=test.lists.sizes)
    objective = BUILT_IN if name == BUILT_IN else lightgbm_objective()
    recorders = [LightGBMRecorder(measure) for measure in (PLAIN, NORMALIZED)]
    booster = lightgbm.train(
        {"objective": objective, "metric": "None", "seed": seed % 2**31, "verbose": -1, **TREES},
        data,
        num_boost_round=ROUNDS,
        valid_sets=[held_out],
        valid_names=["test"],
        callbacks=recorders,
    )
    return booster.predict(test.features), {recorder.measure: recorder.mean() for recorder in recorders}


def _history(name: str, means: Mapping[str, NDArray[np.float64]], seed: int) -> pl.DataFrame:
    import polars as pl

    trial = {"data": DATA, "variant": "", "system": name, "fold": 0, "seed": seed}
    rows = [
        trial | {"epoch": number, "quantity": measure, "value": float(value)}
        for measure, values in means.items()
        for number, value in enumerate(values, 1)
    ]
    return pl.DataFrame(rows)


# ---- files -----------------------------------------------------------------------------------------------------------

DATA = "generated queries"
STUDY = """\
title = "Effect of bounding on the demo's queries"

[[tables]]
data = { letor = "queries" }
model = "MLPRanker"
loss = ["nDCG", "AP"]
bounding = ["none", "expectation-max"]
params = { hidden = [16], epochs = 30 }
measures = ["nDCG@10", "EM(nDCG@10)"]
versus = { bounding = "none" }
"""


def _write_page(
    page: Path, rankers: Mapping[str, Lists], history: list[pl.DataFrame], queries: int, seed: int
) -> Findings:
    import polars as pl

    from rankbound.evaluation.alignment import align_lists
    from rankbound.report.figures.drawing import Tables
    from rankbound.report.page import make_report, write_report
    from rankbound.studies.figures import draw_study_figures

    scores = align_lists(list(rankers.values()), MEASURES, names=list(rankers), data=DATA)
    report = make_report(scores)
    write_report(
        page,
        report,
        figures=draw_study_figures(Tables(scores.to_table(), history=pl.concat(history))),
        title="LightGBM's objective and rankbound's on generated queries",
        about={
            "Data": f"{queries} generated training queries and {queries} test queries, seed {seed}",
            "Rankers": f"{BUILT_IN}: LightGBM with its own objective; {OURS}: LightGBM with that of rankbound, "
            "LambdaRank with noisy ranks; one feature: the weakest feature that depends on the label; feature sum: the "
            "sum of all features",
            "Training": f"{ROUNDS} rounds, {TREES['num_leaves']} leaves; nothing is selected on the test queries",
        },
    )
    return report.findings


def _write_study(folder: Path, roles: Mapping[str, Generated]) -> None:
    """Write the queries as LETOR files, and a study of them to run as it is or to change."""
    texts = {"study.toml": STUDY}
    for role, (lists, features) in roles.items():
        rows = zip(lists.query_of_item + 1, lists.labels, lists.ids, features, strict=True)
        texts[f"queries/{role}.txt"] = "".join(
            f"{label} qid:{q} {' '.join(f'{i}:{x:.6f}' for i, x in enumerate(values, 1))} # docid = {document}\n"
            for q, label, document, values in rows
        )
    (folder / "queries").mkdir(exist_ok=True)
    _write_texts(folder, texts)


def _write_files(
    folder: Path, rankers: Mapping[str, Lists], evaluations: Mapping[str, Evaluation], summary: dict[str, Any]
) -> None:
    import numpy as np
    import polars as pl

    from rankbound.lists import sort_within_queries

    first = next(iter(rankers.values()))
    query = np.repeat(first.query_ids, first.sizes)
    rank = np.arange(len(query)) - np.repeat(first.offsets[:-1], first.sizes) + 1
    judged = zip(query, first.ids, first.labels, strict=True)
    texts = {"qrels.txt": "".join(f"{q} 0 {document} {label}\n" for q, document, label in judged)}
    for name, lists in rankers.items():
        scores = np.asarray(lists.scores)
        order = sort_within_queries(-scores, lists.offsets)
        ranked = zip(query, lists.ids[order], rank, scores[order], strict=True)
        tag = name.replace(" ", "-")
        texts[f"{tag}.run.txt"] = "".join(
            f"{q} Q0 {document} {r} {score:.9f} {tag}\n" for q, document, r, score in ranked
        )
    texts["summary.json"] = output.json_text(summary) + "\n"
    _write_texts(folder, texts)
    frames = [
        evaluation.per_query.select(pl.lit(name).alias("run"), pl.all()) for name, evaluation in evaluations.items()
    ]
    output.write_table(pl.concat(frames), str(folder / "per_query.csv"))


def _write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    from rankbound.io import atomic_write

    for name, text in texts.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _print(folder: str, evaluations: Mapping[str, Evaluation], findings: Findings) -> None:
    means = {name: evaluation.mean() for name, evaluation in evaluations.items()}
    output.print_table(
        "Rankers on generated queries, and a random ranking of the same documents",
        ["ranker", *MEASURES],
        [[name, *(numbers.show_number(value) for value in mean.values())] for name, mean in means.items()],
    )
    trained, weak, random = (means[name] for name in (OURS, "one feature", "random ranking"))
    output.print_note(
        f"\nBy {PLAIN}, a single feature ({weak[PLAIN]:.2f}) seems close to a trained ranker ({trained[PLAIN]:.2f}). "
        f"But most of these queries are easy: a random ranking of their documents scores {random[PLAIN]:.2f}. "
        f"{NORMALIZED} is 0 for a random ranking on average and 1 for the best ranking of each query: the trained "
        f"ranker scores {trained[NORMALIZED]:.2f}, the single feature {weak[NORMALIZED]:.2f}.\n"
    )
    output.print_note("\n".join(["Findings of the page:", findings.headline, *findings.sentences]))
    output.print_note(
        f"\nPage: {folder}/report.html\n"
        f"The files in {folder} can be used with other commands: "
        f"rankbound compare {folder}/qrels.txt {folder}/{BUILT_IN}.run.txt {folder}/{OURS}.run.txt"
    )
