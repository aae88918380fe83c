"""``report(score=...)``: every score that is listed is compared, and named wherever it is."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.reports.writing.section import sections
from gaam_decoder.reports.writing.unit import all_scores
from tests.decoder.reports.conftest import FORMATS, build_run

CLASSES = tuple(f"class {number}" for number in range(12))
SCORES = all_scores()


def run(attention: str, strength: float, *, num_seeds: int = 7, **settings: object) -> RunResult:
    made = build_run(attention, np.ones((num_seeds, 200), bool), classes=CLASSES, **settings)
    generator = np.random.default_rng([*attention.encode()])
    logits = 2 * generator.normal(size=(num_seeds, 200, 12)).astype(np.float32)
    logits[:, np.arange(200), made.labels] += strength
    logits[[made.seeds.index(seed) for seed in made.failed]] = np.nan
    vars(made)["logits"] = logits
    return made


def runs() -> list[RunResult]:
    return [
        run("none", 2.0),
        run("mha", 4.0, failed={3: "loss is nan"}),
        run("laplace", 2.0, num_seeds=1),
        run("gaam", 2.0, num_seeds=2, failed={0: "loss is nan", 1: "loss is nan"}),
    ]


def test_what_is_compared_is_the_score_that_was_asked_for() -> None:
    for name, score in SCORES.items():
        [table] = build_tables(runs(), score=name)
        rows = dict(zip([row.attention for row in table.rows], table.rows, strict=True))
        [found] = [c for c in table.comparisons if c is not None and len(c.seeds) > 1]
        mine, theirs = (rows[attention].scores.every[name] for attention in ("mha", "none"))
        assert found.claim.difference == pytest.approx((mine - np.delete(theirs, 3)).mean())
        assert table.margin == score.margin
        assert found.claim.verdict == ("no claim" if score.no_claim else "better")
        assert (found.claim.p is None) == bool(score.no_claim)
        assert rows["gaam"].chosen_mean is None


def few() -> list[RunResult]:
    """The same of three seeds, too few for a claim."""
    return [run("none", 2.0, num_seeds=3), run("mha", 4.0, num_seeds=3)]


def alike() -> list[RunResult]:
    """Two that are about as good, of seven seeds."""
    return [run("none", 2.0), run("mha", 2.0)]


MISSING = re.compile(r"95% -(?!\d)|(?<![\w-])(nan|NaN|None|Infinity)(?!\w)|\(, |, \)")
"""What is written where there is nothing to write."""


@pytest.mark.usefixtures("undrawn")
def test_every_format_names_the_score_and_writes_nothing_that_is_not_there() -> None:
    for name in ("accuracy", "macro-f1", "log-loss", "ece"):
        for make in (runs, few, alike):
            report = Report(tables=tuple(build_tables(make(), score=name)))
            for format in FORMATS:
                text = re.sub("<style>.*?</style>", "", report.text(format), flags=re.DOTALL)
                text = re.sub(r"loss is nan|\"key\": .*", "", text)  # what made-up runs are given
                if format != "json":
                    assert "[]" not in text, (make.__name__, format)
                found = MISSING.search(text)
                assert not found, (format, text[found.start() - 80 : found.end() + 80])
                if name == "ece":
                    assert "undecided" not in text, (make.__name__, format)
                if format == "csv":
                    lines = csv.DictReader(io.StringIO(text))
                    assert {line["compared_by"] for line in lines} == {name}
                else:
                    assert SCORES[name].title in text
                    assert name == "accuracy" or "in accuracy points" not in text
            content = json.loads(report.text("json"))
            assert content["score"] == name
            assert set(content["rows"][0]["scores"]) <= set(SCORES)


def test_sections_hold_every_score_the_recall_and_the_bins() -> None:
    [table] = build_tables(runs())
    found = {section.name: section for section in sections(table)}
    every, recall = found["scores"].sheets
    assert every.header[1:] == [
        score.title + (" %" if score.percent else "") for score in SCORES.values()
    ]
    assert len(every.lines) == len(table.rows)
    [of_one] = [line for line in every.dicts() if line["decoder"] == "gaam"]
    assert set(of_one.values()) == {"gaam", "-"}
    row = table.rows[[row.attention for row in table.rows].index("none")]
    shown = [float(line["recall %"]) for line in recall.dicts() if line["decoder"] == "none"]
    hits = [100 * row.scores.right[:, row.runs[0].labels == label].mean() for label in range(12)]
    assert shown == pytest.approx(hits, abs=0.051)
    assert sum(found["calibration"].values[-1]["rows"]) == 7 * 200


def test_folds_and_repeats_are_rows_of_one_test() -> None:
    for repeats in (1, 2):
        parts = []
        for attention, strength in (("none", 2.0), ("mha", 4.0)):
            for split_seed in range(repeats):
                for fold in range(2):
                    where = {"fold": f"{fold + 1}/2", "split_seed": split_seed}
                    path = f"{attention}-{split_seed}-{fold}"
                    one = run(attention, strength, path=path, **where)
                    vars(one)["test_rows"] = np.arange(200) + 200 * fold
                    parts.append(one)
        for name, score in SCORES.items():
            [table] = build_tables(parts, score=name)
            row = table.rows[0]
            assert (row.folds, row.repeats) == (2, repeats)
            by_row = row.scores.chosen.scored.by_row
            if by_row is not None:
                assert by_row.shape == (7, 400)
                assert by_row.mean(1) == pytest.approx(row.scores.chosen.scored.values)
            [found] = [c for c in table.comparisons if c is not None]
            assert found.claim.verdict == ("no claim" if score.no_claim else "better"), name
