"""What run.json says is read back into types, or refused with one message."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    "train_rows": 100,
    "shots": 5,
    "val_folds": 3,
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
    again = read_back(recipe)
    assert again.to_dict() == recipe.to_dict()
    if name == "groups":
        record = GroupsRecord(GROUPS.digest, GROUPS.source, GROUPS.kind)
        recipe = dataclasses.replace(recipe, groups=record)
    assert again == recipe
    assert str(again) == str(recipe)


def test_a_fit_is_read_back_in_the_form_that_equivalent_recipes_share() -> None:
    head = parse_spec("lbfgs", "head")
    fit = dataclasses.replace(RECIPE, head=head, epochs=9, layers=(3,))
    assert fit != read_back(fit) == fit.settled()


def change(*keys: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return edit


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "unknown setting": (change("recipe", "rate", value=1), "unknown key 'rate'"),
    "missing setting": (lambda run: run["recipe"].pop("pool"), "no key 'pool'"),
    "half of the steps": (lambda run: run["recipe"].pop("lr"), "no key 'lr'"),
    "type of a setting": (change("recipe", "epochs", value="3"), "'3', not int"),
    "truth as a number": (change("recipe", "split_seed", value=True), "not int"),
    "choice": (change("recipe", "select", value="best"), "one of val, last, test"),
    "fold": (change("recipe", "fold", value="6/5"), "not a fold such as 1/5"),
    "layers": (change("recipe", "layers", value="9-1"), "a range that rises"),
    "recipe": (change("recipe", value=[1]), "'recipe' is"),
    "groups": (change("groups", value={"kind": "column"}), "'groups.digest' is None"),
    "cache": (lambda run: run["cache"].pop("rows"), "'cache' has no key 'rows'"),
    "rows": (change("cache", "rows", "train", value=1.5), "'cache.rows.train' is 1.5"),
    "seed": (change("seeds", value=[{"seed": 0}]), "no key 'epoch'"),
    "file": (change("files", "log.jsonl", value={"bytes": 1}), "no key 'sha256'"),
    "tuning": (change("tuning", value={"seeds": "all"}), "'tuning.seeds' is 'all'"),
    "unknown key": (change("colour", value="red"), "unknown key 'colour'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_run_json_is_refused_with_one_message(
    name: str, tmp_path: Path
) -> None:
    edit, expected = WRONG[name]
    golden = next((GOLDEN / "v0.1.0" / "runs").glob("gaam*"))
    run = Path(shutil.copytree(golden, tmp_path / golden.name))
    content = unsealed(read_json(run / "run.json"))
    edit(content)
    (run / "run.json").write_text(sealed_text(content))
    with pytest.raises(CacheError, match="is damaged") as refusal:
        read_run(run)
    assert expected in refusal.value.details["found"]
    assert {"where", "to do"} <= refusal.value.details.keys()


def test_a_plugin_need_not_be_installed_to_read_its_run(tmp_path: Path) -> None:
    golden = next((GOLDEN / "v0.1.0" / "runs").glob("gaam*"))
    run = Path(shutil.copytree(golden, tmp_path / golden.name))
    content = unsealed(read_json(run / "run.json"))
    content["attention"] = "theirs:rate=1e-05,warm=true,of=median"
    content["recipe"]["plugins"] = {"mechanism theirs": "their-package 1.0 0a1b"}
    (run / "run.json").write_text(sealed_text(content))
    read = read_run(run)
    assert str(read.recipe.attention) == content["attention"]
    assert read.to_dict()["recipe"] == content["recipe"]
    assert read.title.startswith("theirs:rate=1e-05,warm=true,of=median + linear")
