"""Runs of a moment, to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gaam_decoder
from gaam_decoder.runs.result import RunResult
from tests.decoder.configs import loose_config


def train(cache: Path, runs: Path, *attn: str, **options: Any) -> dict[str, RunResult]:
    """Two seeds of an epoch each, by mechanism and head."""
    settings: dict[str, Any] = {
        "lr": 3e-4,
        "seeds": (0, 1),
        "epochs": 1,
        "compile": "off",
        "probe": False,
    }
    config = loose_config(attn=attn, cache=cache, runs=runs, **(settings | options))
    return {f"{run.attention} + {run.head}": run for run in gaam_decoder.train(config)}
