"""The answer over many data sets: its numbers, its words, and what it leaves out."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from gaam_cache.common.errors import ConfigError
from gaam_cache.store.row_sketch import sketch
from gaam_decoder import RunResult
from gaam_decoder.reports.cells import Cell
from gaam_decoder.reports.report import Report, report
from gaam_decoder.reports.sections import Section
from gaam_decoder.reports.set_tables import choose_tables
from tests.decoder.reports.conftest import FIT, FORMATS, answers, build_run

GAINS = (0.09, -0.05, 0.12, 0.02, 0.07, 0.15)
"""Gain of laplace on every data set: they differ by more than their errors."""
ENCODERS = ("bert", "gpt2")


def run_of(
    number: int,
    encoder: str,
    attention: str,
    num_rows: int = 0,
    num_seeds: int = 6,
    data_set: str = "",
    cache_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> RunResult:
    """A run of a decoder on a data set: every set has its own number of test rows."""
    num_rows = num_rows or 150 + number
    gains = {"laplace": GAINS[number], "gaam": 0.01}
    # encoders see the same rows
    seed = 10 * number + len(attention) + 100 * ENCODERS.index(encoder)
    right = answers(num_seeds, 0.7 + gains.get(attention, 0), seed, num_rows)
    cache_values = {
        "dataset": data_set or f"set{number}",
        "encoder": encoder,
        "fingerprint": f"{number}{encoder}{num_rows}".ljust(64, "0"),
        "rows": {"train": 4000, "test": num_rows},
    }
    cache_values |= cache_changes or {}
    return build_run(attention, right, cache=cache_values, **changes)


@cache
def runs_of(encoder: str, attention: str, sets: int = 6) -> tuple[RunResult, ...]:
    return tuple(run_of(number, encoder, attention) for number in range(sets))


def all_runs(sets: int = 6, encoders: Sequence[str] = ENCODERS) -> list[RunResult]:
    return [
        run
        for encoder in encoders
        for attention in ("laplace", "gaam", "none")
        for run in runs_of(encoder, attention)[:sets]
    ]


@cache
def whole_report() -> Report:
    return report(all_runs())


def made_of(runs: Sequence[RunResult], **options: Any) -> Section:
    """The section with the answer."""
    return report(runs, **options).sections_over_sets[0]


def decoder_of(section: Section, name: str = "laplace") -> dict[str, Any]:
    """The JSON values of a decoder in the first answer."""
    (decoder,) = [
        decoder
        for decoder in section.values["answers"][0]["decoders"]
        if decoder["decoder"] == name
    ]
    return dict(decoder)


def test_the_mean_is_that_of_statsmodels_from_the_differences_of_single_tables() -> (
    None
):
    """Differences come from the table of each data set."""
    meta_analysis = pytest.importorskip("statsmodels.stats.meta_analysis")
    made = report(all_runs(encoders=["bert"]))
    content = json.loads(made.text("json"))
    tables = [content, *content["other_caches"]]
    claims = [
        entry["comparison"]
        for table in tables
        for entry in table["entries"]
        if entry["attention"] == "laplace"
    ]
    found = decoder_of(made.sections_over_sets[0])
    sets = found["data_sets"]
    assert [entry["difference"] for entry in sets] == [
        claim["difference"] for claim in claims
    ]
    # test rows that hardly differ make a standard error larger
    for entry, claim in zip(sets, claims, strict=True):
        assert entry["std_error"] >= claim["std_error"]
    reference = meta_analysis.combine_effects(
        np.array([entry["difference"] for entry in sets]),
        np.array([entry["std_error"] ** 2 for entry in sets]),
        method_re="iterated",
        use_t=True,
        atol=1e-12,
        maxiter=500,
    )
    answer = content["over_data_sets"]["across"]["values"]["answers"][0]
    assert found["difference"] in [
        decoder["difference"] for decoder in answer["decoders"]
    ]
    assert found["difference"] == pytest.approx(reference.mean_effect_re, abs=1e-7)
    assert found["std_between_data_sets"] ** 2 == pytest.approx(reference.tau2)
    assert found["std_error"] == pytest.approx(reference.sd_eff_w_re_hksj, rel=1e-5)


def test_tables_are_in_the_order_of_data_sets_and_encoders() -> None:
    tables = report(all_runs()[::-1]).tables
    names = [(table.cache.dataset, table.cache.encoder) for table in tables]
    assert names == sorted(names)
    assert len(names) == len(GAINS) * len(ENCODERS)


def test_a_data_set_with_all_its_encoders_counts_once() -> None:
    decoder = decoder_of(whole_report().sections_over_sets[0])
    assert len(decoder["data_sets"]) == len(GAINS)
    for entry in decoder["data_sets"]:
        differences = [
            table["difference"]
            for table in decoder["tables"]
            if table["data_set"] == entry["data_set"]
        ]
        assert len(differences) == len(ENCODERS)
        assert entry["difference"] == pytest.approx(np.mean(differences))


def test_one_factor_gives_an_answer_for_each_encoder() -> None:
    each = made_of(all_runs(), across="dataset").values["answers"]
    assert [answer["encoders"] for answer in each] == [[name] for name in ENCODERS]
    alone = made_of(all_runs(encoders=["gpt2"])).values["answers"]
    assert each[1]["decoders"] == alone[0]["decoders"]


def test_mean_ranks_are_those_of_scipy() -> None:
    section = whole_report().sections_over_sets[0]
    ranks = []
    for table in whole_report().tables:
        mean = {
            entry.attention: entry.default_score.mean or 0.0 for entry in table.entries
        }
        names = ("laplace", "gaam", "none")
        ranks.append(rankdata([-round(mean[name], 12) for name in names]))
    laplace, gaam, none = np.mean(ranks, axis=0)
    assert decoder_of(section)["mean_rank"] == pytest.approx(laplace)
    assert decoder_of(section, "gaam")["mean_rank"] == pytest.approx(gaam)
    assert section.values["answers"][0]["baseline_mean_rank"] == pytest.approx(none)


@pytest.mark.parametrize("report_format", sorted({*FORMATS} - {"csv"}))
@pytest.mark.usefixtures("undrawn")
def test_every_format_begins_with_the_answer(report_format: str) -> None:
    sentence = whole_report().sections_over_sets[0].lead
    assert sentence.startswith("Over 6 data sets and 2 encoders ")
    text = whole_report().text(report_format)
    escaped = sentence
    if report_format == "html":
        escaped = sentence.replace("'", "&#x27;")
    elif report_format == "latex":
        escaped = sentence.replace("%", r"\%")
    assert escaped in text
    if report_format != "json":
        first_table = 'id="t1"' if report_format == "html" else "set0 ("
        assert text.index(escaped) < text.index(first_table)


@pytest.mark.parametrize("report_format", FORMATS)
@pytest.mark.usefixtures("undrawn")
def test_every_format_writes_a_section_over_data_sets_alone(report_format: str) -> None:
    text = whole_report().text(report_format, section="across-sets")
    assert "set5" in text
    # the title of a table
    assert "set5 (" not in text


def test_a_table_has_the_score_of_every_decoder_on_every_data_set() -> None:
    whole = whole_report()
    (section,) = [s for s in whole.sections_over_sets if s.name == "across-scores"]
    sheets, _ = section.parts
    for encoder, sheet in zip(ENCODERS, sheets, strict=True):
        data_sets = [f"set{number}" for number in range(6)]
        assert sheet.header == ["decoder", *data_sets, "mean"]
        assert [line[0] for line in sheet.lines] == ["none", "laplace", "gaam"]
        for name, *cells in sheet.lines:
            runs = [run_of(number, encoder, name) for number in range(6)]
            means = [100 * (run.predictions == run.labels).mean() for run in runs]
            expected = [f"{mean:.1f}" for mean in [*means, np.mean(means)]]
            assert [cell.rstrip("*") for cell in cells] == expected
    # in the table of its data set laplace is better, and the score has a star
    starred = sheets[0].lines[1][1]
    assert isinstance(starred, Cell)
    assert starred.endswith("*")
    assert "better" in starred.parts.values()


def test_csv_tells_data_sets_with_alike_names_apart() -> None:
    """Subsets of a data set differ in brackets alone; a name may be that of a column."""
    names = ["glue (sst2)", "glue (mrpc)", "mean"]
    runs = [
        run_of(number, "bert", attention, data_set=name)
        for number, name in enumerate(names)
        for attention in ("laplace", "gaam", "none")
    ]
    text = report(runs).text("csv", section="across-scores")
    for line in csv.DictReader(io.StringIO(text)):
        for number, name in enumerate(names):
            run = run_of(number, "bert", line["decoder"])
            mean = 100 * (run.predictions == run.labels).mean()
            assert float(line[name]) == pytest.approx(mean, abs=0.06)
            has_verdict = line["decoder"] != "none"
            assert bool(line[f"{name} verdict"]) == has_verdict
        assert float(line["mean 2"]) > 0


def test_the_first_picture_has_a_row_for_each_decoder_and_a_dot_for_each_table() -> (
    None
):
    _, pictures = whole_report().sections_over_sets[0].parts
    (axes,) = pictures[0].draw().axes
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == ["laplace", "gaam"]
    for encoder in ENCODERS:
        lines = [line for line in axes.get_lines() if line.get_label() == encoder]
        assert [np.size(line.get_xdata()) for line in lines] == [6, 6]


def test_a_forest_plot_has_a_row_for_each_data_set_and_a_column_for_each_encoder() -> (
    None
):
    _, pictures = whole_report().sections_over_sets[0].parts
    figure = pictures[1].draw()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [*ENCODERS, "all encoders"]
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == [*(f"set{number}" for number in range(6)), "mean"]


@pytest.mark.parametrize(("width", "has_p"), [("80", False), ("130", True)])
def test_a_narrow_screen_keeps_verdict_and_intervals(
    width: str, has_p: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    text = whole_report().text("terminal")
    (header,) = [line for line in text.splitlines() if "another data set  " in line]
    assert "verdict" in header
    assert "uncorrected 95% CI" in header
    assert ("p Holm" in header) is has_p
    assert max(map(len, header.splitlines())) <= int(width)


def test_fewer_than_five_data_sets_have_estimates_and_no_verdict() -> None:
    section = made_of(all_runs(sets=4, encoders=["bert"]))
    decoder = decoder_of(section)
    assert decoder["verdict"] == "no claim"
    assert decoder["ci95"] is not None
    assert "no verdict, which takes 5" in section.lead


def with_few_seeds(numbers: Sequence[int], sets: int = 6) -> list[RunResult]:
    """Runs of one encoder, with five seeds on some data sets."""
    return [
        run_of(number, "bert", attention, num_seeds=5 if number in numbers else 6)
        for number in range(sets)
        for attention in ("laplace", "none")
    ]


def test_a_data_set_with_five_seeds_is_in_no_mean_and_is_named() -> None:
    section = made_of(with_few_seeds([1]))
    decoder = decoder_of(section)
    counted = [entry["data_set"] for entry in decoder["data_sets"]]
    assert counted == ["set0", "set2", "set3", "set4", "set5"]
    assert decoder["verdict"] != "no claim"
    assert "fewer than 6 seeds, so left out: set1 through bert" in section.lines
    assert section.lead.startswith("Over 5 data sets through bert ")


def test_below_five_data_sets_with_six_seeds_there_is_no_verdict() -> None:
    section = made_of(with_few_seeds([1, 2]))
    decoder = decoder_of(section)
    assert len(decoder["data_sets"]) == 4
    assert decoder["verdict"] == "no claim"
    assert decoder["ci95"] is not None


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("report_format", FORMATS)
def test_a_report_of_few_seeds_alone_says_so(report_format: str) -> None:
    made = report(with_few_seeds(range(6)))
    section = made.sections_over_sets[0]
    assert section.lead == (
        "Over 6 data sets through bert there is no mean difference: every table has "
        "fewer than 6 seeds"
    )
    assert section.values["answers"][0]["decoders"] == []
    if report_format != "csv":
        assert section.lead in made.text(report_format)


def test_a_decoder_with_few_seeds_lacks_a_data_set_that_others_have() -> None:
    runs = [run for run in all_runs() if run not in runs_of("gpt2", "gaam")[2:3]]
    section = made_of([*runs, run_of(2, "gpt2", "gaam", num_seeds=5)])
    assert "gaam is without set2 (fewer than 6 seeds on gpt2)" in section.lines
    assert len(decoder_of(section, "gaam")["data_sets"]) == 5
    assert len(decoder_of(section, "laplace")["data_sets"]) == 6


@pytest.mark.parametrize(
    ("sets", "baseline", "kinds"),
    [
        pytest.param(4, "none", [["laplace", "gaam"]], id="without verdict"),
        pytest.param(6, "none", [["laplace", "gaam"]], id="with verdict"),
        pytest.param(
            6, "gaam", [["laplace"], ["none"]], id="densities apart from others"
        ),
    ],
)
def test_the_sentence_says_the_largest_differences_that_remain_possible(
    sets: int, baseline: str, kinds: list[list[str]]
) -> None:
    section = made_of(all_runs(sets=sets), baseline=baseline)
    clauses = []
    for names in kinds:
        ends = [
            100 * end for name in names for end in decoder_of(section, name)["ci95"]
        ]
        verb = "each uncorrected 95% interval lies within"
        if len(names) == 1:
            verb = "the uncorrected 95% interval is"
        clauses.append(f"{verb} {min(ends):+.2f} to {max(ends):+.2f} points")
    parts = section.lead.replace(". Apart from densities, ", "; ").split("; ")
    assert [part for part in parts if "95%" in part] == [
        *clauses[:-1],
        f"{clauses[-1]} (not tuned)",
    ]
    begins_with_density = "encoders no other density is shown to differ from 'gaam'"
    assert (begins_with_density in section.lead) == (len(kinds) > 1)


def with_option(numbers: Sequence[int], **changes: Any) -> list[RunResult]:
    """Runs of bert, in which laplace of some data sets has other settings."""
    others = [run_of(number, "bert", "laplace", **changes) for number in numbers]
    kept = [
        run
        for run in all_runs(encoders=["bert"])
        if run.attention != "laplace"
        or run.cache.dataset not in {other.cache.dataset for other in others}
    ]
    return [*kept, *others]


def test_two_codes_of_one_mechanism_are_two_decoders_in_every_table() -> None:
    """Also where each table has one of them: no score decides which is meant."""
    code = {"mechanism laplace": "mine.py 0123"}
    other_code = {"mechanism laplace": "mine.py 4567"}
    runs = [
        *with_option([0, 2, 4], plugins=code),
        *(run_of(number, "bert", "laplace", plugins=other_code) for number in (1, 2)),
    ]
    runs = [
        run for run in runs if run.attention != "laplace" or "plugins" in run.settings
    ]
    section = made_of(runs)
    names = {decoder["decoder"] for decoder in section.values["answers"][0]["decoders"]}
    assert names == {"gaam", "laplace mine.py 0123", "laplace mine.py 4567"}


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        pytest.param(
            with_option([3], failed={5: "loss nan"}, num_seeds=7),
            "failed seeds, which count in no mean: 1 of laplace in set3 through bert",
            id="a failed seed",
        ),
        pytest.param(
            [
                *all_runs(encoders=["bert"])[:6],
                *(
                    run_of(number, "bert", "gaam:heads=2" if number else "gaam:heads=1")
                    for number in range(6)
                ),
                *runs_of("bert", "none"),
            ],
            "gaam is gaam:heads=2 in most tables, and gaam:heads=1 in set0 through bert",
            id="other options",
        ),
    ],
)
def test_what_differs_between_tables_is_said(
    runs: list[RunResult], sentence: str
) -> None:
    assert sentence in made_of(runs).lines


def test_scores_that_do_not_count_are_in_no_mean_and_no_rank() -> None:
    """gaam has five seeds on one data set: its mean would be that of other sets."""
    runs = [run for run in all_runs(encoders=["bert"]) if run.attention != "gaam"]
    runs += [
        run_of(number, "bert", "gaam", num_seeds=6 if number else 5)
        for number in range(6)
    ]
    section = made_of(runs)
    assert decoder_of(section, "gaam")["mean"] is None
    assert decoder_of(section, "laplace")["mean"] is not None
    assert section.values["answers"][0]["data_sets_ranked"] == 5


def test_of_equal_sets_of_rows_with_one_name_none_counts() -> None:
    """The order of folders would decide which."""
    other_rows = {
        "fingerprint": "f" * 64,
        "path": "other",
        "rows": {"train": 3000, "test": 152},
    }
    others = [
        run_of(2, "bert", name, cache_changes=other_rows)
        for name in ("laplace", "none")
    ]
    section = made_of([*all_runs(encoders=["bert"]), *others])
    [line] = [line for line in section.lines if "and none counts" in line]
    assert line.startswith("set2 is the name of several sets of rows")
    assert len(decoder_of(section)["data_sets"]) == 5


def sketch_of(*parts: int) -> dict[str, Any]:
    """What a plan records of rows: forty of each part, whatever their labels."""
    digests = [
        hashlib.blake2b(b"%d %d" % (part, row), digest_size=16).digest()
        for part in parts
        for row in range(40)
    ]
    return {"dataset": {"row_sketches": {"test": sketch(digests)}}}


def runs_with_sketches(
    parts_by_set: Sequence[Sequence[int]], **changes: Any
) -> list[RunResult]:
    """Runs on data sets that have these parts of all rows."""
    return [
        run_of(
            number,
            "bert",
            name,
            cache_changes={
                "plan": sketch_of(*parts),
                "rows": {"train": 20 * len(parts) + 1, "test": 20 * len(parts)},
            },
            **changes,
        )
        for number, parts in enumerate(parts_by_set)
        for name in ("laplace", "none")
    ]


@pytest.mark.parametrize(
    ("parts_by_set", "counted"),
    [
        pytest.param([[0], [1], [2]], "set0 set1 set2", id="own rows"),
        # the set with most test rows counts: set2
        pytest.param([[0], [1], [1]], "set0 set2", id="two label columns"),
        pytest.param([[0], [0], [0]], "set2", id="three label columns"),
        pytest.param([[0, 1], [1, 2], [3]], "set1 set2", id="half of the rows"),
        pytest.param(
            [[0, 1, 2], [2, 3, 4], [5]], "set0 set1 set2", id="a third of the rows"
        ),
        pytest.param([[0, 1, 2, 3], [3], [4]], "set1 set2", id="a part of the rows"),
        pytest.param([[], [], []], "set0 set1 set2", id="caches without sketches"),
    ],
)
def test_data_sets_that_share_most_of_their_rows_count_as_one(
    parts_by_set: Sequence[Sequence[int]], counted: str
) -> None:
    chosen = choose_tables(report(runs_with_sketches(parts_by_set)).tables)
    sentences = chosen.common_rows
    assert sorted({named.data_set for named in chosen.tables}) == counted.split()
    left_out = {f"set{number}" for number in range(3)} - set(counted.split())
    assert {sentence.split()[0] for sentence in sentences} == left_out
    for sentence in sentences:
        assert re.search(r"and set\d share about \d+% of the rows of", sentence)


def test_data_sets_that_share_some_rows_count_and_a_sentence_says_so() -> None:
    section = made_of(runs_with_sketches([[0, 1, 2], [2, 3, 4], [5]]))
    [line] = [line for line in section.lines if "less independent" in line]
    # a third, estimated from 128 rows
    assert re.match(r"set0 and set1 share about 3\d% of the rows of the smaller", line)
    assert len(decoder_of(section)["data_sets"]) == 3


def test_where_common_rows_leave_one_data_set_the_report_says_so() -> None:
    """Its caches are imported; no name that a person gives them would help."""
    runs = runs_with_sketches([[0], [0]])
    [section] = report(runs).sections_over_sets
    assert section.lead.startswith(
        "There is no answer over data sets: set0 and set1 share about 100% of the rows"
    )
    assert section.lines == []
    with pytest.raises(ConfigError, match="several data sets") as error:
        report(runs, across="dataset")
    assert "share about 100%" in error.value.details["found"]


def test_of_data_sets_with_shared_rows_that_which_most_encoders_read_counts() -> None:
    runs = runs_with_sketches([[0], [1], [1]])
    changes = {"plan": sketch_of(1), "rows": {"train": 21, "test": 20}}
    runs += [
        run_of(1, "gpt2", name, cache_changes=changes) for name in ("laplace", "none")
    ]
    chosen = choose_tables(report(runs).tables)
    [sentence] = chosen.common_rows
    assert {named.data_set for named in chosen.tables} == {"set0", "set1"}
    assert sentence.startswith("set2 and set1 share about 100% of the rows")


def test_a_loss_is_better_where_it_is_smaller() -> None:
    """Signs are those of the score, as in the tables."""
    section = made_of(all_runs(encoders=["bert"]), score="log-loss")
    decoder = decoder_of(section)
    tables = [entry["difference"] for entry in decoder["tables"]]
    sets = [entry["difference"] for entry in decoder["data_sets"]]
    assert sets == pytest.approx(tables)
    assert decoder["difference"] < 0
    low, high = decoder["ci95"]
    assert low < decoder["difference"] < high


def without(number: int, encoder: str, *attentions: str) -> list[RunResult]:
    """All runs without some of one data set and encoder."""
    dataset = f"set{number}"
    return [
        run
        for run in all_runs()
        if (run.cache.dataset, run.cache.encoder) != (dataset, encoder)
        or run.attention not in attentions
    ]


@pytest.mark.parametrize(
    ("runs", "sentence", "num_sets"),
    [
        pytest.param(
            without(2, "gpt2", "laplace"),
            "laplace is without set2 (not trained on gpt2)",
            5,
            id="a missing decoder",
        ),
        pytest.param(
            without(2, "gpt2", "laplace", "gaam", "none"),
            "set2 is left out: it has no results of gpt2 that count",
            5,
            id="a missing table",
        ),
        pytest.param(
            without(2, "gpt2", "none"),
            "no 'none' of the same recipe with a score to compare with, so left out: "
            "set2 (4,000 train + 152 test rows) through gpt2",
            5,
            id="a missing baseline",
        ),
        pytest.param(
            [
                *all_runs(),
                *(run_of(2, "bert", name, 99) for name in ("laplace", "none")),
            ],
            "set2 has several sets of rows: test split 'test' of 4,000 train + 152 "
            "test rows in 'cache' count; left out: test split 'test' of 4,000 train + "
            "99 test rows in 'cache'",
            6,
            id="other rows",
        ),
        pytest.param(
            [
                *all_runs(),
                *(run_of(2, "bert", name, head="mlp") for name in ("laplace", "none")),
            ],
            "decoders of other heads are left out: mlp (1)",
            6,
            id="another head",
        ),
        pytest.param(
            [
                *without(2, "bert", "laplace", "none", "gaam"),
                *(run_of(2, "bert", name, epochs=9) for name in ("laplace", "none")),
            ],
            "otherwise than most: set2 through bert: epochs=9",
            6,
            id="other training",
        ),
    ],
)
def test_what_does_not_count_is_said_by_name(
    runs: list[RunResult], sentence: str, num_sets: int
) -> None:
    section = made_of(runs)
    assert sentence in " | ".join(section.lines)
    assert len(decoder_of(section)["data_sets"]) == num_sets


def test_filters_make_no_p_smaller() -> None:
    """Holm corrects for the mechanisms that a person left out."""
    whole = decoder_of(whole_report().sections_over_sets[0])
    filtered = decoder_of(made_of(all_runs(), attn=["laplace", "none"]))
    assert filtered["p"] == pytest.approx(whole["p"])
    assert filtered["p_holm"] == pytest.approx(2 * whole["p"])


def probes_of(accuracy: float, sets: int = 6) -> list[RunResult]:
    """A linear probe on the rows of every data set, through the first encoder."""
    probes = []
    for number in range(sets):
        [like] = [
            run
            for run in runs_of(ENCODERS[0], "none")
            if run.cache.dataset == f"set{number}"
        ]
        right = answers(1, accuracy, 900 + number, len(like.labels))
        probes.append(
            build_run(
                "none",
                right,
                head="lbfgs",
                fit=FIT,
                cache={
                    "dataset": like.cache.dataset,
                    "encoder": like.cache.encoder,
                    "fingerprint": like.cache.fingerprint,
                    "rows": dict(like.cache.rows),
                },
            )
        )
    return probes


def against_probe(section: Section) -> dict[str, dict[str, Any]]:
    """The JSON values of every decoder beside the linear probe, by its name."""
    [answer] = section.values["against_probe"]
    return {decoder["decoder"]: decoder for decoder in answer["decoders"]}


def test_the_probe_is_compared_over_data_sets_with_decoders_and_the_baseline() -> None:
    runs = all_runs(encoders=ENCODERS[:1]) + probes_of(0.95)
    made = report(runs)
    content = json.loads(made.text("json"))
    section = made.sections_over_sets[0]
    decoders = against_probe(section)
    assert decoders.keys() == {"laplace", "gaam", "none"}
    for name, decoder in decoders.items():
        assert decoder["verdict"] == "worse"
        # from the comparisons of the single tables
        differences = [
            entry["against_probe"]["difference"]
            for table in [content, *content["other_caches"]]
            for entry in table["entries"]
            if entry["attention"] == name and entry["against_probe"]
        ]
        found = [data_set["difference"] for data_set in decoder["data_sets"]]
        assert found == pytest.approx(differences)
        assert min(found) <= decoder["difference"] <= max(found)
        # Holm corrects for all three
        assert decoder["p"] <= decoder["p_holm"] <= 3 * decoder["p"] + 1e-12
    first, second = section.answers
    assert first.startswith(
        "Compared with logistic regression (none + lbfgs) on the same states, over 6 "
        "data sets through bert: "
    )
    assert "'none' are worse (mean differences of -" in first
    assert second.startswith("Over 6 data sets through bert ")


def test_filters_make_no_p_beside_the_probe_smaller() -> None:
    """Also where a table has several baselines, one for each rate."""
    runs = all_runs(encoders=ENCODERS[:1]) + probes_of(0.72)
    for number in range(6):
        runs += [run_of(number, "bert", name, lr=0.5) for name in ("none", "gaam")]
    whole = against_probe(made_of(runs))
    filtered = against_probe(made_of(runs, attn=["none", "gaam"]))
    assert len(whole) == 5
    smallest = min(whole.values(), key=lambda decoder: decoder["p"])
    assert smallest["p_holm"] == pytest.approx(5 * smallest["p"])
    for name, decoder in filtered.items():
        assert decoder["p"] == pytest.approx(whole[name]["p"])
        assert decoder["p_holm"] >= whole[name]["p_holm"] - 1e-12


def test_a_probe_that_does_not_beat_all_decoders_stands_second() -> None:
    section = made_of(all_runs(encoders=ENCODERS[:1]) + probes_of(0.72))
    first, second = section.answers
    assert first.startswith("Over 6 data sets")
    assert second.startswith("Compared with logistic regression")


def test_a_section_has_every_difference_to_the_probe() -> None:
    made = report(all_runs(encoders=ENCODERS[:1]) + probes_of(0.95, sets=5))
    values = against_probe(made.sections_over_sets[0])
    table = list(csv.DictReader(io.StringIO(made.text("csv", section="across-probe"))))
    assert {line["decoder"] for line in table} == values.keys()
    for line in table:
        assert line["verdict"] == values[line["decoder"]]["verdict"] == "worse"
        assert line["sets"] == "5"
    # the data set without a probe is named
    assert "set5 through bert" in made.text(section="across-probe")


def test_the_sentence_on_the_probe_names_another_score() -> None:
    runs = all_runs(encoders=ENCODERS[:1]) + probes_of(0.95)
    section = made_of(runs, score="log-loss")
    [sentence] = [text for text in section.answers if text.startswith("Compared")]
    assert " on the same states by log loss, over " in sentence


def test_without_probes_nothing_is_said_of_them() -> None:
    section = made_of(all_runs(encoders=ENCODERS[:1]))
    assert section.values["against_probe"] == []
    assert len(section.answers) == 1


def test_data_sets_without_a_probe_are_not_among_its_own() -> None:
    runs = all_runs() + probes_of(0.95, sets=5)
    [answer] = made_of(runs).values["against_probe"]
    assert answer["data_sets"] == [f"set{number}" for number in range(5)]
    assert answer["encoders"] == [ENCODERS[0]]


@pytest.mark.parametrize("factors", ["encoder", "rows", ""])
def test_other_factors_are_refused(factors: str) -> None:
    with pytest.raises(ConfigError, match="--across names the factors"):
        report(all_runs(sets=2), across=factors)


def test_one_data_set_has_no_answer_over_data_sets() -> None:
    assert report(all_runs(sets=1)).sections_over_sets == ()
    with pytest.raises(ConfigError, match="--across needs several data sets"):
        report(all_runs(sets=1), across="dataset")


@pytest.mark.parametrize(
    ("mechanisms", "head", "to_do"),
    [
        pytest.param(["none"], "linear", "train other mechanisms", id="only baseline"),
        pytest.param(["gaam", "mha"], "linear", "train --attn none", id="no baseline"),
        pytest.param(["gaam", "none"], "mlp", "with the head", id="another head"),
    ],
)
def test_across_says_why_nothing_is_compared(
    mechanisms: list[str], head: str, to_do: str
) -> None:
    runs = []
    for number in range(2):
        runs += [run_of(number, "bert", name) for name in mechanisms[1:]]
        runs.append(run_of(number, "bert", mechanisms[0], head=head))
    with pytest.raises(ConfigError, match="there is nothing to compare") as error:
        report(runs, across="dataset")
    assert to_do in error.value.details["to do"]
    names = error.value.details["found"].removeprefix("runs of ").split(", ")
    assert sorted(names) == [f"'{name}'" for name in mechanisms]


def test_learned_parameters_and_layers_are_summed_up_by_encoder() -> None:
    runs = []
    for number in range(2):
        for encoder in ENCODERS:
            b_SHD = np.full((6, 1, 8), 0.5 + number, np.float32)
            map_SLD = np.ones((6, 6, 8), np.float32)
            map_SLD[:, 4] = 3
            runs += [
                run_of(
                    number,
                    encoder,
                    "laplace",
                    attention_map=map_SLD,
                    learned={"b": b_SHD},
                ),
                run_of(number, encoder, "none"),
            ]
    made = report(runs)
    (section,) = [
        part for part in made.sections_over_sets if part.name == "across-learned"
    ]
    (parameters, layers), _ = section.parts
    assert parameters.lines[0][:4] == ["bert", "laplace", "b", "2"]
    assert parameters.lines[0][5:] == ["0.5", "0.5 to 1.5", "1.5"]
    assert layers.lines[1][:3] == ["gpt2", "laplace", "2"]
    assert layers.lines[1][3].startswith("5 (37.5%)")
    assert layers.lines[1][5] == "2 of 2"
