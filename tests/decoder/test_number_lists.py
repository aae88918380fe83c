"""Lists as people write them: what is read, what comes back, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.common.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.number_lists import parse_numbers, spell_numbers

# setting, what is written, what is read
# fmt: off
LISTS: list[tuple[str, Any, Any]] = [
    ("seeds", "3", (0, 1, 2)),
    ("seeds", ["3", "5-6"], (3, 5, 6)),
    ("seeds", [5], (5,)),
    ("layers", "all", (None,)),
    ("layers", [2, 1], ((1, 2),)),
    ("layers", ["1-3", "4,5", "all"], ((1, 2, 3), (4, 5), None)),
    ("layers", "each", ("each",)),
    ("layers", ["each", "1-2"], ("each", (1, 2))),
    ("lr", "1e-4,1", (1e-4, 1.0)),
    ("train_rows", "100, 1k,all,5/class", (100, 1000, None, "5/class")),
]
# fmt: on


@given(st.sets(st.integers(0, 200), min_size=1).map(sorted))
def test_numbers_are_spelled_as_they_are_read(numbers: list[int]) -> None:
    assert parse_numbers(spell_numbers(numbers)) == tuple(numbers)


@pytest.mark.parametrize(("setting", "written", "expected"), LISTS, ids=str)
def test_every_list_is_read_once_and_for_all(
    setting: str, written: Any, expected: Any
) -> None:
    value = getattr(TrainConfig(**{setting: written}), setting)
    assert value == expected
    assert getattr(TrainConfig(**{setting: value}), setting) == expected


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("seeds", "1,000"),
        ("layers", (-1, 1)),
        ("layers", "every"),
        ("train_rows", 2.0),
    ],
    ids=str,
)
def test_what_is_no_list_is_refused_with_its_name(setting: str, written: Any) -> None:
    settings: dict[str, Any] = {setting: written}
    with pytest.raises(ConfigError, match=f"--{setting.replace('_', '-')}"):
        TrainConfig(**settings)
