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

FIRST = (
    ("gaam_cache", "write"),
    ("gaam_decoder", "train"),
    ("gaam_decoder", "load_runs"),
)
"""What others go on from."""


@pytest.mark.filterwarnings("ignore")
def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    generator, names = np.random.default_rng(0), {}
    for split, rows, called in (
        ("train", 60, "states labels"),
        ("test", 30, "others theirs"),
    ):
        arrays = generator.normal(size=(rows, 4, 8)).astype("f4"), np.arange(rows) % 3
        np.savez(f"{split}.npz", embeddings=arrays[0], labels=arrays[1])
        names |= dict(zip(called.split(), arrays, strict=True))
    names |= {"gaam_cache": gaam_cache, "gaam_decoder": gaam_decoder, "np": np}
    offered: dict[str, Any] = {}
    for package in (gaam_cache, gaam_decoder):
        offered |= {
            f"{package.__name__}.{n}": getattr(package, n) for n in package.__all__
        }
    offered["claim"] = gaam_decoder.stats.claim
    first = {f"{package}.{name}": None for package, name in FIRST}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for name in first | offered:
        example = doctest.DocTestParser().get_doctest(
            offered[name].__doc__, names, name, None, 0
        )
        assert example.examples, f"{name} has no example"
        runner.run(example, clear_globs=False)
        names |= example.globs
    assert not runner.failures
    split = gaam_cache.open_cache("cache")["train"]
    assert sum(len(labels) for _, labels in DataLoader(split, batch_size=7)) == 60
