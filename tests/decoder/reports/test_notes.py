"""What a report says of a table: the answer in one sentence, comparisons, and notes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from gaam_decoder import RunResult, stats
from gaam_decoder.reports.cells import claim_of, what_would_decide
from gaam_decoder.reports.columns import DECIDE
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.drawing import inline_svg, overview_pictures
from gaam_decoder.reports.notes import notes, notes_on_runs, warnings
from gaam_decoder.reports.recommend import recommended
from gaam_decoder.reports.sections import sections
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table, build_tables
from gaam_decoder.runs.loading import Runs
from gaam_decoder.runs.result import Validation
from tests.decoder.reports.conftest import (
    FIT,
    FORMATS,
    answers,
    build_probe,
    build_run,
    change_arrays,
    text_of,
    words_of,
)

WHY = "loss became too large in epoch 1: try --lr 0.0001"
READ_BY_PEOPLE = sorted(set(FORMATS) - {"csv", "json"})
BuildRuns = Callable[[], list[RunResult]]


class Case(NamedTuple):
    """Runs, parts of the sentence about them, and the margin of equivalence."""

    build_runs: BuildRuns
    parts: tuple[str, ...]
    margin: float = 0.5


def baseline(accuracy: float = 0.8, seed: int = 2, **changes: Any) -> RunResult:
    return build_run("none", answers(8, accuracy, seed), **changes)


def mechanism(
    accuracy: float, seed: int = 1, name: str = "gaam", **changes: Any
) -> RunResult:
    """A mechanism with a parameter more than the baseline."""
    run = build_run(name, answers(8, accuracy, seed), **changes)
    run.parameters["total"] += 1
    return run


def uncompared_head(accuracy: float) -> RunResult:
    """A head that is fitted at once, so that it is not compared with the probe."""
    return build_run("none", answers(1, accuracy, 4), head="class-means", fit=FIT)


def tuned(name: str, seed: int, best: float = 1e-3) -> list[RunResult]:
    """Candidates of three learning rates, of which one is best in validation."""
    return [
        build_run(
            name,
            answers(8, 0.8, seed),
            lr=lr,
            path=f"{name}{lr}",
            validation=0.9 if lr == best else 0.8,
        )
        for lr in (1e-4, 1e-3, 1e-2)
    ]


ANSWERS: dict[str, Case] = {
    "better": Case(
        lambda: [mechanism(0.95), baseline()],
        ("gaam is better than 'none'; use gaam: ", "not tuned"),
    ),
    "undecided": Case(
        lambda: [mechanism(0.8), baseline()],
        ("No mechanism is shown to differ from 'none'",),
    ),
    "too few rows": Case(
        lambda: [mechanism(0.82), baseline(0.81)],
        (
            "a difference of +1.03",
            "about 750 test rows would give an even chance to decide whether gaam "
            "differs",
        ),
    ),
    "all four verdicts": Case(
        lambda: [
            mechanism(0.95),
            mechanism(0.5, name="mha"),
            mechanism(0.8, 2, "laplace"),
            mechanism(0.815, 1, "mqa"),
            baseline(),
        ],
        (
            "gaam is better than 'none'; mha is worse than 'none'; laplace is "
            "equivalent to 'none' within 2 points; mqa is undecided",
        ),
        margin=2,
    ),
    "one pair of seeds": Case(
        lambda: [
            build_run("gaam", answers(1, 0.9, 1)),
            build_run("none", answers(1, 0.8, 2)),
        ],
        ("seeds: 1", " 6"),
    ),
    "one decoder": Case(
        lambda: [mechanism(0.8)],
        ("gaam is 80.0%, with a 95% confidence interval of 75.8 to 83.7%",),
    ),
    "optimistic": Case(
        lambda: [mechanism(0.95, select="test"), baseline(select="test")],
        ("is better", "optimistic"),
    ),
    "tuned": Case(
        lambda: [*tuned("gaam", 1), *tuned("none", 2)], ("No mechanism is shown",)
    ),
    "tuned at the edge": Case(
        lambda: [*tuned("gaam", 1, 1e-2), *tuned("none", 2)],
        ("1 of 2 decoders perhaps under-trained",),
    ),
}


def missing_parts(parts: tuple[str, ...], text: str) -> list[str]:
    return [part for part in parts if part not in text]


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_says_what_the_numbers_allow(name: str) -> None:
    case = ANSWERS[name]
    [table] = build_tables(case.build_runs(), margin=case.margin)
    text = conclusion(table)
    assert missing_parts(case.parts, text) == [], text
    if name.startswith("tuned"):
        assert "not tuned" not in text
    # an interval of a mean predicts no test set
    assert "in 95 of 100 cases" not in text
    assert json.loads(text_of("json", [table]))["conclusion"] == text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["all four verdicts", "undecided"])
def test_the_answer_stands_first(name: str) -> None:
    case = ANSWERS[name]
    [table] = build_tables(case.build_runs(), margin=case.margin)
    words = " ".join(conclusion(table).split())
    for report_format in READ_BY_PEOPLE:
        assert words in words_of(report_format, [table])[:1500], report_format


WHICH = ", which is the one to use"
LOGISTIC = "logistic regression (none + lbfgs)"


class ProbedCase(NamedTuple):
    """Runs, the begin of the sentence about them, and the decoder to use."""

    build_runs: BuildRuns
    begin: str
    to_use: str = "none + lbfgs"


PROBED: dict[str, ProbedCase] = {
    "better than the baseline, worse than the probe": ProbedCase(
        lambda: [
            mechanism(0.88),
            mechanism(0.87, name="sech"),
            baseline(0.8),
            build_probe(0.97),
        ],
        f"gaam and sech are better than 'none', and worse than {LOGISTIC}{WHICH}",
    ),
    "worse than both": ProbedCase(
        lambda: [mechanism(0.6), baseline(0.8), build_probe(0.97)],
        f"gaam is worse than 'none', and worse than {LOGISTIC}{WHICH}",
    ),
    "undecided as the baseline is, and all worse than the probe": ProbedCase(
        lambda: [
            mechanism(0.8),
            mechanism(0.8, 3, "mha"),
            baseline(0.8),
            build_probe(0.97),
        ],
        f"Every other decoder is worse than {LOGISTIC}{WHICH}; no mechanism is shown",
    ),
    "undecided beside the baseline": ProbedCase(
        lambda: [mechanism(0.8), baseline(0.8), build_probe(0.97)],
        f"gaam is worse than {LOGISTIC}{WHICH}; no mechanism is shown to differ",
    ),
    "several verdicts beside the baseline": ProbedCase(
        lambda: [
            mechanism(0.9),
            mechanism(0.6, name="mha"),
            baseline(0.8),
            build_probe(0.97),
        ],
        f"Every other decoder is worse than {LOGISTIC}{WHICH}; gaam is better than "
        "'none'; mha is",
    ),
    "a better head that is never compared with the probe": ProbedCase(
        lambda: [
            mechanism(0.8),
            mechanism(0.8, 3, "mha"),
            baseline(0.8),
            build_probe(0.97),
            uncompared_head(0.98),
        ],
        f"Every compared decoder (3 of 4) is worse than {LOGISTIC}; no mechanism is",
        "",
    ),
    "a worse head that is never compared with the probe": ProbedCase(
        lambda: [
            mechanism(0.8),
            mechanism(0.8, 3, "mha"),
            baseline(0.8),
            build_probe(0.97),
            uncompared_head(0.5),
        ],
        f"Every compared decoder (3 of 4) is worse than {LOGISTIC}{WHICH}; no",
    ),
    "no baseline": ProbedCase(
        lambda: [mechanism(0.8), mechanism(0.7, name="mha"), build_probe(0.97)],
        f"gaam and mha are worse than {LOGISTIC}{WHICH}",
    ),
    "some are worse than the probe": ProbedCase(
        lambda: [
            mechanism(0.97),
            mechanism(0.7, name="mha"),
            baseline(0.8),
            build_probe(0.96),
        ],
        "gaam is better than 'none'; mha is worse than 'none'; mha is worse than "
        f"{LOGISTIC}; use gaam: ",
        "gaam",
    ),
    "none is worse than the probe": ProbedCase(
        lambda: [mechanism(0.95), baseline(0.8), build_probe(0.8)],
        "gaam is better than 'none'; use gaam",
        "gaam",
    ),
    # of several sets of layers nothing can be advised
    "states that differ": ProbedCase(
        lambda: [
            mechanism(0.88),
            baseline(0.8),
            build_probe(0.97),
            baseline(0.8, layers="1", path="layer 1"),
        ],
        f"gaam is better than 'none', and worse than {LOGISTIC}",
        "",
    ),
}


@pytest.mark.parametrize("name", PROBED)
@pytest.mark.usefixtures("undrawn")
def test_where_logistic_regression_wins_every_format_says_so_first(name: str) -> None:
    case = PROBED[name]
    [table] = build_tables(case.build_runs())
    text = conclusion(table)
    assert text.startswith(case.begin), text
    assert (WHICH in text) == (case.to_use == "none + lbfgs")
    # what predict, export and load take is what the sentence names
    choice = recommended(table)
    assert (choice[0].label if choice else "") == case.to_use
    assert WHICH not in conclusion(table, advice=False)
    words = " ".join(text.split())
    for report_format in FORMATS:
        report = words_of(report_format, [table]).replace('\\"', '"')
        assert words in report, report_format
    page = text_of("html", [table])
    assert page.index('class="lead"') < page.index("<table") < page.index("<details")
    assert page.count("which is the one to use") == (WHICH in text)


@pytest.mark.parametrize("cases", [ANSWERS, PROBED], ids=["answers", "probed"])
def test_sentence_and_column_say_the_same_of_the_largest_undecided_difference(
    cases: Mapping[str, Case | ProbedCase],
) -> None:
    num_tables = 0
    for name, case in cases.items():
        [table] = build_tables(case.build_runs())
        text = conclusion(table)
        undecided = [entry for entry in table.entries if DECIDE.text(entry)]
        if "is shown to differ" not in text:
            assert "would decide" not in text, name
            continue
        furthest = max(undecided, key=lambda entry: abs(claim_of(entry).difference))
        needed = DECIDE.text(furthest)
        # a chance needs a number of rows or seeds
        has_number = not needed.startswith("more ")
        verb = "give an even chance to decide" if has_number else "decide"
        sentence = f"{needed} would {verb} whether {furthest.label} differs"
        assert sentence in text, name
        num_tables += 1
    assert num_tables


def test_equal_differences_are_one_number() -> None:
    right = answers(8, 0.8, 1)
    runs = [build_run(name, right) for name in ("gaam", "laplace", "none")]
    [table] = build_tables(runs)
    assert ": differences of +0.00 points," in conclusion(table)


class Experiment(NamedTuple):
    """Test rows, mean accuracy, numbers of seeds, and what would decide."""

    needed: str
    num_rows: int
    accuracy: float
    num_seeds: int = 8
    tuning_variance: float = 0.0


@pytest.mark.parametrize(
    "experiment",
    [
        Experiment("about 6 seeds", 400, 0.82, num_seeds=3),
        Experiment("about 730 test rows", 400, 0.81),
        Experiment("about 15 seeds or about 3,700 test rows", 2000, 0.803),
        Experiment("29 times as many seeds and test rows", 400, 0.8, num_seeds=2),
        Experiment(
            "more training rows (no number of seeds or test rows suffices)",
            400,
            0.81,
            tuning_variance=1e-4,
        ),
        Experiment("", 400, 0.9),
    ],
    ids=lambda experiment: experiment.needed or "decided",
)
def test_what_would_decide_is_one_thing_for_each_case(experiment: Experiment) -> None:
    hits = answers(experiment.num_seeds, experiment.accuracy, 1, experiment.num_rows)
    baseline_hits = answers(experiment.num_seeds, 0.8, 2, experiment.num_rows)
    claim = stats.claim(hits, baseline_hits, tuning_variance=experiment.tuning_variance)
    assert what_would_decide(claim) == experiment.needed


def test_where_too_few_rows_differ_no_number_would_decide() -> None:
    hits = np.ones((8, 100), dtype=bool)
    baseline_hits = hits.copy()
    baseline_hits[:, 0] = False
    needed = what_would_decide(stats.claim(hits, baseline_hits))
    assert needed == "more test rows (too few differ to say how many)"


NOT_TUNED: dict[str, Case] = {
    "the last epoch": Case(
        lambda: [mechanism(0.8, select="last"), baseline(select="last")],
        ("learning rates are not tuned", "(not tuned: "),
    ),
    "one rate": Case(lambda: [mechanism(0.8), baseline()], ("(not tuned: ",)),
    "one decoder": Case(lambda: [mechanism(0.8)], ("(not tuned: ",)),
    "some": Case(
        lambda: [*tuned("gaam", 1), mechanism(0.8, name="mha"), baseline()],
        ("2 of 3 decoders not tuned",),
    ),
}


@pytest.mark.parametrize("name", NOT_TUNED)
@pytest.mark.usefixtures("undrawn")
def test_every_format_says_what_was_not_tuned(name: str) -> None:
    case = NOT_TUNED[name]
    tables = build_tables(case.build_runs())
    for report_format in FORMATS:
        parts = case.parts
        # the short formats have the sentence alone
        if report_format in ("terminal", "csv"):
            parts = tuple(part for part in parts if part.startswith(("(", "2")))
        assert missing_parts(parts, words_of(report_format, tables)) == [], (
            report_format
        )


def table_with_marks() -> Table:
    """Two decoders that are under-trained, one that is not, and a fit at its edge."""
    late = mechanism(0.8)
    late.epochs.update(dict.fromkeys(late.seeds, 3))
    probe = build_probe(0.8)
    change_arrays(probe, fit=replace(FIT, edge="highest"))
    other = mechanism(0.7, name="mha")
    [table] = build_tables([late, *tuned("none", 2, 1e-2), other, probe])
    return table


def test_a_decoder_that_is_under_trained_is_marked_and_a_fit_has_a_note() -> None:
    table = table_with_marks()
    marked = [entry.label for entry in table.entries if entry.is_undertrained]
    assert sorted(marked) == ["gaam", "none"], "a fit has no steps, and is not marked"
    part = "but their list is fixed: none + lbfgs"
    assert any(part in note for note in notes_on_runs(table))
    # the mark stays on the line of its name
    assert not re.search("^ *† *$", text_of("terminal", [table]), re.MULTILINE)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("report_format", sorted({*READ_BY_PEOPLE, "json"}))
def test_below_the_table_stands_what_an_interval_and_a_dagger_mean(
    report_format: str,
) -> None:
    words = words_of(report_format, [table_with_marks()])
    words = words.replace("textdagger{}", "†").replace("\\u2020", "†")
    assert "95% CI: a confidence interval of the mean" in words
    assert "does not predict what another test set gives" in words
    assert "† perhaps under-trained: longer training" in words
    # one at each of the two decoders, and the one that is explained
    if report_format != "json":
        assert words.count("†") >= 3


def test_without_a_decoder_that_is_under_trained_there_is_no_dagger() -> None:
    tables = build_tables([mechanism(0.8), baseline()])
    assert "†" not in words_of("terminal", tables)


def right_on_first_rows(
    num_seeds: int, num_rows: int, share: float
) -> NDArray[np.bool_]:
    """Answers that are right on the same first rows for every seed."""
    right_N = np.arange(num_rows) < share * num_rows
    return np.tile(right_N, (num_seeds, 1))


def failed_run(
    name: str, num_seeds: int, num_rows: int = 40, **changes: Any
) -> RunResult:
    """A run all of whose seeds failed."""
    failed = dict.fromkeys(range(num_seeds), WHY)
    right = right_on_first_rows(num_seeds, num_rows, 1)
    return build_run(name, right, failed=failed, **changes)


def run_that_always_says_a() -> RunResult:
    right = right_on_first_rows(1, 40, 1)
    labels = build_run("none", right, classes=("a", "b")).labels
    return build_run("none", [labels == 0] * 2, classes=("a", "b"))


@pytest.mark.parametrize("failing_folds", [(2,), (1, 2, 3)])
def test_a_failure_in_many_folds_is_one_reason(failing_folds: tuple[int, ...]) -> None:
    runs: list[RunResult] = []
    for fold in (1, 2, 3):
        right = answers(8, 0.8, fold)
        failed = {1: WHY} if fold in failing_folds else None
        runs.append(build_run("gaam", right, fold=f"{fold}/3", failed=failed))
        runs.append(build_run("none", right, fold=f"{fold}/3"))
    [table] = build_tables(runs)
    [note] = [note for note in notes_on_runs(table) if WHY in note]
    where = "fold 2/3" if failing_folds == (2,) else "3 folds"
    assert note.endswith(f"gaam seed 1 failed: {where}: {WHY}")


@pytest.mark.parametrize(
    ("right_seeds", "folds", "expected"),
    [
        pytest.param((), 1, None, id="no seed"),
        pytest.param((2, 4), 1, "gaam (seeds: 2 of 8)", id="two seeds"),
        pytest.param(range(8), 1, "gaam (seeds: 8 of 8)", id="all seeds"),
        pytest.param(
            (2,), 2, "gaam (pairs of a seed and a fold: 2 of 16)", id="two folds"
        ),
    ],
)
def test_seeds_whose_validation_rows_are_all_right_have_no_temperature(
    right_seeds: Iterable[int],
    folds: int,
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    validation_of = {
        "gaam": validation_rows([*right_seeds]),
        "none": validation_rows([]),
    }
    monkeypatch.setattr(
        RunResult, "validation", property(lambda run: validation_of[run.attention])
    )
    runs = []
    for fold in range(1, folds + 1):
        recipe: dict[str, Any] = {"fold": f"{fold}/{folds}"} if folds > 1 else {}
        runs += [mechanism(0.9, **recipe), baseline(**recipe)]

    [table] = build_tables(runs, temperature=True)
    found = [text for text in notes_on_runs(table) if "no temperature was" in text]
    if expected is None:
        assert found == []
    else:
        [note] = found
        assert note.startswith(f"no temperature was fitted for {expected}, whose ")
    [table_without_temperature] = build_tables(runs)
    assert "no temperature" not in str(notes_on_runs(table_without_temperature))


def test_a_seed_without_a_temperature_does_not_decide_the_one_that_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = validation_rows([])
    # the logits of the last seed say nothing: its best temperature is infinite
    rows.logits[-1] = 0
    monkeypatch.setattr(RunResult, "validation", property(lambda run: rows))
    [table] = build_tables([baseline()], temperature=True)
    [entry] = table.entries
    assert entry.temperature is not None
    *usual_temperatures, last = entry.temperature["per_seed"]
    assert max(max(usual_temperatures)) < 10 < min(last)
    assert entry.temperature["median"] == pytest.approx(usual_temperatures[0][0])


@pytest.mark.parametrize(
    ("seeds", "failed", "is_told"),
    [
        pytest.param(range(8), None, False, id="all seeds in common"),
        pytest.param(range(2, 10), None, True, id="two other seeds"),
        pytest.param(range(8), {1: WHY}, False, id="a failed seed"),
    ],
)
def test_a_difference_over_fewer_seeds_than_the_mean_is_told(
    seeds: range, failed: dict[int, str] | None, is_told: bool
) -> None:
    runs = [mechanism(0.9, seeds=tuple(seeds), failed=failed), baseline()]
    [table] = build_tables(runs)
    found = [text for text in warnings(table) if "seeds that both" in text]
    if is_told:
        [warning] = found
        assert warning.endswith("gaam (6 seeds).")
    else:
        assert found == []


def validation_rows(right_seeds: list[int]) -> Validation:
    """Validation rows of 8 seeds; other seeds are wrong in the first of 40 rows."""
    label_V = np.arange(40) % 3
    logits_SVC = np.tile(np.eye(3, dtype=np.float32)[label_V], (8, 1, 1))
    is_wrong_S = ~np.isin(np.arange(8), right_seeds)
    logits_SVC[is_wrong_S, 0] = [0, 1, 0]
    return Validation(logits=logits_SVC, labels=label_V, rows=np.arange(40))


SHARED_TEXTS = {
    "shared_texts": {"test": {"train": 7, "test": 5}, "train": {"train": 4, "test": 6}}
}
ON_TRAIN: dict[str, Any] = {"test_split": "train", "allow_train_as_test": True}
WEAK: dict[str, Case] = {
    "two seeds of many failed": Case(
        lambda: [
            build_run("gaam", answers(7, 0.8, 1), failed={1: WHY, 2: WHY}),
            baseline(),
        ],
        (f"gaam seed 1-2 failed: {WHY}",),
    ),
    "no control": Case(
        lambda: [mechanism(0.8), mechanism(0.8, 2, "mha")], ("gaam train --attn none",)
    ),
    "few rows": Case(
        lambda: [
            build_run("gaam", right_on_first_rows(7, 25, 1)),
            build_run("none", right_on_first_rows(7, 25, 0)),
        ],
        ("25 test rows", "4.0 points"),
    ),
    "fewer than six seeds": Case(
        lambda: [
            build_run("gaam", np.ones((5, 400))),
            build_run("none", answers(5, 0.5, 2)),
        ],
        ("no claim", "6 seeds", "0.0625"),
    ),
    "training rows": Case(
        lambda: [mechanism(0.9, **ON_TRAIN), baseline(**ON_TRAIN)], (ON_TRAINING_ROWS,)
    ),
    "chosen on test": Case(
        lambda: [mechanism(0.9, select="test"), baseline(select="test")],
        ("chosen on test", "optimistic"),
    ),
    "a leak": Case(
        lambda: [baseline(), mechanism(0.95, shuffle_labels=True)],
        ("leaks", "gaam labels shuffled"),
    ),
    "texts in both splits": Case(
        lambda: [mechanism(0.8, cache=SHARED_TEXTS), baseline(cache=SHARED_TEXTS)],
        ("7 of the 400 rows of 'test'", "'train'"),
    ),
    "one class predicted": Case(lambda: [run_that_always_says_a()], ("same class",)),
    "too short": Case(
        lambda: [build_run("none", answers(2, 0.8, 1), epochs=1)],
        ("under-trained", "--epochs"),
    ),
}


def runs_of_every_kind() -> list[RunResult]:
    return [
        mechanism(0.8),
        failed_run("mha", 6, 400),
        build_run("none", right_on_first_rows(1, 1, 1)),
        failed_run("laplace", 2, 1),
        mechanism(0.8, select="test"),
        mechanism(0.8, fold="1/2"),
        mechanism(0.8, test_split="train"),
        mechanism(0.8, pool="last"),
        mechanism(0.8, pool="mean"),
    ]


def check_numbers(text: str, report_format: str) -> None:
    """Check that nothing stands for a number that is none, and that intervals rise."""
    nonsense = re.search(r"\b(nan|inf|None|Infinity|NaN)\b", text)
    assert not nonsense, (report_format, nonsense)
    if report_format in ("csv", "json"):
        return
    intervals = re.findall(r"([+-]?[0-9.]+)\$? to \$?([+-]?[0-9.]+)", text)
    for low, high in intervals:
        assert float(low) <= float(high), (report_format, low, high)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", WEAK)
def test_every_format_says_what_makes_numbers_weak(name: str) -> None:
    case = WEAK[name]
    tables = build_tables(case.build_runs())
    causes = [note for table in tables for note in notes_on_runs(table)]
    assert any(missing_parts(case.parts, note) == [] for note in causes), causes
    for report_format in FORMATS:
        text = words_of(report_format, tables)
        check_numbers(text, report_format)
        if report_format != "csv":
            assert missing_parts(case.parts, text) == [], report_format


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("undrawn")
def test_whatever_runs_there_are_nothing_is_shown_that_is_no_number() -> None:
    tables = build_tables(runs_of_every_kind())
    for report_format in FORMATS:
        check_numbers(words_of(report_format, tables), report_format)
    for table in tables:
        pictures = list(overview_pictures(table))
        for section in sections(table):
            pictures += section.parts[1]
        for picture in pictures:
            svg = inline_svg(picture, "k")
            assert not re.search(r">[^<]*\b(nan|inf|None)\b", svg), picture.name


def test_nothing_is_said_of_what_is_in_order() -> None:
    cache = {"rows": {"train": 9000, "test": 400}}
    [table] = build_tables([mechanism(0.8, cache=cache), baseline(cache=cache)])
    assert notes_on_runs(table) == []
    assert warnings(table) == []
    assert any("corrected by Holm for 1" in note for note in notes(table))


@pytest.mark.parametrize(
    ("num_rows", "is_noted"), [(9000, False), (400, False), (100, True)]
)
def test_test_rows_count_as_no_more_than_training_rows(
    num_rows: int, is_noted: bool
) -> None:
    cache = {"rows": {"train": num_rows, "test": 400}}
    [table] = build_tables([mechanism(0.8, cache=cache), baseline()])
    part = f"training rows ({num_rows:,} "
    assert any(part in note for note in notes_on_runs(table)) == is_noted


def test_a_decoder_below_a_prediction_without_rows_is_named() -> None:
    """Three classes of about the same size: always the largest is right in a third."""
    runs = [mechanism(0.1), mechanism(0.5, name="mha"), baseline(0.8)]
    [table] = build_tables(runs)
    [note] = [text for text in notes(table) if "same answer for every row, so" in text]
    assert note.endswith("say little: gaam")


@pytest.mark.parametrize(
    ("recipes", "expected"),
    [
        pytest.param(
            ({"class_weights": "balanced"}, {"class_weights": "balanced"}),
            "class-weights balanced, epochs 3, weight-decay 0.0",
            id="shared",
        ),
        pytest.param(
            ({"class_weights": "balanced"}, {}),
            "epochs 3, weight-decay 0.0",
            id="of one decoder",
        ),
        pytest.param(
            ({"epochs": 25}, {"epochs": 25}), "weight-decay 0.0", id="the usual epochs"
        ),
    ],
)
def test_settings_that_are_not_the_usual_are_explained(
    recipes: tuple[dict[str, Any], dict[str, Any]], expected: str
) -> None:
    for_mechanism, for_baseline = recipes
    runs = [mechanism(0.9, **for_mechanism), baseline(**for_baseline)]
    [table] = build_tables(runs)
    [note] = [text for text in notes(table) if text.startswith("settings of all")]
    assert note == f"settings of all decoders: {expected}"


def test_a_probe_without_class_weights_is_named() -> None:
    """The others weigh classes: the probe is better or worse by this alone."""
    weights: dict[str, Any] = {"class_weights": "balanced"}
    runs = [mechanism(0.7, **weights), baseline(0.7, **weights), build_probe(0.9)]
    texts = [text for table in build_tables(runs) for text in notes(table)]
    [note] = [text for text in texts if "weigh classes" in text]
    assert note.endswith("say little: none + lbfgs")
    without_weights = [mechanism(0.7), baseline(0.7), build_probe(0.9)]
    texts = [text for table in build_tables(without_weights) for text in notes(table)]
    assert not any("weigh classes" in text for text in texts)


def test_runs_of_another_task_that_a_filter_left_out_are_not_scored() -> None:
    runs = Runs([mechanism(0.9), baseline()])
    alone = comparison_p(runs)
    runs.others = [replace(mechanism(0.7, name="mha"), task="regression")]
    assert comparison_p(runs) == alone


def comparison_p(runs: Runs) -> float | None:
    [table] = build_tables(runs)
    [(_, comparison)] = table.compared_entries
    return comparison.claim.p_holm


def test_another_name_of_the_same_data_set_is_told() -> None:
    """A copy of a cache has its fingerprint: both are one data set."""
    copied = mechanism(0.9, cache={"dataset": "a-copy"})
    [table] = build_tables([baseline(), copied])
    [note] = [text for text in notes_on_runs(table) if "other names" in text]
    assert note.endswith(("a-copy", "a-dataset"))
    [table] = build_tables([baseline(), mechanism(0.9)])
    assert "other names" not in str(notes_on_runs(table))
