"""The line below a table tells tables of other runs apart, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaam_decoder.reports.sections.signature import signature
from gaam_decoder.reports.table import build_tables
from tests.decoder.reports.conftest import answers, build_run


def line(*names: str, seeds: tuple[int, ...] = (0, 1, 2), **details: Any) -> str:
    runs = [
        build_run(name, answers(len(seeds), 0.8, 0), seeds=seeds, **({"path": name} | details))
        for name in names or ("none", "gaam")
    ]
    return signature(build_tables(runs)[0])


def test_other_runs_have_another_line_and_the_same_have_the_same(tmp_path: Path) -> None:
    others = [
        line("none", "mha"),
        line("none"),
        line(seeds=(0, 1, 3)),
        line(lr=0.5),
        line(cache={"fingerprint": "0" * 64}),
    ]
    assert len({line(), *others}) == 6
    assert line() == line("gaam", "none")
    elsewhere = line(path=str(tmp_path / "secret"))
    assert elsewhere == line()
    assert len(elsewhere.splitlines()) == 1


def test_a_row_in_one_run_or_in_two_has_one_line() -> None:
    parts = [
        build_run("none", answers(len(seeds), 0.8, 0), seeds=seeds, path=str(seeds))
        for seeds in ((0, 2), (1,))
    ]
    assert signature(build_tables(parts)[0]) == line("none")
