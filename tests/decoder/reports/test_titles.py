"""Tables of caches that go by the same title say what differs, only that, in every format."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.store.files import fingerprint
from tests.decoder.reports.conftest import FORMATS, answers, build_run, seen

BASE: dict[str, Any] = {
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


def cache(changes: Changes) -> dict[str, Any]:
    """What a run says of its cache, whose plan has other values under dotted names."""
    plan = copy.deepcopy(BASE)
    for name, value in changes.items():
        *parts, last = name.split("/")
        inner = plan
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return {"fingerprint": fingerprint(plan["fingerprint_fields"]), "plan": plan}


def titles(*several: Changes, **recipe: Any) -> list[str]:
    """What every title of a report on these caches adds to that of one alone."""
    runs = [
        build_run("none", answers(6, 0.8, 1), cache=cache(one), **recipe)
        for one in several
    ]
    alone = gaam_decoder.report(runs[:1]).tables[0].title()
    found = [table.title() for table in gaam_decoder.report(runs).tables]
    assert len(set(found)) == len(several)
    assert all(title.startswith(alone) for title in found)
    return [title.removeprefix(alone).removeprefix(", ") for title in found]


OF_ENCODER = "fingerprint_fields/encoder/"
CASES: dict[str, tuple[Changes, str, str]] = {
    "pooling": ({OF_ENCODER + "pooling": ["first"]}, "--pool mean", "--pool first"),
    "poolings": ({OF_ENCODER + "pooling": ["mean", "max"]}, "--pool mean", "--pool mean,max"),
    "length": ({OF_ENCODER + "max_length": 128}, "cut at 512 tokens", "cut at 128 tokens"),
    "prompt": ({OF_ENCODER + "prompt": "query: {text}"}, "no prompt", "prompt 'query: {text}'"),
    "compute": ({OF_ENCODER + "dtype": "bfloat16"}, "in float32", "in bfloat16"),
    "storage": ({"fingerprint_fields/storage_dtype": "float32"}, "as float16", "as float32"),
    "layers": ({OF_ENCODER + "layers": "transformers.hidden_states[1:7]"}, "[1:]", "[1:7]"),
    "specials": ({OF_ENCODER + "special_tokens": False}, "special tokens", "no special tokens"),
    "pooled over": ({OF_ENCODER + "pool_over": "text"}, "over all tokens", "over its own tokens"),
    "kept columns": ({"fingerprint_fields/columns": {"who": {"train": "1" * 64}}}, "no columns",
                     "columns who"),
    "versions": ({"fingerprint_fields/decoders": {"soundfile": "0.13"}}, "soundfile",
                 "soundfile 0.13"),
    "an unknown key": ({OF_ENCODER + "adapter_scale": "0.5"}, "adapter scale", "scale 0.5"),
    "a commit": ({"encoder/revision": "1f9c" * 10, OF_ENCODER + "files/config.json": "9" * 64},
                 "no revision", "revision 1f9c1f9c1f9c"),
    "weights": ({OF_ENCODER + "files/model.safetensors": "9" * 64},
                "model.safetensors bbbbbbbbbbbb", "model.safetensors 999999999999"),
    "rows": ({"fingerprint_fields/content/train": "9" * 64}, "rows of train cccccccccccc",
             "rows of train 999999999999"),
    "text columns": ({"dataset/text_columns": ["title"],
                      "fingerprint_fields/content/train": "9" * 64}, "by default", "title"),
    "a split seed": ({"dataset/split_seed": 3, "fingerprint_fields/content/train": "9" * 64},
                     "split seed 0", "split seed 3"),
}  # fmt: skip


def letters(text: str) -> str:
    """Words without what formats escape."""
    return " ".join(re.findall(r"\w+", text))


@pytest.mark.parametrize("name", CASES)
def test_a_title_says_what_differs_and_only_that(name: str) -> None:
    changes, usual, changed = CASES[name]
    first, second = titles({}, changes)
    assert first.endswith(usual)
    assert second.endswith(changed)
    assert "," not in first + second.replace("mean,max", "")
    runs = [
        build_run("none", answers(6, 0.8, 1), cache=cache(one)) for one in ({}, changes)
    ]
    tables = gaam_decoder.report(runs).tables
    for format in FORMATS:
        shown = letters(seen(format, tables))
        for words in (first, second):
            assert letters(words) in shown, format
    alone = gaam_decoder.report(runs[1:]).tables[0]
    assert second not in alone.title()
    assert alone.to_dict()["cache_differs_by"] is None


def test_of_several_what_most_have_is_said_once() -> None:
    changes: list[Changes] = [{}, CASES["pooling"][0], CASES["length"][0]]
    usual = "cut at 512 tokens, --pool mean"
    assert titles(*changes) == [usual, "--pool first", "cut at 128 tokens"]
    both = CASES["pooling"][0] | CASES["weights"][0]
    assert titles({}, CASES["pooling"][0], both) == [
        "--pool mean",
        "--pool first, model.safetensors bbbbbbbbbbbb",
        "model.safetensors 999999999999",
    ]


def test_where_only_the_fingerprint_is_known_to_differ_the_title_has_that() -> None:
    unknown = [{"fingerprint": digit * 64} for digit in "ab"]
    runs = [build_run("none", answers(6, 0.8, 1), cache=one) for one in unknown]
    found = [table.title() for table in gaam_decoder.report(runs).tables]
    assert [title[-18:] for title in found] == [
        "cache aaaaaaaaaaaa",
        "cache bbbbbbbbbbbb",
    ]


def test_rows_of_one_cache_that_are_tested_apart_are_told_apart_by_what_tests() -> None:
    runs = [
        build_run("none", answers(6, 0.8, 1), cache=cache(one), test_split=split)
        for one in ({}, CASES["pooling"][0])
        for split in ("test", "dev")
    ]
    found = [table.title() for table in gaam_decoder.report(runs).tables]
    assert len(set(found)) == 4
    assert sum("--pool first" in title for title in found) == 2
    assert sum("'dev'" in title for title in found) == 2


def test_a_prompt_of_others_is_harmless_and_long_ones_stay_different() -> None:
    first, second = titles(
        {OF_ENCODER + "prompt": "x" * 500 + "\x1b[2J{text}1"},
        {OF_ENCODER + "prompt": "x" * 500 + "\x1b[2J{text}2"},
    )
    assert first != second
    assert "\x1b" not in first + second
    assert max(len(first), len(second)) < 100
