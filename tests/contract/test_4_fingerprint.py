"""Promise 4: another encoder, tokenizer, setting or row is another fingerprint, told by its name.

Each change is one thing. What the fingerprint then covers otherwise is read from ``cache.json``, as
FORMAT.md says, and each of its names must be in the refusal.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.contract.conftest import at_once, files_of, run
from tests.tiny import build_encoder, random_rows, write_csv

COLUMNS = ("label", "text", "who", "other")
Rows = dict[str, list[list[str]]]
TEXTS = {
    "train": [("a", "goal"), ("b", "bank"), *random_rows(12, 1)],
    "test": random_rows(5, 2),
}
ROWS: Rows = {
    split: [[*row, "ab"[n % 2], "xyz"[n // 2 % 2]] for n, row in enumerate(part)]
    for split, part in TEXTS.items()
}


class Change(NamedTuple):
    """One thing that is not as in the base."""

    covered: str  # what the fingerprint covers otherwise
    options: tuple[str, ...] = ()
    toml: str = ""
    encoder: Callable[[Path], Any] = bool
    rows: Callable[[Rows], Any] = bool


F, AS_IS = "encoder.files", Change("")
MEASURED = ("encoder.tokens.", "encoder.acts_causal")


def weight(folder: Path) -> None:
    tensors = load_file(file := folder / "model.safetensors")
    tensors["encoder.layer.1.output.dense.bias"][3] += 1e-3
    save_file(tensors, file, {"format": "pt"})


def in_json(name: str, change: Callable[[Any], Any]) -> Change:
    def changed(folder: Path) -> None:
        change(value := json.loads((folder / name).read_text()))
        (folder / name).write_text(json.dumps(value))

    return Change(f"{F}.{name}", encoder=changed)


def put(split: str, place: int, column: str, value: str) -> Callable[[Rows], Any]:
    return lambda rows: rows[split][place].__setitem__(COLUMNS.index(column), value)


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
    "untrained": Change(f"{F}.model.safetensors encoder.untrained", ("--untrained-encoder",)),
    "bag of words": Change(
        f"{F} encoder.bag_of_words encoder.fitted_on encoder.vocabulary encoder.unicode "
        "encoder.special_tokens encoder.layers",
        ("--encoder", "tfidf:features=32")),
    "fewer rows": Change("rows.train content.train columns.who.train", ("--limit", "8")),
    "fewer splits": Change("rows.test content.test columns.who.test", ("--split", "train")),
    "text column": Change("content.train content.test", ("--text-column", "who")),
    "label column": Change("class_names content.train content.test", ("--label-column", "other")),
    "kept column": Change("columns.who columns.other", ("--keep-column", "other")),
    "no labels": Change("unlabelled content.test", toml="unlabelled = ['test']"),
    "a weight": Change(f"{F}.model.safetensors", encoder=weight),
    "two words": in_json("tokenizer.json", lambda it: it["model"]["vocab"].update(goal=5, bank=4)),
    "special tokens": in_json("tokenizer.json", lambda it: it.update(post_processor=None)),
    "cut texts": in_json("tokenizer_config.json", lambda it: it.update(truncation_side="left")),
    "activation": in_json("config.json", lambda it: it.update(hidden_act="relu")),
    "a text": Change("content.test", rows=put("test", 4, "text", "army")),
    "case": Change("content.train", rows=put("train", 0, "text", "Goal")),
    "space": Change("content.train", rows=put("train", 0, "text", "goal ")),
    "a label": Change("content.train", rows=put("train", 0, "label", "b")),
    "a class": Change("content.train class_names", rows=put("train", 3, "label", "c")),
    "a kept value": Change("columns.who.test", rows=put("test", 2, "who", "eve")),
    "order": Change("content.test", rows=lambda rows: rows["test"].reverse()),
    "a row twice": Change("content.train rows.train columns.who.train",
                          rows=lambda rows: rows["train"].append(rows["train"][0])),
    "how it is run": Change("", ("--device", "cpu"), "batch_tokens = 30\nshard_rows = 5"),
    "no change": Change("", ("--prompt", "{text}", "--limit", "100"), "pool_over = 'all'"),
    "a column that is not read": Change("", rows=put("train", 2, "other", "z")),
    "a file that is not read": Change("", encoder=lambda f: (f / "README.md").write_text("text")),
}  # fmt: skip


def save_rows(folder: Path, rows: Rows) -> Path:
    for split, part in rows.items():
        write_csv(folder / f"{split}.csv", part, ",".join(COLUMNS))
    return folder


def extract(
    encoder: Path, rows: Path, out: Path, change: Change = AS_IS
) -> tuple[Any, ...]:
    """The command that made the base, but for what is changed."""
    file = out.with_name(f"{out.name}.toml")
    file.write_text(f"[extract]\n{change.toml}\n")
    usual = {
        "--encoder": encoder,
        "--dataset": rows,
        "--keep-column": "who",
        "--max-length": 40,
    }
    kept = [
        part for pair in usual.items() if pair[0] not in change.options for part in pair
    ]
    return ("extract", *kept, "--out", out, "--config", file, *change.options)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, its cache, and a run on it."""
    root = tmp_path_factory.mktemp("fingerprint")
    encoder = build_encoder(root / "encoder", "bert")
    made = run(*extract(encoder, save_rows(root / "rows", ROWS), root / "cache"))
    trained = run("train", "--attn", "scalar-mix", "--cache", root / "cache", "--runs",
                  root / "runs", "--seeds", 1, "--lr", 1, "--epochs", 1, "--no-probe")  # fmt: skip
    assert (made.code, trained.code) == (0, 0), made.err + trained.err
    return root


def covered(cache: Path) -> tuple[str, dict[str, Any]]:
    """A fingerprint, and what it covers by dotted names."""

    def flat(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {name: value}
        return {
            k: v
            for key, of in value.items()
            for k, v in flat(of, f"{name}.{key}").items()
        }

    plan = json.loads((cache / "cache.json").read_text())
    return plan["fingerprint"], {
        k[1:]: v for k, v in flat(plan["fingerprint_fields"], "").items()
    }


@pytest.mark.parametrize("name", CHANGES)
def test_one_change(name: str, base: Path, tmp_path: Path) -> None:
    change, other, cache = CHANGES[name], tmp_path / "other", base / "cache"
    encoder, rows, before = tmp_path / "encoder", deepcopy(ROWS), files_of(cache)
    change.encoder(shutil.copytree(base / "encoder", encoder))
    change.rows(rows)
    folder = save_rows(tmp_path / "rows", rows)
    made = run(*extract(encoder, folder, other, change))
    there = run(*extract(encoder, folder, cache, change))
    assert (made.code, there.code) == (0, 2 if change.covered else 0), (
        made.err + there.err
    )
    assert files_of(cache) == before
    (ours, then), (theirs, now) = covered(cache), covered(other)
    every = {key for key in then | now if then.get(key) != now.get(key)}
    # what tokenizer and model do follows from settings and files, and is named where it does not
    differ = {key for key in every if not key.startswith(MEASURED)}
    assert differ or not every
    groups = change.covered.split()
    of_group = {
        key: [g for g in groups if f"{key}.".startswith(f"{g}.")] for key in differ
    }
    assert all(of_group.values()), of_group
    assert {g for found in of_group.values() for g in found} == set(groups)
    assert (ours != theirs) == bool(differ)
    assert all(f" {key} " in there.err for key in differ)
    (trained,) = (file.parent for file in base.glob("runs/*/run.json"))
    if differ:  # what a run learned from is no other cache, nor rows that were encoded otherwise
        assert run("ablate", trained, "--num-layers", 1, "--cache", other).code == 3
    if any(
        key.startswith(("encoder", "storage")) for key in differ - {"encoder.pooling"}
    ):
        assert run("predict", trained, "--cache", other).code == 3


def test_ranks_and_another_format_are_the_same(base: Path, tmp_path: Path) -> None:
    for split, part in ROWS.items():
        lines = [
            json.dumps(dict(zip(COLUMNS[::-1], row[::-1], strict=True))) for row in part
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    command = extract(base / "encoder", tmp_path, tmp_path / "cache")
    ranks = at_once(
        [command] * 2, environs=[{"RANK": n, "WORLD_SIZE": 2} for n in range(2)]
    )
    assert [rank.code for rank in ranks] == [0, 0]
    assert covered(tmp_path / "cache") == covered(base / "cache")
    assert run(*extract(base / "encoder", tmp_path, base / "cache")).code == 0


def test_imported_states_have_theirs(tmp_path: Path) -> None:
    states = np.random.default_rng(0).normal(size=(12, 2, 4)).astype(np.float32)
    other, label_N = np.where(states == states[7, 1, 2], 1, states), np.arange(12) % 2
    for n, arrays in enumerate(
        [(states, label_N), (other, label_N), (states, 1 - label_N)]
    ):
        (tmp_path / f"{n}").mkdir()
        np.savez(tmp_path / f"{n}/train.npz", states=arrays[0], labels=arrays[1])
        made = run("import", tmp_path / f"{n}/train.npz", "--out", tmp_path / "cache")
        assert (made.code, "train.npz" in made.err) == ((2, True) if n else (0, False))
