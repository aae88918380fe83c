from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.number_lists import (
    parse_layer_sets,
    parse_layers,
    parse_numbers,
    parse_seeds,
    parse_sizes,
    spell_numbers,
    spell_size,
)


@given(st.sets(st.integers(0, 200), min_size=1).map(sorted))
def test_numbers_are_spelled_as_they_are_read(numbers: list[int]) -> None:
    assert parse_numbers(spell_numbers(numbers)) == numbers


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("19,20,21", (19, 20, 21)),
        ("1-8,12", (*range(1, 9), 12)),
        ("12, 3", (3, 12)),
        ("10", (10,)),
        ([2, 1], (1, 2)),
        (7, (7,)),
    ],
)
def test_layers_are_read_and_sorted(text: object, layers: tuple[int, ...]) -> None:
    assert parse_layers(text) == layers  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,1", "1-3,2", "-1", "1.5", "0-999999999"])
def test_bad_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"list|once|at most|rises"):
        parse_layers(text)
    with pytest.raises(ValueError, match="seed"):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["1,000", "01,2", "1-03", "00", "2,007,008"])
def test_a_comma_between_the_digits_of_a_number_is_not_a_list(text: str) -> None:
    for parse in (parse_numbers, parse_layers, parse_seeds):
        if parse is parse_seeds and text == "00":
            continue
        with pytest.raises(ValueError, match="leading zeros"):
            parse(text)
    assert parse_seeds("0,10-20") == (0, *range(10, 21))


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ("100", (100,)),
        ("100,1000,all", (100, 1000, None)),
        ("1k, 1_000,25k,1_000_000", (1000, 1000, 25000, 1000000)),
        (["5,10", "all", 3, None], (5, 10, None, 3, None)),
        ((7, 8), (7, 8)),
        (None, (None,)),
        (12, (12,)),
    ],
)
def test_sizes_are_read_in_the_order_given(given: Any, sizes: tuple[int | None, ...]) -> None:
    assert parse_sizes(given) == sizes
    spelled = ",".join(map(spell_size, sizes))
    assert parse_sizes(spelled) == sizes


@pytest.mark.parametrize(
    "given",
    ["", "0", "-1", "1.5", "1.5k", "k", "1-5", "1__000", "1_00", "_1", "a", "1,,2", "ALL", "01",
     0, -3, 2.0, True, "1e3", "٣", "1" * 10],
)  # fmt: skip
def test_bad_sizes_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="from 1 on"):
        parse_sizes(given)


def test_a_comma_between_the_digits_of_a_size_is_not_a_list() -> None:
    for text in ("1,000", "2,007,008", "5,000,all"):
        with pytest.raises(ValueError, match=r"leading zeros(.|\n)*1_000 or 1k"):
            parse_sizes(text)


def test_seeds_count_from_0_and_a_slip_does_not_fill_the_memory() -> None:
    assert parse_seeds("10") == parse_seeds("0-9") == tuple(range(10))
    for text in ("0", "999999999"):
        with pytest.raises(ValueError, match="seed"):
            parse_seeds(text)


@pytest.mark.parametrize(
    "layers", [(), (-1, 1), (1, 1), ((1, 2), (-1,)), ((1, 2), ()), ((1, 2), (2, 1)), (None, None)]
)
def test_layers_are_no_less_than_0_and_each_set_is_named_once(layers: Any) -> None:
    with pytest.raises(ConfigError, match="--layers"):
        TrainConfig(layers=layers)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (None,)),
        ("all", (None,)),
        ("3,1", ((1, 3),)),
        (7, ((7,),)),
        ([2, 1], ((1, 2),)),
        (["1-3", "4,5", "all"], ((1, 2, 3), (4, 5), None)),
        (((1, 2), None), ((1, 2), None)),
        (["1-3"], ((1, 2, 3),)),
    ],
)
def test_one_set_of_layers_or_several(value: Any, expected: Any) -> None:
    assert parse_layer_sets(value) == expected
    assert parse_layer_sets(parse_layer_sets(value)) == expected
