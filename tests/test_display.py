"""What results show in a notebook: tables in HTML, plots without network access, and conversions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound import display
from rankbound.difficulty.bounding import Bounds
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import Evaluation, Evaluations
from rankbound.models import AdaRank, MatrixFactorization, Monitoring
from rankbound.report.tables import Table

ROWS = 20  # of a table, at most
QUERIES = 30
HOSTILE = "<script>alert('x')</script> & \"q\""


def scored(seed: int) -> rb.Lists:
    rng = np.random.default_rng(seed)
    labels = np.tile([2, 1, 0, 0, 0], QUERIES)
    scores = labels + rng.normal(0, 1.5, len(labels))
    qids = [f"q{query}" for query in range(QUERIES)]
    ids = [f"d{item}" for item in range(len(labels))]
    return rb.Lists(labels, np.arange(0, len(labels) + 1, 5), scores, ids, qids)


LISTS, OTHER = scored(0), scored(1)
EVALUATION = rb.evaluate(LISTS, measures=["nDCG@3", "EM(nDCG@3)"], bounds=True)
RUNS = Evaluations({HOSTILE: EVALUATION, "other": rb.evaluate(OTHER, measures=["nDCG@3", "EM(nDCG@3)"], bounds=True)})
COMPARISON = rb.compare(LISTS, OTHER, measures=["nDCG@3", "EM(nDCG@3)"], names=["first", HOSTILE])
BOUNDS = rb.bounds("AP", n=np.arange(3, 60), relevant=2)
DISTRIBUTION = rb.distribution("nDCG", n=12, relevant=3)
RESULTS = {
    "Evaluation": EVALUATION,
    "Evaluations": RUNS,
    "Comparison": COMPARISON,
    "Bounds": rb.bounds("AP", n=3, relevant=2),
    "Bounds of queries": BOUNDS,
    "Distribution": DISTRIBUTION,
    "Lists": LISTS,
}
PLOTS = {
    "histograms": EVALUATION.plot,
    "queries against random": lambda: EVALUATION.plot("nDCG@3"),
    "histogram of one measure": lambda: EVALUATION.plot("EM(nDCG@3)"),
    "means of runs": RUNS.plot,
    "histograms of runs": lambda: RUNS.plot("nDCG@3"),
    "differences": COMPARISON.plot,
    "differences by query": lambda: COMPARISON.plot("nDCG@3"),
    "bounds": RESULTS["Bounds"].plot,
    "bounds of queries": BOUNDS.plot,
    "distribution": lambda: DISTRIBUTION.plot(score=0.9),
    "few scores": rb.distribution("P@2", n=4, relevant=2).plot,
    "one score": rb.distribution("P@1", n=4, relevant=4).plot,
    "lists": LISTS.plot,
    "continuous labels": rb.Lists(np.linspace(0, 5, 90), np.arange(0, 91, 3)).plot,
}


class Cells(HTMLParser):
    """The texts of a table by row, and whether all elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1][-1] += data


def cells(result) -> list[list[str]]:
    parser = Cells()
    parser.feed(result._repr_html_())
    parser.close()
    assert parser.open == []
    return parser.rows


# ---- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", RESULTS.values(), ids=list(RESULTS))
def test_the_table_is_well_formed_escaped_short_and_self_contained(result):
    rows = cells(result)
    assert len({len(row) for row in rows}) == 1
    assert 2 <= len(rows) <= ROWS + 1
    text = result._repr_html_()
    assert "<script" not in text
    assert not re.search(r"https?:|src=|@import|url\(", text)
    assert not re.search(r"[^-]color:(?!inherit)|background:(?!none)", text)  # the notebook's own, light or dark


def test_the_table_of_an_evaluation_has_means_counts_and_bounds():
    header, first, second = cells(EVALUATION)
    assert header == ["measure", "mean", "queries", "worst", "expected", "best"]
    bounds = rb.bounds("nDCG@3", labels=[2, 1, 0, 0, 0])
    ends = [f"{value:.4f}" for value in (bounds.worst, bounds.expected, bounds.best)]
    assert first == ["nDCG@3", f"{EVALUATION.mean()['nDCG@3']:.4f}", "30", *ends]
    assert second[0] == "EM(nDCG@3)"
    assert second[3:] == ["–"] * 3


def test_the_table_of_a_comparison_has_its_differences():
    rows = cells(COMPARISON)
    difference = COMPARISON.rows[0].difference
    assert rows[1][:3] == ["nDCG@3", HOSTILE, "first"]
    assert rows[1][4].replace("−", "-") == f"{difference:+.4f}"
    assert len(rows) == 1 + 2


def test_long_results_are_cut_and_say_so():
    many = rb.evaluate(LISTS, measures=[f"P@{k}" for k in range(1, 41)])
    assert len(cells(many)) == ROWS + 1
    assert "The first 20 of 40 rows" in many._repr_html_()
    assert "The first 10 of 57 rows" in BOUNDS._repr_html_()
    assert "The first 10 of 30 rows" in LISTS._repr_html_()
    assert "x" * 100 not in re.sub(r'title="[^"]*"', "", Evaluations({"x" * 200: EVALUATION})._repr_html_())


def test_warnings_and_policies_are_shown():
    with pytest.warns(rb.errors.CoverageWarning):
        result = rb.evaluate({"q": {"a": 1}}, {"q": {"b": 1.0}}, "AP")
    assert "no document in common" in result._repr_html_()
    assert "Candidates: judged; ties: average; empty: skip" in result._repr_html_()


def test_empty_results_have_tables_too():
    assert cells(Evaluations()) == [["run", "queries"]]
    assert cells(rb.Lists([], [0])) == [["query", "items", "relevant", "highest label"]]
    assert cells(rb.Lists([], [0, 0]))[1] == ["0", "0", "0", "–"]
    assert len(cells(Bounds(np.zeros(0), np.zeros(0), np.zeros(0)))) == 1


# ---- papers and pages ------------------------------------------------------------------------------------------------


def test_tables_for_papers_have_every_row():
    many = rb.evaluate(LISTS, measures=[f"P@{k}" for k in range(1, 41)])
    mean = f"{many.mean()['P@40']:.4f}"
    assert f"| P@40 | {mean} | 30 |" in many.to_markdown()
    assert rf"P@40 & {mean} & 30 \\" in many.to_latex()
    assert "The first 20" not in many.to_markdown()


def test_runs_and_comparisons_have_tables_for_papers():
    first, second = (f"{mean['nDCG@3']:.4f}" for mean in RUNS.mean().values())
    assert f"| other | {second} |" in RUNS.to_markdown()
    assert f"& {first} &" in RUNS.to_latex()
    shown = f"{COMPARISON.rows[0].difference:+.4f}".replace("-", "−")
    assert f"| {shown} |" in COMPARISON.to_markdown()
    lines = COMPARISON.to_latex().splitlines()
    assert sum(line.endswith(r"\\") for line in lines) == 1 + len(COMPARISON.rows)


def test_a_comparison_writes_its_page(tmp_path):
    path = COMPARISON.page(tmp_path / "page.html", title="Mine", about={"Judgments": "made up"})
    text = path.read_text()
    assert "<title>Mine</title>" in text
    assert "made up" in text
    assert "<script>alert" not in text
    assert "bca, 10,000 resamples" in text


def test_other_classes_are_refused_and_can_be_registered():
    class Mine:
        pass

    with pytest.raises(TypeError, match="table_of knows no Mine"):
        display.table_of(Mine())
    display.table_of.register(Mine, lambda _, complete: Table.of_texts("Mine", ["all"], [[str(complete)]]))
    assert "True" in display.table_of(Mine(), complete=True).to_markdown()


def test_rankers_have_the_display_of_scikit_learn():
    assert "AdaRank" in AdaRank()._repr_html_()


# ---- plots -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plot", PLOTS.values(), ids=list(PLOTS))
def test_a_plot_is_an_image_that_loads_nothing(plot):
    bundle = plot()._repr_mimebundle_()
    (vega,) = (kind for kind in bundle if kind.startswith("application/vnd.vegalite"))
    assert set(bundle) == {vega, "image/svg+xml", "text/html", "text/plain"}
    json.dumps(bundle[vega], allow_nan=False)
    page = bundle["text/html"]
    assert "<svg" in page
    assert "currentColor" in page  # text in the color of the notebook
    assert "<script" not in page
    assert not re.search(r'href="http|src=|@import', page)
    assert len(page) < 150_000
    drawn = len(re.findall(r"<path[^>]*(?:fill|stroke)=|<line[^>]*stroke=", page))
    assert drawn > 3


def test_a_plot_of_many_queries_stays_small():
    rng = np.random.default_rng(0)
    size = 5000
    lists = [rb.Lists(np.tile([1, 0, 0], size), np.arange(0, 3 * size + 1, 3), rng.random(3 * size)) for _ in "ab"]
    comparison = rb.compare(*lists, measures="RR", resamples=100)
    result = rb.evaluate(lists[0], measures="RR", bounds=True)
    for plot in (comparison.plot("RR"), result.plot("RR"), result.plot(), lists[0].plot()):
        assert len(plot._repr_html_()) < 200_000


def test_plots_show_the_numbers_of_the_result():
    bars = DISTRIBUTION.plot().specification
    values = next(rows for rows in bars["datasets"].values() if "probability" in rows[0])
    assert sum(row["probability"] for row in values) == pytest.approx(1)
    histogram = next(iter(EVALUATION.plot().specification["datasets"].values()))
    assert sum(row["queries"] for row in histogram if row["panel"] == "nDCG@3") == QUERIES
    assert histogram[0]["mean"] == pytest.approx(EVALUATION.mean()["nDCG@3"], rel=1e-4)
    ranges = next(iter(RESULTS["Bounds"].plot().specification["datasets"].values()))
    assert ranges == [{"position": 0, "worst": pytest.approx(7 / 12), "expected": pytest.approx(29 / 36), "best": 1}]
    bars = next(iter(COMPARISON.plot("nDCG@3").specification["datasets"].values()))
    assert sum(row["outcome"] == "better" for row in bars) == COMPARISON.rows[0].wins
    point = next(rows for rows in COMPARISON.plot().specification["datasets"].values() if "difference" in rows[0])
    assert point[0]["difference"] == pytest.approx(COMPARISON.rows[0].difference, rel=1e-4)


def test_all_pairs_are_plotted_without_a_baseline():
    plot = rb.compare(LISTS, OTHER, scored(2), measures="RR", names=["a", "b", "c"], baseline=None).plot()
    rows = next(rows for rows in plot.specification["datasets"].values() if "difference" in rows[0])
    assert [row["run"] for row in rows] == ["b − a", "c − a", "c − b"]


def test_a_plot_is_saved(tmp_path):
    plot = DISTRIBUTION.plot()
    for suffix in (".svg", ".json"):
        assert plot.save(tmp_path / f"plot{suffix}").stat().st_size > 1000
    assert repr(plot) == "Plot('Distribution of nDCG under random ranking')"
    assert plot.to_svg().startswith("<svg")


def test_a_ranker_plots_its_history():
    users, items, labels = [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 3], [1, 0, 0, 1, 0, 0]
    model = MatrixFactorization(factors=2, loss="softmax", epochs=4, monitoring=Monitoring(eval_every=2))
    model.fit(users, items, labels, eval_set=(users, items, labels))
    rows = next(rows for rows in model.plot().specification["datasets"].values() if "quantity" in rows[0])
    assert [row["value"] for row in rows if row["quantity"] == "loss"] == pytest.approx(
        [entry["loss"] for entry in model.history_], rel=1e-4
    )
    assert {row["epoch"] for row in rows if row["quantity"] == "nDCG"} == {2, 4}


@pytest.mark.parametrize(
    ("plot", "error", "message"),
    [
        (lambda: EVALUATION.plot("AP"), ArgumentError, "measure must be one of nDCG@3, EM(nDCG@3), got 'AP'"),
        (lambda: COMPARISON.plot("AP"), ArgumentError, "measure must be one of nDCG@3, EM(nDCG@3), got 'AP'"),
        (lambda: RUNS.plot("nDCG"), ArgumentError, "measure must be one of nDCG@3, EM(nDCG@3), got 'nDCG'"),
        (lambda: DISTRIBUTION.plot(float("nan")), ArgumentError, "score must be a finite number or None, got nan"),
        (lambda: DISTRIBUTION.plot("0.5"), ArgumentError, "score must be a finite number or None, got '0.5'"),
        (Evaluation([], {}, {}).plot, DataError, "nothing to plot: the evaluation has no value for any of 0 queries"),
        (Evaluation([], {"AP": np.zeros(0)}, {}).plot, DataError, "nothing to plot: AP has no value for any of 0"),
        (Evaluations().plot, DataError, "nothing to plot: no measure has a value for any of 0 runs"),
        (rb.Lists([], [0, 0]).plot, DataError, "nothing to plot: the lists have 1 queries and no item"),
        (Bounds(np.zeros(0), np.zeros(0), np.zeros(0)).plot, DataError, "nothing to plot: the bounds are those of 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_plotted_is_one_clear_error(plot, error, message):
    with pytest.raises(error, match=re.escape(message)):
        plot()


def test_an_evaluation_of_empty_queries_has_nothing_to_plot():
    empty = rb.Lists([0, 0, 0, 0], [0, 2, 4], [1.0, 2.0, 3.0, 4.0])
    result = rb.evaluate(empty, measures=["AP", "RR"], bounds=True)
    for plot in (result.plot, lambda: result.plot("AP"), lambda: Evaluations(run=result).plot("AP")):
        with pytest.raises(DataError, match="nothing to plot: "):
            plot()
    comparison = rb.compare(empty, empty, measures="AP")
    for plot in (comparison.plot, lambda: comparison.plot("AP")):
        with pytest.raises(DataError, match="nothing to plot: "):
            plot()


def test_rankers_without_a_history_say_so():
    ranker = AdaRank(n_estimators=2).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    with pytest.raises(ArgumentError, match=r"plot shows history_, .* and AdaRank has none"):
        ranker.plot()
    with pytest.raises(ValueError, match="not fitted"):
        AdaRank().plot()


# ---- conversions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", RESULTS.values(), ids=list(RESULTS))
def test_to_dict_is_ready_for_json(result):
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()


def test_values_that_json_lacks_become_none():
    empty = rb.evaluate(rb.Lists([0, 0], [0, 2], [1.0, 2.0]), measures="AP").to_dict()
    assert empty["mean"] == {"AP": None}
    assert rb.Lists.from_dicts({"q": {"a": 1}}, {"q": {"b": 1.0}}).to_dict()["depths"] == [1]


def test_lists_can_be_made_again_from_their_dict_and_their_frame():
    again = rb.Lists(**LISTS.to_dict())
    assert again.labels.tolist() == LISTS.labels.tolist()
    assert list(again.qids) == list(LISTS.qids)
    framed = rb.Lists.from_frame(LISTS.to_pandas())
    assert framed.scores.tolist() == LISTS.scores.tolist()
    assert framed.offsets.tolist() == LISTS.offsets.tolist()


@pytest.mark.parametrize(
    ("result", "columns", "rows"),
    [
        (EVALUATION, ["qid", "nDCG@3", "EM(nDCG@3)"], QUERIES),
        (RUNS, ["run", "qid", "nDCG@3", "EM(nDCG@3)"], 2 * QUERIES),
        (COMPARISON, ["measure", "baseline", "run"], 2),
        (RESULTS["Bounds"], ["worst", "expected", "best"], 1),
        (BOUNDS, ["worst", "expected", "best"], 57),
        (DISTRIBUTION, ["score", "probability"], len(DISTRIBUTION)),
        (LISTS, ["qid", "docid", "label", "score"], 5 * QUERIES),
    ],
    ids=list(RESULTS),
)
def test_to_pandas_has_a_row_each(result, columns, rows):
    frame = result.to_pandas()
    assert frame.columns.tolist()[: len(columns)] == columns
    assert len(frame) == rows
    assert frame[columns[-1]].dtype.kind in "fiO" or columns[-1] == "run"


def test_to_pandas_keeps_types_and_missing_values():
    from rankbound.display import pandas_frame

    table = pl.DataFrame({"x": [1.5, None], "n": [1, 2], "m": [1, None], "text": ["a", None], "flag": [True, False]})
    frame = pandas_frame(table)
    assert frame["x"].dtype == "float64"
    assert frame["n"].dtype == "int64"
    assert frame["flag"].dtype == "bool"
    assert frame.isna().to_numpy().tolist() == [[False] * 5, [True, False, True, True, False]]
    unseen = rb.evaluate(rb.Lists([0, 0, 1, 0], [0, 2, 4], [1.0, 2.0, 3.0, 4.0]), measures="AP").to_pandas()
    assert unseen["AP"].isna().tolist() == [True, False]


def test_runs_by_name_are_still_a_dict():
    qrels = {"q": {"a": 1, "b": 0}}
    results = rb.evaluate(qrels, {"good": {"q": {"a": 2, "b": 1}}, "bad": {"q": {"a": 1, "b": 2}}}, "RR")
    assert isinstance(results, dict)
    assert results.mean() == {"good": {"RR": 1.0}, "bad": {"RR": 0.5}}
    assert results.to_dict() == {name: result.to_dict() for name, result in results.items()}
    assert results.per_query["run"].to_list() == ["good", "bad"]
    assert Evaluations().per_query.is_empty()


# ---- packages --------------------------------------------------------------------------------------------------------


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_tables_need_neither_altair_nor_pandas_nor_pyarrow():
    code = """
import sys
for name in ("altair", "vl_convert", "pandas", "pyarrow", "jinja2", "sklearn", "torch"):
    sys.modules[name] = None
import rankbound as rb
bounds = rb.bounds("AP", n=3, relevant=2)
lists = rb.Lists([1, 0], [0, 2], [1.0, 2.0])
for result in (bounds, lists, rb.evaluate(lists, measures="AP"), rb.distribution("AP", n=3, relevant=2)):
    assert "<table" in result._repr_html_()
    result.to_dict()
for call in (bounds.plot, bounds.to_pandas):
    try:
        call()
    except ImportError as error:
        print(error)
sys.modules["altair"] = type(sys)("altair")
try:
    bounds.plot()
except ImportError as error:
    print(error)
"""
    elsewhere = " in a checkout of rankbound, or pip install"
    assert run(code).splitlines() == [
        f'plot needs altair and vl-convert-python: pip install ".[report]"{elsewhere} altair vl-convert-python',
        f'to_pandas needs pandas: pip install ".[notebook]"{elsewhere} pandas',
        f'plot needs vl-convert-python: pip install ".[report]"{elsewhere} vl-convert-python',
    ]


def test_to_pandas_needs_no_pyarrow():
    code = """
import sys
sys.modules["pyarrow"] = None
import rankbound as rb
lists = rb.Lists([1, 0], [0, 2], [1.0, 2.0], ["a", "b"], ["q"])
print(rb.evaluate(lists, measures="AP").to_pandas().to_dict("records"), lists.to_pandas()["docid"].tolist())
"""
    assert run(code).strip() == "[{'qid': 'q', 'AP': 0.5}] ['a', 'b']"


def test_results_are_made_without_loading_their_display():
    code = """
import sys
import rankbound as rb
result = rb.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, "AP")
rb.bounds("AP", n=3, relevant=2)
repr(result)
assert not [name for name in sys.modules if name.startswith("rankbound.report")]
"""
    run(code)
