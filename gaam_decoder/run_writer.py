"""SeedResults -> a run directory, by one rename; ``runs`` says what lies in it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gaam_decoder.runs import RUN_FILE, RUN_VERSION
from gaam_decoder.seed_store import SeedResult
from gaam_decoder.tensor_files import cannot_write, save_tensors


def run_name(attention: str, head: str, key: str, seeds: Sequence[int]) -> str:
    """Folder name of a run: readable in front, unambiguous behind."""
    slug = "".join(c if c.isalnum() or c in "-_." else "_" for c in f"{attention}-{head}")
    contiguous = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    text = f"{seeds[0]}-{seeds[-1]}" if contiguous else "_".join(map(str, seeds))
    if len(text) > 40:
        text = f"{len(seeds)}x{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{slug[:80]}-{key[:8]}-s{text}"


def write_run(
    runs: Path,
    name: str,
    results: Sequence[SeedResult],
    labels: torch.Tensor,
    about: dict[str, Any],
) -> Path:
    """Publish a finished run by one rename; a run of that name that is there already wins.

    Args:
        runs: folder of all runs.
        name: from ``run_name``.
        results: one per seed, in order.
        labels: test labels, (N,).
        about: the part of run.json that the seeds share.
    """
    seeds = [
        {"seed": r.seed, "failed": r.failed, "epoch": r.epoch, "seconds": round(r.seconds, 4)}
        for r in results
    ]
    test = {"logits": torch.stack([r.test_logits for r in results]), "labels": labels.cpu()}
    maps = [r.attention_map for r in results if r.attention_map is not None]
    if maps:
        test["attention_map"] = torch.stack(
            [
                torch.full_like(maps[0], torch.nan) if r.attention_map is None else r.attention_map
                for r in results
            ]
        )
    for key in results[0].learned:
        test[f"learned.{key}"] = torch.stack([r.learned[key] for r in results])
    weights = {key: torch.stack([r.weights[key] for r in results]) for key in results[0].weights}
    order = {"seeds": json.dumps([r.seed for r in results])}
    final = runs / name
    temporary = runs / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        temporary.mkdir(parents=True)
        try:
            save_tensors(weights, temporary / "weights.safetensors", order)
            save_tensors(test, temporary / "test.safetensors", order)
            lines = [json.dumps(entry) + "\n" for r in results for entry in r.log]
            (temporary / "log.jsonl").write_text("".join(lines), "utf-8")
            content = {"run_version": RUN_VERSION, **about, "seeds": seeds}
            (temporary / RUN_FILE).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
            if not (final / RUN_FILE).exists():
                temporary.rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        if not (final / RUN_FILE).exists():
            raise cannot_write(runs, error) from error
    return final
