"""A training that finds too little memory says what to try, and leaves what is finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gaam_decoder
from gaam_cache.errors import ShortOfMemoryError
from gaam_cache.terminal import as_refusal
from gaam_decoder import TrainConfig
from gaam_decoder.training.group import Group

OUT = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has none")


def refuse(error: Exception) -> Any:
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


@pytest.mark.parametrize(("where", "seeds"), [("train_epoch", 7), ("__init__", 1)])
def test_too_little_memory_is_said_with_fewer_seeds_or_rows(
    where: str, seeds: int, tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(
        lr=3e-4,
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=tuple(range(seeds)),
        epochs=2,
        seed_batch=8,
        batch_size=16,
    )
    with monkeypatch.context() as patch:
        patch.setattr(Group, where, refuse(OUT))
        with pytest.raises(ShortOfMemoryError) as caught:
            gaam_decoder.train(config)
    said = str(caught.value)
    assert ("--set seed-batch=3" if seeds == 7 else "--batch-size 8") in said
    assert "CUDA out of memory" in said
    assert as_refusal(caught.value) is caught.value
    (run,) = gaam_decoder.train(config)  # the same command, where there is memory
    assert len(run.seeds) == seeds
