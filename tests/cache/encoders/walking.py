"""Every architecture in turn, each in a process of its own: what the walks of all kinds share."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import transformers

ROOT = Path(__file__).parents[3]
Results = dict[str, dict[str, Any]]


def names_that_take(given: str) -> list[str]:
    """All that AutoModel maps and that is called with this argument, alone or beside others."""
    found = []
    for name in transformers.CONFIG_MAPPING:
        try:
            config = transformers.CONFIG_MAPPING[name]
            if config not in transformers.MODEL_MAPPING:
                continue
            mapped = transformers.MODEL_MAPPING[config]
            model = mapped[0] if isinstance(mapped, tuple) else mapped
            if given in inspect.signature(model.forward).parameters:
                found.append(name)
        except (ImportError, ValueError, AttributeError):
            continue  # needs a package that is not here
    return found


def main(
    names: Callable[[], list[str]],
    walk: Callable[[Iterable[str]], Iterator[tuple[str, dict[str, Any]]]],
    table: Callable[[Results], str],
) -> None:
    """The program of a walk: print every result, how many of each there are, and list them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", type=Path)
    parser.add_argument("--part", default="0/1")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    results = {}
    for name, result in walk((arguments.names or names())[part::parts]):
        results[name] = result
        print(name, json.dumps(result), flush=True)
    print(table(results))
    if arguments.list:
        arguments.list.write_text(json.dumps(results, indent=1))


def results_of(module: str, folder: Path, *names: str) -> Results:
    """Those of such a program, in a process of its own: what forks must not have threads."""
    results = folder / "results.json"
    command = [sys.executable, "-m", module, *names, "--list", str(results)]
    alone = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    environment = os.environ | alone | {"TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout[-6000:])
    found: Results = json.loads(results.read_text())
    return found


def are_right(results: Results, key: str, expected: dict[str, Any]) -> None:
    """All of these architectures, and each in the way that is expected of it."""
    verdicts = {name: result["verdict"] for name, result in results.items()}
    assert verdicts == dict.fromkeys(expected, "right")
    assert {name: result[key] for name, result in results.items()} == expected


def none_is_bad(results: Results) -> None:
    """Right, refused, or not to be built."""
    bad = {
        name: result["about"]
        for name, result in results.items()
        if result["verdict"] in {"wrong", "crashed"}
    }
    assert not bad, json.dumps(bad, indent=1)
