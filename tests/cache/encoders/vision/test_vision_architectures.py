"""Whatever transformers maps to a model of pictures is right or refused: never wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
REPRESENTATIVE = {
    "pixio": [8, 24],  # several class tokens
    "radio": [10, 26],
    "blip-2": [1, 17],  # one of three parts
    "git": [1, 17],  # a part of a part
    "llava": [1, 17],
    "mgp-str": [1, 65],
}


def walk(folder: Path, *names: str) -> dict[str, Any]:
    """In a process of its own: what forks must not have threads."""
    results = folder / "results.json"
    module = "tests.cache.encoders.vision.architectures"
    command = [sys.executable, "-m", module, *names, "--list", str(results)]
    alone = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout[-6000:])
    found: dict[str, Any] = json.loads(results.read_text())
    return found


def test_representative_architectures_are_right(tmp_path: Path) -> None:
    results = walk(tmp_path, *REPRESENTATIVE)
    assert {name: result["verdict"] for name, result in results.items()} == dict.fromkeys(
        REPRESENTATIVE, "right"
    )
    assert {name: result["layout"] for name, result in results.items()} == REPRESENTATIVE


@pytest.mark.slow
def test_every_architecture_is_right_or_refused(tmp_path: Path) -> None:
    results = walk(tmp_path)
    bad = {
        name: result["about"]
        for name, result in results.items()
        if result["verdict"] in {"wrong", "crashed"}
    }
    assert not bad, json.dumps(bad, indent=1)
    assert sum(result["verdict"] == "right" for result in results.values()) > 60
