"""rankbound demo: two rankers on generated data, and what knowing the difficulty of each query shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rankbound.analysis.comparison import Comparison
    from rankbound.evaluation import Evaluation
    from rankbound.lists import Lists

__all__ = ["demo"]

PLAIN, BOUNDED = "nDCG@10", "UL2(nDCG@10)"
MEASURES = (PLAIN, "AP", "MM(nDCG@10)", "EM(nDCG@10)", BOUNDED, "DB(nDCG@10)")
# share of queries, fewest and most documents, smallest and largest share of relevant ones
KINDS_OF_QUERIES = ((0.85, 4, 9, 0.6, 0.95), (0.1, 15, 40, 0.2, 0.5), (0.05, 50, 100, 0.02, 0.06))
SKILL = {"steady": 0.9, "flattered": 0.2}  # how much of a document's label a ranker sees through noise of size 1


def demo(
    folder: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files; made if it is not there.")
    ],
    queries: Annotated[int, typer.Option(metavar="N", help="Queries to generate.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the generated data.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Generate queries of very different difficulty, evaluate a decent and a weak ranker, plain and bounded.

    Writes qrels.txt, a run of each ranker, per_query.csv and summary.json.

    \b
    Example:
      rankbound demo -o demo-files
    """
    from rankbound.analysis.comparison import compare
    from rankbound.evaluation import evaluate_lists

    if queries < 10 or seed < 0:
        raise ArgumentError(f"demo needs --queries of at least 10 and a --seed of at least 0, got {queries} and {seed}")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ArgumentError(f"{folder}: is a file, expected a folder")
    with output.working("generating and evaluating ..."):
        rankers = generate_rankers(queries, seed)
        evaluations = {name: evaluate_lists(lists, MEASURES, bounds=True) for name, lists in rankers.items()}
        comparison = compare(
            *(rankers[name] for name in ("flattered", "steady")),
            measures=(PLAIN, BOUNDED),
            names=("flattered", "steady"),
            seed=seed,
        )
        by_chance = evaluate_lists(rankers["steady"].with_scores([0.0] * len(rankers["steady"].labels)), MEASURES)
    summary = {
        "queries": queries,
        "seed": seed,
        "mean": {name: evaluation.mean() for name, evaluation in evaluations.items()},
        "random_order": by_chance.mean(),
        "comparison": comparison.to_dict(),
    }
    _write_files(Path(folder), rankers, evaluations, summary)
    if as_json:
        output.print_json(summary)
    else:
        _print(folder, evaluations | {"random order": by_chance}, comparison)


def generate_rankers(queries: int, seed: int) -> dict[str, Lists]:
    """Lists scored by each ranker: many short queries with little to get wrong, some longer, a few needles in hay."""
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
    names = np.array([f"q{number:03d}" for number in range(1, queries + 1)])
    documents = np.array(
        [f"{name}-d{place}" for name, one in zip(names, labels, strict=True) for place in range(len(one))]
    )
    return {
        ranker: Lists(flat, offsets, skill * flat + random.normal(size=len(flat)), documents, names)
        for ranker, skill in SKILL.items()
    }


def _write_files(
    folder: Path, rankers: Mapping[str, Lists], evaluations: Mapping[str, Evaluation], summary: dict[str, Any]
) -> None:
    import numpy as np
    import polars as pl

    from rankbound.data.files import atomic_write
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
        texts[f"{name}.run.txt"] = "".join(
            f"{q} Q0 {document} {r} {score:.9f} {name}\n" for q, document, r, score in ranked
        )
    texts["summary.json"] = output.json_text(summary) + "\n"
    for name, text in texts.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    frames = [
        evaluation.per_query.select(pl.lit(name).alias("run"), pl.all()) for name, evaluation in evaluations.items()
    ]
    output.write_table(pl.concat(frames), str(folder / "per_query.csv"))


def _print(folder: str, evaluations: Mapping[str, Evaluation], comparison: Comparison) -> None:
    from rankbound.cli.compare import print_comparison

    means = {name: evaluation.mean() for name, evaluation in evaluations.items()}
    output.print_table(
        "Two rankers on generated queries, and a random order of the same documents",
        ["ranker", *MEASURES],
        [[name, *(output.show_number(value) for value in mean.values())] for name, mean in means.items()],
    )
    steady, flattered, chance = (means[name] for name in ("steady", "flattered", "random order"))
    output.print_note(
        f"\nWhat one sees: by {PLAIN} the ranker 'flattered' has {flattered[PLAIN]:.2f}, not far below the "
        f"{steady[PLAIN]:.2f} of 'steady'. But these queries are easy: a random order of their documents has "
        f"{chance[PLAIN]:.2f} already. Of what a ranking can add to that, {BOUNDED}, 'steady' gets "
        f"{steady[BOUNDED]:.2f} and 'flattered' {flattered[BOUNDED]:.2f}.\n"
    )
    print_comparison(comparison)
    output.print_note(f"\nFiles are in {folder}. Try: rankbound evaluate {folder}/qrels.txt {folder}/steady.run.txt")
