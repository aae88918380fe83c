"""Cards say what a report says, and whatever names are, they stay cards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.reports.report import report
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.export import SLOTS, card
from gaam_decoder.use.load import open_decoder
from tests.decoder.use.exports import train


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


def test_a_card_holds_the_table_and_the_notes_of_a_report(
    run: RunResult, tiny_cache: Path
) -> None:
    text, reported = text_of(run), report([run]).text("markdown").splitlines()
    for line in reported[
        : next(n for n, line in enumerate(reported) if "share of layers" in line)
    ]:
        assert not line.startswith(("|", "- ")) or line in text
    assert all(f"- {name}" in text for name in run.cache.class_names)
    assert all(f"- TODO: add '{slot}' to the metadata" in text for slot in SLOTS)
    assert run.cache.fingerprint[:8] in text
    assert "lr=0.0003" in text
    head, plan = head_of(text), read_plan(tiny_cache)
    assert (head["library_name"], head["pipeline_tag"]) == (
        "gaam",
        "text-classification",
    )
    assert "base_model" not in head, "a local one"
    hub = {"name": "someone/tiny", "path": None, "revision": "0" * 40}
    known = replace(
        plan, encoder=replace(plan.encoder, **hub), dataset=replace(plan.dataset, **hub)
    )
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
