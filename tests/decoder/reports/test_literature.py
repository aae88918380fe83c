from __future__ import annotations

from typing import Any

import pytest

from gaam_decoder.reports._base import Table, build_tables
from gaam_decoder.reports._notes import notes
from tests.decoder.reports.conftest import AG_NEWS, answers, build_run

LLAMA = {
    "dataset": "fancyzhx/ag_news",
    "encoder": "meta-llama/Llama-2-13b-hf",
    "layers": 40,
    "rows": {"train": 120_000, "test": 7600},
}


def table_of(attention: str, cache: dict[str, Any], **changes: Any) -> Table:
    run = build_run(
        attention, answers(2, 0.8, 1), cache=cache, **{"classes": tuple(AG_NEWS), **changes}
    )
    [table] = build_tables([run])
    return table


@pytest.mark.parametrize(
    ("attention", "mean"),
    [
        ("gaam", 94.6),
        ("gaam:heads=8", 94.6),
        ("gaam:heads=1", 94.5),
        ("gqgaam:published=true", 94.9),
        ("mha:published=true", 94.6),
    ],
)
def test_what_was_published_stands_beside_it_without_reservation(
    attention: str, mean: float
) -> None:
    table = table_of(attention, LLAMA, head="conv")
    [found] = table.published
    assert found is not None
    assert (found.mean, found.differs) == (mean, ())
    [line] = [note for note in notes(table) if note.startswith("published")]
    assert "the same encoder" in line
    assert "arXiv 2401.11143" in line
    assert "chosen on the evaluation split (optimistic)" in line


@pytest.mark.parametrize(
    "attention", ["laplace", "none", "gaam:normalize=density", "gqa", "scalar-mix"]
)
def test_what_was_not_published_has_nothing_beside_it(attention: str) -> None:
    assert table_of(attention, LLAMA).published == (None,)


def test_everything_that_differs_is_said() -> None:
    cache = LLAMA | {"encoder": "all-MiniLM-L6-v2", "layers": 6, "rows": {"train": 4999}}
    text = "\n".join(notes(table_of("gaam", cache)))
    assert "another encoder: Llama-2-13B, not all-MiniLM-L6-v2" in text
    assert "8 heads there, 3 here" in text
    assert "linear head here, convolutional there" in text
    assert "120,000 train rows there, 4,999 here" in text
    assert "7,600 test rows there, no such split here" in text
    text = "\n".join(notes(table_of("mha", LLAMA)))
    assert "theirs attends across the rows of a batch" in text


@pytest.mark.parametrize(
    ("cache", "classes"),
    [
        ({"dataset": "my_news"}, AG_NEWS),
        ({"dataset": "ag_news"}, ["a", "b", "c", "d"]),
        ({"dataset": "ag_news"}, [*AG_NEWS, "Other"]),
        ({"dataset": "not_ag_news"}, AG_NEWS),
        ({"dataset": "cifar100"}, AG_NEWS),
    ],
)
def test_another_data_set_is_no_match(cache: dict[str, str], classes: list[str]) -> None:
    assert table_of("gaam", LLAMA | cache, classes=tuple(classes)).published == (None,)


def test_a_file_of_the_same_name_with_the_same_classes_is_one() -> None:
    for name in ("/data/ag_news", "ag_news.csv", "AG-News"):
        table = table_of("gaam", LLAMA | {"dataset": name}, classes=tuple(reversed(AG_NEWS)))
        assert table.published[0] is not None


def test_some_layers_only_are_not_what_was_published() -> None:
    assert table_of("gaam", LLAMA, layers="19-21").published == (None,)
