"""A run.json is read back into types, or refused with one message."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gaam_cache.common.errors import CacheError
from gaam_cache.store.files import read_json, sealed_text, unsealed
from gaam_decoder.recipe import Fold, Groups, GroupsRecord, Recipe
from gaam_decoder.runs.read import read_run
from gaam_decoder.specs import parse_spec
from tests.conftest import GOLDEN

RECIPE = Recipe(
    attention=parse_spec("gaam:heads=2", "mechanism"),
    head=parse_spec("linear", "head"),
    loss=parse_spec("cross-entropy", "loss"),
    epochs=3,
    batch_size=32,
    lr=1e-5,
    weight_decay=0.01,
    schedule="constant",
    clip_grad_norm=None,
    select="val",
    val_fraction=0.1,
    split_seed=0,
    pool="mean",
    layers=None,
    train_split="train",
    test_split="test",
    allow_train_as_test=False,
    dtype="float32",
    fold=None,
    groups=None,
)
GROUPS = Groups(names=("a", "b"), source="speaker", kind="column")
OTHER_VALUES: dict[str, Any] = {
    "attention": parse_spec("laplace:heads=4,location=median", "mechanism"),
    "head": parse_spec("mlp:dropout=0.25", "head"),
    "loss": parse_spec("focal:gamma=1.5", "loss"),
    "epochs": 7,
    "batch_size": 8,
    "lr": 0.3,
    "weight_decay": 0.0,
    "schedule": "cosine",
    "clip_grad_norm": 1.0,
    "select": "last",
    "val_fraction": 0.2,
    "split_seed": 5,
    "pool": "last",
    "layers": (0, 1, 2, 7),
    "train_split": "learn",
    "test_split": "none",
    "allow_train_as_test": True,
    "dtype": "bfloat16",
    "fold": Fold(2, 5),
    "groups": GROUPS,
    "loss_scale": "dynamic",
    "clip_order": "clip-first",
    "ties": "first",
    "eval_dtype": "float32",
    "shuffle_labels": True,
    "shuffle": "window:100",
    "shard_rows": 64,
    "class_weights": "balanced",
    "state_scale": "layer",
    "train_rows": 100,
    "shots": 5,
    "val_folds": 3,
    "val_split": "validation",
    "optimizer": parse_spec("sgd:momentum=0.5", "optimizer"),
}


def read_back(recipe: Recipe) -> Recipe:
    groups = {}
    if recipe.groups is not None:
        groups = {"kind": recipe.groups.kind, "source": recipe.groups.source}
    return Recipe.from_dict(
        recipe.to_dict(),
        attention=str(recipe.attention),
        head=str(recipe.head),
        groups=groups,
    )


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Recipe)])
def test_every_setting_is_read_back(name: str) -> None:
    recipe = dataclasses.replace(RECIPE, **{name: OTHER_VALUES[name]})
    assert recipe != RECIPE
    copy = read_back(recipe)
    assert copy.to_dict() == recipe.to_dict()
    if name == "groups":
        record = GroupsRecord(GROUPS.digest, GROUPS.source, GROUPS.kind)
        recipe = dataclasses.replace(recipe, groups=record)
    assert copy == recipe
    assert str(copy) == str(recipe)


def test_a_fit_is_read_back_in_the_form_that_equivalent_recipes_share() -> None:
    head = parse_spec("lbfgs", "head")
    fit = dataclasses.replace(RECIPE, head=head, epochs=9, layers=(3,))
    copy = read_back(fit)
    assert copy != fit
    assert copy == fit.normalized()


MISSING = object()


class Edit(NamedTuple):
    """Another value at a place of run.json, and what the refusal says of it."""

    keys: tuple[str, ...]
    value: Any
    message: str


# fmt: off
EDITS = {
    "unknown setting": Edit(("recipe", "rate"), 1, "unknown key 'rate'"),
    "missing setting": Edit(("recipe", "pool"), MISSING, "no key 'pool'"),
    "half of the steps": Edit(("recipe", "lr"), MISSING, "no key 'lr'"),
    "type of a setting": Edit(("recipe", "epochs"), "3", "'3', not int"),
    "truth as a number": Edit(("recipe", "split_seed"), True, "not int"),
    "choice": Edit(("recipe", "select"), "best", "one of val, last, test"),
    "fold": Edit(("recipe", "fold"), "6/5", "not a fold such as 1/5"),
    "layers": Edit(("recipe", "layers"), "9-1", "a range that rises"),
    "recipe": Edit(("recipe",), [1], "'recipe' is"),
    "groups": Edit(("groups",), {"kind": "column"}, "'groups.digest' is None"),
    "cache": Edit(("cache", "rows"), MISSING, "'cache' has no key 'rows'"),
    "rows": Edit(("cache", "rows", "train"), 1.5, "'cache.rows.train' is 1.5"),
    "seed": Edit(("seeds",), [{"seed": 0}], "no key 'epoch'"),
    "file": Edit(("files", "log.jsonl"), {"bytes": 1}, "no key 'sha256'"),
    "tuning": Edit(("tuning",), {"seeds": "all"}, "'tuning.seeds' is 'all'"),
    "unknown key": Edit(("colour",), "red", "unknown key 'colour'"),
}
# fmt: on


def change_value(content: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    """Set the value at these keys, or delete it if it is MISSING."""
    for key in keys[:-1]:
        content = content[key]
    if value is MISSING:
        del content[keys[-1]]
    else:
        content[keys[-1]] = value


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A copy of a run of version 0.1."""
    golden = next((GOLDEN / "v0.1.0" / "runs").glob("gaam*"))
    return Path(shutil.copytree(golden, tmp_path / golden.name))


def read_record(run_folder: Path) -> dict[str, Any]:
    return dict(unsealed(read_json(run_folder / "run.json")))


def write_record(run_folder: Path, content: dict[str, Any]) -> None:
    (run_folder / "run.json").write_text(sealed_text(content))


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_wrong_run_json_is_refused_with_one_message(
    edit: Edit, run_folder: Path
) -> None:
    content = read_record(run_folder)
    change_value(content, edit.keys, edit.value)
    write_record(run_folder, content)
    with pytest.raises(CacheError, match="is damaged") as refusal:
        read_run(run_folder)
    assert edit.message in refusal.value.details["found"]
    assert {"where", "to do"} <= refusal.value.details.keys()


def test_a_plugin_need_not_be_installed_to_read_its_run(run_folder: Path) -> None:
    content = read_record(run_folder)
    attention = "theirs:rate=1e-05,warm=true,of=median"
    content["attention"] = attention
    content["recipe"]["plugins"] = {"mechanism theirs": "their-package 1.0 0a1b"}
    write_record(run_folder, content)
    run = read_run(run_folder)
    assert str(run.recipe.attention) == attention
    assert run.to_dict()["recipe"] == content["recipe"]
    assert run.title.startswith(f"{attention} + linear")
