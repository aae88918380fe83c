from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaam_decoder.reports import literature
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import AG_NEWS, answers, build_run

SOURCE = Path(__file__).parents[4] / "shared" / "published" / "results.json"
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


def test_what_was_published_stands_beside_it_without_reservation() -> None:
    for attention, mean in (
        ("gaam", 94.6),
        ("gaam:heads=8", 94.6),
        ("gqgaam:init=xavier-normal,published=true", 94.9),
        ("mha:published=true", 94.6),
    ):
        table = table_of(attention, LLAMA, head="conv")
        [found] = table.published
        assert found is not None
        assert (100 * found["mean"], found["differs"]) == (pytest.approx(mean), [])
        (line,) = [note for note in notes(table) if note.startswith("published")]
        assert ("learned offset -0.05 to 0.07" in line) == (attention == "gaam")
        for words in ("the same encoder", "arXiv 2401.11143", "evaluation split (optimistic)"):
            assert words in line


def test_what_was_not_published_has_nothing_beside_it() -> None:
    for attention in ("laplace", "none", "gaam:normalize=density", "gqa"):
        assert table_of(attention, LLAMA).published == (None,)
    for changes in ({"layers": "19-21"}, {"train_rows": 7}, {"shuffle_labels": True}):
        run = build_run("gaam", answers(2, 0.8, 1), cache=LLAMA, classes=tuple(AG_NEWS), **changes)
        run.drawn.update({"learn": 7} if "train_rows" in changes else {})
        assert build_tables([run])[0].published == (None,)
    for name in ("/data/ag_news", "ag_news.csv", "AG-News"):
        named = table_of("gaam", LLAMA | {"dataset": name}, classes=tuple(reversed(AG_NEWS)))
        assert named.published != (None,)
    for dataset, classes in (
        ("my_news", AG_NEWS),
        ("not_ag_news", AG_NEWS),
        ("cifar100", AG_NEWS),
        ("ag_news", ["a", "b", "c", "d"]),
        ("ag_news", [*AG_NEWS, "Other"]),
    ):
        cache = LLAMA | {"dataset": dataset}
        assert table_of("gaam", cache, classes=tuple(classes)).published == (None,)


def test_everything_that_differs_is_said() -> None:
    cache = LLAMA | {"encoder": "all-MiniLM-L6-v2", "layers": 6, "rows": {"train": 4999}}
    text = "\n".join(notes(table_of("gaam:heads=2", cache)))
    assert "another encoder: Llama-2-13B, not all-MiniLM-L6-v2" in text
    assert "8 heads there, 2 here" in text
    assert "linear head here, convolutional there" in text
    assert "120,000 train rows there, 4,999 here" in text
    assert "7,600 test rows there, 0 here" in text
    for attention, why in (
        ("mha", "theirs attends across the rows of a batch"),
        ("gaam:heads=1", "runs 8 heads on these rows, not 1"),
        ("mha-bn:published=true", "cannot run"),
        ("gqgaam:published=true", "start Xavier-uniform here"),  # runs of 0.1.0
        ("gqgaam:init=xavier-normal", "standard grouped queries here"),
    ):
        table = table_of(attention, LLAMA, head="conv")
        [found] = table.published
        assert found is not None
        [reason] = found["differs"]
        assert why in reason
        assert f"published, {attention}: {reason}" in notes(table)


@pytest.mark.skipif(not SOURCE.exists(), reason="../shared/published is not there")
def test_nothing_was_mistyped() -> None:
    source = json.loads(SOURCE.read_text("utf-8"))
    carried = json.loads(literature.FILE.read_text("utf-8"))
    assert set(carried["datasets"]) == {k for k, v in source.items() if isinstance(v, dict)}
    for name, dataset in carried["datasets"].items():
        theirs = source[name]
        assert (dataset["train"], dataset["test"]) == (theirs.get("train"), theirs.get("test"))
        about = f"{dataset['encoder']}, {dataset['layers']} layers x {dataset['hidden_size']}"
        assert about == theirs["encoder"]
        for mechanism, found in dataset["mechanisms"].items():
            expected = dict(theirs[mechanism])
            assert found["values"] == expected.pop(dataset["unit"])
            assert {k: v for k, v in found.items() if k not in ("values", "code")} == expected
        names = {k for k, v in theirs.items() if isinstance(v, dict) and "mean" in v}
        assert set(dataset["mechanisms"]) == {n for n in names if not n.startswith("lora")}
        ranges = theirs["learned_ranges"]
        assert list(dataset["learned_ranges"].values()) == [*ranges.values()]
