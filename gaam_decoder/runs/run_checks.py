"""Does what a run says fit together? A digest proves who wrote it, not that it makes sense.

Pure functions; each raises ValueError with what is wrong.

S seeds, N test rows, C classes, L layers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.store.encoding import Encoding
from gaam_decoder.number_lists import DRAWN_BY, MAX_NUMBERS
from gaam_decoder.recipe import has_test_rows

WEIGHTS_FILE, TEST_FILE, LOG_FILE = "weights.safetensors", "test.safetensors", "log.jsonl"
RUN_FILES = (WEIGHTS_FILE, TEST_FILE, LOG_FILE)
VALIDATION_FILE = "validation.safetensors"
ALL_FILES = (*RUN_FILES, VALIDATION_FILE)
"""Those that every run has, and the one of runs whose epoch rows of train chose."""
CONFIG_FILE = "config.toml"
"""What ``gaam train --config`` takes to train the run again; runs of 0.1 have none."""
CREATED_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""When a run was published, UTC."""
_ABOUT: dict[str, type] = {
    **dict.fromkeys(("key", "attention", "head"), str),
    **dict.fromkeys(("recipe", "cache", "environment", "engine"), dict),
    **dict.fromkeys(("parameters", "learned_start", "files"), dict),
    "seeds": list,
}
_CACHE: dict[str, type] = {
    **dict.fromkeys(("fingerprint", "encoder", "dataset"), str),
    **dict.fromkeys(("layers", "hidden_size"), int),
    "rows": dict,
    "class_names": list,
}
_RECIPE: dict[str, type] = {"select": str, "epochs": int, "train_split": str, "test_split": str}
_FIT: dict[str, type] = {
    "setting": str,
    **dict.fromkeys(("value", "lowest", "highest"), float),
    **dict.fromkeys(("tried", "kept"), int),
    "unconverged": list,
}
"""How a head was fitted at once; such a run has no 'epochs' and no 'lr'."""
_TITLE: dict[str, tuple[type, ...]] = {
    "pool": (str,),
    "lr": (float, int),
    "layers": (str, type(None)),
    "weight_decay": (float, int, type(None)),
    "split_seed": (int, type(None)),
    "shuffle": (str, type(None)),
    **dict.fromkeys(DRAWN_BY, (int, type(None))),
    "shuffle_labels": (bool, type(None)),
    "dtype": (str, type(None)),
    "eval_dtype": (str, type(None)),
    "plugins": (dict, type(None)),
}
"""What of the recipe stands in the name of a row, or says how to predict; None: not there."""
_ENGINE: dict[str, type] = {
    **dict.fromkeys(("device", "dtype", "why", "data"), str),
    "seed_batch": int,
    "compiled": bool,
}
_ENVIRONMENT: dict[str, type] = {"code": dict}
_SEED: dict[str, type] = {"seed": int, "epoch": int, "seconds": float}


def check_about(content: Mapping[str, Any]) -> None:
    """The content of run.json: fields and their types, seeds, names of files."""
    _check_fields(content, _ABOUT, "run.json")
    recipe, cache, seeds = content["recipe"], content["cache"], content["seeds"]
    fit = content.get("fit", {})
    if fit:
        _check_fields(fit, _FIT, "fit")
        _require(1 <= fit["kept"] <= fit["tried"], "a fit that was not among those tried")
        numbers = [fit[name] for name in ("value", "lowest", "highest")] + fit["unconverged"]
        fits = all(type(number) is float and math.isfinite(number) for number in numbers)
        _require(fits, "values of a fit that are no numbers")
        # a line of the log for every value that was tried, as otherwise for every epoch
        recipe = {**recipe, "epochs": fit["tried"], "lr": 0.0}
    known = {"recipe": _RECIPE, "cache": _CACHE, "engine": _ENGINE, "environment": _ENVIRONMENT}
    for part, fields in known.items():
        _check_fields(recipe if part == "recipe" else content[part], fields, part)
    _require(re.fullmatch("[0-9a-f]{64}", content["key"]), "the key is no SHA-256")
    tested, majority = has_test_rows(recipe, cache["rows"]), content.get("majority_accuracy")
    fits = type(majority) is float and 0 <= majority <= 1 if tested else majority is None
    _require(fits, f"majority_accuracy is {majority!r}")
    _require(min(recipe["epochs"], cache["layers"], cache["hidden_size"]) >= 1, "a size below 1")
    _require(cache["layers"] <= MAX_NUMBERS, f"{cache['layers']} layers")
    _require(cache.get("first_layer", 1) in (0, 1), "a first layer that is neither 0 nor 1")
    names = cache["class_names"]
    _require(names and all(type(name) is str for name in names), "class_names are no names")
    _require(all(_is_count(count) for count in cache["rows"].values()), "rows that are no number")
    if "encoding" in cache:
        _check_encoding(Encoding.from_dict(cache["encoding"]), recipe, cache)
    shared = cache.get("shared_texts", {})
    fits = type(shared) is dict and all(type(counts) is dict for counts in shared.values())
    counts = [count for of_split in shared.values() for count in of_split.values()] if fits else []
    _require(fits and all(map(_is_count, counts)), "shared texts that are no numbers")
    for name, types in _TITLE.items():
        value = recipe.get(name)
        _require(type(value) in types, f"'{name}' of the recipe is {value!r}")
    fold = recipe.get("fold")
    _require(fold is None or re.fullmatch(r"\d+/\d+", str(fold)), f"fold {fold!r}")
    split = recipe["test_split"] if tested and not fold else recipe["train_split"]
    _require(split in cache["rows"], f"no split '{split}' in the cache")
    _check_fields(content["parameters"], {"attention": int, "total": int}, "parameters")
    for name, span in content["learned_start"].items():
        fits = type(span) is list and len(span) == 2 and all(type(x) is float for x in span)
        _require(fits, f"learned_start of '{name}' is no pair of numbers")
    chosen_by = content.get("tuning", {"seeds": []})
    _check_fields(chosen_by, {"seeds": list}, "tuning")
    _require(all(map(_is_count, chosen_by["seeds"])), "tuning by seeds that are none")
    if drawn := content.get("drawn", {}):
        _check_fields(drawn, {"learn": int, "choose": int}, "drawn")
        fits = drawn["learn"] >= 1 and drawn["choose"] >= 0
        most = cache["rows"][recipe["train_split"]]
        _require(fits and sum(drawn.values()) <= most, f"drawn rows: {drawn!r:.60}")
    if groups := content.get("groups", {}):
        _check_fields(groups, {"kind": str, "source": str}, "groups")
    if (created := content.get("created")) is not None:
        _require(type(created) is str, f"'created' is {created!r:.60}")
        datetime.strptime(created, CREATED_FORMAT)
    _require(seeds, "no seeds")
    for entry in seeds:
        _check_fields(entry, _SEED, "a seed")
        failed, epoch = entry.get("failed"), entry["epoch"]
        _require(_is_count(entry["seed"]), "a seed below 0")
        _require(failed is None or (type(failed) is str and failed), "a failure without a reason")
        _require(0 <= entry["seconds"] < math.inf, "seconds that are no time")
        fits = epoch == 0 if failed else 1 <= epoch <= recipe["epochs"]
        _require(fits, f"seed {entry['seed']} keeps epoch {epoch} of {recipe['epochs']}")
    _require(len({entry["seed"] for entry in seeds}) == len(seeds), "a seed is there twice")
    there = set(content["files"])
    fits = there - {VALIDATION_FILE, CONFIG_FILE} == set(RUN_FILES)
    _require(fits, f"files: {', '.join(there)}")
    fits = VALIDATION_FILE not in there or recipe["select"] == "val"
    _require(fits, "logits of rows that chose, where none did")
    for name, about in content["files"].items():
        _check_fields(about, {"bytes": int, "sha256": str}, name)


def _check_encoding(found: Encoding, recipe: Mapping[str, Any], cache: Mapping[str, Any]) -> None:
    """How rows were encoded is what the rest of the run says of them."""
    states = (cache["layers"], cache["hidden_size"], cache.get("first_layer", 1))
    fits = (found.num_layers, found.hidden_size, found.first_layer) == states
    fits = fits and recipe["pool"] in found.pooling and found.rows["splits"] == list(cache["rows"])
    _require(fits, "the encoding of the cache is that of another one")


def check_labels(labels: NDArray[Any], recipe: Mapping[str, Any], cache: Mapping[str, Any]) -> None:
    """Test labels, (N,): as many as the cache has test rows, each the number of a class."""
    classes, rows = len(cache["class_names"]), cache["rows"]
    _require(labels.ndim == 1 and labels.dtype == np.int64, "labels are no list")
    if not has_test_rows(recipe, rows):
        _require(not len(labels), f"{len(labels):,} labels of a run that tests nothing")
        return
    _require(len(labels), "no labels")
    if recipe.get("fold"):
        most = rows[recipe["train_split"]]
        _require(len(labels) <= most, f"a fold of {len(labels):,} of {most:,} rows")
    else:
        expected = rows[recipe["test_split"]]
        _require(len(labels) == expected, f"{len(labels):,} labels of {expected:,} test rows")
    low, high = labels.min(), labels.max()
    _require(low >= 0 and high < classes, f"labels from {low} to {high} for {classes} classes")


def check_rows(
    rows: NDArray[Any], count: int, recipe: Mapping[str, Any], cache: Mapping[str, Any]
) -> None:
    """Numbers of the rows of a fold, (N,): ascending, each a row of the train split."""
    fits = recipe.get("fold") and rows.dtype == np.int64 and rows.shape == (count,)
    _require(fits, f"rows are {rows.dtype} {rows.shape}, of a fold they must be int64 {(count,)}")
    inside = rows[0] >= 0 and rows[-1] < cache["rows"][recipe["train_split"]]
    _require(inside and (np.diff(rows) > 0).all(), "rows are no ascending rows of the split")


def check_logits(
    logits: NDArray[Any], failed: Sequence[bool], rows: int, classes: int, *, some: bool = False
) -> None:
    """(S, N, C) float32: numbers for the seeds that finished, NaN for those that failed.

    Args:
        logits: of all seeds.
        failed: which of them did.
        rows: N.
        classes: C.
        some: whether a seed that finished may have none, all NaN: of rows that chose.
    """
    shape = (len(failed), rows, classes)
    fits = logits.dtype == np.float32 and logits.shape == shape
    _require(fits, f"logits are {logits.dtype} {logits.shape}, they must be float32 {shape}")
    for place, lost in enumerate(failed):
        none = np.isnan(logits[place]).all()
        fits = none if lost else np.isfinite(logits[place]).all() or (some and none)
        _require(fits, f"logits of seed number {place} are {'' if lost else 'not '}finite")


def check_map(shape: Sequence[int], seeds: int, layers: int) -> None:
    """(S, L, D), (S, L, 1) or (S, H, Q, L)."""
    fits = len(shape) in (3, 4) and shape[0] == seeds and min(shape) >= 1
    fits = fits and layers == (shape[1] if len(shape) == 3 else shape[3])
    _require(fits, f"an attention map of shape {shape} for {seeds} seeds and {layers} layers")


def check_stacked(name: str, shape: Sequence[int], seeds: int) -> None:
    """(S, ...)."""
    _require(len(shape) >= 1 and shape[0] == seeds, f"'{name}' has not one entry for every seed")


def check_log(
    log: Sequence[Any], seeds: Sequence[int], failed: Mapping[int, str], epochs: int
) -> None:
    """Entries of every seed, one for each epoch from the first on, in the order of the seeds."""
    found: dict[int, int] = {}
    for entry in log:
        _check_fields(entry, {"seed": int, "epoch": int, "train_accuracy": float}, "the log")
        seed = entry["seed"]
        found[seed] = found.get(seed, 0) + 1
        _require(entry["epoch"] == found[seed], f"epochs of seed {seed} are not in order")
        for name in ("loss", "train_accuracy", "accuracy"):
            value = entry.get(name)
            fits = value is None or (type(value) is float and math.isfinite(value))
            _require(fits, f"{name} of seed {seed} is {value!r}")
    _require(list(found) == list(seeds), "the log is of other seeds")
    for seed, count in found.items():
        fits = count <= epochs if seed in failed else count == epochs
        _require(fits, f"the log has {count} of {epochs} epochs of seed {seed}")


def _check_fields(value: Any, fields: Mapping[str, type], where: str) -> None:
    _require(type(value) is dict, f"{where} is no object")
    for name, kind in fields.items():
        _require(name in value, f"{where}: no '{name}'")
        _require(type(value[name]) is kind, f"{where}: '{name}' is {value[name]!r:.60}")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _require(holds: Any, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
