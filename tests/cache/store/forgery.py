"""Caches as a damaged disk, a careless hand or a hostile writer leaves them."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaam_cache.store.digest import sealed_text, unsealed
from gaam_cache.store.plan import fingerprint

ROOT = Path(__file__).parents[3]
MEMORY_BYTES = 1500 * 2**20
"""Address space of a bounded command: NumPy and the libraries beside it take most of it."""


def edit_json(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file by a function of its content, and make its digest fit."""
    content = unsealed(json.loads(path.read_text()))
    edit(content)
    path.write_text(sealed_text(content))


def edit_plan(cache: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change the plan and make fingerprint and digest fit, as who knows the format would."""

    def both(plan: dict[str, Any]) -> None:
        edit(plan)
        plan["fingerprint"] = fingerprint(plan["fingerprint_fields"])

    edit_json(cache / "cache.json", both)


def replace_shard(
    cache: Path, name: str, image: bytes, datasets: dict[str, dict[str, Any]] | None = None
) -> Path:
    """Put other bytes in the place of a shard, with a receipt that agrees with them."""
    receipt = cache / "shards" / f"{name}.json"
    content = unsealed(json.loads(receipt.read_text()))
    (cache / "shards" / content["file"]).unlink()
    digest = hashlib.sha256(image).hexdigest()
    content |= {"file": f"{name}-{digest[:8]}.h5", "bytes": len(image), "sha256": digest}
    if datasets is not None:
        content["datasets"] |= datasets
    receipt.write_text(sealed_text(content))
    path = cache / "shards" / content["file"]
    path.write_bytes(image)
    return path


def run_bounded(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``gaam ARGUMENTS`` with little memory; what needs more, or more than a minute, fails."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    return subprocess.run(
        [sys.executable, "-c", "import cli; cli.main()", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=600,
    )
