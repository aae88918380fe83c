"""Runs in memory whose right and wrong answers are chosen by the test."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.messages import visible
from gaam_decoder import RunResult
from gaam_decoder.recipe import STEP_SETTINGS, Recipe
from gaam_decoder.reports.drawing import Picture
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.records import CacheRecord, DrawnRows, FitRecord

FORMATS = plugins.names("gaam_decoder.reports.formats")
OTHER_SETTINGS: dict[str, Any] = {
    "loss": "cross-entropy",
    "batch_size": 32,
    "weight_decay": 0.0,
    "schedule": "constant",
    "clip_grad_norm": None,
    "split_seed": 0,
    "pool": "mean",
    "allow_train_as_test": False,
    "dtype": "float32",
    "fold": None,
}
"""Settings of a recipe that run.json does not record."""
USUAL_SETTINGS: dict[str, Any] = {
    "select": "val",
    "epochs": 3,
    "lr": 0.001,
    "layers": None,
    "train_split": "train",
    "test_split": "test",
    "val_fraction": 0.1,
}
"""Settings that run.json records."""
CACHE: dict[str, Any] = {
    "fingerprint": "f" * 64,
    "path": "/nowhere/cache",
    "encoder": "an-encoder",
    "dataset": "a-dataset",
    "layers": 6,
    "hidden_size": 8,
}
ENVIRONMENT: dict[str, Any] = {
    "python": "3.11",
    "torch": "2.13",
    "numpy": "2.4",
    "device": "cpu",
    "code": {},
}
FIT = FitRecord(setting="C", value=1.0, lowest=0.1, highest=9.0, tried=3, kept=1)
AG_NEWS = ["World", "Sports", "Business", "Sci/Tech"]


def build_run(
    attention: str,
    right: Any,
    *,
    seeds: tuple[int, ...] | None = None,
    failed: dict[int, str] | None = None,
    head: str = "linear",
    cache: dict[str, Any] | None = None,
    path: str | None = None,
    classes: tuple[str, ...] = ("a", "b", "c"),
    attention_map: NDArray[Any] | None = None,
    learned: dict[str, NDArray[Any]] | None = None,
    log: list[dict[str, Any]] | None = None,
    validation: float | dict[int, float] | None = None,
    tuning_seeds: tuple[int, ...] = (),
    same: dict[str, NDArray[Any]] | None = None,
    drawn: DrawnRows | None = None,
    fit: FitRecord | None = None,
    group_source: dict[str, str] | None = None,
    **recipe: Any,
) -> RunResult:
    """A run whose seed s is right on row n where ``right[s, n]`` says so.

    Args:
        validation: validation accuracy of the selected epoch, of all or of some seeds.
        tuning_seeds: seeds that were trained to choose.
        same: numbers of groups, by the name of a kept column.
        fit: of a head that is fitted at once; it has no settings of steps.
        group_source: ``kind`` and ``source`` of the groups.
        recipe: settings, as run.json has them.
    """
    right_SN = np.asarray(right, bool)
    num_seeds, num_rows = right_SN.shape
    seeds = seeds or tuple(range(num_seeds))
    label_N = np.random.default_rng(num_rows).integers(0, len(classes), num_rows)
    answer_SN = np.where(right_SN, label_N, (label_N + 1) % len(classes))
    settings = USUAL_SETTINGS | recipe
    other_settings = OTHER_SETTINGS
    if fit is not None:
        settings = without_settings_of_steps(settings)
        other_settings = without_settings_of_steps(other_settings)
    cache_record = CACHE | {
        "rows": {"train": 4000, "test": num_rows},
        "class_names": classes,
    }
    run = RunResult(
        path=Path(path or f"{attention}-{head}"),
        key=repr((attention, head, sorted(settings.items(), key=str), cache)),
        attention=attention,
        head=head,
        recipe=Recipe.from_dict(
            other_settings | settings,
            attention=attention,
            head=head,
            groups=group_source or {},
        ),
        settings=settings,
        cache=CacheRecord(**(cache_record | (cache or {}))),
        environment=dict(ENVIRONMENT),
        parameters={"attention": 7, "total": 1234},
        majority_accuracy=0.4,
        seeds=seeds,
        failed=failed or {},
        epochs=dict.fromkeys(seeds, 1),
        seconds=dict.fromkeys(seeds, 0.5),
        fit=fit,
        drawn=drawn,
        tuning_seeds=tuning_seeds,
    )
    if validation is not None:
        log = log_of_one_epoch(validation, seeds)
    logits = np.eye(len(classes), dtype=np.float32)[answer_SN]
    logits[[seeds.index(seed) for seed in run.failed]] = np.nan
    change_arrays(
        run,
        logits=logits,
        labels=label_N,
        attention_map=attention_map,
        learned=learned or {},
        log=log or [],
        test_rows=None,
        relations=same or {},
    )
    return run


def without_settings_of_steps(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in settings.items() if name not in STEP_SETTINGS
    }


def log_of_one_epoch(
    validation: float | dict[int, float], seeds: tuple[int, ...]
) -> list[dict[str, Any]]:
    """The log of seeds with these validation accuracies."""
    if not isinstance(validation, dict):
        validation = dict.fromkeys(seeds, validation)
    return [
        {"seed": seed, "epoch": 1, "loss": 1.0, "accuracy": accuracy}
        for seed, accuracy in validation.items()
    ]


def change_arrays(run: RunResult, **values: Any) -> None:
    """Give a run values that it would otherwise read from its files."""
    vars(run).update(values)


def answers(
    num_seeds: int, accuracy: float, seed: int, num_rows: int = 400
) -> NDArray[np.bool_]:
    """Right and wrong answers; rows are easy or hard for everybody alike."""
    rng = np.random.default_rng(seed)
    hard_N = np.random.default_rng(0).random(num_rows)
    luck_SN = 0.8 * hard_N + 0.2 * rng.random((num_seeds, num_rows))
    share_S = np.clip(accuracy + rng.normal(0, 0.004, (num_seeds, 1)), 0, 1)[:, 0]
    # each seed's own share of its own rows
    limit_S = np.quantile(luck_SN, share_S, axis=1).diagonal()
    return np.asarray(luck_SN < limit_S[:, None])


def build_probe(accuracy: float, **changes: Any) -> RunResult:
    """Logistic regression on the same states, which has neither seeds nor steps."""
    return build_run("none", answers(1, accuracy, 5), head="lbfgs", fit=FIT, **changes)


def text_of(report_format: str, tables: Sequence[Table]) -> str:
    """The tables in a format."""
    stream = io.StringIO()
    kind = "gaam_decoder.reports.formats"
    writer = plugins.load(kind, report_format, kind="format")()
    writer.write(tables, stream)
    return stream.getvalue()


def words_of(report_format: str, tables: Sequence[Table]) -> str:
    """The words that a person sees, on one line."""
    text = text_of(report_format, tables)
    if report_format == "json":
        # the key of a run in memory is a Python expression
        text = re.sub('"key": .*', "", text)
    if report_format == "html":
        text = re.sub("<wbr>", "", text)
        text = re.sub("<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL)
        text = html.unescape(text)
    if report_format == "latex":
        text = text.replace("-{}-", "--").replace("\\", "")
    return " ".join(text.replace("\\_", "_").split())


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has only the words beside its pictures, which have tests of their own."""

    def describe(picture: Picture, key: str) -> str:
        alt = f"{picture.title}. {picture.caption}"
        return f'<svg aria-label="{html.escape(visible(alt))}"></svg>'

    monkeypatch.setattr("gaam_decoder.reports.formats.html.inline_svg", describe)
