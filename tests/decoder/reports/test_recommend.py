"""A report names a decoder to use, or says in its first sentence why it names none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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


def uneven_decoder(name: str, accuracies: tuple[float, float], size: int) -> RunResult:
    """Eight seeds of a decoder: half of them have the first accuracy."""
    right_SN = np.concatenate([answers(4, accuracy, 1) for accuracy in accuracies])
    run = build_run(name, right_SN)
    run.parameters["total"] = size
    return run


REASONS: dict[str, BuildRuns] = {
    "mha is shown to be better than 'none', but gaam has the best mean": lambda: [
        build_run("gaam", answers(3, 0.95, 4)),
        decoder("mha", 0.9),
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
        [table] = build_tables(REASONS[reason](), score="macro-f1")
        by_score = "By macro-F1, nothing is compared with a baseline"
        assert conclusion(table).startswith(by_score)
    else:
        assert f"no decoder is recommended: {reason}" in text
    assert "recommended" not in conclusion(table, advice=False)


def test_of_the_baseline_alone_the_sentence_says_what_to_train() -> None:
    heads = ("linear", "mlp")
    runs = [build_run("none", answers(4, 0.8, 1), head=head) for head in heads]
    [table] = build_tables(runs)
    start = "Nothing is compared, because every decoder has the mechanism 'none'"
    assert conclusion(table).startswith(start)


@pytest.mark.parametrize("runs", [[], [build_probe(0.9)]], ids=["alone", "with probe"])
def test_a_recommendation_without_a_test_says_so(runs: list[RunResult]) -> None:
    runs = [decoder("gaam", 0.7), decoder("none", 0.8), *runs]
    [table] = build_tables(runs, score="average-precision")
    recommendation = recommended(table)
    assert recommendation is not None
    assert recommendation.advice.endswith("no difference is tested")
    [table] = build_tables(runs)
    recommendation = recommended(table)
    assert recommendation is not None
    assert "no difference is tested" not in recommendation.advice


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


class Choice(NamedTuple):
    """Runs, the margin in points, the decoder to use, and why."""

    build_runs: BuildRuns
    margin: float
    to_use: str
    reason: str


@pytest.mark.parametrize(
    "choice",
    [
        Choice(
            lambda: [
                decoder("gaam", 0.805, 20),
                decoder("none", 0.8),
                decoder("last-layer", 0.6, 5),
            ],
            0.5,
            "none",
            "the baseline, nothing is shown to be better than it",
        ),
        Choice(
            lambda: [
                uneven_decoder("gaam", (0.76, 1.0), 20),
                decoder("none", 0.8),
                decoder("last-layer", 0.6, 5),
                build_probe(0.87),
            ],
            0.5,
            "none",
            "shown to be better than 'none', nothing is shown to be better than it",
        ),
        Choice(
            lambda: [decoder("last-layer", 0.805, 5), decoder("none", 0.8)],
            0.5,
            "last-layer",
            "best mean, fewest parameters, nothing is shown to be better than it",
        ),
        Choice(
            lambda: [decoder("last-layer", 0.798, 5), decoder("none", 0.8)],
            3,
            "last-layer",
            "equivalent to none, with fewer parameters",
        ),
        Choice(
            lambda: [decoder("last-layer", 0.798, 20), decoder("none", 0.8)],
            3,
            "none",
            "best mean, fewest parameters, nothing is shown to be better than it",
        ),
        # a head that keeps all training rows has no parameters, and is not small
        Choice(
            lambda: [decoder("last-layer", 0.798, 0), decoder("none", 0.8)],
            3,
            "none",
            "best mean, fewest parameters, nothing is shown to be better than it",
        ),
        Choice(
            lambda: [
                decoder("last-layer", 0.798, 5),
                decoder("none", 0.8),
                build_probe(0.97),
            ],
            3,
            "none",
            "shown to be better than every other decoder",
        ),
        Choice(
            lambda: [
                decoder("last-layer", 0.798, 5),
                decoder("none", 0.8),
                build_probe(0.97),
                build_run("gaam", answers(1, 0.5, 4), head="lbfgs", fit=FIT),
            ],
            3,
            "none",
            "shown to be better than every compared decoder (2 of 3)",
        ),
    ],
    ids=[
        "the baseline, neither best nor smallest",
        "the probe, better than the baseline",
        "best and smallest",
        "smaller equivalent",
        "larger equivalent",
        "equivalent that keeps rows",
        "probe",
        "probe, and a head that is never compared with it",
    ],
)
def test_of_decoders_not_shown_to_differ_the_simplest_is_recommended(
    choice: Choice,
) -> None:
    [table] = build_tables(choice.build_runs(), margin=choice.margin)
    recommendation = recommended(table)
    assert recommendation is not None
    assert recommendation.entry.attention == choice.to_use
    assert recommendation.advice.endswith(f": {choice.reason}")


@pytest.mark.parametrize("probe_accuracy", [0.7, 0.8, 0.84, 0.87, 0.97])
@pytest.mark.parametrize("last_layer_size", [5, 20])
def test_no_decoder_that_is_shown_to_be_worse_is_recommended(
    probe_accuracy: float, last_layer_size: int
) -> None:
    for accuracy in (0.7, 0.8, 0.81, 0.85, 0.9):
        runs = [
            decoder("last-layer", accuracy, last_layer_size),
            decoder("gaam", 0.86, 30),
            decoder("none", 0.8),
            build_probe(probe_accuracy),
        ]
        for margin in (0.5, 3, 10):
            [table] = build_tables(runs, margin=margin)
            choice = recommended(table)
            if choice is None:
                continue
            comparisons = (choice.entry.comparison, choice.entry.probe_comparison)
            verdicts = [pair.claim.verdict for pair in comparisons if pair]
            assert "worse" not in verdicts


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
