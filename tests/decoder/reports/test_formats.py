"""How reports look: widths, escapes, which rows are shown, files that other programs read."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import cli
import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.reports import columns
from gaam_decoder.reports.formats.latex import Latex
from gaam_decoder.reports.formats.terminal import Terminal
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import AG_NEWS, FORMATS, answers, build_run, written

PDFLATEX = shutil.which("pdflatex")
NASTY = (
    '50% of \\LaTeX & C_1 | *b* <i>#1</i> {x} ~^$ "q" [y] `z` \N{GREEK SMALL LETTER PI}'
)


def wide_tables() -> list[Table]:
    """The longest names, failed seeds, a literature column, two heads, several recipes."""
    cache = {"dataset": "ag_news", "encoder": "some-encoder"}
    classes = tuple(AG_NEWS)
    runs = [
        build_run("generalized-gaussian:location=median", answers(12, 0.9, 1), cache=cache,
                  classes=classes, failed={3: "the loss became nan in epoch 1"}),
        build_run("asymmetric-gaussian", answers(12, 0.8, 2), head="conv", cache=cache,
                  classes=classes),
        build_run("gaam", np.ones((12, 400)), cache=cache, classes=classes, lr=0.03),
        build_run("none", answers(12, 0.7, 4), cache=cache, classes=classes),
        build_run("none", answers(12, 0.7, 5), cache=cache, classes=classes, head="conv"),
        build_run("none", answers(12, 0.7, 5), cache=cache, classes=classes, lr=0.03,
                  select="test"),
    ]  # fmt: skip
    for run in runs:
        vars(run)["parameters"] = {"attention": 81_920, "total": 819_204_321}
    return build_tables(runs)


def test_tables_fit_the_terminal_and_its_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = written("terminal", wide_tables())
    rules = [line for line in text.splitlines() if "\u2500" in line]
    assert len(rules) == 1
    assert max(map(len, rules)) <= 80
    assert "\u2026" not in text, "a cell was cut"
    assert "\x1b" not in text
    for part in ("generalized-gaussian", "+ conv", "lr=0.03", "optimistic"):
        assert part in text
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    Terminal().write(wide_tables(), stream)
    stream.flush()
    assert b"generalized-gaussian" in raw.getvalue()
    monkeypatch.setenv("COLUMNS", "200")
    wide = written("terminal", wide_tables()).split()
    assert {w for w in text.split() if w[:1].isdigit()} <= set(wide)
    assert "12 (1 failed)" in " ".join(wide)


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed")
def test_latex_compiles_by_itself_and_in_a_paper(tmp_path: Path) -> None:
    nasty = build_run(
        "gaam",
        answers(3, 0.8, 1),
        failed={1: NASTY},
        cache={"dataset": NASTY},
        path="x",
    )
    with (tmp_path / "tables.tex").open("w", encoding="utf-8") as file:
        Latex().write([*build_tables([nasty]), *wide_tables()], file)
    paper = (
        "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}Before"
    )
    paper += "\\input{tables}after.\\end{document}"
    (tmp_path / "paper.tex").write_text(paper)
    command = [str(PDFLATEX), "-interaction=nonstopmode", "-halt-on-error"]
    for name in ("paper", "tables"):
        done = subprocess.run(
            [*command, f"{name}.tex"], cwd=tmp_path, capture_output=True, timeout=1200
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        log = (tmp_path / f"{name}.log").read_text("utf-8", errors="replace")
        assert "Missing character" not in log
        assert "Undefined control sequence" not in log


COLUMNS = ("decoder", "accuracy", "difference", "95% ci of it", "P-Holm", "verdict")
WITH_COLUMNS = sorted({*FORMATS} - {"json"})


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("format", WITH_COLUMNS)
def test_a_table_has_the_columns_that_are_asked_for_in_their_order(format: str) -> None:
    report = Report(tuple(wide_tables()))
    (table,) = report.tables
    for asked in (",".join(COLUMNS), COLUMNS):
        text = " ".join(report.text(format, columns=asked).split())
        for left_out in ("95% CI seeds", "s/seed", "would decide"):
            assert left_out not in text.replace("\\", "")
        heads = [text.rindex(name) for name in ("accuracy %", "95% CI of it", "p Holm")] if (
            format not in ("csv", "latex")
        ) else []  # fmt: skip
        assert len(heads) in (0, 3)
    if format == "csv":
        lines = list(csv.DictReader(io.StringIO(report.text(format, columns=COLUMNS))))
        names = [
            "decoder",
            "accuracy",
            "difference",
            "95% CI of it low",
            "95% CI of it high",
        ]
        assert list(lines[0]) == [*names, "p Holm", "verdict"]
        for line, row in zip(lines, table.shown, strict=True):
            assert float(line["accuracy"]) == row.accuracy.mean
            claim = row.compared and row.compared.claim
            assert line["difference"] == (
                "" if claim is None else str(claim.difference)
            )
            assert line["verdict"] == ("" if claim is None else claim.verdict)
    every = [column.name("accuracy") for column in columns.COLUMNS]
    for (
        name
    ) in every:  # each has a name by which it is known, and is shown where it is empty
        text = report.text(format, columns=name.upper().replace(" ", "-"))
        assert name in text.replace("\\", ""), name
        assert name in cli.COLUMNS


@pytest.mark.parametrize(
    ("format", "asked", "expected"),
    [
        (
            "latex",
            "decoder,acuracy",
            r"'acuracy'(.|\n)*decoder, verdict(.|\n)*'accuracy'",
        ),
        ("html", "decoder,interval", "95% CI of it'"),
        ("csv", "", "one of: decoder"),
        ("json", "decoder", "--format json"),
    ],
    ids=["mistyped", "called otherwise", "nothing", "no table"],
)
def test_a_column_that_there_is_not_is_refused_with_those_there_are(
    format: str, asked: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        Report(tuple(wide_tables())).text(format, columns=asked)


MECHANISMS = ("none", "gaam", "mha:heads=4", "laplace")


def sweep() -> list[RunResult]:
    found = []
    for number, (name, layer) in enumerate(product(MECHANISMS, range(1, 5))):
        share = 0.6 + 0.02 * MECHANISMS.index(name) + 0.02 * layer
        run = build_run(
            name, answers(8, share, number), path=f"{number}", layers=str(layer)
        )
        run.parameters["total"] += number % 3
        found.append(run)
    return found


@pytest.mark.usefixtures("undrawn")
def test_rows_stand_by_score_and_the_first_are_kept_beside_their_baseline() -> None:
    runs = sweep()
    for top in (2, 12, 40):
        report = gaam_decoder.report(runs, top=top)
        (table,) = report.tables
        means = [row.accuracy.mean or 0 for row in table.entries]
        assert means == sorted(means, reverse=True)
        shown = table.shown
        assert shown[:top] == list(table.entries[:top])
        layers = {row.recipe["layers"] for row in shown if row.attention == "none"}
        others = [row for row in shown if row.attention != "none"]
        assert len(others) <= top
        assert {row.recipe["layers"] for row in others} <= layers
        hidden = len(table.entries) - len(shown)
        for format in ("terminal", "markdown", "latex", "html"):
            assert (f"{hidden} of 16 decoders" in report.text(format)) == bool(
                hidden
            ), (
                format,
                top,
            )
        values = json.loads(report.text("json"))
        assert (len(values["entries"]), values["entries_not_shown"]) == (
            len(shown),
            hidden,
        )
        lines = list(csv.DictReader(io.StringIO(report.text("csv"))))
        assert [line["attention"] for line in lines] == [row.attention for row in shown]
