"""All that a GPU can show, in one file of figures: what ``make gpu`` runs.

    python -m tests.benchmarks.on_gpu [--json gpu.json] [--tiny] [--only PART ...]

The tests in ``tests/gpu``, then the extraction of a 13B encoder, where its time goes and what makes
it faster, then training on its states; each is a process of its own with a limit of its own, ten
minutes in all, and has the time that earlier parts left. A part writes its figures as it goes; one
that fails or is late leaves the others to run. The exit code is 0 where every part ended well. Without a GPU it ends at
once, unless ``--tiny`` rehearses all of it with small shapes on the CPU, which says nothing about
speed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.benchmarks._machine import describe, needs_gpu

ROOT = Path(__file__).parents[2]
SECONDS = {"tests": 120, "extraction": 190, "variants": 190, "training": 100}
"""Limits of the parts, ten minutes together."""
BESIDE = 8
"""Tests that run at once on a GPU, which each of them leaves idle for most of the time."""


def commands(folder: Path, *, tiny: bool) -> dict[str, list[str]]:
    """What every part runs; each leaves its figures in the folder."""
    python = [sys.executable, "-m"]
    small = ["--tiny"] if tiny else []
    beside = importlib.util.find_spec("xdist") is not None and not tiny
    return {
        "tests": [
            *(
                *python,
                "pytest",
                "tests/gpu",
                "-q",
                "--tb=short",
                f"--junitxml={folder / 'tests'}",
            ),
            *(["-k", "cpu and not benchmarks"] if tiny else ["-m", "gpu"]),
            *(["-n", str(BESIDE), "--dist", "worksteal"] if beside else []),
        ],
        "extraction": [
            *(
                *python,
                "tests.benchmarks.bench_gpu",
                *small,
                "--json",
                str(folder / "extraction"),
            ),
            *(["--rows", "64"] if tiny else []),
        ],
        "variants": [
            *(*python, "tests.benchmarks.bench_gpu_variants", *small),
            *("--json", str(folder / "variants")),
        ],
        "training": [
            *(*python, "tests.benchmarks.bench_gpu_train", *small),
            *("--json", str(folder / "training"), *(["--rounds", "1"] if tiny else [])),
        ],
    }


def limit_of(part: str, parts: Sequence[str], elapsed: float) -> float:
    """Seconds that a part may take: those after it keep theirs.

    Args:
        part: its name.
        parts: all that run, in their order.
        elapsed: seconds that earlier parts took.
    """
    later = parts[parts.index(part) + 1 :]
    return sum(SECONDS.values()) - elapsed - sum(SECONDS[name] for name in later)


def outcome_of(file: Path) -> dict[str, Any]:
    """How many tests there were, and which did not end well."""
    suites = ElementTree.fromstring(file.read_text()).iter("testsuite")
    cases = [case for suite in suites for case in suite.iter("testcase")]
    ends: dict[str, list[str]] = {"failure": [], "error": [], "skipped": []}
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        for end, names in ends.items():
            if (told := case.find(end)) is not None:
                names.append(f"{name}: {told.get('message', '')[:300]}")
    failed = ends["failure"] + ends["error"]
    return {"count": len(cases), "failed": failed, "skipped": ends["skipped"]}


def run(
    name: str, command: list[str], folder: Path, limit: float | None
) -> dict[str, Any]:
    """A part: whether it ended well, how long it took, what it found.

    Args:
        name: of the part.
        command: runs it.
        folder: where it leaves its figures.
        limit: seconds after which it is ended; None for no limit.
    """
    print(f"== {name}: {' '.join(command[1:])}", flush=True)
    start = time.perf_counter()
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if name == "tests" else {})
    try:
        code: int | str = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=limit, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        code = f"ended after {limit:.0f} s"
    about: dict[str, Any] = {
        "ended": code,
        "seconds": round(time.perf_counter() - start, 1),
    }
    if (file := folder / name).exists():
        found = outcome_of(file) if name == "tests" else json.loads(file.read_text())
        about |= {"found": found}
    return about


def main() -> None:
    """Run the parts, print and write what they found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", nargs="*", choices=SECONDS, default=list(SECONDS))
    arguments = parser.parse_args()
    device = None if arguments.tiny else needs_gpu()
    result: dict[str, Any] = {"machine": describe(device)}
    start = time.perf_counter()
    parts = [part for part in SECONDS if part in arguments.only]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in parts:
            command = commands(folder, tiny=arguments.tiny)[part]
            # a rehearsal may be on a slow machine
            limit = None
            if not arguments.tiny:
                limit = limit_of(part, parts, time.perf_counter() - start)
                if part == "variants":
                    # it ends by itself before it is ended
                    command += ["--seconds", str(limit - 10)]
            result[part] = run(part, command, folder, limit)
            # what is known so far: the next part may end the machine
            if arguments.json:
                arguments.json.write_text(json.dumps(result, indent=2))
    print(json.dumps(result, indent=2))
    bad = [part for part in arguments.only if result[part]["ended"] != 0]
    sys.exit(f"did not end well: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()
