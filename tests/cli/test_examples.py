"""Every name that the packages offer has an example, and it runs as it stands there."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import gaam_cache
import gaam_decoder

PACKAGES = (gaam_cache, gaam_decoder)
FIRST = ("gaam_cache.write", "gaam_decoder.train", "gaam_decoder.load_runs")
"""Examples whose results the other examples use."""


def public_names() -> dict[str, Any]:
    """Whatever the packages offer, by dotted name."""
    values: dict[str, Any] = {}
    for package in PACKAGES:
        for name in package.__all__:
            values[f"{package.__name__}.{name}"] = getattr(package, name)
    values["claim"] = gaam_decoder.stats.claim
    return values


def names_of_examples() -> dict[str, Any]:
    """The names that examples use without making them; the arrays lie in files too."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(60, 4, 8)).astype("f4")
    labels = np.arange(60) % 3
    np.savez("train.npz", embeddings=states, labels=labels)
    test_states = rng.normal(size=(30, 4, 8)).astype("f4")
    test_labels = np.arange(30) % 3
    np.savez("test.npz", embeddings=test_states, labels=test_labels)
    return {
        "gaam_cache": gaam_cache,
        "gaam_decoder": gaam_decoder,
        "np": np,
        "train_states": states,
        "train_labels": labels,
        "test_states": test_states,
        "test_labels": test_labels,
    }


@pytest.mark.filterwarnings("ignore")
def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = public_names()
    globs = names_of_examples()
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for name in dict.fromkeys([*FIRST, *values]):
        example = parser.get_doctest(values[name].__doc__, globs, name, None, 0)
        assert example.examples, f"{name} has no example"
        runner.run(example, clear_globs=False)
        globs |= example.globs
    assert not runner.failures
    split: Any = gaam_cache.open_cache("cache")["train"]
    batches: Any = DataLoader(split, batch_size=7)
    assert sum(len(label_B) for _, label_B in batches) == 60
