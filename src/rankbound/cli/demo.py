"""rankbound demo: rankers trained on generated data with a plain and a bounded loss, compared, and a page of it all."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rankbound.cli import options, output
from rankbound.cli.kernels import ready_kernels
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.evaluation import Evaluation
    from rankbound.lists import Lists
    from rankbound.report.findings import Findings

__all__ = ["demo"]

PLAIN, BOUNDED = "nDCG@10", "UL2(nDCG@10)"
MEASURES = (PLAIN, "AP", "MM(nDCG@10)", "EM(nDCG@10)", BOUNDED, "DB(nDCG@10)")
# share of queries, fewest and most documents, smallest and largest share of relevant ones
KINDS_OF_QUERIES = ((0.85, 4, 9, 0.6, 0.95), (0.1, 15, 40, 0.2, 0.5), (0.05, 50, 100, 0.02, 0.06))
SIGNAL = (0.5, 0.45, 0.4, 0.3, 0.1, 0.0, 0.0, 0.0)  # how much of the label a feature sees through noise of size 1
WEAK = 4  # the feature that stands alone as a ranker
LOSSES = {"plain": "none", "bounded": "expectation-max"}  # ranker -> bounding of its nDCG loss
EPOCHS = 30


def demo(
    folder: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files; made if it is not there.")
    ],
    queries: Annotated[int, typer.Option(metavar="N", help="Queries to train on, and as many to test on.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", help="Of data and training.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Train two small rankers on generated queries, one with a plain and one with a bounded loss, and compare them.

    Two rankers that learn nothing stand beside them, one feature alone and the sum of all. Writes report.html (a page
    with figures and every query), qrels.txt, a run of each ranker, per_query.csv, summary.json, the queries as LETOR
    files (queries/train.txt, queries/test.txt), and study.toml, a study of them for `rankbound reproduce`.

    \b
    Example:
      rankbound demo -o demo-files
      rankbound reproduce demo-files/study.toml
    """
    from rankbound.analysis.comparison import compare
    from rankbound.evaluation import evaluate_lists

    if queries < 10 or seed < 0:
        raise ArgumentError(f"demo needs --queries of at least 10 and a --seed of at least 0, got {queries} and {seed}")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ArgumentError(f"{folder}: is a file, expected a folder")
    missing = [name for name in ("torch", "numba") if importlib.util.find_spec(name) is None]
    if missing:
        raise ArgumentError(f"demo trains rankers with {' and '.join(missing)}; install rankbound[train]")
    train, test = generate(queries, seed, "t"), generate(queries, seed + 1, "q")
    rankers = {
        "one feature": test.lists.with_scores(test.features[:, WEAK]),
        "feature sum": test.lists.with_scores(test.features.sum(axis=1)),
    }
    history = []
    ready_kernels("nDCG")
    for name, bounding in LOSSES.items():
        with output.working(f"training {name} ..."):
            scores, epochs = _train(bounding, train, test, seed)
        rankers[name] = test.lists.with_scores(scores)
        history.append(_history(name, epochs, seed))
    with output.working("evaluating ..."):
        evaluations = {name: evaluate_lists(lists, MEASURES, bounds=True) for name, lists in rankers.items()}
        comparison = compare(*rankers.values(), measures=(PLAIN, BOUNDED), names=tuple(rankers), seed=seed)
        by_probability = evaluate_lists(test.lists.with_scores([0.0] * len(test.lists.labels)), MEASURES)
    page = Path(folder) / "report.html"
    summary = {
        "queries": queries,
        "seed": seed,
        "mean": {name: evaluation.mean() for name, evaluation in evaluations.items()},
        "random_order": by_probability.mean(),
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
        _print(folder, evaluations | {"random order": by_probability}, findings)


# ---- data and rankers ------------------------------------------------------------------------------------------------


class Generated(NamedTuple):
    """Lists with labels, and the features of their documents."""

    lists: Lists
    features: NDArray[np.float64]


def generate(queries: int, seed: int, prefix: str) -> Generated:
    """Many short queries with little to get wrong, some longer, a few needles in hay."""
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
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in labels])))
    flat = np.concatenate(labels)
    names = np.array([f"{prefix}{number:03d}" for number in range(1, queries + 1)])
    documents = np.array(
        [f"{name}-d{place}" for name, one in zip(names, labels, strict=True) for place in range(len(one))]
    )
    features = flat[:, None] * np.array(SIGNAL) + random.normal(size=(len(flat), len(SIGNAL)))
    return Generated(Lists(flat, offsets, None, documents, names), features)


def _train(bounding: str, train: Generated, test: Generated, seed: int) -> tuple[Any, list[dict[str, float]]]:
    """Scores of the test documents by a small network, and how its training went; all epochs are used, none chosen."""
    import numpy as np

    from rankbound.models import MLPRanker

    (X, y, qid), (X_test, y_test, qid_test) = (
        (part.features, part.lists.labels, np.repeat(part.lists.query_ids, part.lists.sizes)) for part in (train, test)
    )
    ranker = MLPRanker(
        loss="nDCG", bounding=bounding, hidden=(16,), epochs=EPOCHS, learning_rate=0.01, selection="last",
        measure="nDCG", random_state=seed,
    )  # fmt: skip
    ranker.fit(X, y, qid=qid, eval_set=(X_test, y_test, qid_test))
    return ranker.predict(X_test), ranker.history_


def _history(name: str, epochs: list[dict[str, float]], seed: int) -> pl.DataFrame:
    import polars as pl

    rows = [
        {"data": DATA, "variant": "", "system": name, "fold": 0, "seed": seed, "epoch": int(epoch["epoch"]),
         "quantity": quantity, "value": float(value)}
        for epoch in epochs
        for quantity, value in epoch.items()
        if quantity != "epoch"
    ]  # fmt: skip
    return pl.DataFrame(rows)


# ---- files -----------------------------------------------------------------------------------------------------------

DATA = "generated queries"
STUDY = """\
title = "Does bounding help on the queries of the demo?"

[[tables]]
data = { letor = "queries" }
model = "MLPRanker"
loss = ["nDCG", "AP"]
bounding = ["none", "expectation-max"]
params = { hidden = [16], epochs = 30 }
measures = ["nDCG@10", "UL2(nDCG@10)"]
versus = { bounding = "none" }
"""


def _write_page(
    page: Path, rankers: Mapping[str, Lists], history: list[pl.DataFrame], queries: int, seed: int
) -> Findings:
    import polars as pl

    from rankbound.analysis.runs import align_lists
    from rankbound.report.page import draw_figures, make_report, write_report

    scores = align_lists(list(rankers.values()), MEASURES, names=list(rankers), data=DATA).to_table()
    report = make_report(scores)
    write_report(
        page,
        report,
        figures=draw_figures(scores, history=pl.concat(history)),
        title="Two losses on generated queries",
        about={
            "Data": f"{queries} generated queries to train on and {queries} to test on, seed {seed}",
            "Rankers": "plain and bounded: a network with 16 hidden units, loss nDCG, without bounding and with "
            "expectation-max; one feature: the weakest feature that says something of the label; "
            "feature sum: all features added",
            "Training": f"{EPOCHS} epochs, all used; nothing is chosen on the test queries",
        },
    )
    return report.findings


def _write_study(folder: Path, parts: Mapping[str, Generated]) -> None:
    """The queries as LETOR files, and a study of them that can be run as it is or changed."""
    texts = {"study.toml": STUDY}
    for role, (lists, features) in parts.items():
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
        "Rankers on generated queries, and a random order of the same documents",
        ["ranker", *MEASURES],
        [[name, *(output.show_number(value) for value in mean.values())] for name, mean in means.items()],
    )
    trained, weak, probability = (means[name] for name in ("plain", "one feature", "random order"))
    output.print_note(
        f"\nWhat difficulty shows: by {PLAIN} one feature alone has {weak[PLAIN]:.2f}, not far below the "
        f"{trained[PLAIN]:.2f} of a trained ranker. But these queries are easy: a random order of their documents "
        f"has {probability[PLAIN]:.2f} already. Of what a ranking can add to that, {BOUNDED}, the trained ranker gets "
        f"{trained[BOUNDED]:.2f} and the feature {weak[BOUNDED]:.2f}.\n"
    )
    output.print_note("\n".join(["What the page says:", findings.headline, *findings.sentences]))
    output.print_note(
        f"\nPage: {folder}/report.html\n"
        f"Files to try commands on are in {folder}, as: "
        f"rankbound compare {folder}/qrels.txt {folder}/plain.run.txt {folder}/bounded.run.txt"
    )
