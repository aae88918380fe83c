"""The page as a reader meets it: one file, well formed, readable by machines, in light and dark."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from gaam_decoder.reports.drawing import DARK, LIGHT
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import AG_NEWS, answers, build_run, written

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
        build_run("none", answers(6, 0.8, 3), select="test", **common),
        build_run("none", answers(6, 0.8, 3), **common),
        build_run("none", answers(3, 0.8, 3), cache={"fingerprint": "e" * 64, "dataset": ATTACK}),
    ]  # fmt: skip
    return build_tables(runs)


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


def test_the_page_is_well_formed_and_accessible_and_asks_for_nothing() -> None:
    outline = Outline()
    text = written("html", rich_tables())
    outline.feed(text)
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
    assert len(pictures) > 6
    assert all(values["role"] == "img" and values["aria-label"] for values in pictures)
    assert ("html", {"lang": "en"}) in outline.tags
    assert not {"script", "iframe", "object", "form"} & set(names)
    for link in outline.links:
        assert link.startswith(("#", "data:")), link
        assert not link.startswith("#") or link[1:] in outline.ids
    assert "<img src=x" not in text
    assert "&lt;img src=x" in text


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
