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

from gaam_cache.common import plugins
from gaam_cache.common.messages import visible
from gaam_decoder import RunResult
from gaam_decoder.recipe import OF_STEPS, Recipe
from gaam_decoder.reports.drawing import Picture
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.records import CacheRecord, DrawnRows, FitRecord

FORMATS = plugins.names("gaam_decoder.reports.formats")
# What the settings of a run in a test do not say.
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
    attention_map: np.ndarray | None = None,
    learned: dict[str, np.ndarray] | None = None,
    log: list[dict[str, Any]] | None = None,
    validation: float | dict[int, float] | None = None,
    tuning_seeds: tuple[int, ...] = (),
    same: dict[str, np.ndarray] | None = None,
    drawn: DrawnRows | None = None,
    fit: FitRecord | None = None,
    group_source: dict[str, str] | None = None,
    **recipe: Any,
) -> RunResult:
    """A run whose seed s is right on row n where ``right[s, n]`` says so.

    Args:
        validation: accuracy of the epoch that was kept, on what was held out; of some seeds.
        tuning_seeds: those that were trained to choose.
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
    settings = {"select": "val", "epochs": 3, "lr": 0.001, "layers": None}
    settings |= {"train_split": "train", "test_split": "test", "val_fraction": 0.1}
    settings |= recipe
    others = OTHER_SETTINGS
    if fit is not None:
        others, settings = (
            {name: value for name, value in values.items() if name not in OF_STEPS}
            for values in (others, settings)
        )
    run = RunResult(
        path=Path(path or f"{attention}-{head}"),
        key=repr((attention, head, sorted(settings.items(), key=str), cache)),
        attention=attention,
        head=head,
        recipe=Recipe.from_dict(
            others | settings, attention=attention, head=head, groups=group_source or {}
        ),
        settings=settings,
        cache=CacheRecord(
            **{
                "fingerprint": "f" * 64,
                "path": "/nowhere/cache",
                "encoder": "an-encoder",
                "dataset": "a-dataset",
                "layers": 6,
                "hidden_size": 8,
                "rows": {"train": 4000, "test": num_rows},
                "class_names": classes,
            }
            | (cache or {})
        ),
        environment={
            "python": "3.11",
            "torch": "2.13",
            "numpy": "2.4",
            "device": "cpu",
            "code": {},
        },
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
        given = (
            validation
            if isinstance(validation, dict)
            else dict.fromkeys(seeds, validation)
        )
        log = [
            {"seed": s, "epoch": 1, "loss": 1.0, "accuracy": a}
            for s, a in given.items()
        ]
    logits = np.eye(len(classes), dtype=np.float32)[answer_SN]
    logits[[seeds.index(seed) for seed in run.failed]] = np.nan
    vars(run).update(
        logits=logits,
        labels=label_N,
        attention_map=attention_map,
        learned=learned or {},
        log=log or [],
        test_rows=None,
        same=same or {},
    )
    return run


def answers(
    num_seeds: int, accuracy: float, seed: int, num_rows: int = 400
) -> np.ndarray:
    """Right and wrong answers; rows are easy or hard for everybody alike."""
    generator = np.random.default_rng(seed)
    hard_N = np.random.default_rng(0).random(num_rows)
    luck_SN = 0.8 * hard_N + 0.2 * generator.random((num_seeds, num_rows))
    limit_S = accuracy + generator.normal(0, 0.004, (num_seeds, 1))
    return (
        luck_SN
        < np.quantile(luck_SN, np.clip(limit_S, 0, 1)[:, 0], axis=1).diagonal()[:, None]
    )


def build_probe(accuracy: float, **changes: Any) -> RunResult:
    """Logistic regression on the same states, which has neither seeds nor steps."""
    return build_run("none", answers(1, accuracy, 5), head="lbfgs", fit=FIT, **changes)


def written(format: str, tables: Sequence[Table]) -> str:
    stream = io.StringIO()
    plugins.load("gaam_decoder.reports.formats", format, kind="format")().write(
        tables, stream
    )
    return stream.getvalue()


def seen(format: str, tables: Sequence[Table]) -> str:
    """What a person sees, on one line."""
    text = written(format, tables)
    if format == "json":
        text = re.sub(
            '"key": .*', "", text
        )  # of these runs in memory it is a Python expression
    if format == "html":
        text = re.sub("<wbr>", "", text)
        text = html.unescape(
            re.sub("<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL)
        )
    if format == "latex":
        text = text.replace("-{}-", "--").replace("\\", "")
    return " ".join(text.replace("\\_", "_").split())


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without its pictures, which have tests of their own; what is said beside them."""

    def text_of(picture: Picture, key: str) -> str:
        alt = f"{picture.title}. {picture.caption}"
        return f'<svg aria-label="{html.escape(visible(alt))}"></svg>'

    monkeypatch.setattr("gaam_decoder.reports.formats.html.inline_svg", text_of)
