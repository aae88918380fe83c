"""Cards say what a report says, and whatever names are, they stay cards."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.reports.report import report
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.export import FIELDS_TO_FILL_IN, card
from gaam_decoder.use.load import open_decoder
from tests.decoder.use.exports import train


@pytest.fixture(scope="module")
def run(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    [run] = train(tiny_cache, tmp_path_factory.mktemp("runs"), "laplace").values()
    return run


def card_of(run: RunResult, plan: Plan | None = None) -> str:
    config = open_decoder(run.path).config
    return card(run, replace(config, plan=plan or config.plan))


@pytest.mark.parametrize(
    ("attn", "settings", "said", "not_said"),
    [
        pytest.param(
            "last-layer",
            {},
            [
                "states of layer 6 of",
                "- layers: 6,",
                "no control",
                "validation rows in",
            ],
            ["layers 1-6"],
            id="a decoder of one layer",
        ),
        pytest.param(
            "none",
            {"head": "lbfgs"},
            ["states of layers 1-6 of", "choose C", "fitted in one step"],
            ["choose the epoch", "seeds: 0", "of seed 0"],
            id="a head without epochs and seeds",
        ),
        pytest.param(
            "last-layer",
            {"select": "last"},
            ["learned from"],
            ["validation rows included"],
            id="no validation rows",
        ),
    ],
)
def test_a_card_says_what_its_decoder_reads_and_learned_from(
    attn: str,
    settings: dict[str, Any],
    said: list[str],
    not_said: list[str],
    tiny_cache: Path,
    tmp_path: Path,
) -> None:
    [run] = train(tiny_cache, tmp_path, attn, **settings).values()
    text = card_of(run)
    for phrase in said:
        assert phrase in text
    for phrase in not_said:
        assert phrase not in text


@pytest.mark.parametrize(
    ("settings", "has_fold"),
    [
        pytest.param({"folds": 3, "fold": 1}, True, id="a fold"),
        pytest.param({"test_split": "none"}, False, id="a final model"),
    ],
)
def test_a_card_counts_the_rows_that_its_decoder_learned_from(
    settings: dict[str, Any], has_fold: bool, tiny_cache: Path, tmp_path: Path
) -> None:
    [run] = train(tiny_cache, tmp_path, "none", **settings).values()
    num_rows = run.cache.rows["train"]
    if has_fold:
        num_rows -= len(run.labels)
    assert f"from split 'train', {num_rows:,} rows" in card_of(run)


def test_a_card_misses_no_control_that_lies_beside_its_run(
    tiny_cache: Path, tmp_path: Path
) -> None:
    runs = train(tiny_cache, tmp_path, "last-layer", "none")
    assert "no control" not in card_of(runs["last-layer + linear"])


def metadata_of(text: str) -> dict[str, Any]:
    """The front matter, as the hub reads it."""
    front, _, _ = text.removeprefix("---\n").partition("\n---\n")
    metadata = yaml.safe_load(front)
    assert isinstance(metadata, dict)
    return metadata


def test_a_card_holds_the_table_and_the_notes_of_a_report(run: RunResult) -> None:
    text = card_of(run)
    lines = report([run]).text("markdown").splitlines()
    # sections follow the table and its notes
    for line in takewhile(lambda line: "layers read most" not in line, lines):
        if line.startswith(("|", "- ")):
            assert line in text
    for name in run.cache.class_names:
        assert f"- {name}" in text
    for slot in FIELDS_TO_FILL_IN:
        assert f"- TODO: add '{slot}' to the metadata" in text
    assert run.cache.fingerprint[:8] in text
    assert "lr=0.0003" in text


def test_the_metadata_of_a_card_name_the_library_and_no_local_encoder(
    run: RunResult,
) -> None:
    metadata = metadata_of(card_of(run))
    assert metadata["library_name"] == "gaam"
    assert metadata["pipeline_tag"] == "text-classification"
    assert "base_model" not in metadata


def test_the_metadata_of_a_card_name_an_encoder_and_a_data_set_of_the_hub(
    run: RunResult, tiny_cache: Path
) -> None:
    plan = read_plan(tiny_cache)
    hub: dict[str, Any] = {"name": "someone/tiny", "path": None, "revision": "0" * 40}
    plan = replace(
        plan, encoder=replace(plan.encoder, **hub), dataset=replace(plan.dataset, **hub)
    )
    metadata = metadata_of(card_of(run, plan))
    assert metadata["base_model"] == "someone/tiny"
    assert metadata["datasets"] == ["someone/tiny"]


MARKS: dict[str, dict[str, Any]] = {
    "optimistic": {"select": "test"},
    "learned from": {"test_split": "train", "allow_train_as_test": True},
    "SHUFFLED": {"shuffle_labels": True},
    "without fold 1/2": {"folds": 2, "fold": 1},
    "not evaluated": {"test_split": "none"},
}
"""A mark of a report -> settings that cause it."""


@pytest.mark.parametrize("mark", MARKS)
def test_whatever_a_report_marks_a_card_marks(
    mark: str, tiny_cache: Path, tmp_path: Path
) -> None:
    [run] = train(tiny_cache, tmp_path, "none", **MARKS[mark]).values()
    text = card_of(run)
    assert mark in text
    if mark == "not evaluated":
        assert "accuracy" not in text
