"""The smooth AP loss of the released code of Li et al. (2021), on the paper's splits of CiteULike-a.

    python -m benchmarks.quality.reciprocal_ranks --store DIR                    all splits and negative ratios
    python -m benchmarks.quality.reciprocal_ranks --store DIR --only nsr=1       a part of them

The formula of the paper divides, for each relevant item, the number of relevant items above it by its rank. The code
counts all items below it instead, up to the longest list of the batch, to which other lists are filled up, and divides
by the number of relevant items of the whole batch. With n positions that is the sum over relevant items of
(n + 1 - R) / R, or n + 1 times the sum of their reciprocal ranks, less a constant. So the loss here is the sum of the
reciprocal smooth ranks of relevant items, not divided by their number. Its learning rate corresponds to that of the
code times n / (number of relevant items in the batch); 0.3 was tried and no other. Everything else is as in the study
insights-fig1, whose published numbers of the AP loss are the ones to compare with. Results are added to docs/results;
the last lines compare them, and the listwise rows of insights-fig1 there, with the published numbers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import polars as pl

from rankbound.cli.reproduce import parse_only
from rankbound.measures import additive
from rankbound.studies import run_study, show_progress
from rankbound.studies.study_files import load_study

RESULTS = Path(__file__).parents[2] / "docs" / "results"
NAME = "insights-released-ap"

STUDY = """
title = "Li et al. (2021), CiteULike-a: the smooth AP loss of their released code"
about = '''
The released code of Roger Zhe Li, Julián Urbano and Alan Hanjalic, "New Insights into Metric Optimization for
Ranking-based Recommendation" (SIGIR 2021), counts all items below a relevant one in its smooth AP loss, where the
formula counts the relevant ones above. Up to a factor and a constant, that is the sum of the reciprocal ranks of
relevant items, the loss ReciprocalRanks of this table. It is compared with the published numbers of the AP loss; the
study insights-fig1 has the rows of the formula, under the same protocol. One learning rate was tried. Made by
python -m benchmarks.quality.reciprocal_ranks.
'''

[[tables]]
name = "listwise"
data = "citeulike-a"
folds = [0, 1]
nsr = [1, 2, 5]
loss = "ReciprocalRanks"
model = "MatrixFactorization"
params = { factors = 32, optimizer = "sgd", batch_size = "none", epochs = 3000, eval_every = 10, patience = 400 }
grid = { learning_rate = [0.3] }
measures = ["RR", "AP", "nDCG", "RBP(p=0.8)", "RBP(p=0.9)", "RBP(p=0.95)"]
selection = "test"
select_by = "AP"
choose = "each"
protocol = "published"
seconds = 250
"""

if __name__ != "__main__":  # the command and its workers import this module for the measure
    additive(
        "ReciprocalRanks",
        gain=lambda label: label,
        discount="reciprocal",
        normalize=False,
        summary="sum of the reciprocal ranks of relevant items",
    )


def write_study(folder: Path) -> Path:
    """Write the study, and the published numbers of the AP loss under the name of this one; return the path."""
    published = pl.read_csv(load_study("insights-fig1").published_path, infer_schema=False)
    published = published.filter(pl.col("table") == "listwise", pl.col("loss") == "AP")
    path = folder / f"{NAME}.toml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(STUDY)
    published.with_columns(pl.lit("ReciprocalRanks").alias("loss")).write_csv(folder / f"{NAME}.published.csv")
    return path


def distances(folder: Path = RESULTS) -> dict[str, tuple[float, int]]:
    """Return the mean of |ours - published|, and the number of rows, for the smooth losses with AP in either form."""
    tables = [pl.read_csv(folder / f"{name}.csv") for name in ("insights-fig1", NAME)]
    formula, code = (
        table.filter(pl.col("table") == "listwise").drop_nulls("difference").select("loss", pl.col("difference").abs())
        for table in tables
    )
    others, ap = formula.filter(pl.col("loss") != "AP"), formula.filter(pl.col("loss") == "AP")
    parts = {
        "nDCG, RR and nRBP": others,
        "AP by the formula": ap,
        "AP by the code": code,
        "all, AP by the formula": pl.concat([others, ap]),
        "all, AP by the code": pl.concat([others, code]),
    }
    return {name: (part["difference"].mean(), part.height) for name, part in parts.items()}  # type: ignore[misc]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, metavar="DIR", help="for the results of trials")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE,...")
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args(arguments)
    with show_progress() as progress:
        result = run_study(
            write_study(options.store),
            only=parse_only(options.only),
            store=options.store / "trials",
            jobs=options.jobs,
            modules=["benchmarks.quality.reciprocal_ranks"],
            results=RESULTS,
            progress=progress,
        )
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(result.results.select("nsr", "measure", "published", "ours", "difference", "ci_low", "ci_high"))
    print("mean of |ours - published|")
    for name, (distance, rows) in distances().items():
        print(f"{name:24}{distance:8.4f}  ({rows} rows)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
