"""Encoders that read the same rows: what is paired, how sure it is, and what is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError
from gaam_cache.store.row_sketch import sketch
from gaam_decoder import RunResult, stats
from gaam_decoder.reports.report import Report, report
from gaam_decoder.reports.sections import Section
from gaam_decoder.runs.result import Validation
from gaam_decoder.stats.across import across_corrected
from tests.decoder.reports.conftest import FIT, FORMATS, answers, build_run

ENCODERS = ("bert", "gpt2", "mpnet")
ACCURACIES = {"bert": 0.7, "gpt2": 0.72, "mpnet": 0.85}
ROWS = 300
Right = NDArray[np.bool_]


def right_of(encoder: str, attention: str = "none", num_seeds: int = 6) -> Right:
    """Right answers of the seeds of a mechanism on the states of an encoder."""
    seed = 10 * ENCODERS.index(encoder) + len(attention)
    return answers(num_seeds, ACCURACIES[encoder], seed, ROWS)


def content_of(rows: str | None) -> dict[str, str]:
    """Hashes of the rows of every split."""
    return {"train": f"train {rows}", "test": f"test {rows}"}


def run_of(
    encoder: str,
    attention: str = "none",
    *,
    right: Right | None = None,
    content: str | None = "rows",
    plan: dict[str, Any] | None = None,
    **changes: Any,
) -> RunResult:
    """A run on the states of an encoder; ``content`` is the hash of the cache's rows.

    Without ``content`` the states were imported.
    """
    kind = "imported" if content is None else "text"
    plan = {
        "encoder": {"kind": kind, "name": encoder},
        "fingerprint_fields": {"content": content_of(content)},
    } | (plan or {})
    cache = {
        "encoder": encoder,
        "fingerprint": f"{encoder}{content}".ljust(64, "0"),
        "plan": plan,
    }
    if right is None:
        right = right_of(encoder, attention)
    return build_run(attention, right, cache=cache, **changes)


def probe_of(encoder: str) -> RunResult:
    """Logistic regression on the states of an encoder."""
    return run_of(encoder, right=right_of(encoder)[:1], head="lbfgs", fit=FIT)


def section_of(made: Report) -> Section:
    [section] = [s for s in made.sections_over_sets if s.name == "encoders"]
    return section


def groups_of(runs: Sequence[RunResult], **options: Any) -> list[dict[str, Any]]:
    """The compared decoders as JSON values, each with its pairs of encoders."""
    section = section_of(report(runs, pairs="encoder", **options))
    [values] = section.values["same_rows"]
    return list(values["groups"])


def test_a_pair_is_the_claim_of_its_right_answers() -> None:
    """The same claim as for two decoders of one table, for every pair of encoders."""
    runs = [run_of(encoder, name) for encoder in ENCODERS for name in ("none", "gaam")]
    groups = groups_of(runs)
    assert {group["shared"] for group in groups} == {"none + linear", "gaam + linear"}
    for group in groups:
        assert group["labels"][0] == "mpnet"
        assert len(group["pairs"]) == 3
        for pair in group["pairs"]:
            first, second = (
                right_of(pair[side], group["shared"].split()[0])
                for side in ("first", "second")
            )
            claim = stats.claim(first, second, margin=0.005)
            assert pair["difference"] == pytest.approx(claim.difference)
            assert pair["p"] == pytest.approx(claim.p)
            assert pair["ci95_seeds_and_rows"] == pytest.approx(claim.interval)
            assert pair["num_tests"] == 6  # three pairs of two mechanisms


def test_linear_probes_are_compared_over_test_rows() -> None:
    groups = groups_of([*map(probe_of, ENCODERS), run_of("bert"), run_of("mpnet")])
    by_decoder = {group["shared"]: group["pairs"] for group in groups}
    assert by_decoder.keys() == {"none + lbfgs", "none + linear"}
    [best, *_others] = by_decoder["none + lbfgs"]
    assert (best["first"], best["num_tests"]) == ("mpnet", 3)
    assert best["verdict"] == "better"
    # a head of its own is a family of its own
    assert by_decoder["none + linear"][0]["num_tests"] == 1


@pytest.mark.parametrize(("num_rows", "has_claim"), [(39, False), (40, True)])
def test_few_validation_rows_that_chose_a_penalty_allow_no_claim(
    num_rows: int, has_claim: bool
) -> None:
    runs = [probe_of("bert"), probe_of("mpnet")]
    validation = Validation(
        logits=np.zeros((1, num_rows, 3), np.float32),
        labels=np.zeros(num_rows, np.int64),
        rows=np.arange(num_rows),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunResult, "validation", validation)
        [group] = groups_of(runs)
    [pair] = group["pairs"]
    assert pair["verdict"] == ("better" if has_claim else stats.NO_CLAIM)


def test_the_best_encoder_stands_in_the_first_sentence_of_every_format() -> None:
    runs = [run_of(encoder) for encoder in ENCODERS]
    made = report(runs, pairs="encoder")
    [sentence] = section_of(made).answers
    assert sentence.startswith(
        "none + linear: the best mean accuracy is that of mpnet, 85"
    )
    assert "it is better than gpt2 and bert; mpnet minus gpt2: +1" in sentence
    for name in FORMATS:
        text = made.text(name, section="encoders")
        assert "mpnet minus gpt2" in text, name
        if name != "csv":
            assert "but for the pairs of encoders" in made.text(name) or name == "json"
    values = json.loads(made.text("json"))
    assert values["encoders"]["values"]["same_rows"][0]["encoders"] == list(ENCODERS)
    assert "over_data_sets" not in values


def test_separate_tables_name_the_option_where_it_would_compare() -> None:
    hint = "--pairs encoder compares encoders that read the same rows"
    same = [run_of("bert"), run_of("mpnet")]
    assert hint in report(same).text()
    other = [run_of("bert"), run_of("mpnet", content="other rows")]
    assert hint not in report(other).text()


def of_other_rows() -> list[RunResult]:
    return [run_of("bert"), run_of("mpnet", content="other rows")]


def of_other_labels() -> list[RunResult]:
    fewer = right_of("mpnet")[:, 1:]
    return [run_of("bert", content=None), run_of("mpnet", right=fewer, content=None)]


def of_ambiguous_rows() -> list[RunResult]:
    """Imported states whose labels are those of two different sets of rows."""
    return [
        run_of("bert"),
        run_of("mpnet", content="other rows"),
        run_of("gpt2", content=None),
    ]


def of_other_class_names() -> list[RunResult]:
    return [
        run_of("bert", content=None, classes=("neg", "pos", "so")),
        run_of("mpnet", content=None, classes=("ham", "spam", "so")),
    ]


def of_sorted_labels() -> list[RunResult]:
    """Imported states of two data sets, whose labels are sorted."""
    runs = []
    for encoder in ("bert", "mpnet"):
        run = run_of(encoder, content=None)
        object.__setattr__(run.cache, "dataset", f"data set of {encoder}")
        run.__dict__["labels"] = np.sort(run.labels)
        runs.append(run)
    return runs


def of_one_encoder() -> list[RunResult]:
    return [run_of("bert"), run_of("bert", "gaam")]


def of_other_folds() -> list[RunResult]:
    return [
        run_of("bert", fold="1/2"),
        run_of("mpnet", fold="2/2"),
    ]


NOT_SAME_ROWS: dict[str, Callable[[], list[RunResult]]] = {
    "other rows": of_other_rows,
    "other labels": of_other_labels,
    "ambiguous rows": of_ambiguous_rows,
    "one encoder": of_one_encoder,
    "other class names": of_other_class_names,
    "sorted labels": of_sorted_labels,
    "other folds": of_other_folds,
}


@pytest.mark.parametrize("case", NOT_SAME_ROWS)
def test_other_rows_are_not_paired(case: str) -> None:
    with pytest.raises(ConfigError, match="encoders that read the same rows"):
        report(NOT_SAME_ROWS[case](), pairs="encoder")


NOT_SAME_DECODER: dict[str, list[dict[str, Any]]] = {
    "epochs": [{"epochs": 3}, {"epochs": 9}],
    "selection": [{"select": "val"}, {"select": "last"}],
    "layers": [{"layers": "1-3"}, {}],
    "head": [{"head": "linear"}, {"head": "mlp"}],
    "code": [
        {"plugins": {"mechanism none": "a"}},
        {"plugins": {"mechanism none": "b"}},
    ],
}


@pytest.mark.parametrize("case", NOT_SAME_DECODER)
def test_decoders_of_other_settings_are_not_paired(case: str) -> None:
    first, second = NOT_SAME_DECODER[case]
    runs = [run_of("bert", **first), run_of("mpnet", **second)]
    with pytest.raises(ConfigError, match="no decoder has the same settings"):
        report(runs, pairs="encoder")

    # beside a decoder in common, a line says what is left out
    shared = [run_of("bert", "gaam"), run_of("mpnet", "gaam")]
    section = section_of(report([*runs, *shared], pairs="encoder"))
    [line] = [line for line in section.lines if line.startswith("not compared")]
    assert "on bert" in line
    assert "on mpnet" in line


def with_cache(run: RunResult, **values: Any) -> RunResult:
    """The run, with other values in the record of its cache."""
    for name, value in values.items():
        object.__setattr__(run.cache, name, value)
    return run


def test_options_that_follow_the_number_of_layers_do_not_part_a_mechanism() -> None:
    larger = with_cache(run_of("mpnet", "gaam:heads=4"), layers=12)
    runs = [run_of("bert", "gaam:heads=2"), larger]
    section = section_of(report(runs, pairs="encoder"))
    assert "gaam + linear is gaam:heads=4 for mpnet, gaam:heads=2 for bert" in (
        section.lines
    )
    # several forms on one encoder are several decoders
    runs.append(run_of("bert", "gaam:heads=1"))
    with pytest.raises(ConfigError, match="no decoder has the same settings"):
        report(runs, pairs="encoder")


def test_decoders_of_other_layers_are_pairs_of_their_own() -> None:
    """On few layers ``gaam`` has other heads by default than on all of them."""
    runs = [
        run_of("bert", "gaam:heads=2"),
        run_of("bert", "gaam:heads=1", layers="1-3"),
        with_cache(run_of("mpnet", "gaam:heads=4"), layers=12),
        with_cache(run_of("mpnet", "gaam:heads=1", layers="1-3"), layers=12),
    ]
    assert [len(group["pairs"]) for group in groups_of(runs)] == [1, 1]


@pytest.mark.parametrize(
    ("first", "second", "layers"),
    [
        pytest.param("mha:heads=2", "mha:heads=1", 6, id="as many layers"),
        pytest.param("gaam:heads=1", "gaam:heads=1,scale=2", 12, id="another option"),
        pytest.param("gaam:scale=1", "gaam:scale=2", 12, id="another value"),
    ],
)
def test_options_that_a_person_gave_part_a_mechanism(
    first: str, second: str, layers: int
) -> None:
    runs = [run_of("bert", first), with_cache(run_of("mpnet", second), layers=layers)]
    with pytest.raises(ConfigError, match="they differ in attn"):
        report(runs, pairs="encoder")


def test_settings_that_follow_from_the_states_do_not_part_a_decoder() -> None:
    runs = [
        run_of("bert", pool="mean", state_scale="none"),
        run_of("mpnet", pool="last", state_scale="layer"),
    ]
    section = section_of(report(runs, pairs="encoder"))
    assert "pool is mean for bert, last for mpnet" in section.lines
    # but several poolings of one cache are several decoders
    runs.append(run_of("bert", pool="last", state_scale="none"))
    [group] = groups_of(runs)
    assert len(group["pairs"]) == 1


def test_imported_states_are_paired_by_their_labels() -> None:
    runs = [run_of("bert"), run_of("mpnet", content=None)]
    section = section_of(report(runs, pairs="encoder"))
    assert any(line.startswith("imported states are paired") for line in section.lines)


def test_groups_of_any_table_are_the_unit_of_all_pairs() -> None:
    by_two = np.arange(ROWS, dtype=np.int32) // 2
    by_three = np.arange(ROWS, dtype=np.int32) // 3
    by_six = np.arange(ROWS) // 6
    runs = [
        run_of("bert", same={"equal rows": by_two}),
        run_of("mpnet", same={"equal rows": by_three}),
    ]
    section = section_of(report(runs, pairs="encoder"))
    [group] = section.values["same_rows"][0]["groups"]
    [pair] = group["pairs"]
    claim = stats.claim(
        right_of("mpnet"), right_of("bert"), margin=0.005, groups=by_six
    )
    assert pair["num_groups"] == len(np.unique(by_six))
    assert pair["p"] == pytest.approx(claim.p)
    assert any(line.startswith("rows that belong together") for line in section.lines)


def test_every_decoder_is_compared() -> None:
    names = [f"way{number}" for number in range(12)]
    runs = [run_of(encoder, name) for name in names for encoder in ENCODERS]
    assert len(groups_of(runs)) == len(names)


def test_settings_tell_two_caches_of_one_encoder_apart() -> None:
    def cache_of(pooling: str) -> RunResult:
        fields = {"content": content_of("rows"), "encoder": {"pooling": [pooling]}}
        run = run_of(
            "bert",
            plan={"fingerprint_fields": fields},
            right=right_of("bert" if pooling == "mean" else "mpnet"),
        )
        object.__setattr__(run.cache, "fingerprint", pooling.ljust(64, "0"))
        return run

    [group] = groups_of([cache_of("mean"), cache_of("last")])
    assert group["labels"] == ["bert (--pool last)", "bert (--pool mean)"]


def test_what_filters_leave_out_still_counts_in_the_correction() -> None:
    """Also an encoder of which a filter leaves no run."""
    runs = [run_of(encoder) for encoder in ENCODERS]
    runs += [run_of(encoder, "gaam") for encoder in ("bert", "mpnet")]
    [group] = groups_of(runs, attn="gaam")
    assert {pair["num_tests"] for pair in group["pairs"]} == {4}


def test_two_caches_of_one_name_have_the_names_of_their_folders() -> None:
    runs = [
        with_cache(run_of("bert", right=right_of(name)), path=f"/caches/{name}")
        for name in ("bert", "mpnet")
    ]
    for number, run in enumerate(runs):
        object.__setattr__(run.cache, "fingerprint", f"{number}" * 64)
    section = section_of(report(runs, pairs="encoder"))
    scores = section.parts.sheets[0]
    assert scores.header == ["decoder", "bert in 'bert'", "bert in 'mpnet'"]
    assert scores.lines[0][1] < scores.lines[0][2]


def test_a_further_split_of_one_cache_does_not_count() -> None:
    runs = [run_of("bert"), run_of("mpnet")]
    plan = runs[1].cache.plan
    assert plan is not None
    plan["fingerprint_fields"]["content"]["extra"] = "more rows"
    runs[1].cache.rows["extra"] = 7
    assert len(groups_of(runs)) == 1


def warning_of(*runs: RunResult) -> str:
    """The first note below the pairs."""
    return section_of(report(list(runs), pairs="encoder")).lines[0]


def test_what_makes_a_pair_doubtful_stands_first() -> None:
    few = run_of("mpnet", right=right_of("mpnet", num_seeds=4))
    assert "over the seeds that both encoders have" in warning_of(run_of("bert"), few)
    chosen = [run_of(name, select="test") for name in ("bert", "mpnet")]
    assert "do not quote it" in warning_of(*chosen)
    probes = section_of(report([*map(probe_of, ENCODERS)], pairs="encoder"))
    assert any("chose the penalty" in line for line in probes.lines)


def test_tables_of_other_rows_are_named() -> None:
    runs = [run_of("bert"), run_of("mpnet"), run_of("gpt2", content="other rows")]
    lines = section_of(report(runs, pairs="encoder")).lines
    [line] = [line for line in lines if line.startswith("no other encoder has")]
    assert "through gpt2" in line


def runs_of_set(
    number: int, encoders: Sequence[str] = ENCODERS, **changes: Any
) -> list[RunResult]:
    """Runs of encoders on a data set with rows of its own."""
    runs = []
    for encoder in encoders:
        right = right_of(encoder, "none" + number * "x")[:, number:]
        run = run_of(encoder, right=right, content=f"rows {number}", **changes)
        object.__setattr__(run.cache, "dataset", f"set{number}")
        runs.append(run)
    return runs


def test_without_a_common_decoder_several_data_sets_have_a_sentence_each() -> None:
    runs = [*runs_of_set(0, epochs=3), *runs_of_set(1, head="mlp")]
    section = section_of(report(runs, pairs="encoder"))
    assert [answer[:6] for answer in section.answers] == ["set0, ", "set1, "]
    corrected_for = [values["corrected_for"] for values in section.values["same_rows"]]
    assert corrected_for == [{"linear": 3}, {"mlp": 3}]
    assert "over_data_sets" not in section.values


def test_over_data_sets_the_differences_are_combined_as_those_of_decoders() -> None:
    """The same mean as from the claims of every data set."""
    runs = [run for number in range(6) for run in runs_of_set(number)]
    section = section_of(report(runs, pairs="encoder"))
    answers = {
        (answer["first"], answer["second"]): answer
        for answer in section.values["over_data_sets"]
    }
    assert answers.keys() == {("mpnet", "gpt2"), ("mpnet", "bert"), ("gpt2", "bert")}
    references = []
    for first, second in answers:
        claims = {}
        for number in range(6):
            right = [
                right_of(encoder, "none" + number * "x")[:, number:]
                for encoder in (first, second)
            ]
            claims[f"set{number}"] = stats.claim(*right, margin=0.005)
        references.append(stats.across(claims, margin=0.005))
    corrected = across_corrected(references)
    for answer, reference in zip(answers.values(), corrected, strict=True):
        assert answer["difference"] == pytest.approx(reference.difference)
        assert answer["ci95"] == pytest.approx(reference.interval)
        assert answer["ci95_another_data_set"] == pytest.approx(reference.prediction)
        assert answer["p_holm"] == pytest.approx(reference.p_holm)
        assert answer["verdict"] == reference.verdict
    [sentence] = section.answers
    assert sentence.startswith("over 6 data sets, none + linear: mpnet is better than ")
    made = report(runs, pairs="encoder")
    by_set = made.text(section="encoders-sets")
    assert all(f"set{number}" in by_set for number in range(6))


def test_two_names_of_the_same_rows_are_one_data_set() -> None:
    """Another column of labels makes no other data set."""
    rows = sketch({hashlib.sha256(str(row).encode()).digest() for row in range(200)})
    runs = [run for number in range(3) for run in runs_of_set(number)]
    for run in runs[:6]:
        assert run.cache.plan is not None
        run.cache.plan["dataset"] = {"row_sketches": {"test": rows}}
    section = section_of(report(runs, pairs="encoder"))
    for answer in section.values["over_data_sets"]:
        assert len(answer["data_sets"]) == 2
    [sentence] = section.answers
    assert sentence.startswith(
        "over 2 data sets, none + linear has no verdict, which takes 5 data sets: "
        "mpnet minus gpt2: +"
    )
    assert any("share about 100% of the rows" in line for line in section.lines)


def test_few_seeds_and_other_settings_are_said_over_data_sets() -> None:
    runs = [run for number in range(3) for run in runs_of_set(number)]
    few = [
        run_of(encoder, right=right_of(encoder)[:4, :200], content="few")
        for encoder in ENCODERS
    ]
    for run in few:
        object.__setattr__(run.cache, "dataset", "few")
    section = section_of(report([*runs, *few], pairs="encoder"))
    for answer in section.values["over_data_sets"]:
        assert answer["missing"] == {"few": "fewer than 6 seeds"}
        assert answer["verdict"] == stats.NO_CLAIM
    assert "few does not count for every pair: fewer than 6 seeds" in section.lines


def test_a_pair_without_a_mean_difference_is_named_over_data_sets() -> None:
    runs = [run for number in range(2) for run in runs_of_set(number)]
    # of another decoder, one data set counts
    runs += runs_of_set(0, ENCODERS[:2], head="mlp")
    section = section_of(report(runs, pairs="encoder"))
    assert section.values["over_data_sets"]
    [line] = [line for line in section.lines if line.startswith("none + mlp")]
    assert line.endswith("no mean difference, data sets that count: 1")
