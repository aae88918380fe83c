"""Promise 4: another encoder, tokenizer, setting or row is another fingerprint.

Each change is one thing. What the fingerprint then covers otherwise is read from
``cache.json``, as docs/reference/cache-format.md says, and the refusal must have each of its names.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.contract.conftest import Outcome, at_once, read_files, run
from tests.tiny import build_encoder, random_rows, write_csv

COLUMNS = ("label", "text", "who", "other")
Rows = dict[str, list[list[str]]]


def draw_rows() -> Rows:
    """Rows of two splits, with two columns more than an extraction needs."""
    texts = {
        "train": [("a", "goal"), ("b", "bank"), *random_rows(12, 1)],
        "test": random_rows(5, 2),
    }
    return {
        split: [[*row, "ab"[n % 2], "xyz"[n // 2 % 2]] for n, row in enumerate(part)]
        for split, part in texts.items()
    }


def keep(part: Any) -> None:
    """Change nothing."""


class Change(NamedTuple):
    """One thing that is not as in the base."""

    # names of what the fingerprint covers otherwise
    covered: str
    options: tuple[str, ...] = ()
    toml: str = ""
    encoder: Callable[[Path], None] = keep
    rows: Callable[[Rows], None] = keep


F = "encoder.files"
AS_IS = Change("")
MEASURED = ("encoder.tokens.", "encoder.acts_causal")


def change_a_weight(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["encoder.layer.1.output.dense.bias"][3] += 1e-3
    save_file(tensors, file, {"format": "pt"})


def update_json(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | values))


def exchange_two_words(folder: Path) -> None:
    file = folder / "tokenizer.json"
    model = json.loads(file.read_text())["model"]
    model["vocab"] |= {"goal": 5, "bank": 4}
    update_json(file, model=model)


def remove_special_tokens(folder: Path) -> None:
    update_json(folder / "tokenizer.json", post_processor=None)


def cut_texts_on_the_left(folder: Path) -> None:
    update_json(folder / "tokenizer_config.json", truncation_side="left")


def change_the_activation(folder: Path) -> None:
    update_json(folder / "config.json", hidden_act="relu")


def write_a_readme(folder: Path) -> None:
    (folder / "README.md").write_text("text")


@dataclass(frozen=True)
class Cell:
    """Another value for a cell of a row."""

    split: str
    row: int
    column: str
    value: str

    def __call__(self, rows: Rows) -> None:
        rows[self.split][self.row][COLUMNS.index(self.column)] = self.value


def reverse_the_test_rows(rows: Rows) -> None:
    rows["test"].reverse()


def repeat_a_row(rows: Rows) -> None:
    rows["train"].append(rows["train"][0])


CHANGES = {
    "max length": Change("encoder.max_length", ("--max-length", "20")),
    "arithmetic": Change("encoder.dtype", ("--dtype", "bfloat16")),
    "float32": Change("storage_dtype", ("--storage-dtype", "float32")),
    "bfloat16": Change("storage_dtype", ("--storage-dtype", "bfloat16")),
    "pooling": Change("encoder.pooling", ("--pool", "first")),
    "two poolings": Change("encoder.pooling", ("--pool", "mean", "--pool", "first")),
    "prompt": Change("encoder.prompt", ("--prompt", "goal {text}")),
    "other prompt": Change("encoder.prompt", ("--prompt", "{text} goal")),
    "pooled tokens": Change("encoder.pool_over", toml="pool_over = 'text'"),
    "layer 0": Change("encoder.layers", toml="layer_zero = true"),
    "untrained": Change(
        f"{F}.model.safetensors encoder.untrained", ("--untrained-encoder",)
    ),
    "bag of words": Change(
        f"{F} encoder.bag_of_words encoder.fitted_on encoder.vocabulary "
        "encoder.unicode encoder.special_tokens encoder.layers",
        ("--encoder", "tfidf:features=32"),
    ),
    "fewer rows": Change(
        "rows.train content.train columns.who.train", ("--limit", "8")
    ),
    "fewer splits": Change(
        "rows.test content.test columns.who.test", ("--split", "train")
    ),
    "text column": Change("content.train content.test", ("--text-column", "who")),
    "label column": Change(
        "class_names content.train content.test", ("--label-column", "other")
    ),
    "kept column": Change("columns.who columns.other", ("--keep-column", "other")),
    "no labels": Change("unlabelled content.test", toml="unlabelled = ['test']"),
    "a weight": Change(f"{F}.model.safetensors", encoder=change_a_weight),
    "two words": Change(f"{F}.tokenizer.json", encoder=exchange_two_words),
    "special tokens": Change(f"{F}.tokenizer.json", encoder=remove_special_tokens),
    "cut texts": Change(f"{F}.tokenizer_config.json", encoder=cut_texts_on_the_left),
    "activation": Change(f"{F}.config.json", encoder=change_the_activation),
    "a text": Change("content.test", rows=Cell("test", 4, "text", "army")),
    "case": Change("content.train", rows=Cell("train", 0, "text", "Goal")),
    "space": Change("content.train", rows=Cell("train", 0, "text", "goal ")),
    "a label": Change("content.train", rows=Cell("train", 0, "label", "b")),
    "a class": Change("content.train class_names", rows=Cell("train", 3, "label", "c")),
    "a kept value": Change("columns.who.test", rows=Cell("test", 2, "who", "eve")),
    "order": Change("content.test", rows=reverse_the_test_rows),
    "a row twice": Change(
        "content.train rows.train columns.who.train", rows=repeat_a_row
    ),
    "how it is run": Change(
        "", ("--device", "cpu"), "batch_tokens = 30\nshard_rows = 5"
    ),
    "no change": Change(
        "", ("--prompt", "{text}", "--limit", "100"), "pool_over = 'all'"
    ),
    "a column that is not read": Change("", rows=Cell("train", 2, "other", "z")),
    "a file that is not read": Change("", encoder=write_a_readme),
}


def save_rows(folder: Path, rows: Rows) -> Path:
    for split, part in rows.items():
        write_csv(folder / f"{split}.csv", part, ",".join(COLUMNS))
    return folder


def extract_command(
    encoder: Path, rows: Path, out: Path, change: Change = AS_IS
) -> tuple[object, ...]:
    """The command that made the base, but for what is changed."""
    file = out.with_name(f"{out.name}.toml")
    file.write_text(f"[extract]\n{change.toml}\n")
    usual_options: dict[str, object] = {
        "--encoder": encoder,
        "--dataset": rows,
        "--keep-column": "who",
        "--max-length": 40,
    }
    kept_options: list[object] = []
    for option, value in usual_options.items():
        if option not in change.options:
            kept_options += [option, value]
    return ("extract", *kept_options, "--out", out, "--config", file, *change.options)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, its cache, and a run on it."""
    root = tmp_path_factory.mktemp("fingerprint")
    encoder = build_encoder(root / "encoder", "bert")
    rows = save_rows(root / "rows", draw_rows())
    extraction = run(*extract_command(encoder, rows, root / "cache"))
    assert extraction.code == 0, extraction.err
    training = run(
        *("train", "--attn", "scalar-mix", "--seeds", 1, "--lr", 1, "--epochs", 1),
        *("--no-probe", "--cache", root / "cache", "--runs", root / "runs"),
    )
    assert training.code == 0, training.err
    return root


def covered(cache: Path) -> tuple[str, dict[str, Any]]:
    """A fingerprint, and what it covers by dotted names."""
    plan = json.loads((cache / "cache.json").read_text())
    return plan["fingerprint"], dict(dotted(plan["fingerprint_fields"]))


def dotted(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values of nested fields with their dotted names."""
    for name, value in fields.items():
        if not isinstance(value, dict):
            yield name, value
            continue
        for inner_name, inner_value in dotted(value):
            yield f"{name}.{inner_name}", inner_value


@pytest.mark.parametrize("name", CHANGES)
def test_one_change(name: str, base: Path, tmp_path: Path) -> None:
    change = CHANGES[name]
    cache = base / "cache"
    other_cache = tmp_path / "other"
    cache_before = read_files(cache)
    encoder = Path(shutil.copytree(base / "encoder", tmp_path / "encoder"))
    change.encoder(encoder)
    rows = draw_rows()
    change.rows(rows)
    folder = save_rows(tmp_path / "rows", rows)

    extraction = run(*extract_command(encoder, folder, other_cache, change))
    assert extraction.code == 0, extraction.err
    into_the_base = run(*extract_command(encoder, folder, cache, change))
    assert into_the_base.code == (2 if change.covered else 0), into_the_base.err
    assert read_files(cache) == cache_before

    fingerprint, fields = covered(cache)
    other_fingerprint, other_fields = covered(other_cache)
    changed = {
        key for key in fields | other_fields if fields.get(key) != other_fields.get(key)
    }
    # What tokenizer and model do follows from settings and files. It is named where it
    # does not.
    named = {key for key in changed if not key.startswith(MEASURED)}
    assert named or not changed
    check_covered(named, set(change.covered.split()))
    assert (fingerprint != other_fingerprint) == bool(named)
    assert [key for key in named if f" {key} " not in into_the_base.err] == []

    [trained] = [file.parent for file in base.glob("runs/*/run.json")]
    # A run learned from no other cache, and from no rows that were encoded otherwise.
    if named:
        ablation = run("ablate", trained, "--num-layers", 1, "--cache", other_cache)
        assert ablation.code == 3
    encoded_otherwise = [
        key
        for key in named - {"encoder.pooling"}
        if key.startswith(("encoder", "storage"))
    ]
    if encoded_otherwise:
        assert run("predict", trained, "--cache", other_cache).code == 3


def check_covered(named: set[str], expected: set[str]) -> None:
    """Each name is one of the expected, or below one, and each expected has a name."""
    for key in named:
        assert any(f"{key}.".startswith(f"{group}.") for group in expected), key
    for group in expected:
        assert any(f"{key}.".startswith(f"{group}.") for key in named), group


def test_ranks_and_another_format_are_the_same(base: Path, tmp_path: Path) -> None:
    for split, part in draw_rows().items():
        lines = [
            json.dumps(dict(zip(COLUMNS[::-1], row[::-1], strict=True))) for row in part
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    command = extract_command(base / "encoder", tmp_path, tmp_path / "cache")
    environs = [{"RANK": rank, "WORLD_SIZE": 2} for rank in range(2)]
    outcomes = at_once([command] * 2, environs=environs)
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert covered(tmp_path / "cache") == covered(base / "cache")
    again = extract_command(base / "encoder", tmp_path, base / "cache")
    assert run(*again).code == 0


def test_imported_states_have_theirs(tmp_path: Path) -> None:
    states = np.random.default_rng(0).normal(size=(12, 2, 4)).astype(np.float32)
    other_states = np.where(states == states[7, 1, 2], 1, states)
    label_N = np.arange(12) % 2
    made = import_states(tmp_path, "first", states, label_N)
    assert made.code == 0
    assert "train.npz" not in made.err
    for name, changed_states, changed_label_N in (
        ("a state", other_states, label_N),
        ("labels", states, 1 - label_N),
    ):
        refused = import_states(tmp_path, name, changed_states, changed_label_N)
        assert refused.code == 2, name
        assert "train.npz" in refused.err, name


def import_states(root: Path, name: str, states: Any, labels: Any) -> Outcome:
    """Import states from a folder of this name into the one cache of a test."""
    file = root / name / "train.npz"
    file.parent.mkdir()
    np.savez(file, states=states, labels=labels)
    return run("import", file, "--out", root / "cache")
