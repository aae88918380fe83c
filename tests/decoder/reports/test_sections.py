"""Sections: what each says, and that every format shows it."""

from __future__ import annotations

import html
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.analysis.learned import (
    RESIDUALS,
    learned_curves,
    planted_curve,
)
from gaam_decoder.reports.columns import sheet
from gaam_decoder.reports.compare import MOST_VALUES
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.sections import Section, sections, signature
from gaam_decoder.reports.sections.pairs import MOST_LISTED
from gaam_decoder.reports.sections.published import FILE
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import AG_NEWS, FORMATS, answers, build_run, seen


def by_name(table: Table) -> dict[str, Section]:
    return {section.name: section for section in sections(table)}


D = 8
PLANTED: dict[str, Any] = {"gate": "laplace", "teacher_accuracy": "0.8"}
STORED = {
    "laplace": ("b",),
    "gaam": ("xi",),
    "student-t": ("nu", "xi"),
    "chi2": ("k", "xi"),
}
CURVES = {
    "laplace": lambda r, b: np.exp(-np.abs(r) / b),
    "gaam": lambda r, xi: np.exp(-(r**2) / (2 * xi)),
    "student-t": lambda r, nu, xi: (1 + r**2 / (nu * xi)) ** (-(nu + 1) / 2),
    "chi2": lambda r, k, xi: (
        (r**2 / xi / (k - 2)) ** ((k - 2) / 2) * np.exp(-(r**2 / xi - (k - 2)) / 2)
    ),
}


def dense(mechanism: str, planted: Any = None) -> RunResult:
    """A density, whose parameters are drawn, of 6 seeds and 2 heads."""
    draw, name = np.random.default_rng(0), mechanism.partition(":")[0]
    values = {
        key: draw.uniform(0.3, 3, (6, 2, D)) + 2.5 * (key == "k")
        for key in STORED[name]
    }
    learned = {"offset": draw.standard_normal((6, 2, D)), **values}
    about = {} if planted is None else {"cache": {"planted": planted}}
    return build_run(mechanism, answers(6, 0.8, 0), learned=learned, **about)


def test_a_curve_is_the_mean_of_the_densities_of_all_cells() -> None:
    for mechanism, names in STORED.items():
        run = dense(mechanism)
        found_SP = learned_curves([run])
        assert found_SP is not None
        every = [run.learned[name].reshape(6, -1, 1) for name in names]
        np.testing.assert_allclose(
            found_SP, CURVES[mechanism](RESIDUALS, *every).mean(1), atol=1e-5
        )


def test_gates_are_drawn_beside_what_is_known_to_be_planted() -> None:
    names = [
        f"{name}:heads={n}" for name in ("laplace", "gaam", "chi2") for n in (1, 2, 3)
    ]
    for planted, known in (
        (None, False),
        (PLANTED, True),
        ({"gate": "no-such"}, False),
    ):
        about = {} if planted is None else {"cache": {"planted": planted}}
        none = build_run("none", answers(6, 0.5, 1), **about)
        (table,) = build_tables([*(dense(name, planted) for name in names), none])
        found = by_name(table)["gates"]
        assert "of 9 decoders" in found.lead
        assert ("planted" in found.lead) == known
        for axes in found.parts[1][0].draw().axes:
            assert len(axes.lines) == 4 + known
            if known:
                np.testing.assert_allclose(
                    axes.lines[0].get_ydata(), planted_curve("laplace")
                )


def everything() -> Table:
    gate = np.random.default_rng(1).random((8, 6, D))
    entry = {"loss": 1.0, "accuracy": 0.7}
    log = [
        entry | {"seed": seed, "epoch": epoch} for seed in range(8) for epoch in (1, 2)
    ]
    runs = [
        build_run(
            "gaam",
            answers(8, 0.9, 1),
            attention_map=gate,
            learned={"xi": gate},
            log=log,
        ),
        *(
            build_run(name, answers(8, 0.8, n))
            for n, name in enumerate(("none", "mha"))
        ),
    ]
    (table,) = build_tables(runs)
    return table


@pytest.mark.usefixtures("undrawn")
def test_every_format_shows_every_section_and_a_terminal_names_them() -> None:
    table = everything()
    found = by_name(table)
    assert {
        "curves",
        "scores",
        "calibration",
        "pairs",
        "learned",
        "importance",
    } <= found.keys()
    texts = {to: seen(to, [table]) for to in set(FORMATS) - {"csv"}}
    for name, section in found.items():
        alone = Report((table,)).text("terminal", name)
        captions = [sheet.caption for sheet in section.parts[0]]
        for part in (section.heading, section.lead, *section.lines, *captions):
            assert part in alone
            assert part.lower() in texts["markdown"].replace("\\", "").lower()
            assert part.lower() in texts["html"].lower()
        for cell in {
            cell for one in section.parts[0] for line in one.lines for cell in line
        }:
            assert (
                " ".join(cell.split()) in " ".join(alone.split()) or len(cell) > 20
            ), (name, cell)
        assert name in texts["terminal"].rpartition("--section NAME: ")[2]
    assert set(json.loads(Report((table,)).text("json"))["sections"]) == {
        name for name, section in found.items() if section.lead
    }


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_writes_one_section_alone(format: str) -> None:
    table = everything()
    report, found = Report((table,)), by_name(table)
    for name, section in found.items():
        text = report.text(format, name)
        # of JSON as it is read: there " and others are escaped
        text = str(json.loads(text)) if format == "json" else text
        letters = re.sub(
            r"[^a-z0-9]", "", html.unescape(text.replace("<wbr>", "")).lower()
        )
        # what csv has are the tables of it
        parts = (
            [] if format == "csv" else [section.heading, section.lead, *section.lines]
        )
        parts += [
            cell for one in section.parts[0] for line in one.lines for cell in line
        ]
        parts += [one.caption for one in section.parts[0]] if section.parts[0] else []
        for part in parts:
            assert re.sub(r"[^a-z0-9]", "", part.lower()) in letters, (name, part)
        others = {one.heading for one in found.values()} - {section.heading}
        assert not any(heading in text for heading in others)
        assert "Every number" not in text
    with pytest.raises(ConfigError, match=r"'pears'(.|\n)*curves(.|\n)*'pairs'"):
        report.text(format, "pears")
    with pytest.raises(ConfigError, match="one of the two"):
        report.text(format, "pairs", "decoder")


def by_layer(count: int, seeds: int, step: float, **about: Any) -> list[RunResult]:
    """A run for every layer, of which the last is best, and one of all, which is as the first."""
    shares = [
        (None, 0.7),
        *((str(n), 0.7 + step * (n - 1)) for n in range(1, count + 1)),
    ]
    return [
        build_run(
            "none",
            answers(seeds, share, number),
            layers=layers,
            path=f"{number}",
            **about,
        )
        for number, (layers, share) in enumerate(shares)
    ]


SPEAKERS = {"clip_of": np.repeat(np.arange(5), 80)}
ANSWERS: dict[str, tuple[list[RunResult], str]] = {
    "decided": (
        by_layer(4, 8, 0.05),
        r"none: the best mean accuracy is that of layer 4, 8\d.\d+%: it is better than "
        r"layers 1-3 and all layers; layer 4 - layer 3: \+\d.*, \+\d.* to \+\d.*, p <?0\.\d+",
    ),
    "undecided": (
        by_layer(3, 8, 0.001),
        r"none: .*: it is not shown to differ from .*layer",
    ),
    "few seeds": (
        by_layer(3, 3, 0.05),
        r"seeds: 3, and a claim needs 6\); layer 3 - layer 2: \+",
    ),
    "few groups": (
        by_layer(3, 8, 0.05, same=SPEAKERS),
        r"no claim is made beside layers 1-2 and all layers: 5 groups of rows",
    ),
    "many": (
        by_layer(19, 8, 0.01),
        r"better than (layers 1-|.*all layers)",
    ),
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("case", ANSWERS)
def test_which_layer_is_best_stands_first_and_its_pairs_have_interval_and_p(
    case: str,
) -> None:
    runs, expected = ANSWERS[case]
    (table,) = build_tables(runs, pairs="layers")
    assert table.pairs is not None
    (group,) = table.pairs.groups
    section = by_name(table)["pairs"]
    (answer,) = section.answers
    assert re.search(expected, answer), answer
    for format in set(FORMATS) - {"csv"}:
        first = (
            seen(format, [table]).replace("\\", "").replace("{", "").replace("}", "")
        )
        place = first.find("none: the best mean")
        assert place >= 0, format
        assert format in ("json", "html") or place < 400, format
    listed = section.parts[0][0]
    count = len(runs)
    every = {frozenset(pair) for pair in itertools.combinations(range(count), 2)}
    best = {frozenset({0, place}) for place in range(1, count)}
    assert best <= {frozenset(pair) for pair in group.pairs} <= every
    assert len(listed.lines) == min(len(listed.lines), MOST_LISTED)
    assert (len(group.pairs) == len(every)) == (count <= MOST_VALUES)
    if case not in ("few seeds", "few groups"):
        assert sum(table.pairs.num_tests.values()) == len(every)
    pairs = section.values["groups"][0]["pairs"]
    assert len(pairs) == len(group.pairs)
    for line, value in zip(listed.lines, pairs, strict=False) if case != "many" else ():
        assert line[1].startswith(
            f"{100 * value['difference']:+.2f}".replace("-0.00", "+0.00")
        )
        assert (line[2] == "-") == (value["ci95_corrected"] is None)
        assert line[4].startswith(value["verdict"])


def test_other_runs_have_another_signature_and_the_same_have_the_same() -> None:
    def line(*names: str, seeds: tuple[int, ...] = (0, 1, 2), **details: Any) -> str:
        runs = [
            build_run(
                name,
                answers(len(seeds), 0.8, 0),
                seeds=seeds,
                **{"path": name} | details,
            )
            for name in names
        ]
        return signature(build_tables(runs)[0])

    both = line("none", "gaam")
    assert both == line("gaam", "none") == line("none", "gaam", path="elsewhere")
    others = [line("none"), line("none", "mha"), line("none", "gaam", seeds=(0, 1, 3))]
    others += [
        line("none", "gaam", lr=0.5),
        line("none", "gaam", cache={"fingerprint": "e" * 64}),
    ]
    assert len({both, *others}) == 6


LLAMA = {"dataset": "fancyzhx/ag_news", "encoder": "meta-llama/Llama-2-13b-hf"}


SOURCE = Path(__file__).parents[4] / "shared" / "published" / "results.json"


@pytest.mark.skipif(not SOURCE.exists(), reason="../shared/published is not there")
def test_nothing_that_was_published_was_mistyped() -> None:
    source = json.loads(SOURCE.read_text("utf-8"))
    for name, dataset in json.loads(FILE.read_text("utf-8"))["datasets"].items():
        assert [dataset["train"], dataset["test"]] == [
            source[name].get(s) for s in ("train", "test")
        ]
        for mechanism, found in dataset["mechanisms"].items():
            expected = dict(source[name][mechanism])
            assert found["values"] == expected.pop(dataset["unit"])
            assert {
                k: v for k, v in found.items() if k not in ("values", "code")
            } == expected
        assert [*dataset["learned_ranges"].values()] == [
            *source[name]["learned_ranges"].values()
        ]


def published(
    attention: str, classes: list[str] = AG_NEWS, **about: Any
) -> Section | None:
    run = build_run(
        attention,
        answers(2, 0.8, 1),
        cache=LLAMA | about,
        classes=tuple(classes),
        path="x",
    )
    return by_name(build_tables([run])[0]).get("published")


def test_published_figures_are_of_the_same_data_set_and_mechanism_and_never_beside_ours() -> (
    None
):
    for attention, mean in (
        ("gaam", "94.6"),
        ("gaam:heads=1", "94.5"),
        ("gqgaam:init=x", "94.9"),
    ):
        found = published(attention)
        assert found is not None
        assert found.parts[0][0].lines[0][1] == mean
        assert "optimistic" in found.lead
        assert "Llama-2-13B" in found.lines[0]
    assert published("laplace") is None
    assert published("gaam", dataset="my_news") is None
    assert published("gaam", classes=["a", "b", "c", "d"]) is None
    (table,) = build_tables([build_run("gaam", answers(2, 0.8, 1), cache=LLAMA,
                                       classes=tuple(AG_NEWS))])  # fmt: skip
    assert "94.6" not in str(sheet(table))
