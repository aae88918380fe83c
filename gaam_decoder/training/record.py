"""Finished seeds -> a run folder that says all of how it was made."""

import json
import os
import platform
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaam_cache.common import devices
from gaam_cache.common.version import __version__
from gaam_cache.store.plan import PLANTED_KEY
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import build_decoder
from gaam_decoder.heads._fitted import Fit
from gaam_decoder.number_lists import PER_CLASS, spell_numbers
from gaam_decoder.recipe import OF_STEPS, Recipe
from gaam_decoder.runs.folders import remove_unfinished, run_name
from gaam_decoder.runs.groups import relations
from gaam_decoder.runs.result import SAME, SeedResult, padded, write_run
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.data import TrainData
from gaam_decoder.training.grid import Item
from gaam_decoder.training.protocol import parts_of


def publish(
    item: Item,
    results: list[SeedResult],
    data: TrainData,
    engine: Engine,
    config: TrainConfig,
    cache: EmbeddingCache,
    fit: Fit | None = None,
) -> Path:
    """Write a run folder of all seeds of an item; ``fit`` is how a head was fitted."""
    remove_unfinished(config.runs, item.key)
    recipe, plan, decoder = item.recipe, cache.plan, build_decoder(item.spec, seed=0)
    label_N, train_N = (
        torch.empty(0, dtype=torch.int64),
        cache[recipe.train_split].labels,
    )
    rows = majority = chose = None
    same, of_train = {}, relations(cache, recipe.train_split, recipe.groups)
    if data.test is not None:
        label_N = data.test.label_N.cpu()
        rows = data.test.rows if recipe.fold is not None else None
        tested = (
            of_train
            if recipe.fold is not None
            else relations(cache, recipe.test_split, None)
        )
        same = {name: number_N[data.test.rows] for name, number_N in tested.items()}
        learned_N = train_N if rows is None else np.delete(train_N, rows)
        majority = float(np.mean(label_N.numpy() == np.bincount(learned_N).argmax()))
    if (subset := data.choosing(recipe)) is not None:
        chose = {"labels": subset.label_N.cpu().numpy(), "rows": subset.rows}
        if recipe.val_folds is not None:
            of_seed = [
                parts_of(train_N, recipe, result.seed).held_N for result in results
            ]
            chose = {
                "labels": padded([train_N[held] for held in of_seed]),
                "rows": padded(of_seed),
            }
        for name, number_N in of_train.items():
            chose[SAME + name] = np.where(
                chose["rows"] < 0, -1, number_N[chose["rows"]]
            )
    # a run says of its own rows which are copies
    dataset = {
        name: value for name, value in plan.dataset.items() if name != "equal_rows"
    }
    about_cache = {
        "fingerprint": cache.fingerprint,
        "states": plan.states if plan.reference else None,
        "path": str(cache.root),
        "encoder": plan.encoder_label,
        "dataset": plan.dataset_label,
        "layers": cache.num_layers,
        "hidden_size": cache.hidden_size,
        "rows": plan.rows,
        "shared_texts": plan.shared_texts,
        "class_names": list(cache.class_names),
        "plan": plan.to_dict() | {"dataset": dataset},
        "fitted_on": plan.identity.get("fitted_on"),
        PLANTED_KEY: plan.planted,
        "first_layer": None if cache.first_layer == 1 else cache.first_layer,
    }
    about_cache = {
        name: value for name, value in about_cache.items() if value is not None
    }
    learned = decoder.attention.learned()
    about: dict[str, Any] = {
        "key": item.key,
        "attention": str(recipe.attention),
        "head": str(recipe.head),
        "recipe": recipe.to_dict(),
        "cache": about_cache,
        "environment": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "platform": platform.platform(),
            "device": devices.name_of(torch.device(engine.device)),
            "cpu": devices.cpu_name(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "code": recipe.code(),
        },
        "engine": engine.to_dict() | {"data": data.train.features.place},
        "parameters": decoder.num_parameters(),
        "learned_start": {
            n: [v.min().item(), v.max().item()] for n, v in learned.items()
        },
        "majority_accuracy": majority,
    }
    if recipe.drawn:
        held = data.selection if recipe.select == "val" else None
        about["drawn"] = {"learn": len(data.train), "choose": len(held or ())}
    if same and recipe.fold is None:
        own = data.selection if recipe.select == "val" else None
        learned_N = data.train.rows
        if own is not None:
            learned_N = np.concatenate([learned_N, own.rows])
        about["learned_groups"] = {
            name: len(np.unique(number_N[learned_N]))
            for name, number_N in of_train.items()
        }
    if recipe.groups is not None:
        about["groups"] = {"kind": recipe.groups.kind, "source": recipe.groups.source}
    if fit is not None:
        about["fit"] = fit.to_dict()
    elif (tuning := config.choosing_seeds) is not None:
        about["tuning"] = {"seeds": list(tuning)}
    seeds = [result.seed for result in results]
    name = run_name(str(recipe.attention), str(recipe.head), item.key, seeds)
    again = _config(recipe, seeds, engine, config, cache)
    return write_run(
        config.runs, name, results, label_N, about, rows, chose, same=same, config=again
    )


def _config(
    recipe: Recipe,
    seeds: list[int],
    engine: Engine,
    config: TrainConfig,
    cache: EmbeddingCache,
) -> str:
    """The TOML that trains one run again, whatever chose its rates: all its settings, resolved."""
    values: dict[str, Any] = {
        "attn": str(recipe.attention),
        "head": str(recipe.head),
        "loss": str(recipe.loss),
        "optimizer": str(recipe.optimizer),
        "cache": str(cache.root),
        "runs": str(config.runs),
        # of one seed a list: a number alone is how many
        "seeds": spell_numbers(seeds) if len(seeds) > 1 else seeds,
        "layers": spell_numbers(recipe.layers) if recipe.layers else "all",
        "train_rows": recipe.train_rows
        if recipe.shots is None
        else f"{recipe.shots}{PER_CLASS}",
        "fold": recipe.fold and recipe.fold.number,
        "folds": recipe.fold and recipe.fold.of,
        "groups": recipe.groups and recipe.groups.source,
        "final": False,
        "probe": False,
        "device": engine.kind,
        "seed_batch": engine.seed_batch,  # with compile: the last bits are of seeds together
        "compile": "on" if engine.compiled else "off",
    }
    none = {*OF_STEPS, "seed_batch", "compile"} if recipe.fitted else set()
    lines = [
        f"# gaam {__version__}: everything that decides the numbers of this run",
        "# Train it again: gaam train --config config.toml --runs ANOTHER_FOLDER",
        "# Change a copy of this file, never the file itself: it is a part of the run.",
        "[train]",
    ]
    for name in (field.name for field in fields(TrainConfig) if field.name not in none):
        value = values[name] if name in values else getattr(recipe, name, None)
        if value is not None:
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{name} = {text}")
    return "\n".join([*lines, ""])
