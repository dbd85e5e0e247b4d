"""The page in headless Chromium, opened from a file: no errors, no requests, and every control works."""

from __future__ import annotations

import re
import shutil
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from rankbound.evaluation.scores import ScoreMatrix
from rankbound.report.page import make_report, write_report

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
alt = pytest.importorskip("altair", reason="the figures of the page need altair")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium or google-chrome on this machine"),
    pytest.mark.full("starts a browser"),
]


class Outcome(NamedTuple):
    """The fields of a figure that the page uses."""

    name: str
    title: str
    caption: str
    chart: object
    reason: str | None = None
    holds_for_any_data: bool = False


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, scores, results):
    frame = pl.DataFrame({"data": ["set A", "set A", "set B"], "x": [1, 2, 3], "y": [2, 4, 1]})
    chart = alt.Chart(frame).mark_point().encode(x="x:Q", y="y:Q", tooltip=["x", "y"])
    figures = {
        "dots": Outcome("dots", "Some dots", "A caption.", chart),
        "none": Outcome("none", "No dots", "", None, "there is no history of training"),
    }
    report = make_report(scores, results)
    return write_report(tmp_path_factory.mktemp("page") / "report.html", report, figures=figures, title="A report")


class Opened:
    """A page that is ready, with its console messages and its requests."""

    def __init__(self, browser, path, **context):
        self.messages, self.requests = [], []
        self.context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | context))
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=true]", timeout=20_000)

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()

    def column(self, header):
        """The visible cells below a header of the list of queries."""
        names = self.texts("#queries thead th")
        position = next(index for index, name in enumerate(names) if name.rstrip(" ↑↓") == header)
        return self.texts(f"#queries tr.query td:nth-child({position + 1})")


@pytest.fixture
def opened(browser, page_file):
    page = Opened(browser, page_file)
    yield page
    page.context.close()


def test_no_messages_and_no_requests(opened, page_file):
    opened.page.locator("#figure-dots").scroll_into_view_if_needed()
    opened.page.wait_for_selector("#figure-dots svg .mark-symbol path")
    assert opened.messages == []
    assert opened.requests == [page_file.as_uri()]
    assert "there is no history of training" in opened.page.text_content("#about")


def test_filter_by_data_set_and_type(opened, scores):
    page = opened.page
    assert page.inner_text("#shown") == "120 of 120 queries"
    means = opened.texts("#means .value")
    page.select_option("#data-set", label="set B")
    assert page.inner_text("#shown") == "60 of 120 queries"
    assert set(opened.column("data set")) == {"set B"}
    assert opened.texts("#means .value") != means
    assert page.locator("tr[data-set='set A']:visible").count() == 0
    assert page.locator("tr[data-set='set B']:visible").count() > 0
    matrix = ScoreMatrix.from_table(scores)
    ideal = (matrix.query_types("nDCG@10") == "ideal") & matrix.in_data_set(1)
    page.select_option("#type", label="ideal")
    assert page.inner_text("#shown") == f"{ideal.sum()} of 120 queries"
    assert set(opened.column("type")) == {"ideal"}
    page.click("button[type=reset]")
    page.wait_for_function("document.getElementById('shown').textContent === '120 of 120 queries'")


def test_filter_reaches_the_figures(opened):
    page = opened.page
    page.locator("#figure-dots").scroll_into_view_if_needed()
    dots = page.locator("#figure-dots svg .mark-symbol path")
    dots.first.wait_for()
    assert dots.count() == 3
    page.select_option("#data-set", label="set B")
    page.wait_for_function("document.querySelectorAll('#figure-dots svg .mark-symbol path').length === 1")
    assert page.locator("#figure-dots .tag").is_visible()


def test_figures_have_tooltips(opened):
    page = opened.page
    page.locator("#figure-dots").scroll_into_view_if_needed()
    page.locator("#figure-dots svg .mark-symbol path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "x" in page.inner_text("#vg-tooltip-element")


def test_sort(opened, scores):
    page = opened.page
    header = page.locator("#queries th button", has_text="nDCG@10, high")
    header.click()
    cells = opened.column("nDCG@10, high")
    top = scores.filter(pl.col("system") == "high")["nDCG@10"].sort(descending=True)
    assert [float(cell) for cell in cells] == [round(value, 4) for value in top[: len(cells)]]
    assert page.locator("#queries th[aria-sort=descending]").count() == 1
    page.keyboard.press("Enter")  # the focus is still on the header
    assert float(opened.column("nDCG@10, high")[0]) == round(
        scores.filter(pl.col("system") == "high")["nDCG@10"].min(), 4
    )


def test_search(opened):
    opened.page.fill("#search", "Q17")
    assert opened.column("query") == ["q17", "q17"]  # one of each data set
    assert opened.page.inner_text("#listed") == "2 found"
    opened.page.fill("#search", "nowhere")
    assert opened.column("query") == []


def test_measure_changes_the_values(opened):
    before = opened.column("nDCG@10, high")
    opened.page.select_option("#measure", label="AP")
    opened.page.wait_for_function("document.getElementById('scatter-title').textContent.startsWith('AP')")
    assert opened.column("AP, high") != before


def test_list_draws_the_visible_rows_and_scrolls(opened):
    page = opened.page
    assert page.locator("#queries tr.query").count() < 60
    page.evaluate("document.getElementById('list').scrollTop = 1e6")
    page.wait_for_function("document.querySelector('#queries tbody').innerText.includes('q60')")


def position_of(page, row):
    """The position of a row's point on the screen."""
    page.locator("#scatter").scroll_into_view_if_needed()
    box = page.locator("#scatter").bounding_box()
    x, y = page.evaluate(f"rankbound.pointOf({row})")
    return box["x"] + x, box["y"] + y


def test_hover_shows_a_query(opened):
    page = opened.page
    assert not page.locator("#tip").is_visible()
    page.mouse.move(*position_of(page, 100))
    page.wait_for_selector("#tip", state="visible")
    assert "relevant" in page.inner_text("#tip")
    page.mouse.move(2, 2)
    page.wait_for_selector("#tip", state="hidden")


def pixels(page):
    return page.evaluate("document.getElementById('scatter').toDataURL()")


def test_selecting_a_row_marks_its_point_and_the_reverse(opened):
    page = opened.page
    before = pixels(page)
    row = page.locator("#queries tr.query").nth(2)
    row.focus()
    page.keyboard.press("Enter")
    assert page.locator("#queries tr[aria-selected=true]").get_attribute("data-row") == "2"
    assert pixels(page) != before
    page.mouse.click(*position_of(page, 100))
    selected = page.locator("#queries tr[aria-selected=true]")
    selected.wait_for()
    # another point may be on top: the selected row is the one whose point was clicked, or one within reach of it
    row = int(selected.get_attribute("data-row"))
    near = [abs(a - b) for a, b in zip(position_of(page, row), position_of(page, 100), strict=True)]
    assert max(near) < 14
    assert row != 2


def test_arrow_keys_move_through_points_and_rows(opened):
    page = opened.page
    page.locator("#scatter").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip b").inner_text() == "q1"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#queries tr[aria-selected=true] td").first.inner_text() == "q2"
    page.locator("#queries tr.query").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.row") == "1"


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_theme_follows_the_screen_and_the_button(browser, page_file):
    dark = Opened(browser, page_file, color_scheme="dark")
    light = Opened(browser, page_file, color_scheme="light")
    assert background(dark.page) != background(light.page)
    light.page.click("#theme")
    assert background(light.page) == background(dark.page)
    assert light.page.inner_text("#theme") == "Light"
    light.page.reload()  # the choice is stored
    assert background(light.page) == background(dark.page)
    assert dark.messages == light.messages == []
    dark.context.close()
    light.context.close()


def test_a_phone_does_not_scroll_sideways(browser, page_file):
    phone = Opened(browser, page_file, viewport={"width": 375, "height": 700}, has_touch=True)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 375
    phone.context.close()


def test_names_stay_text(browser, tmp_path, rows):
    evil = "<img src=x onerror=\"document.title='broken'\">"
    table = pl.concat([rows(evil, {"AP": [0.1, 0.2]}), rows("toString", {"AP": [0.2, 0.3]})])
    table = table.with_columns(qid=pl.lit(evil) + pl.col("qid"))
    path = write_report(tmp_path / "evil.html", make_report(table), figures={}, title="Safe")
    other = Opened(browser, path)
    assert other.page.title() == "Safe"
    assert other.page.locator("main img").count() == 0
    assert other.column("query") == [f"{evil}q1", f"{evil}q2"]
    assert other.messages == []
    other.context.close()


@pytest.mark.parametrize("values", [[[0.5]], [[0.5], [0.7]], [[0.4, 0.4], [0.4, 0.4]], [[None, None]]])
def test_little_data_gives_no_message(browser, tmp_path, rows, values):
    table = pl.concat([rows(f"s{number}", {"AP": value}) for number, value in enumerate(values)])
    path = write_report(tmp_path / "little.html", make_report(table), figures={}, title="Little")
    other = Opened(browser, path)
    assert other.messages == []
    other.context.close()


def test_a_pair_of_systems_is_selected_in_the_matrix(opened):
    page = opened.page
    assert re.fullmatch(
        r"nDCG@10 on set A: [23] of 3 pairs of systems differ significantly", page.inner_text("#pairs-title")
    )
    page.locator("#pairs").scroll_into_view_if_needed()
    x, y = page.evaluate("rankbound.cellOf(0, 1)")
    page.locator("#pairs").hover(position={"x": x, "y": y})
    assert page.locator("#tip b").inner_text() == "low minus alike"
    page.locator("#pairs").click(position={"x": x, "y": y})
    assert (page.input_value("#y"), page.input_value("#x")) == ("s:low", "s:alike")
    page.wait_for_function("document.getElementById('scatter-title').textContent === 'nDCG@10: low against alike'")
    page.select_option("#data-set", label="set B")
    page.wait_for_function("document.getElementById('pairs-title').textContent.startsWith('nDCG@10 on set B')")
    assert opened.messages == []


def test_many_systems_are_shown_on_request(browser, tmp_path, rows):
    random = np.random.default_rng(0)
    table = pl.concat([rows(f"s{number:03d}", {"AP": random.random(30)}) for number in range(143)])
    path = write_report(tmp_path / "many.html", make_report(table), figures={}, title="Many")
    many = Opened(browser, path)
    page = many.page
    assert page.locator("#means .row").count() == 15
    page.locator("#means button").click()
    assert page.locator("#means .row").count() == 143
    columns = len(many.texts("#queries thead th"))
    page.locator("#all-columns").click()
    assert len(many.texts("#queries thead th")) == columns - 12 + 143
    means = page.locator("#results table").first
    assert means.locator("tbody tr:visible").count() == 20
    page.locator("#results .show-all").first.click()
    assert means.locator("tbody tr:visible").count() == 143
    assert many.messages == []
    many.context.close()
