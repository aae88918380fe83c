"""A report names a decoder to use, or says in its first sentence why it names none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.recommend import recommended, why_none
from gaam_decoder.reports.table import build_tables
from tests.decoder.reports.conftest import FIT, answers, build_probe, build_run

BuildRuns = Callable[[], list[RunResult]]


def decoder(name: str, accuracy: float, size: int = 10, **changes: Any) -> RunResult:
    """Eight seeds of a decoder with this number of parameters."""
    run = build_run(name, answers(8, accuracy, len(name)), **changes)
    run.parameters["total"] = size
    return run


REASONS: dict[str, BuildRuns] = {
    "gaam has the best mean, but is not shown to be better than 'none'": lambda: [
        decoder("gaam", 0.805, 5),
        decoder("none", 0.8),
    ],
    "the decoders read different layers": lambda: [
        decoder("gaam", 0.95, layers="1-3"),
        decoder("mha", 0.9),
        decoder("none", 0.8),
    ],
    "some scores are optimistic": lambda: [
        decoder("gaam", 0.95, select="test"),
        decoder("none", 0.8, select="test"),
    ],
    "no baseline, such as 'none', is among the decoders": lambda: [
        decoder("gaam", 0.85),
        decoder("mha", 0.8),
        build_probe(0.8),
    ],
    "nothing is compared with a baseline": lambda: [
        decoder("gaam", 0.85),
        decoder("mha", 0.8),
    ],
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_sentence_says_why_no_decoder_is_recommended(reason: str) -> None:
    [table] = build_tables(REASONS[reason]())
    assert recommended(table) is None
    assert why_none(table) == reason
    text = conclusion(table)
    if "nothing" in reason:
        assert text.startswith("Nothing is compared with a baseline")
    else:
        assert f"no decoder is recommended: {reason}" in text
    assert "recommended" not in conclusion(table, advice=False)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (["gaam", "last-layer"], "none"),
        (["gaam", "last-layer", "probe"], "none"),
    ],
    ids=["baseline", "baseline and probe"],
)
def test_of_equal_means_the_simpler_decoder_is_named(
    others: list[str], expected: str
) -> None:
    """All rows are right: easy data, on which the smallest decoder suffices."""
    right_SN = np.ones((8, 400), dtype=bool)
    runs = [build_run(name, right_SN) for name in others if name != "probe"]
    runs.append(build_run("none", right_SN))
    if "probe" in others:
        runs.append(build_run("none", right_SN[:1], head="lbfgs", fit=FIT))
    for run, size in zip(runs, (5, 3, 9), strict=False):
        run.parameters["total"] = size
    [table] = build_tables(runs)
    choice = recommended(table)
    assert choice is not None
    assert choice.entry.attention == expected
    assert not choice.entry.fitted_at_once


NO_REASON: dict[str, BuildRuns] = {
    "a better one": lambda: [decoder("gaam", 0.95), decoder("none", 0.8)],
    "a single one": lambda: [decoder("gaam", 0.8)],
}


@pytest.mark.parametrize("name", NO_REASON)
def test_there_is_no_reason_where_one_is_named_or_the_only_one(name: str) -> None:
    [table] = build_tables(NO_REASON[name]())
    assert why_none(table) == ""
    assert "no decoder is recommended" not in conclusion(table)


def test_candidates_without_a_baseline_of_their_rate_get_a_remark() -> None:
    """``--all`` compares at equal rates, where the baseline may have none."""
    runs = [
        decoder("gaam", 0.8, lr=0.01, path="gaam1"),
        decoder("gaam", 0.8, lr=0.02, path="gaam2"),
        decoder("none", 0.8, lr=0.01, path="none1"),
    ]
    [table] = build_tables(runs, every_candidate=True)
    [note] = [note for note in notes(table) if note.startswith("not compared")]
    assert "without --all" in note
    assert note.endswith(": gaam lr=0.02")
