"""Tables of caches with one title say what differs, only that, in every format."""

from __future__ import annotations

import copy
import re
from typing import Any, NamedTuple

import pytest

import gaam_decoder
from gaam_cache.store.files import fingerprint
from gaam_decoder import RunResult
from tests.decoder.reports.conftest import FORMATS, answers, build_run, words_of

PLAN: dict[str, Any] = {
    "encoder": {"kind": "text", "name": "an-encoder", "revision": None, "path": None},
    "dataset": {
        "name": "a-dataset",
        "text_columns": [],
        "label_column": "label",
        "limit": None,
    },
    "fingerprint_fields": {
        "format_version": 1,
        "encoder": {
            "files": {"config.json": "a" * 64, "model.safetensors": "b" * 64},
            "dtype": "float32",
            "max_length": 512,
            "special_tokens": True,
            "pooling": ["mean"],
            "layers": "transformers.hidden_states[1:]",
        },
        "storage_dtype": "float16",
        "class_names": ["a", "b", "c"],
        "rows": {"train": 4000, "test": 400},
        "content": {"train": "c" * 64, "test": "d" * 64},
    },
}
Changes = dict[str, Any]
"""Names with slashes -> other values of a plan."""


def cache_record(changes: Changes) -> dict[str, Any]:
    """A run's record of its cache, whose plan has these changes."""
    plan = copy.deepcopy(PLAN)
    for name, value in changes.items():
        *parts, last = name.split("/")
        inner = plan
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return {"fingerprint": fingerprint(plan["fingerprint_fields"]), "plan": plan}


def runs_on(*caches: Changes, **recipe: Any) -> list[RunResult]:
    """A run on each cache."""
    return [
        build_run("none", answers(6, 0.8, 1), cache=cache_record(changes), **recipe)
        for changes in caches
    ]


def titles_of(runs: list[RunResult]) -> list[str]:
    return [table.title() for table in gaam_decoder.report(runs).tables]


def additions(*caches: Changes) -> list[str]:
    """What a report on caches adds to every title, compared with one cache alone."""
    runs = runs_on(*caches)
    [title_alone] = titles_of(runs[:1])
    titles = titles_of(runs)
    assert len(set(titles)) == len(caches)
    assert all(title.startswith(title_alone) for title in titles)
    return [title.removeprefix(title_alone).removeprefix(", ") for title in titles]


ENCODER = "fingerprint_fields/encoder"
CONTENT_OF_TRAIN = "fingerprint_fields/content/train"


class Case(NamedTuple):
    """A change of a cache, and the ends of the additions without it and with it."""

    changes: Changes
    usual: str
    changed: str


CASES: dict[str, Case] = {
    "pooling": Case({f"{ENCODER}/pooling": ["first"]}, "--pool mean", "--pool first"),
    "poolings": Case(
        {f"{ENCODER}/pooling": ["mean", "max"]}, "--pool mean", "--pool mean,max"
    ),
    "length": Case(
        {f"{ENCODER}/max_length": 128}, "cut at 512 tokens", "cut at 128 tokens"
    ),
    "prompt": Case(
        {f"{ENCODER}/prompt": "query: {text}"}, "no prompt", "prompt 'query: {text}'"
    ),
    "compute": Case({f"{ENCODER}/dtype": "bfloat16"}, "in float32", "in bfloat16"),
    "storage": Case(
        {"fingerprint_fields/storage_dtype": "float32"}, "as float16", "as float32"
    ),
    "layers": Case(
        {f"{ENCODER}/layers": "transformers.hidden_states[1:7]"}, "[1:]", "[1:7]"
    ),
    "special tokens": Case(
        {f"{ENCODER}/special_tokens": False}, "special tokens", "no special tokens"
    ),
    "pooled over": Case(
        {f"{ENCODER}/pool_over": "text"}, "over all tokens", "over its own tokens"
    ),
    "kept columns": Case(
        {"fingerprint_fields/columns": {"who": {"train": "1" * 64}}},
        "no columns",
        "columns who",
    ),
    "versions": Case(
        {"fingerprint_fields/decoders": {"soundfile": "0.13"}},
        "soundfile",
        "soundfile 0.13",
    ),
    "an unknown key": Case(
        {f"{ENCODER}/adapter_scale": "0.5"}, "adapter scale", "scale 0.5"
    ),
    "a commit": Case(
        {
            "encoder/revision": "1f9c" * 10,
            f"{ENCODER}/files/config.json": "9" * 64,
        },
        "no revision",
        "revision 1f9c1f9c1f9c",
    ),
    "weights": Case(
        {f"{ENCODER}/files/model.safetensors": "9" * 64},
        "model.safetensors bbbbbbbbbbbb",
        "model.safetensors 999999999999",
    ),
    "rows": Case(
        {CONTENT_OF_TRAIN: "9" * 64},
        "rows of train cccccccccccc",
        "rows of train 999999999999",
    ),
    "text columns": Case(
        {"dataset/text_columns": ["title"], CONTENT_OF_TRAIN: "9" * 64},
        "by default",
        "title",
    ),
    "a split seed": Case(
        {"dataset/split_seed": 3, CONTENT_OF_TRAIN: "9" * 64},
        "split seed 0",
        "split seed 3",
    ),
}


def letters_of(text: str) -> str:
    """Words without the characters that formats escape."""
    return " ".join(re.findall(r"\w+", text))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", CASES)
def test_a_title_says_what_differs_and_only_that(name: str) -> None:
    case = CASES[name]
    usual, changed = additions({}, case.changes)
    assert usual.endswith(case.usual)
    assert changed.endswith(case.changed)
    assert "," not in usual
    assert "," not in changed.replace("mean,max", "")
    runs = runs_on({}, case.changes)
    tables = gaam_decoder.report(runs).tables
    for report_format in FORMATS:
        letters = letters_of(words_of(report_format, tables))
        assert letters_of(usual) in letters, report_format
        assert letters_of(changed) in letters, report_format
    [alone] = gaam_decoder.report(runs[1:]).tables
    assert changed not in alone.title()
    assert alone.to_dict()["cache_differs_by"] is None


def test_what_most_of_several_caches_have_is_said_once() -> None:
    pooling = CASES["pooling"].changes
    caches: list[Changes] = [{}, pooling, CASES["length"].changes]
    usual = "cut at 512 tokens, --pool mean"
    assert additions(*caches) == [usual, "--pool first", "cut at 128 tokens"]


def test_two_differences_are_both_said() -> None:
    pooling = CASES["pooling"].changes
    pooling_and_weights = pooling | CASES["weights"].changes
    assert additions({}, pooling, pooling_and_weights) == [
        "--pool mean",
        "--pool first, model.safetensors bbbbbbbbbbbb",
        "model.safetensors 999999999999",
    ]


def test_where_only_the_fingerprint_is_known_to_differ_the_title_has_that() -> None:
    runs = [
        build_run("none", answers(6, 0.8, 1), cache={"fingerprint": digit * 64})
        for digit in "ab"
    ]
    first, second = titles_of(runs)
    assert first.endswith("cache aaaaaaaaaaaa")
    assert second.endswith("cache bbbbbbbbbbbb")


def test_rows_of_one_cache_that_are_tested_apart_are_told_apart_by_what_tests() -> None:
    caches: list[Changes] = [{}, CASES["pooling"].changes]
    runs = [*runs_on(*caches, test_split="test"), *runs_on(*caches, test_split="dev")]
    titles = titles_of(runs)
    assert len(set(titles)) == 4
    assert sum("--pool first" in title for title in titles) == 2
    assert sum("'dev'" in title for title in titles) == 2


def test_a_prompt_of_others_is_harmless_and_long_ones_stay_different() -> None:
    prompt = "x" * 500 + "\x1b[2J{text}"
    first, second = additions(
        {f"{ENCODER}/prompt": f"{prompt}1"}, {f"{ENCODER}/prompt": f"{prompt}2"}
    )
    assert first != second
    assert "\x1b" not in first + second
    assert max(len(first), len(second)) < 100


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        pytest.param({"layers": "1-2"}, "decoders read layers 1-2", id="layers"),
        pytest.param({"layers": "6"}, "decoders read layer 6", id="one layer"),
        pytest.param({"train_rows": 1000}, "1,000 labelled rows", id="rows"),
        pytest.param({"shots": 5}, "5 labelled rows of each class", id="rows a class"),
    ],
)
def test_a_title_says_what_part_of_the_cache_all_decoders_learn_from(
    recipe: dict[str, Any], expected: str
) -> None:
    right = answers(6, 0.8, 1)
    restricted = [build_run(name, right, **recipe) for name in ("none", "gaam")]
    [title] = titles_of(restricted)
    assert title.endswith(f", {expected}")
    # where decoders differ in it, their names say it
    [title] = titles_of([build_run("none", right), *restricted])
    assert expected not in title
