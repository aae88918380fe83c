"""Sections: what each says, and that every format shows it."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult
from gaam_decoder.analysis.learned import (
    RESIDUALS,
    learned_curves,
    planted_curve,
)
from gaam_decoder.reports.columns import choose_columns, entries_sheet, screen_columns
from gaam_decoder.reports.compare import MOST_VALUES
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.sections import Section, sections, signature
from gaam_decoder.reports.sections.pairs import MOST_LISTED
from gaam_decoder.reports.sections.published import FILE
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import (
    AG_NEWS,
    FORMATS,
    answers,
    build_run,
    words_of,
)

# hidden size
D = 8
WITHOUT_CSV = sorted(set(FORMATS) - {"csv"})
Floats = np.ndarray[Any, np.dtype[np.float64]]


def sections_by_name(table: Table) -> dict[str, Section]:
    return {section.name: section for section in sections(table)}


def cells_of(section: Section) -> set[str]:
    """The cells of all tables of a section."""
    return {cell for sheet in section.parts[0] for line in sheet.lines for cell in line}


def laplace(r: Floats, b: Floats) -> Floats:
    return np.exp(-np.abs(r) / b)


def gaam(r: Floats, xi: Floats) -> Floats:
    return np.exp(-(r**2) / (2 * xi))


def student_t(r: Floats, nu: Floats, xi: Floats) -> Floats:
    return (1 + r**2 / (nu * xi)) ** (-(nu + 1) / 2)


def chi2(r: Floats, k: Floats, xi: Floats) -> Floats:
    peak = k - 2
    return (r**2 / xi / peak) ** (peak / 2) * np.exp(-(r**2 / xi - peak) / 2)


DENSITIES: dict[str, tuple[Callable[..., Floats], tuple[str, ...]]] = {
    "laplace": (laplace, ("b",)),
    "gaam": (gaam, ("xi",)),
    "student-t": (student_t, ("nu", "xi")),
    "chi2": (chi2, ("k", "xi")),
}
"""A mechanism -> its density, and the names of its parameters."""


def gate_run(attention: str, **cache: Any) -> RunResult:
    """A run of a gate with random parameters, of 6 seeds and 2 heads."""
    rng = np.random.default_rng(0)
    mechanism, _, _ = attention.partition(":")
    _, names = DENSITIES[mechanism]
    learned: dict[str, Any] = {}
    for name in names:
        learned[name] = rng.uniform(0.3, 3, (6, 2, D))
        # degrees of freedom have a peak above 2
        if name == "k":
            learned[name] += 2.5
    learned["offset"] = rng.standard_normal((6, 2, D))
    return build_run(attention, answers(6, 0.8, 0), learned=learned, cache=cache)


@pytest.mark.parametrize("mechanism", DENSITIES)
def test_a_curve_is_the_mean_of_the_densities_of_all_cells(mechanism: str) -> None:
    run = gate_run(mechanism)
    density, names = DENSITIES[mechanism]
    curve_SP = learned_curves([run])
    assert curve_SP is not None
    parameters = [run.learned[name].reshape(6, -1, 1) for name in names]
    expected = density(RESIDUALS, *parameters).mean(1)
    np.testing.assert_allclose(curve_SP, expected, atol=1e-5)


LAPLACE = {"gate": "laplace", "teacher_accuracy": "0.8"}


@pytest.mark.parametrize(
    ("cache", "is_known"),
    [
        pytest.param({}, False, id="nothing is planted"),
        pytest.param({"planted": LAPLACE}, True, id="a known gate"),
        pytest.param({"planted": {"gate": "no-such"}}, False, id="an unknown gate"),
    ],
)
def test_gates_are_drawn_beside_the_one_that_is_planted(
    cache: dict[str, Any], is_known: bool
) -> None:
    runs = [
        gate_run(f"{name}:heads={heads}", **cache)
        for name in ("laplace", "gaam", "chi2")
        for heads in (1, 2, 3)
    ]
    runs.append(build_run("none", answers(6, 0.5, 1), cache=cache))
    [table] = build_tables(runs)
    section = sections_by_name(table)["gates"]
    assert "of 9 decoders" in section.lead
    assert ("planted" in section.lead) == is_known
    for axes in section.parts[1][0].draw().axes:
        if not is_known:
            assert len(axes.lines) == 4
            continue
        assert len(axes.lines) == 5
        planted_line = axes.lines[0]
        np.testing.assert_allclose(
            np.asarray(planted_line.get_ydata()), planted_curve("laplace")
        )


def test_a_gate_whose_class_is_unknown_is_named_instead_of_drawn() -> None:
    """Such as a mechanism of a file, whose run is reported without the file."""
    laplace_run = gate_run("laplace")
    own_run = build_run(
        "my-gate", answers(6, 0.8, 0), learned=dict(laplace_run.learned)
    )
    none_run = build_run("none", answers(6, 0.5, 1))
    [table] = build_tables([laplace_run, own_run, none_run])
    section = sections_by_name(table)["gates"]
    assert section.lead == "of 1 decoder"
    assert any("not drawn: my-gate" in line for line in section.lines)
    [picture] = section.parts.pictures
    assert len(picture.draw().axes[0].lines) == 1
    assert "Not drawn: my-gate" in picture.caption


def test_headers_of_the_screen_are_unique_and_choose_columns() -> None:
    headers = [screen.header for _, screen in screen_columns()]
    assert len(set(headers)) == len(headers)
    [difference, p_holm, interval] = choose_columns("diff, p holm, 95% CI", "accuracy")
    assert (difference.header, p_holm.header) == ("difference", "p Holm")
    assert interval.header == "95% CI + rows"


@pytest.fixture(scope="module")
def rich_table() -> Table:
    """A table with nearly all sections."""
    map_SLD = np.random.default_rng(1).random((8, 6, D))
    log = [
        {"loss": 1.0, "accuracy": 0.7, "seed": seed, "epoch": epoch}
        for seed in range(8)
        for epoch in (1, 2)
    ]
    gaam_run = build_run(
        "gaam",
        answers(8, 0.9, 1),
        attention_map=map_SLD,
        learned={"xi": map_SLD},
        log=log,
    )
    none_run = build_run("none", answers(8, 0.8, 0))
    mha_run = build_run("mha", answers(8, 0.8, 1))
    [table] = build_tables([gaam_run, none_run, mha_run])
    return table


@pytest.mark.usefixtures("undrawn")
def test_every_format_shows_every_section_and_a_terminal_names_them(
    rich_table: Table,
) -> None:
    table_sections = sections_by_name(rich_table)
    names = {"curves", "scores", "calibration", "pairs", "learned", "importance"}
    assert names <= table_sections.keys()
    markdown = words_of("markdown", [rich_table]).replace("\\", "").lower()
    page = words_of("html", [rich_table]).lower()
    offered = words_of("terminal", [rich_table]).rpartition("--section NAME: ")[2]
    for name, section in table_sections.items():
        alone = Report((rich_table,)).text("terminal", section=name)
        captions = [sheet.caption for sheet in section.parts[0]]
        for part in (section.heading, section.lead, *section.lines, *captions):
            assert part in alone
            assert part.lower() in markdown
            assert part.lower() in page
        words = " ".join(alone.split())
        for cell in cells_of(section):
            # a terminal breaks long cells into lines
            assert " ".join(cell.split()) in words or len(cell) > 20, (name, cell)
        assert name in offered


@pytest.mark.usefixtures("undrawn")
def test_json_has_every_section_with_a_sentence(rich_table: Table) -> None:
    content = json.loads(Report((rich_table,)).text("json"))
    table_sections = sections_by_name(rich_table)
    expected = {name for name, section in table_sections.items() if section.lead}
    assert set(content["sections"]) == expected


def letters_of(text: str) -> str:
    """Letters and digits alone, without what formats escape or break."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("report_format", FORMATS)
def test_every_format_writes_one_section_alone(
    report_format: str, rich_table: Table
) -> None:
    report = Report((rich_table,))
    table_sections = sections_by_name(rich_table)
    headings = {section.heading for section in table_sections.values()}
    for name, section in table_sections.items():
        text = report.text(report_format, section=name)
        # JSON is read: in its text quotes and others are escaped
        if report_format == "json":
            text = str(json.loads(text))
        letters = letters_of(html.unescape(text.replace("<wbr>", "")))
        parts = [sheet.caption for sheet in section.parts[0]]
        # csv has tables alone, and the parts of their cells
        if report_format != "csv":
            parts += cells_of(section)
            parts += [section.heading, section.lead, *section.lines]
        for part in parts:
            assert letters_of(part) in letters, (name, part)
        for heading in headings - {section.heading}:
            assert heading not in text, name
        assert "Every number" not in text, name


A_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
SEVERAL_NUMBERS = re.compile(r"\(\S*\d|\d\S*( to|,| /) \S*\d|<\d|\d[*=%]")


def test_a_cell_of_csv_is_a_number_or_words(rich_table: Table) -> None:
    """An interval, a mean with its deviation and a share of a layer have columns."""
    runs_over_sets = [
        build_run(
            name,
            answers(6, 0.6 + 0.1 * len(name) + 0.01 * number, number),
            cache={"dataset": f"set{number}", "fingerprint": f"{number}" * 64},
            learned={"xi": np.random.default_rng(number).random((6, 2, D))},
            attention_map=np.random.default_rng(number).random((6, 6, D)),
        )
        for number in range(5)
        for name in ("none", "mha")
    ]
    reports = [
        Report((rich_table,)),
        gaam_decoder.report(runs_by_layer(9, 6, 0.02), pairs="layers"),
        Report((table_of_ag_news("gaam"),)),
        gaam_decoder.report(runs_over_sets),
    ]
    texts: dict[str, str] = {}
    for report in reports:
        names = [section.name for section in report.sections_over_sets]
        names += sections_by_name(report.tables[0])
        for name in names:
            texts[name] = texts.get(name, "") + report.text("csv", section=name) + "\n"
    assert {"pairs", "grid", "published", "across", "across-sets"} <= texts.keys()
    cells = [
        (name, header, cell)
        for name, text in texts.items()
        for header, cell in cells_by_header(text)
        if header not in ("title", "caption")
    ]
    for name, header, cell in cells:
        is_number = A_NUMBER.fullmatch(cell) is not None
        assert is_number or not SEVERAL_NUMBERS.search(cell), (name, header, cell)
    headers = {(name, header) for name, header, _ in cells}
    assert {
        ("scores", "accuracy % sd"),
        ("curves", "training loss first"),
        ("importance", "layers read most 3 share %"),
        ("pairs", "95% CI of it low"),
        ("pairs", "10 verdict"),
        ("published", "runs 2"),
        ("across", "each alone better"),
        ("across-sets", "an-encoder high"),
        ("across-learned", "medians of data sets high"),
    } <= headers


def cells_by_header(text: str) -> list[tuple[str, str]]:
    """The headers and cells of tables in CSV, with an empty line between two."""
    return [
        (header, cell)
        for table in text.split("\n\n")
        for line in csv.DictReader(io.StringIO(table))
        for header, cell in line.items()
    ]


def test_recall_stands_beside_the_class_that_rows_are_most_often_taken_for() -> None:
    right_SN = answers(6, 0.8, 0)
    label_N = build_run("none", right_SN).labels
    # rows of the third class are never mistaken, those of another for the next class
    right_SN[:, label_N == 2] = True
    [table] = build_tables([build_run("none", right_SN)])
    sheet = sections_by_name(table)["scores"].parts.sheets[1]
    assert sheet.header[3:] == ["recall %", "taken for", "share %"]
    lines = {line[1]: line[3:] for line in sheet.lines}
    for label, (name, next_name) in enumerate([("a", "b"), ("b", "c")]):
        recall = 100 * right_SN[:, label_N == label].mean()
        assert lines[name] == [f"{recall:.1f}", next_name, f"{100 - recall:.1f}"]
    assert lines["c"] == ["100.0", "-", "-"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("1,5", id="decimal comma"),
        pytest.param("-", id="dash"),
        pytest.param("-1", id="minus"),
        pytest.param("+1", id="plus"),
        pytest.param("1,000", id="thousands"),
        pytest.param("007", id="zeros"),
    ],
)
def test_csv_leaves_the_name_of_a_class_as_it_is(name: str) -> None:
    [table] = build_tables([build_run("none", answers(6, 0.8, 0), classes=(name, "b"))])
    lines = cells_by_header(Report((table,)).text("csv", section="scores"))
    for column in ("class", "taken for"):
        names = {cell for header, cell in lines if header == column}
        # the line of other scores has no class
        assert names == {"", name, "b"}


def test_csv_leaves_the_name_of_a_data_set_as_it_is() -> None:
    runs_over_sets = [
        build_run(
            name,
            answers(6, 0.6 + 0.1 * len(name) + 0.01 * number, number),
            cache={"dataset": f"{number},5", "fingerprint": f"{number}" * 64},
        )
        for number in range(5)
        for name in ("none", "mha")
    ]
    report = gaam_decoder.report(runs_over_sets)
    lines = cells_by_header(report.text("csv", section="across-sets"))
    names = {cell for header, cell in lines if header == "data set"}
    assert names == {"0,5", "1,5", "2,5", "3,5", "4,5", "mean"}


@pytest.mark.usefixtures("undrawn")
def test_a_section_of_pictures_alone_is_refused_as_csv() -> None:
    table_of_gates = build_tables([gate_run("gaam")])
    with pytest.raises(ConfigError, match="'gates' has pictures and no table"):
        Report(tuple(table_of_gates)).text("csv", section="gates")


@pytest.mark.parametrize("report_format", FORMATS)
def test_a_section_that_there_is_not_and_columns_of_a_section_are_refused(
    report_format: str, rich_table: Table
) -> None:
    report = Report((rich_table,))
    with pytest.raises(ConfigError, match=r"'pears'(.|\n)*curves(.|\n)*'pairs'"):
        report.text(report_format, section="pears")
    with pytest.raises(ConfigError, match="one of the two"):
        report.text(report_format, section="pairs", columns="decoder")


def runs_by_layer(
    num_layers: int, num_seeds: int, step: float, **changes: Any
) -> list[RunResult]:
    """A run of all layers, which is as the first; and one of each: the last is best."""
    share_by_layers: dict[str | None, float] = {None: 0.7}
    for layer in range(1, num_layers + 1):
        share_by_layers[str(layer)] = 0.7 + step * (layer - 1)
    return [
        build_run(
            "none",
            answers(num_seeds, share, number),
            layers=layers,
            path=f"{number}",
            **changes,
        )
        for number, (layers, share) in enumerate(share_by_layers.items())
    ]


FIVE_GROUPS = {"clip_of": np.repeat(np.arange(5), 80)}
BuildRuns = Callable[[], list[RunResult]]
ANSWERS: dict[str, tuple[BuildRuns, str]] = {
    "decided": (
        lambda: runs_by_layer(4, 8, 0.05),
        r"none: the best mean accuracy is that of layer 4, 8\d.\d+%: it is better than "
        r"layers 1-3 and all layers; layer 4 minus layer 3: \+\d.*, \+\d.* to \+\d.*, "
        r"p <?0\.\d+",
    ),
    "undecided": (
        lambda: runs_by_layer(3, 8, 0.001),
        r"none: .*: it is not shown to differ from .*layer",
    ),
    "few seeds": (
        lambda: runs_by_layer(3, 3, 0.05),
        r"every difference is undecided \(seeds: 3, and other verdicts need 6\); "
        r"layer 3 minus layer 2: \+",
    ),
    "equal means": (
        lambda: runs_by_layer(3, 1, 0),
        r"is that of layer 2, 70.2% \(the same mean: layer 3\): every difference is ",
    ),
    "few groups": (
        lambda: runs_by_layer(3, 8, 0.05, same=FIVE_GROUPS),
        r"no claim is made beside layers 1-2 and all layers: 5 groups of rows",
    ),
    "many": (
        lambda: runs_by_layer(19, 8, 0.01),
        r"better than (layers 1-|.*all layers)",
    ),
}
"""Runs by layer, and the answer about their layers."""


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("case", ANSWERS)
def test_the_best_layer_stands_first(case: str) -> None:
    build_runs, expected = ANSWERS[case]
    [table] = build_tables(build_runs(), pairs="layers")
    [answer] = sections_by_name(table)["pairs"].answers
    assert re.search(expected, answer), answer
    for report_format in WITHOUT_CSV:
        words = re.sub(r"[\\{}]", "", words_of(report_format, [table]))
        place = words.find("none: the best mean")
        assert place >= 0, report_format
        if report_format not in ("json", "html"):
            assert place < 400, report_format


@pytest.mark.parametrize("case", ANSWERS)
def test_pairs_of_layers_have_interval_and_p(case: str) -> None:
    build_runs, _ = ANSWERS[case]
    runs = build_runs()
    [table] = build_tables(runs, pairs="layers")
    assert table.pairs is not None
    [group] = table.pairs.groups
    all_pairs = {
        frozenset(pair) for pair in itertools.combinations(range(len(runs)), 2)
    }
    pairs_with_best = {pair for pair in all_pairs if 0 in pair}
    assert pairs_with_best <= {frozenset(pair) for pair in group.pairs} <= all_pairs
    assert (len(group.pairs) == len(all_pairs)) == (len(runs) <= MOST_VALUES)
    if case not in ("few seeds", "equal means", "few groups"):
        assert sum(table.pairs.num_tests.values()) == len(all_pairs)

    section = sections_by_name(table)["pairs"]
    lines = section.parts[0][0].lines
    pairs = section.values["groups"][0]["pairs"]
    assert len(pairs) == len(group.pairs)
    assert len(lines) <= MOST_LISTED
    # of many pairs the most important are listed, in another order
    if case == "many":
        return
    for line, pair in zip(lines, pairs, strict=False):
        difference = f"{100 * pair['difference']:+.2f}".replace("-0.00", "+0.00")
        assert line[1].startswith(difference)
        assert (line[2] == "-") == (pair["ci95_corrected"] is None)
        assert line[4].startswith(pair["verdict"])


def signature_of(
    *names: str, seeds: tuple[int, ...] = (0, 1, 2), **changes: Any
) -> str:
    """The signature of a table of runs."""
    right = answers(len(seeds), 0.8, 0)
    runs = [
        build_run(name, right, seeds=seeds, **({"path": name} | changes))
        for name in names
    ]
    [table] = build_tables(runs)
    return signature(table)


def test_the_same_runs_have_the_same_signature_in_any_order_and_place() -> None:
    expected = signature_of("none", "gaam")
    assert signature_of("gaam", "none") == expected
    assert signature_of("none", "gaam", path="elsewhere") == expected


def test_other_runs_have_another_signature() -> None:
    signatures = {
        signature_of("none", "gaam"),
        signature_of("none"),
        signature_of("none", "mha"),
        signature_of("none", "gaam", seeds=(0, 1, 3)),
        signature_of("none", "gaam", lr=0.5),
        signature_of("none", "gaam", cache={"fingerprint": "e" * 64}),
    }
    assert len(signatures) == 6


SOURCE = Path(__file__).parents[4] / "shared" / "published" / "results.json"


@pytest.mark.skipif(not SOURCE.exists(), reason="../shared/published is not there")
def test_nothing_that_was_published_was_mistyped() -> None:
    source = json.loads(SOURCE.read_text("utf-8"))
    datasets = json.loads(FILE.read_text("utf-8"))["datasets"]
    for name, dataset in datasets.items():
        for split in ("train", "test"):
            assert dataset[split] == source[name].get(split), name
        for mechanism, figures in dataset["mechanisms"].items():
            expected = dict(source[name][mechanism])
            assert figures["values"] == expected.pop(dataset["unit"])
            others = {
                key: value
                for key, value in figures.items()
                if key not in ("values", "code")
            }
            assert others == expected
        ranges = list(dataset["learned_ranges"].values())
        assert ranges == list(source[name]["learned_ranges"].values())


LLAMA = {"dataset": "fancyzhx/ag_news", "encoder": "meta-llama/Llama-2-13b-hf"}


def table_of_ag_news(
    attention: str, classes: list[str] = AG_NEWS, **cache: Any
) -> Table:
    run = build_run(
        attention,
        answers(2, 0.8, 1),
        cache=LLAMA | cache,
        classes=tuple(classes),
        path="x",
    )
    [table] = build_tables([run])
    return table


@pytest.mark.parametrize(
    ("attention", "mean"),
    [("gaam", "94.6"), ("gaam:heads=1", "94.5"), ("gqgaam:init=x", "94.9")],
)
def test_published_figures_stand_in_a_section_with_their_limits(
    attention: str, mean: str
) -> None:
    section = sections_by_name(table_of_ag_news(attention))["published"]
    assert section.parts[0][0].lines[0][1] == mean
    assert "optimistic" in section.lead
    assert "Llama-2-13B" in section.lines[0]


def test_published_figures_are_of_the_same_data_set_and_mechanism() -> None:
    tables = {
        "another mechanism": table_of_ag_news("laplace"),
        "another data set": table_of_ag_news("gaam", dataset="my_news"),
        "other classes": table_of_ag_news("gaam", classes=["a", "b", "c", "d"]),
    }
    for case, table in tables.items():
        assert "published" not in sections_by_name(table), case


def test_published_figures_never_stand_beside_ours() -> None:
    assert "94.6" not in str(entries_sheet(table_of_ag_news("gaam")))
