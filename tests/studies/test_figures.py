"""Figures: each one is drawn from the tables of a small study, within limits, offline, in all formats."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.data.synthetic import synthetic_images
from rankbound.errors import ArgumentError
from rankbound.report.figures.drawing import FigureOutcome, Tables, draw_figures, write_figures
from rankbound.report.figures.panels import grid
from rankbound.report.figures.saving import save_chart
from rankbound.report.figures.theme import LIMIT, PALETTE, alt, apply_theme
from rankbound.studies import figures as study_figures
from rankbound.studies.figures import check_figure_names, write_study_figures
from rankbound.studies.figures.catalog import FIGURES, comparison_groups
from rankbound.studies.image_pairs import example_pairs
from rankbound.studies.meta_evaluation import asl_curves

MEASURES = ["nDCG", "AP", "nRBP(p=0.95)", "nDCG@1", "nDCG@5", "UL2(nDCG)"]


def make_scores(queries=20, losses=("nDCG", "AP"), boundings=("none", "min-max", "distribution")):
    frames = []
    for number, (data, variant) in enumerate((("movies", "NSR 1"), ("movies", "NSR 3"), ("pages", ""))):
        for fold in (0, 1):
            random = np.random.default_rng(10 * number + fold)
            relevant = random.integers(1, 30, queries)
            sizes = relevant * (4 if variant == "NSR 3" else 2)
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            query = np.repeat(np.arange(queries), sizes)
            labels = (np.arange(offsets[-1]) - offsets[query] < relevant[query]).astype(np.int64)
            for loss in losses:
                noise = random.normal(0, 1, offsets[-1])
                for number, bounding in enumerate(boundings):
                    scores = labels * (1 + number / 5) + noise + random.normal(0, 0.3, offsets[-1])
                    lists = rb.Lists(labels, offsets, scores=scores, qids=[f"q{i}" for i in range(queries)])
                    evaluation = rb.evaluate(lists, measures=MEASURES).per_query
                    names = {"data": data, "variant": variant, "system": f"{loss} · {bounding}", "loss": loss}
                    frames.append(
                        evaluation.select("qid", *MEASURES).with_columns(
                            *(pl.lit(value).alias(key) for key, value in names.items()),
                            pl.lit(bounding).alias("bounding"),
                            pl.lit(fold).alias("fold"),
                            pl.lit(0).alias("seed"),
                            pl.Series("items", sizes),
                            pl.Series("relevant", relevant),
                        )
                    )
    return pl.concat(frames)


def make_history():
    epochs = np.arange(1, 3001)
    frames = [
        pl.DataFrame({"epoch": epochs, "value": np.exp(-epochs / 900) + fold / 10}).with_columns(
            pl.lit(quantity).alias("quantity"), pl.lit(system).alias("system"), pl.lit(fold).alias("fold")
        )
        for quantity in ("loss", "validation nDCG", "approximation error")
        for system in ("nDCG · none", "nDCG · min-max")
        for fold in (0, 1)
    ]
    pixels = [f"coefficient {row},{column}" for row in range(20) for column in range(20)]
    last = pl.DataFrame({"quantity": pixels, "value": np.random.default_rng(0).normal(0, 1, 400)}).with_columns(
        pl.lit(1).alias("epoch"), pl.lit("linear").alias("system"), pl.lit(0).alias("fold")
    )
    fixed = {"data": "movies", "variant": "", "seed": 0}
    table = pl.concat([*frames, last], how="diagonal_relaxed")
    return table.with_columns(*(pl.lit(value).alias(key) for key, value in fixed.items()))


def make_results():
    return pl.DataFrame(
        {
            "data": ["movies", "movies", "pages"],
            "loss": ["nDCG", "AP", "nDCG"],
            "measure": ["nDCG", "nDCG", "nDCG"],
            "published": [0.96, None, 0.79],
            "ours": [0.95, 0.94, 0.78],
            "difference": [-0.01, None, -0.01],
            "ci_low": [0.94, 0.93, 0.76],
            "ci_high": [0.96, 0.95, 0.80],
        }
    )


def make_examples():
    faces = synthetic_images(count=40, size=12, seed=1)
    random = np.random.default_rng(3)
    pairs = example_pairs(faces.images, faces.ages, random.random(40), random.permutation(40).reshape(20, 2), 2)
    labels = {"data": "faces", "variant": "", "system": "linear", "fold": 0, "seed": 0, "table": "pixels"}
    return pairs.select(*(pl.lit(value).alias(key) for key, value in labels.items()), pl.all())


def all_figures(*tables):
    return draw_figures(Tables(*tables), FIGURES)


@pytest.fixture(scope="module")
def outcomes():
    return all_figures(make_scores(), make_results(), make_history(), make_examples())


@pytest.fixture(scope="module")
def specifications(outcomes):
    return {name: apply_theme(outcome.chart) for name, outcome in outcomes.items() if outcome.chart is not None}


@pytest.mark.full("takes seconds")
def test_every_figure_is_drawn_from_a_study_with_losses_and_histories(outcomes):
    assert {name: outcome.reason for name, outcome in outcomes.items() if outcome.chart is None} == {}
    for figure in FIGURES:
        assert any(name == figure or name.startswith(f"{figure}-") for name in outcomes)
    assert "gain-by-activity-ndcg" in outcomes
    assert "gain-by-activity-ap" in outcomes
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in outcomes)
    assert all(outcome.title and outcome.caption for outcome in outcomes.values())


def test_every_figure_is_valid_vega_lite(outcomes, specifications):
    """Drawing does not validate specifications, which takes time."""
    for name, specification in specifications.items():
        with alt.theme.enable("none"):
            valid = outcomes[name].chart.to_dict()  # raises an error otherwise
        assert valid | {"config": specification["config"]} == specification, name


def test_no_figure_holds_more_rows_than_the_limit(specifications):
    for name, specification in specifications.items():
        rows = sum(len(rows) for rows in specification["datasets"].values())
        assert 0 < rows <= LIMIT, name


def encodings(node):
    """Every encoding in a specification, however deep."""
    if isinstance(node, dict):
        if "encoding" in node:
            yield node
        for value in node.values():
            yield from encodings(value)
    elif isinstance(node, list):
        for value in node:
            yield from encodings(value)


def test_every_figure_has_titled_axes_and_tooltips(specifications):
    for name, specification in specifications.items():
        nodes = list(encodings({key: value for key, value in specification.items() if key != "datasets"}))
        assert any("tooltip" in each["encoding"] for each in nodes), name
        for axis in ("x", "y"):
            titled = [each["encoding"][axis] for each in nodes if "field" in each["encoding"].get(axis, {})]
            assert not titled or any("title" in each or each.get("axis", 1) is None for each in titled), (name, axis)


def test_text_follows_the_page_and_nothing_paints_a_background(specifications):
    for specification in specifications.values():
        config = specification["config"]
        assert config["background"] is None
        assert {config[name]["labelColor"] for name in ("axis", "legend", "header")} == {"currentColor"}


def luminance(color):
    frames = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in frames]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_colors_have_contrast_on_white_and_on_dark():
    """Contrast as WCAG defines it; 2 is the contrast of the palest of Okabe and Ito's colors on white."""
    for color in PALETTE:
        on_white = 1.05 / (luminance(color) + 0.05)
        on_dark = (luminance(color) + 0.05) / (luminance("#16181d") + 0.05)
        assert on_white > 2, color
        assert on_dark > 3, color


def test_the_first_colors_differ_for_the_color_blind():
    """Distance in the plane that deuteranopes see (Viénot 1999), among the six colors of Okabe and Ito."""
    matrix = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
    seen = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in PALETTE[:6]]) ** 2.2 @ matrix.T
    gaps = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(6, 1)]
    assert gaps.min() > 0.08


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chart(outcomes):
    return outcomes["lower-bounds"].chart


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_becomes_an_svg(outcomes, tmp_path, figure):
    outcome = next(each for name, each in outcomes.items() if name.startswith(figure))
    root = ElementTree.parse(save_chart(outcome.chart, tmp_path / "figure.svg")).getroot()
    assert sum(each.tag.endswith("path") for each in root.iter()) > 10


def test_html_is_self_contained(chart, tmp_path):
    page = save_chart(chart, tmp_path / "chart.html").read_text()
    assert not re.search(r"<(script|link|img)[^>]*\b(src|href)=[\"']?(https?:)?//", page)
    assert "vegaEmbed" in page
    assert "color-scheme: light dark" in page


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<svg")])
def test_suffixes_decide_the_format(chart, tmp_path, suffix, start):
    assert save_chart(chart, tmp_path / f"chart{suffix}").read_bytes().startswith(start)


def test_json_is_the_themed_specification(chart, tmp_path):
    assert json.loads(save_chart(chart, tmp_path / "chart.json").read_text()) == json.loads(
        json.dumps(apply_theme(chart))
    )


def test_unknown_suffixes_are_refused_and_nothing_is_written(chart, tmp_path):
    with pytest.raises(ArgumentError, match=r"\.html, \.svg, \.png, \.pdf, \.json, got 'chart\.gif'"):
        save_chart(chart, tmp_path / "chart.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_charts_own_configuration_wins_over_the_theme(chart):
    own = apply_theme(chart.configure_axis(labelFontSize=20).configure_range(category={"scheme": "dark2"}))["config"]
    assert own["axis"]["labelFontSize"] == 20
    assert own["axis"]["labelColor"] == "currentColor"
    assert own["range"]["category"] == {"scheme": "dark2"}


def test_a_grid_that_lacks_a_panel_has_no_rows_and_columns():
    """Vega-Lite would close the gap, so that later panels would stand below the title of another column."""
    layer = alt.Chart().mark_point().encode(x="at:Q")
    table = pl.DataFrame({"at": [1, 2, 3, 4], "row": ["a", "a", "b", "b"], "panel": ["c", "d", "c", "d"]})
    whole = grid([layer], table, row="row", column="panel").to_dict()
    assert set(whole["facet"]) == {"row", "column"}
    lacking = grid([layer], table.head(3), row="row", column="panel").to_dict()
    assert lacking["facet"]["sort"] == ["a · c", "a · d", "b · c"]


def test_panels_that_leave_a_gap_have_axes_of_their_own():
    table = pl.DataFrame({"panel": list("abcde"), "x": [1.0] * 5})
    for panels, resolved in ((5, {"axis": {"x": "independent"}}), (4, None)):
        layer = alt.Chart().mark_point().encode(x="x:Q")
        chart = grid([layer], table.head(panels), column="panel").to_dict()
        assert (chart["columns"], chart.get("resolve")) == (3 if panels == 5 else 2, resolved)


# ---- tables that do not allow every figure ---------------------------------------------------------------------------


def reasons(*tables):
    return {name: outcome.reason for name, outcome in all_figures(*tables).items() if outcome.chart is None}


def test_tables_that_are_missing_are_named():
    refused = reasons(pl.DataFrame())
    assert refused["query-map"] == "there is no score per query"
    assert refused["training-paths"] == "there is no history of training"
    assert "lower-bounds" not in refused  # needs no data


def test_results_without_published_numbers_are_not_drawn():
    bare = make_results().with_columns(pl.lit(None, dtype=pl.Float64).alias("published"))
    assert reasons(pl.DataFrame(), bare)["published-and-ours"] == "no result has a published counterpart"
    lacking = reasons(pl.DataFrame(), bare.drop("ours"))["published-and-ours"]
    assert lacking.endswith("missing: ours")


def test_without_the_plain_measure_points_have_no_type():
    bounded = make_scores(losses=("nDCG",)).drop(name for name in MEASURES if name != "UL2(nDCG)")
    (chart,) = FIGURES["instance-scatter"].charts(Tables(bounded)).values()
    (rows,) = (each for each in apply_theme(chart)["datasets"].values() if len(each) > 2)
    assert "type" not in rows[0]


def test_a_table_without_a_measure_is_refused():
    bare = make_scores().drop(MEASURES)
    assert reasons(bare)["system-means"] == "the table has no column that is a measure"
    assert reasons(bare)["instance-scatter"] == "the table has no column that is a measure"


def test_the_index_lists_figures_that_are_not_drawn(chart, tmp_path):
    drawn = FigureOutcome("bounds", "Bounds", "A caption.", chart)
    undrawn = FigureOutcome("swaps", "Swaps", "", None, "one data set only")
    for figures, listed in (({"bounds": drawn}, False), ({"bounds": drawn, "swaps": undrawn}, True)):
        *files, index = write_figures(figures, tmp_path)
        assert [file.name for file in files] == ["bounds.svg", "bounds.html"]
        assert ("- Swaps: one data set only" in index.read_text()) == listed == ("Not drawn" in index.read_text())


def test_points_have_the_columns_that_pages_filter_by(outcomes):
    for name in ("instance-scatter-ndcg", "gain-by-activity-ndcg"):
        (rows,) = (each for each in apply_theme(outcomes[name].chart)["datasets"].values() if len(each) > 2)
        assert {"data", "variant", "type", "qid"} <= set(rows[0])
        assert "ideal" in {row["type"] for row in rows}


def test_a_single_system_leaves_figures_of_one_system():
    table = make_scores(losses=("nDCG",), boundings=("none",))
    refused = reasons(table)
    assert {"expected-histogram", "query-map", "system-means"}.isdisjoint(refused)
    for name in ("instance-scatter", "gain-by-activity", "best-counts", "marginal-means", "meta-evaluation"):
        assert "at least 2 systems" in refused[name]


def test_one_query_is_enough_for_points_and_too_few_for_spread():
    table = make_scores().filter(pl.col("qid") == "q0", pl.col("fold") == 0)
    refused = reasons(table)
    assert "instance-scatter-ndcg" not in refused
    assert "swap-rates" not in refused  # three data sets can be compared


def test_equal_scores_are_drawn_or_refused_with_a_reason():
    table = make_scores().with_columns(pl.lit(0.5).alias(name) for name in MEASURES)
    refused = reasons(table)
    assert "all equal" in refused["marginal-means"]
    assert "instance-scatter-ndcg" not in refused


def test_systems_without_common_queries_say_so():
    table = make_scores(losses=("nDCG",)).with_columns(pl.concat_str("system", "qid").alias("qid"))
    refused = reasons(table)
    for name in ("instance-scatter", "meta-evaluation", "asl-curves"):
        assert "no query in common" in refused[name]


def test_many_queries_and_systems_stay_within_the_limit():
    random = np.random.default_rng(0)
    queries, systems = 1500, 8
    fixed = {"data": "d", "variant": "", "fold": 0, "seed": 0, "items": 30}
    table = pl.DataFrame(
        {
            "system": np.repeat([f"s{i}" for i in range(systems)], queries),
            "qid": np.tile([f"q{i}" for i in range(queries)], systems),
            "relevant": np.tile(random.integers(1, 29, queries), systems),
            "nDCG": random.random(queries * systems),
        }
    ).with_columns(*(pl.lit(value).alias(key) for key, value in fixed.items()))
    for name in ("instance-scatter", "gain-by-activity", "score-distributions", "query-map"):
        (chart,) = FIGURES[name].charts(Tables(table)).values()
        rows = sum(len(rows) for rows in apply_theme(chart)["datasets"].values())
        assert 500 < rows <= LIMIT


def test_of_many_systems_the_best_are_shown():
    random = np.random.default_rng(0)
    queries, systems = 30, 143
    fixed = {"data": "d", "variant": "", "fold": 0, "seed": 0, "items": 300}
    gain = np.repeat(np.arange(systems) / systems, queries)  # the last system is best
    table = pl.DataFrame(
        {
            "system": np.repeat([f"s{i}" for i in range(systems)], queries),
            "qid": np.tile([f"q{i}" for i in range(queries)], systems),
            "relevant": np.tile(random.integers(1, 29, queries), systems),
            "nDCG@10": gain + random.random(queries * systems) / 100,
            "AP": gain + random.random(queries * systems) / 100,
        }
    ).with_columns(*(pl.lit(value).alias(key) for key, value in fixed.items()))
    drawn = {name: outcome for name, outcome in all_figures(table).items() if outcome.chart is not None}
    datasets = {name: [*apply_theme(outcome.chart)["datasets"].values()] for name, outcome in drawn.items()}
    for name, each in datasets.items():
        assert sum(map(len, each)) <= LIMIT, name
    best = [f"s{i}" for i in range(systems - 1, -1, -1)]
    (means,) = datasets["system-means"]
    assert list(dict.fromkeys(row["system"] for row in means)) == best[:25]
    (points,) = (each for each in datasets["instance-scatter"] if len(each) > 2)
    assert list(dict.fromkeys(row["system"] for row in points)) == best[1:7]
    (counts,) = datasets["best-counts"]
    assert {row["system"] for row in counts} == {"s142"}  # best by both measures
    (levels,) = (each for each in datasets["asl-curves"] if len(each) > 2)
    assert max(row["position"] for row in levels) > 0.99 * systems * (systems - 1) / 2


def test_levels_of_many_pairs_do_not_depend_on_the_blocks(monkeypatch):
    table = make_scores(losses=("nDCG",)).filter(pl.col("data") == "pages")
    whole = asl_curves(table, ["nDCG", "AP"])
    monkeypatch.setattr("rankbound.evaluation.resampling._BLOCK", 64)
    assert asl_curves(table, ["nDCG", "AP"]).equals(whole)


def test_pairs_of_images_are_pictures_in_the_svg(outcomes, tmp_path):
    svg = save_chart(outcomes["example-pairs-linear"].chart, tmp_path / "pairs.svg").read_text()
    assert svg.count("data:image/png;base64,") == len(make_examples())
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)


def test_labels_of_any_size_are_drawn(tmp_path):
    (chart,) = (
        FIGURES["example-pairs"]
        .charts(Tables(pl.DataFrame(), examples=make_examples().with_columns(label=1e300)))
        .values()
    )
    assert save_chart(chart, tmp_path / "pairs.svg").read_text().count("score ") >= len(make_examples())


def test_models_with_the_same_name_are_distinguished_by_their_tables():
    both = pl.concat([make_examples(), make_examples().with_columns(pl.lit("features").alias("table"))])
    names = {name for name in all_figures(pl.DataFrame(), None, None, both) if name.startswith("example-pairs")}
    assert names == {"example-pairs-linear-pixels", "example-pairs-linear-features"}


def test_pairs_of_images_are_validated():
    outcomes = all_figures(pl.DataFrame(), None, None, make_examples().with_columns(pl.col("width") + 1))
    assert outcomes["example-pairs"].reason == "pairs of images: an image must have height x width pixels"


def test_figures_of_a_study_are_drawings_or_pictures_if_large(tmp_path, monkeypatch):
    names = ["best-counts", "gain-by-activity", "training-paths"]  # the last one needs a history
    scores = make_scores(losses=("nDCG",))
    files = write_study_figures("mine", names, tmp_path, Tables(scores))
    assert [file.name for file in files] == ["mine--best-counts.svg", "mine--gain-by-activity-ndcg.svg"]
    monkeypatch.setattr(study_figures, "_LARGEST_SVG", files[0].stat().st_size)
    files = write_study_figures("mine", names, tmp_path, Tables(scores))
    assert [file.name for file in files] == ["mine--best-counts.svg", "mine--gain-by-activity-ndcg.png"]
    assert sorted(file.name for file in tmp_path.iterdir()) == [file.name for file in files]
    assert write_study_figures("mine", names, tmp_path, Tables()) == []


def test_names_of_figures_are_checked():
    check_figure_names(list(FIGURES))
    with pytest.raises(ArgumentError, match=r"figures\[1\]: must be one of lower-bounds, .*, got 'pies'"):
        check_figure_names(["best-counts", "pies"])


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["nDCG@10", "AP", "RR"], [["nDCG@10", "AP", "RR"]]),
        (["EM(nDCG@10)", "nDCG@10", "RR"], [["nDCG@10", "EM(nDCG@10)", "RR"]]),
        (["RR", "EM(nDCG@10)", "nDCG@10", "AP"], [["RR", "AP"], ["nDCG@10", "EM(nDCG@10)"]]),
        (["EM(AP)", "UL2(AP)"], [["EM(AP)", "UL2(AP)"]]),
        (["EM(nDCG@10)", "nDCG@5"], [["EM(nDCG@10)", "nDCG@5"]]),
    ],
)
def test_a_normalized_measure_is_compared_with_the_measure_that_it_normalizes(names, groups):
    assert [list(group) for group in comparison_groups({name: [name] for name in names})] == groups
