"""Lists as people write them: what is read, what comes back, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.number_lists import parse_numbers, spell_numbers

READ: dict[str, list[tuple[Any, tuple[Any, ...]]]] = {
    "seeds": [
        ("10", tuple(range(10))), ("0-9", tuple(range(10))), (3, (0, 1, 2)), ("9,3", (3, 9)),
        ([5], (5,)), (["3", "5-6"], (3, 5, 6)), ("10,", (10,)), ("0,10-12", (0, 10, 11, 12)),
    ],
    "layers": [
        (None, (None,)), ("all", (None,)), ("3,1", ((1, 3),)), (7, ((7,),)), ([2, 1], ((1, 2),)),
        (["1-3", "4,5", "all"], ((1, 2, 3), (4, 5), None)), (((1, 2), None), ((1, 2), None)),
        ("1-3,12", ((1, 2, 3, 12),)),
    ],
    "train_rows": [
        ("100,1000,all", (100, 1000, None)), ("1k, 1_000_000", (1000, 1000000)), (12, (12,)),
        (["5,10", "all", 3], (5, 10, None, 3)), ("5/class,1k/class", ("5/class", "1000/class")),
    ],
}  # fmt: skip
REFUSED: dict[str, list[Any]] = {
    "seeds": ["", "0", "a", "3-1", "1,1", "-1", "1.5", "999999999", "1,000", "01,2", [-1], True],
    "layers": ["", "1-3,2", "ALL", "1,000", (), (-1, 1), (1, 1), ((1, 2), (2, 1)), (None, None)],
    "train_rows": ["", "0", "1.5", "1-5", "1__000", "1,,2", "ALL", "01", 0, -3, 2.0, True, "1e3",
                   "٣", "1" * 10, "1,000"],
    "lr": ["", "a", "1,,2", 0, -1, True, float("nan"), ()],
}  # fmt: skip


@given(st.sets(st.integers(0, 200), min_size=1).map(sorted))
def test_numbers_are_spelled_as_they_are_read(numbers: list[int]) -> None:
    assert parse_numbers(spell_numbers(numbers)) == numbers


def test_every_list_is_read_once_and_for_all() -> None:
    for name, cases in READ.items():
        for text, expected in cases:
            found = getattr(TrainConfig(**{name: text}), name)
            assert found == expected, (name, text)
            assert getattr(TrainConfig(**{name: found}), name) == expected


def test_what_is_no_list_is_refused_with_its_name() -> None:
    for name, cases in REFUSED.items():
        for text in cases:
            with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}"):
                TrainConfig(**{name: text})
    for name in ("seeds", "layers", "train_rows"):  # a thousand, to most who write it
        with pytest.raises(ConfigError, match="leading zeros"):
            TrainConfig(**{name: "1,000"})
