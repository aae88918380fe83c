"""How reports look: widths, escapes, files that other programs read."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gaam_cache import plugins
from gaam_decoder.reports.formats.csv import Csv
from gaam_decoder.reports.formats.json import Json
from gaam_decoder.reports.formats.latex import Latex
from gaam_decoder.reports.formats.markdown import Markdown
from gaam_decoder.reports.formats.terminal import Terminal
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import AG_NEWS, answers, build_run

PDFLATEX = shutil.which("pdflatex")
NASTY = '50% of \\LaTeX & C_1 | *b* <i>#1</i> {x} ~^$ "q" [y] `z` \N{GREEK SMALL LETTER PI}'


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


def shown(tables: list[Table], monkeypatch: pytest.MonkeyPatch, width: int) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    Terminal().write(tables, stream)
    return stream.getvalue()


def test_tables_fit_eighty_columns_with_the_longest_names(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(wide_tables(), monkeypatch, 80)
    rules = [line for line in text.splitlines() if "\u2500" in line]
    assert len(rules) == 1
    assert max(map(len, rules)) <= 80
    assert "\u2026" not in text, "a cell was cut"
    assert "\x1b" not in text
    for part in ("generalized-gaussian", "+ conv", "lr=0.03", "optimistic"):
        assert part in text


def test_a_wider_pipe_has_more_columns_and_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = wide_tables()
    narrow, wide = (shown(tables, monkeypatch, width).split() for width in (80, 200))
    assert {w for w in narrow if w[:1].isdigit()} <= set(wide)
    assert "11/12" in wide


def test_a_terminal_without_utf8_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    Terminal().write(wide_tables(), stream)
    stream.flush()
    assert b"generalized-gaussian" in raw.getvalue()


@pytest.mark.parametrize("name", plugins.names("gaam_decoder.reports.formats"))
def test_every_format_says_what_must_be_said_and_survives_odd_names(name: str) -> None:
    cache = {"dataset": NASTY, "fingerprint": "e" * 64}
    tables = build_tables(
        [
            build_run("gaam", answers(3, 0.8, 1), failed={1: NASTY}),
            build_run("mha", answers(2, 0.8, 1), failed={0: "nan", 1: "nan"}),
            build_run("gaam", answers(3, 0.8, 1), cache=cache, select="test"),
        ]
    )
    stream = io.StringIO()
    plugins.load("gaam_decoder.reports.formats", name, kind="report format")().write(tables, stream)
    text = " ".join(stream.getvalue().split()).replace("\\_", "_")
    if name.startswith("csv"):
        assert {line["optimistic"] for line in csv.DictReader(io.StringIO(stream.getvalue()))} == {
            "True",
            "False",
        }
    else:
        parts = ["optimistic", "no control among these rows"]
        parts += ["f" * 12, "torch 2.13", "40.0"] if name != "terminal" else ["more in"]
        for part in parts:
            assert part in text or (name, part) == ("json", "40.0"), part
        assert "not to be compared" in text or name == "json"


def test_more_than_twenty_seeds_say_that_p_is_estimated() -> None:
    runs = [build_run("gaam", answers(25, 0.83, 1)), build_run("none", answers(25, 0.8, 2))]
    stream = io.StringIO()
    Markdown().write(build_tables(runs), stream)
    assert "exact up to 20 seeds, above from 100,000 random patterns" in stream.getvalue()
    assert "gaam is better than none by" in stream.getvalue()


def test_csv_and_json_hold_the_same_numbers() -> None:
    tables = wide_tables()
    lines, content = io.StringIO(), io.StringIO()
    Csv().write(tables, lines)
    Json().write(tables, content)
    rows = json.loads(content.getvalue())["rows"]
    for line, row in zip(csv.DictReader(io.StringIO(lines.getvalue())), rows, strict=True):
        assert float(line["accuracy_mean"]) == row["accuracy"]["mean"]
        low, high = row["accuracy_ci95_seeds_and_rows"]
        assert low <= row["accuracy"]["mean"] <= high
        assert float(line["accuracy_ci95_seeds_and_rows_low"]) == low
        assert float(line["accuracy_ci95_seeds_and_rows_high"]) == high
        found = row["comparison"]
        if found is None:
            assert line["difference"] == ""
        else:
            assert float(line["difference"]) == found["difference"]
            for same in ("p", "p_holm", "p_equivalent", "p_equivalent_holm", "margin"):
                assert float(line[same]) == found[same]
            assert line["verdict"] == found["verdict"]
            assert line["significant"] == str(found["significant"])
            low, high = found["ci95_seeds_and_rows"]
            assert float(line["ci95_seeds_and_rows_low"]) == low
            assert float(line["ci95_seeds_and_rows_high"]) == high
            here = found["on_these_test_rows"]
            assert line["these_rows_verdict"] == here["verdict"]
            assert float(line["these_rows_p_sign_flip"]) == here["p_sign_flip"]
            for name in ("seeds_to_decide", "rows_to_decide"):
                assert line[name] == ("" if found[name] is None else str(found[name]))
            assert float(line["mcnemar_p_holm"]) == found["mcnemar"]["p_holm"]
    assert sum(row["comparison"] is not None for row in rows) == 2


def test_markdown_tables_are_whole() -> None:
    stream = io.StringIO()
    tables = build_tables([build_run("gaam", answers(3, 0.8, 1), cache={"dataset": NASTY})])
    Markdown().write([*tables, *wide_tables()], stream)
    for block in stream.getvalue().split("\n\n"):
        table = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in table}) <= 1


@pytest.mark.skipif(PDFLATEX is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("within", [False, True], ids=["by itself", "in a paper"])
def test_latex_compiles(within: bool, tmp_path: Path) -> None:
    nasty = build_run(
        "gaam", answers(3, 0.8, 1), failed={1: NASTY}, cache={"dataset": NASTY}, path="x"
    )
    with (tmp_path / "tables.tex").open("w", encoding="utf-8") as file:
        Latex().write([*build_tables([nasty]), *wide_tables()], file)
    paper = "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}Before"
    paper += "\\input{tables}after.\\end{document}"
    (tmp_path / "paper.tex").write_text(paper)
    command = [str(PDFLATEX), "-interaction=nonstopmode", "-halt-on-error"]
    name = "paper" if within else "tables"
    done = subprocess.run(
        [*command, f"{name}.tex"], cwd=tmp_path, capture_output=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    log = (tmp_path / f"{name}.log").read_text("utf-8", errors="replace")
    assert "Missing character" not in log
    assert "Undefined control sequence" not in log
