"""Cards say what a report says, and whatever names are, they stay cards."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaam_cache.hub.export import card as cache_card
from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.reports.report import report
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.export import SLOTS, card
from gaam_decoder.use.load import open_decoder
from tests.decoder.use.exports import train
from tests.hostile_strings import HOSTILE, flooded, harmful


@pytest.fixture(scope="module")
def run(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    [found] = train(tiny_cache, tmp_path_factory.mktemp("runs"), "laplace").values()
    return found


def text_of(run: RunResult, plan: Plan | None = None) -> str:
    config = open_decoder(run.path)[1]
    return card(run, replace(config, plan=plan or config.plan))


def head_of(text: str) -> dict[str, Any]:
    """The front matter, as the hub reads it."""
    found = yaml.safe_load(text[4:].partition("\n---\n")[0])
    assert isinstance(found, dict)
    return found


def test_a_card_holds_the_table_and_the_notes_of_a_report(run: RunResult, tiny_cache: Path) -> None:
    text, reported = text_of(run), report([run]).text("markdown").splitlines()
    for line in reported[: next(n for n, line in enumerate(reported) if "share of layers" in line)]:
        assert not line.startswith(("|", "- ")) or line in text
    assert all(f"- {name}" in text for name in run.cache["class_names"])
    assert all(f"# TODO: {slot}" in text for slot in SLOTS)
    assert run.cache["fingerprint"][:8] in text
    assert "lr=0.0003" in text
    head, plan = head_of(text), read_plan(tiny_cache)
    assert (head["library_name"], head["pipeline_tag"]) == ("gaam", "text-classification")
    assert "base_model" not in head, "a local one"
    hub = {"name": "someone/tiny", "path": None, "revision": "0" * 40}
    known = replace(plan, encoder=plan.encoder | hub, dataset=plan.dataset | hub)
    head = head_of(text_of(run, known))
    assert (head["base_model"], head["datasets"]) == ("someone/tiny", ["someone/tiny"])


def test_whatever_a_report_marks_a_card_marks(tiny_cache: Path, tmp_path: Path) -> None:
    marks: dict[str, dict[str, Any]] = {
        "optimistic": {"select": "test"},
        "learned from": {"test_split": "train", "allow_train_as_test": True},
        "SHUFFLED": {"shuffle_labels": True},
        "without fold 1/2": {"folds": 2, "fold": 1},
        "not evaluated": {"test_split": "none"},
    }
    for said, options in marks.items():
        [found] = train(tiny_cache, tmp_path, "none", **options).values()
        assert said in text_of(found), said
    assert "accuracy" not in text_of(found), "of a final model"


def test_no_name_breaks_a_card(run: RunResult, tiny_cache: Path) -> None:
    plan = read_plan(tiny_cache)

    def cards(name: str) -> tuple[str, str]:
        """With that name for everything."""
        about, classes = {"name": name, "path": None}, (name, *plan.class_names[1:])
        of = {"encoder": plan.encoder | about, "dataset": plan.dataset | about}
        called = replace(plan, class_names=classes, **of)
        names = {"encoder": name, "dataset": name, "class_names": list(classes)}
        found = replace(run, cache=run.cache | names)
        return cache_card(called), text_of(found, called)

    for hostile_name in HOSTILE.values():
        for plain, hostile in zip(cards("x"), cards(hostile_name), strict=True):
            assert not harmful(hostile), harmful(hostile)
            assert not flooded(hostile)
            assert head_of(hostile).keys() == head_of(plain).keys()
            body, expected = (one.partition("\n---\n")[2] for one in (hostile, plain))
            structure = [line[:2] for line in expected.splitlines()]
            assert [line[:2] for line in body.splitlines()] == structure, "a name makes no line"
            assert not re.search(r"(?<!\\)[<`]script", body)
            cells, known = (
                [re.sub(r"\\[\\|]", "", line).count("|") for line in one.splitlines()]
                for one in (body, expected)
            )
            assert cells == known
