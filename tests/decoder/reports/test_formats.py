"""How reports look: widths, escapes, the entries that are shown, files for programs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.reports import columns
from gaam_decoder.reports.formats.latex import Latex
from gaam_decoder.reports.formats.terminal import Terminal
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import (
    AG_NEWS,
    FORMATS,
    answers,
    build_run,
    change_arrays,
    text_of,
)

PDFLATEX = shutil.which("pdflatex")
NASTY = (
    '50% of \\LaTeX & C_1 | *b* <i>#1</i> {x} ~^$ "q" [y] `z` \N{GREEK SMALL LETTER PI}'
)


def build_wide_run(attention: str, right: object, **changes: object) -> RunResult:
    """A run with many parameters, of a data set of the literature."""
    run = build_run(
        attention,
        right,
        cache={"dataset": "ag_news", "encoder": "some-encoder"},
        classes=tuple(AG_NEWS),
        **changes,  # type: ignore[arg-type]
    )
    change_arrays(run, parameters={"attention": 81_920, "total": 819_204_321})
    return run


def wide_table() -> Table:
    """Long names, failed seeds, a literature column, two heads, several recipes."""
    failed = {3: "the loss became nan in epoch 1"}
    runs = [
        build_wide_run(
            "generalized-gaussian:location=median", answers(12, 0.9, 1), failed=failed
        ),
        build_wide_run("asymmetric-gaussian", answers(12, 0.8, 2), head="conv"),
        build_wide_run("gaam", np.ones((12, 400)), lr=0.03),
        build_wide_run("none", answers(12, 0.7, 4)),
        build_wide_run("none", answers(12, 0.7, 5), head="conv"),
        build_wide_run("none", answers(12, 0.7, 5), lr=0.03, select="test"),
    ]
    [table] = build_tables(runs)
    return table


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def numbers_in(text: str) -> set[str]:
    return {word for word in text.split() if word[:1].isdigit()}


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    table = wide_table()
    monkeypatch.setenv("COLUMNS", "80")
    text = text_of("terminal", [table])
    [rule] = [line for line in text.splitlines() if "\u2500" in line]
    assert len(rule) <= 80
    assert "\u2026" not in text, "a cell was cut"
    assert "\x1b" not in text
    for part in ("generalized-gaussian", "+ conv", "lr=0.03", "optimistic"):
        assert part in text
    monkeypatch.setenv("COLUMNS", "200")
    wide_text = text_of("terminal", [table])
    assert numbers_in(text) <= set(wide_text.split())
    assert "12 (1 failed)" in " ".join(wide_text.split())


def test_a_table_is_written_in_the_letters_of_the_terminal() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    Terminal().write([wide_table()], stream)
    stream.flush()
    assert b"generalized-gaussian" in raw.getvalue()


PAPER = (
    "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}Before"
    "\\input{tables}after.\\end{document}"
)


@pytest.fixture(scope="module")
def latex_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables as a document, and a paper that contains them."""
    folder = tmp_path_factory.mktemp("latex")
    nasty = build_run(
        "gaam",
        answers(3, 0.8, 1),
        failed={1: NASTY},
        cache={"dataset": NASTY},
        path="x",
    )
    with (folder / "tables.tex").open("w", encoding="utf-8") as file:
        Latex().write([*build_tables([nasty]), wide_table()], file)
    (folder / "paper.tex").write_text(PAPER)
    return folder


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", ["paper", "tables"])
def test_latex_compiles(name: str, latex_folder: Path) -> None:
    options = ("-interaction=nonstopmode", "-halt-on-error")
    process = subprocess.run(
        [str(PDFLATEX), *options, f"{name}.tex"],
        cwd=latex_folder,
        capture_output=True,
        timeout=1200,
    )
    assert process.returncode == 0, process.stdout.decode(errors="replace")[-2000:]
    assert (latex_folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    log = (latex_folder / f"{name}.log").read_text("utf-8", errors="replace")
    assert "Missing character" not in log
    assert "Undefined control sequence" not in log


def test_a_star_in_latex_is_no_sign_of_multiplication() -> None:
    text = Report((wide_table(),)).text(
        "latex", columns="decoder,difference,95% CI of it"
    )
    assert r"95\% CI of the difference" in text
    assert re.search(r"\$\+[0-9.]+\^\{\*\}\$", text)
    assert not re.search(r"[0-9]\*", text)


COLUMNS = ("decoder", "accuracy", "difference", "95% ci of it", "P-Holm", "verdict")
WITH_COLUMNS = sorted(set(FORMATS) - {"json"})


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("report_format", WITH_COLUMNS)
@pytest.mark.parametrize("names", [COLUMNS, ",".join(COLUMNS)], ids=["names", "text"])
def test_a_table_has_the_columns_that_the_user_names(
    report_format: str, names: str | tuple[str, ...]
) -> None:
    text = Report((wide_table(),)).text(report_format, columns=names)
    words = " ".join(text.split())
    for part in ("95% CI seeds", "s/seed", "would decide"):
        assert part not in words.replace("\\", "")
    # csv and latex write some names otherwise
    if report_format not in ("csv", "latex"):
        for part in ("accuracy %", "95% CI of it", "p Holm"):
            assert part in words


def test_the_columns_of_csv_stand_in_the_order_of_their_names() -> None:
    table = wide_table()
    lines = read_csv(Report((table,)).text("csv", columns=COLUMNS))
    assert list(lines[0]) == [
        "decoder",
        "accuracy",
        "difference",
        "95% CI of it low",
        "95% CI of it high",
        "p Holm",
        "verdict",
    ]
    for line, entry in zip(lines, table.shown_entries, strict=True):
        assert float(line["accuracy"]) == entry.default_score.mean
        difference = ""
        verdict = ""
        if entry.comparison:
            difference = str(entry.comparison.claim.difference)
            verdict = entry.comparison.claim.verdict
        assert line["difference"] == difference
        assert line["verdict"] == verdict


@pytest.mark.parametrize(
    ("other_split", "title"),
    [
        pytest.param(False, [], id="one table"),
        pytest.param(True, ["title"], id="two tables"),
    ],
)
def test_columns_of_csv_keep_their_order_where_the_first_line_lacks_one(
    other_split: bool, title: list[str]
) -> None:
    """The baseline is the best entry, and stands first."""
    runs = [
        build_run("none", answers(8, 0.9, 1)),
        build_run("gaam", answers(8, 0.7, 2)),
    ]
    if other_split:
        alone = build_run("none", answers(8, 0.9, 1), test_split="other")
        runs.insert(0, alone)
    report = gaam_decoder.report(runs)
    names = ["decoder", "difference", "verdict", "accuracy"]
    lines = read_csv(report.text("csv", columns=names))
    assert list(lines[0]) == [*title, *names]
    assert lines[0]["verdict"] == ""
    assert lines[-1]["verdict"] == "worse"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("report_format", WITH_COLUMNS)
def test_every_column_has_a_name_and_is_shown_even_where_it_is_empty(
    report_format: str,
) -> None:
    report = Report((wide_table(),))
    for column in columns.COLUMNS:
        name = column.name("accuracy")
        text = report.text(report_format, columns=name.upper().replace(" ", "-"))
        # latex writes a header that stands alone
        text = text.replace("of the difference", "of it")
        assert name in text.replace("\\", ""), name


@pytest.mark.parametrize(
    ("report_format", "names", "message"),
    [
        pytest.param(
            "latex",
            "decoder,acuracy",
            r"'acuracy'(.|\n)*decoder, verdict(.|\n)*'accuracy'",
            id="mistyped",
        ),
        pytest.param(
            "html", "decoder,interval", "95% CI of it'", id="called otherwise"
        ),
        pytest.param("csv", "", "one of: decoder", id="nothing"),
        pytest.param("json", "decoder", "--format json", id="no table"),
    ],
)
def test_a_column_that_there_is_not_is_refused_with_those_there_are(
    report_format: str, names: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Report((wide_table(),)).text(report_format, columns=names)


MECHANISMS = ("none", "gaam", "mha:heads=4", "laplace")


def sweep() -> list[RunResult]:
    """Every mechanism on every layer."""
    runs: list[RunResult] = []
    for number, (name, layer) in enumerate(product(MECHANISMS, range(1, 5))):
        share = 0.6 + 0.02 * MECHANISMS.index(name) + 0.02 * layer
        right = answers(8, share, number)
        run = build_run(name, right, path=f"{number}", layers=str(layer))
        run.parameters["total"] += number % 3
        runs.append(run)
    return runs


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("top", [2, 12, 40])
def test_the_first_entries_are_kept_beside_their_baseline(top: int) -> None:
    report = gaam_decoder.report(sweep(), top=top)
    [table] = report.tables
    means = [entry.default_score.mean or 0 for entry in table.entries]
    assert means == sorted(means, reverse=True)
    shown = table.shown_entries
    assert shown[:top] == list(table.entries[:top])
    others = [entry for entry in shown if entry.attention != "none"]
    assert len(others) <= top
    layers_of_baseline = {
        entry.recipe["layers"] for entry in shown if entry.attention == "none"
    }
    assert {entry.recipe["layers"] for entry in others} <= layers_of_baseline

    num_hidden = len(table.entries) - len(shown)
    remark = f"{num_hidden} of 16 decoders"
    for report_format in ("terminal", "markdown", "latex", "html"):
        has_remark = remark in report.text(report_format)
        assert has_remark == (num_hidden > 0), report_format
    content = json.loads(report.text("json"))
    assert len(content["entries"]) == len(shown)
    assert content["entries_not_shown"] == num_hidden
    lines = read_csv(report.text("csv"))
    assert [line["attention"] for line in lines] == [entry.attention for entry in shown]
