"""Cards say what a report says, and whatever names are, they stay cards."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import gaam_decoder
from gaam_cache import open_cache
from gaam_cache.hub.export import card as cache_card
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.reports.report import report
from gaam_decoder.reports.writing.numbers import percent, span
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.export import SLOTS, card, export_run
from gaam_decoder.use.load import open_run
from tests.decoder.use.exports import train
from tests.hostile_strings import HOSTILE, flooded, harmful


@pytest.fixture(scope="module")
def run(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    [found] = train(tiny_cache, tmp_path_factory.mktemp("runs"), "laplace").values()
    return found


def text_of(run: RunResult, encoding: Encoding | None = None, **changes: Any) -> str:
    known = encoding or Encoding.from_dict(run.cache["encoding"])
    config = replace(open_run(run.path, None, None).config, seeds=run.finished, **changes)
    names = tuple(run.cache["class_names"])
    return card(run, replace(config, class_names=names), known)


def head_of(text: str) -> dict[str, Any]:
    """The front matter, as the hub reads it."""
    assert text.startswith("---\n")
    found = yaml.safe_load(text[4:].partition("\n---\n")[0])
    assert isinstance(found, dict)
    return found


def test_the_numbers_are_those_of_a_report(run: RunResult) -> None:
    [table] = report([run], every_candidate=True).tables
    [row] = table.rows
    text = text_of(run)
    assert row.mean is not None
    for figure in (percent(row.mean), span(row.interval), span(row.two_level)):
        assert f"| {figure} " in text
    assert f"majority class alone: {percent(table.majority_accuracy)}%" in text
    assert "held-out part of train" in text
    assert all(f"- {name}" in text for name in run.cache["class_names"])
    assert all(f"# TODO: {slot}" in text for slot in SLOTS)
    assert run.cache["fingerprint"][:8] in text
    assert "lr=0.0003" in text
    assert head_of(text)["library_name"] == "gaam"
    assert head_of(text)["pipeline_tag"] == "text-classification"


MARKS: dict[str, tuple[dict[str, Any], str]] = {
    "chosen on test": ({"select": "test"}, "optimistic"),
    "the last epoch": ({"select": "last"}, "nothing chosen"),
    "tested on what was learned": ({"test_split": "train", "allow_train_as_test": True}, "NO TEST"),
    "shuffled labels": ({"shuffle_labels": True}, "LABELS WERE SHUFFLED"),
    "a fold": ({"folds": 2, "fold": 1, "test_split": "test"}, "without fold 1/2"),
}


@pytest.mark.parametrize("mark", MARKS)
def test_whatever_a_report_marks_a_card_marks(mark: str, tiny_cache: Path, tmp_path: Path) -> None:
    options, said = MARKS[mark]
    assert said not in text_of(*train(tiny_cache, tmp_path / "plain", "none").values())
    [found] = train(tiny_cache, tmp_path, "none", **options).values()
    assert said in text_of(found)


def test_failed_seeds_are_counted(run: RunResult) -> None:
    lost = replace(run, failed={1: "at /home/someone/secret"})
    lost.__dict__["logits"] = run.logits.copy()
    lost.__dict__["logits"][1] = float("nan")
    text = text_of(lost)
    assert "2 seeds, 1 failed: 1" in text
    assert "secret" not in text
    assert "the exported decoder is that of seed 0 alone" in text


def test_a_final_model_is_not_evaluated(tiny_cache: Path, tmp_path: Path) -> None:
    [found] = train(tiny_cache, tmp_path, "none", test_split="none").values()
    text = text_of(found)
    assert "not evaluated" in text
    assert "accuracy" not in text
    assert "test rows" not in text
    assert "2 seeds" in text
    export_run(found.path, tmp_path / "out")
    states_NLD = open_cache(tiny_cache)["test"].embeddings[:]
    p_NC, own_NC = (
        gaam_decoder.load(path).predict_states(states_NLD).probabilities_NC
        for path in (found.path, tmp_path / "out")
    )
    assert p_NC.tobytes() == own_NC.tobytes()


def called(plan: Plan, name: str) -> Plan:
    """With that name for everything."""
    return replace(
        plan,
        encoder=plan.encoder | {"name": name, "path": None},
        dataset=plan.dataset | {"name": name, "path": None},
        class_names=(name, *plan.class_names[1:]),
    )


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_no_name_breaks_a_card(what: str, run: RunResult, tiny_cache: Path) -> None:
    plain_plan, hostile_plan = (
        called(read_plan(tiny_cache), name) for name in ("x", HOSTILE[what])
    )
    cache = run.cache | {"class_names": list(hostile_plan.class_names)}
    hostile_run = replace(run, cache=cache | {"encoder": HOSTILE[what], "dataset": HOSTILE[what]})
    for plain, hostile in (
        (cache_card(plain_plan), cache_card(hostile_plan)),
        (
            text_of(run, Encoding.of(plain_plan)),
            text_of(hostile_run, Encoding.of(hostile_plan)),
        ),
    ):
        assert not harmful(hostile), harmful(hostile)
        assert not flooded(hostile)
        assert len(hostile.splitlines()) == len(plain.splitlines()), "a name makes no line"
        assert head_of(hostile).keys() == head_of(plain).keys()
        body = hostile.partition("\n---\n")[2]
        structure = [line[:2] for line in plain.partition("\n---\n")[2].splitlines()]
        assert [line[:2] for line in body.splitlines()] == structure
        assert not re.search(r"(?<!\\)[<`]script", body)
        assert body.count("```") == plain.count("```")
        table = [line for line in body.splitlines() if line.startswith("|")]
        cells = [line.replace("\\\\", "").replace("\\|", "").count("|") for line in table]
        assert cells == [line.count("|") for line in plain.splitlines() if line.startswith("|")]


def test_ids_of_the_hub_are_linked_and_local_names_are_not(
    run: RunResult, tiny_cache: Path
) -> None:
    plan = read_plan(tiny_cache)
    assert "base_model" not in head_of(text_of(run))
    assert open_cache(tiny_cache).plan.encoder["path"], "a local one"
    hub = {"name": "someone/tiny", "path": None, "revision": "0" * 40}
    known = Encoding.of(replace(plan, encoder=plan.encoder | hub, dataset=plan.dataset | hub))
    head = head_of(text_of(run, known))
    assert (head["base_model"], head["datasets"]) == ("someone/tiny", ["someone/tiny"])
