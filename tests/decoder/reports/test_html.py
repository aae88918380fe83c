"""The page as a reader meets it: in a real browser, on a phone, in the dark, on paper."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gaam_decoder.reports.formats.html import Html
from gaam_decoder.reports.pictures.pictures import DETAILED, save_pictures
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.reports.writing.page import DARK, LIGHT
from tests.decoder.reports import chromium
from tests.decoder.reports.chromium import Chromium
from tests.decoder.reports.conftest import AG_NEWS, answers, build_run

VOID = {"meta", "link", "br", "wbr", "img"}
RNG = np.random.default_rng(1)
ATTACK = '<img src=x onerror="console.error(1)"><script src="http://127.0.0.1:9/x.js"></script>'


def rich_tables() -> list[Table]:
    """Everything that a page can show: two caches, maps, learned parameters, logs, a failure."""
    log = [
        {"seed": seed, "epoch": epoch, "loss": 1 / epoch, "train_accuracy": 0.8, "accuracy": 0.7}
        for seed in range(6)
        for epoch in (1, 2, 3)
    ]
    cache = {"dataset": "ag_news", "rows": {"train": 99, "test": 400}}
    common = {"cache": cache, "classes": tuple(AG_NEWS), "log": log}
    runs = [
        build_run("gaam", answers(6, 0.95, 1), attention_map=RNG.random((6, 6, 600)),
                  learned={"xi": RNG.random((6, 3, 8)).astype(np.float32)}, **common),
        build_run("generalized-gaussian:heads=1,location=median", answers(6, 0.8, 2),
                  attention_map=RNG.random((6, 2, 1, 6)), failed={2: ATTACK}, **common),
        build_run("asymmetric-gaussian:heads=2,normalize=density", answers(6, 0.8, 2), **common),
        build_run("skew-gaussian:heads=2,normalize=density", answers(6, 0.8, 2), **common),
        build_run("none", answers(6, 0.8, 3), select="test", **common),
        build_run("none", answers(6, 0.8, 3), **common),
        build_run("none", answers(3, 0.8, 3), cache={"fingerprint": "e" * 64, "dataset": ATTACK}),
    ]  # fmt: skip
    return build_tables(runs)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    with path.open("w", encoding="utf-8") as file:
        Html().write(rich_tables(), file)
    return path


class Outline(HTMLParser):
    """Checks nesting, and collects ids, headings, references and tables."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.links += [str(values[k]) for k in ("href", "src", "xlink:href") if k in values]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_accessible(page: Path) -> None:
    outline = Outline()
    outline.feed(page.read_text("utf-8"))
    outline.close()
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(outline.headings))
    names = [tag for tag, _ in outline.tags]
    assert names.count("caption") == names.count("table") > 4
    assert all(values.get("scope") in ("col", "row") for tag, values in outline.tags if tag == "th")
    pictures = [values for tag, values in outline.tags if tag == "svg"]
    assert len(pictures) > 8
    assert all(values["role"] == "img" and values["aria-label"] for values in pictures)
    assert ("html", {"lang": "en"}) in outline.tags
    assert not {"script", "iframe", "object", "form"} & set(names)
    for link in outline.links:
        assert link.startswith(("#", "data:")), link
        assert not link.startswith("#") or link[1:] in outline.ids


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """As WCAG 2 defines it."""
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_wcag_aa_in_light_and_dark() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for colours in (LIGHT, {**LIGHT, **DARK}):
        for name in ("ink", "muted", "accent"):
            assert contrast(colours[name], colours["paper"]) >= 4.5, name
            assert contrast(colours[name], colours["panel"]) >= 4.5, name
        assert contrast(colours["warn"], colours["warn-paper"]) >= 4.5
        for number in range(8):  # lines of a picture
            assert contrast(colours[f"c{number}"], colours["paper"]) >= 3
    assert set(DARK) == set(LIGHT)


def test_names_in_the_data_stay_text(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "<img src=x" not in text
    assert "&lt;img src=x" in text


def test_with_many_decoders_the_page_says_whose_pictures_it_shows() -> None:
    runs = [build_run(f"gaam:heads={n}", answers(2, 0.6 + n / 100, n)) for n in range(1, 21)]
    stream = io.StringIO()
    Html().write(build_tables(runs), stream)
    text = stream.getvalue()
    assert f"{DETAILED} most accurate of 20 decoders" in text
    assert text.count(": confusion</h4>") == DETAILED
    assert "gaam:heads=20: confusion" in text
    assert "gaam:heads=2: confusion" not in text


@pytest.mark.parametrize(
    ("num_seeds", "words"), [(3, "No claim: fewer than 6"), (7, "gaam is undecided")]
)
def test_a_page_without_a_claim_says_what_that_means(num_seeds: int, words: str) -> None:
    right = answers(num_seeds, 0.8, 1)
    stream = io.StringIO()
    Html().write(build_tables([build_run("gaam", right), build_run("none", right)]), stream)
    assert words in stream.getvalue()


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_one_decoder_with_hardly_any_seed_has_a_page(num_seeds: int) -> None:
    stream = io.StringIO()
    run = build_run("mha", answers(num_seeds, 0.8, 1), classes=tuple(map(str, range(40))))
    Html().write(build_tables([run]), stream)
    assert "No control" in stream.getvalue()
    assert stream.getvalue().count("<figure>") == 3  # the third is of the calibration


def test_figures_for_a_paper_have_names_that_tell_them_apart(tmp_path: Path) -> None:
    paths = save_pictures(rich_tables()[:1], tmp_path / "figures")
    assert len({path.name for path in paths}) == len(paths) > 16
    assert {path.suffix for path in paths} == {".pdf", ".png"}
    assert all(path.stat().st_size > 1000 for path in paths)
    assert (tmp_path / "figures" / "differences.pdf").exists()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if chromium.PATH is None:
        pytest.skip("no chromium is installed")
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


SEEN = """(() => {
  const box = e => { const r = e.getBoundingClientRect(); return [r.width, r.height]; };
  const drawn = svg => [...svg.querySelectorAll('path,use,image,text,rect')]
    .filter(e => { const b = e.getBoundingClientRect(); return b.width + b.height > 0; }).length;
  return {
    rows: [...document.querySelectorAll('tbody')].map(t => t.rows.length),
    first: [...document.querySelectorAll('table')][0].innerText,
    pictures: [...document.querySelectorAll('svg')].map(s => [...box(s), drawn(s)]),
    beyond: [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll')
      && !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 0.5)
      .map(e => e.outerHTML.slice(0, 90)),
    clipped: [...document.querySelectorAll('svg text')].filter(e => {
      const t = e.getBoundingClientRect(), s = e.closest('svg').getBoundingClientRect();
      return t.left < s.left - 2 || t.right > s.right + 2 || t.top < s.top - 2
        || t.bottom > s.bottom + 2; }).map(e => e.textContent),
    spilt: [...document.querySelectorAll('tbody th')].filter(e => e.scrollWidth > e.clientWidth + 1)
      .map(e => e.textContent),
    scroll: document.documentElement.scrollWidth, width: innerWidth,
    paper: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.querySelector('svg text')).fill,
    smallest: Math.min(...[...document.querySelectorAll('p,li,td,th,figcaption,dd,dt')]
      .map(e => parseFloat(getComputedStyle(e).fontSize))),
  };
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [380, 768, 1280])
def test_what_a_reader_sees(browser: Chromium, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    seen = browser.ask(SEEN)
    assert seen["rows"][0] == 6
    assert seen["rows"][1] == 4
    for part in ("gaam", "generalized-gaussian", "test (optimistic)", "94.6", "6 (1 failed)"):
        assert part in seen["first"]
    assert len(seen["pictures"]) > 8
    for picture_width, picture_height, num_drawn in seen["pictures"]:
        assert picture_width >= min(width, 480) * 0.8
        assert picture_height > 100
        assert num_drawn > 10
    assert seen["width"] == width
    assert seen["scroll"] <= width, "the page is wider than the window"
    assert seen["beyond"] == []
    assert seen["clipped"] == []
    assert seen["spilt"] == [], "names that run into the next column"
    assert seen["smallest"] >= 12
    colours = DARK if dark else LIGHT
    for name, found in (("paper", seen["paper"]), ("ink", seen["ink"])):
        expected = [int(colours[name][i : i + 2], 16) for i in (1, 3, 5)]
        assert [int(part) for part in re.findall(r"\d+", found)[:3]] == expected
    complaints = browser.named(
        "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"
    )
    assert complaints == []
    asked = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith("data:")] == [page.absolute().as_uri()]


def test_the_browser_of_these_tests_sees_requests_and_errors(
    browser: Chromium, tmp_path: Path
) -> None:
    """That no request and no error is seen above means something only if they would be."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/x.png"
        path = tmp_path / "bad.html"
        path.write_text(f"<img src='{address}'><script>console.error(1); nothing()</script>")
        browser.open(path, width=380)
    urls = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert address in urls
    assert browser.named("Runtime.consoleAPICalled")
    assert browser.named("Runtime.exceptionThrown")


def test_it_prints_light_and_whole(browser: Chromium, page: Path, tmp_path: Path) -> None:
    browser.open(page, width=700, dark=True)
    browser.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    cut = browser.ask(
        "[...document.querySelectorAll('.scroll')].filter(e =>"
        " e.scrollWidth > e.clientWidth + 1).map(e => e.ariaLabel + e.scrollWidth)"
    )
    assert cut == [], "a table is wider than the paper (about 690 pixels)"
    browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
