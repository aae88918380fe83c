"""The sentences of a report: what one may conclude, and every claim in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.notes.claims import claims, conclusion
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import FORMATS, answers, build_run, seen, written

UNTUNED = " (at this one recipe, which was tuned for none of them)"


def base() -> RunResult:
    return build_run("none", answers(8, 0.8, 2))


def tuned(name: str, seed: int, best: float = 1e-3) -> list[RunResult]:
    return [
        build_run(name, answers(8, 0.8, seed), lr=lr, path=f"{name}{lr}",
                  validation=0.9 if lr == best else 0.8)
        for lr in (1e-4, 1e-3, 1e-2)
    ]  # fmt: skip


WHAT: dict[str, tuple[Callable[[], list[RunResult]], float, str]] = {
    "better": (
        lambda: [build_run("gaam", answers(8, 0.95, 1)), base()], 0.005,
        "gaam is better than 'none'" + UNTUNED,
    ),
    "worse": (
        lambda: [build_run("gaam", answers(8, 0.5, 1)), base()], 0.005,
        "gaam is worse than 'none'" + UNTUNED,
    ),
    "equivalent": (
        lambda: [build_run("gaam", answers(8, 0.8, 2)), base()], 0.03,
        " points wide; gaam is equivalent to 'none' within 3 points" + UNTUNED,
    ),
    "undecided": (
        lambda: [build_run("gaam", answers(8, 0.8, 1)), base()], 0.005,
        "No mechanism is shown to differ from 'none': a difference of ",
    ),
    "all four": (
        lambda: [
            build_run("gaam", answers(8, 0.95, 1)), build_run("mha", answers(8, 0.5, 1)),
            build_run("laplace", answers(8, 0.8, 2)), build_run("mqa", answers(8, 0.815, 1)),
            base(),
        ], 0.02,
        "gaam is better than 'none'; mha is worse than 'none'; laplace is equivalent to 'none' "
        "within 2 points; mqa is undecided",
    ),
    "many alike": (
        lambda: [*(build_run(f"gaam:heads={n}", answers(8, 0.95, n)) for n in range(1, 8)), base()],
        0.005, "gaam:heads=1, gaam:heads=2, gaam:heads=3 and 4 more are better than 'none'",
    ),
    "one pair of seeds": (
        lambda: [build_run("gaam", answers(1, 0.9, 1)), build_run("none", answers(1, 0.8, 2))],
        0.005, "Nothing is said of differences yet: 1 seed, and a claim needs 6",
    ),
    "no baseline": (
        lambda: [build_run("gaam", answers(8, 0.8, 1)), build_run("mha", answers(8, 0.8, 2))],
        0.005,
        "There is no baseline; every pair is compared below",
    ),
    "one decoder": (
        lambda: [build_run("gaam", answers(8, 0.8, 1))], 0.005,
        "Other seeds on other test rows of the kind give gaam ",
    ),
    "optimistic": (
        lambda: [
            build_run("gaam", answers(8, 0.95, 1), select="test"),
            build_run("none", answers(8, 0.8, 2), select="test"),
        ], 0.005,
        "some of it from numbers that are optimistic, at this one recipe",
    ),
    "tuned": (
        lambda: [*tuned("gaam", 1), *tuned("none", 2)], 0.005, "No mechanism is shown to differ",
    ),
    "tuned at the edge": (
        lambda: [*tuned("gaam", 1, 1e-2), *tuned("none", 2)], 0.005,
        "(and 1 of 2 rows is under-trained)",
    ),
}  # fmt: skip


def built(what: str) -> tuple[Table, str]:
    make, margin, words = WHAT[what]
    [table] = build_tables(make(), margin=margin)
    return table, words


def test_the_conclusion_says_what_the_numbers_allow() -> None:
    for what in WHAT:
        table, words = built(what)
        text = conclusion(table)
        assert words in text, what
        assert not what.startswith("tuned") or "tuned for none" not in text
        content = json.loads(written("json", [table]))
        assert content["conclusion"] == text
        assert content["claims"] == claims(table)


@pytest.mark.usefixtures("undrawn")
def test_every_format_begins_with_the_conclusion() -> None:
    for what in ("all four", "undecided", "no baseline", "one pair of seeds"):
        table, words = built(what)
        for format in set(FORMATS) - {"csv", "json"}:
            text = seen(format, [table]).lower()
            found = text.find(words.lower())
            assert found >= 0, (words, text[:600])
            later = "signature:" if format == "terminal" else "majority class alone"
            assert found < text.find(later) or format in ("html", "latex")


def test_every_comparison_has_a_sentence_that_agrees_with_its_verdict() -> None:
    for what in WHAT:
        table, _ = built(what)
        made = [
            (label, found.claim)
            for label, found in zip(table.labels(), table.comparisons, strict=True)
            if found is not None and len(found.seeds) >= 6
        ]
        for (label, claim), sentence in zip(made, claims(table), strict=True):
            assert sentence.startswith(f"{label} is {claim.verdict}")
            if claim.verdict in ("better", "worse"):
                assert f"than none by {abs(100 * claim.difference):.2f} points" in sentence
            elif claim.verdict == "equivalent":
                assert f"within {100 * claim.margin:.4g} points" in sentence
            else:
                assert claim.p_holm is not None
                assert claim.p_holm >= 0.05
                assert re.search(r"would decide|on the brink|too few test rows", sentence)


def test_a_small_difference_that_is_sure_is_said_to_be_small() -> None:
    right = np.ones((8, 20_000), bool)
    other = right.copy()
    other[:, :150] = False  # in every seed alike, 0.75 points
    [table] = build_tables([build_run("gaam", right), build_run("none", other)], margin=0.02)
    [sentence] = claims(table)
    assert "gaam is better than none by 0.75 points" in sentence
    assert "by less than the margin of 2 points" in sentence
    assert table.comparisons[0] is not None
    assert table.to_dict()["rows"][0]["comparison"]["within_margin"] is True


def test_a_margin_decides_equivalence_and_is_named_everywhere() -> None:
    runs = [build_run("gaam", answers(8, 0.8, 1)), base()]
    verdicts = []
    for margin in (0.001, 0.01, 0.05, 0.2):
        [table] = build_tables(runs, margin=margin)
        assert table.comparisons[0] is not None
        verdicts.append(table.comparisons[0].claim.verdict)
        assert table.to_dict()["margin"] == margin
    assert verdicts[0] != "equivalent"
    assert verdicts[-1] == "equivalent"
    assert sorted(verdicts, key=lambda v: v == "equivalent") == verdicts
