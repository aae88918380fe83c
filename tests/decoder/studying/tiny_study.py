"""A study of planted states that takes seconds: two caches, two trainings, an ablation."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from gaam_decoder.studying import running
from tests.conftest import Outcome

RECORDED = ("results.json", "seeds.csv")
"""The page has seconds."""
RUNS = "studies/tiny/runs"
Gaam = Callable[..., Outcome]
ABLATION = """
[[ablate]]
of = "laplace:heads=1"
num-layers = 2
"""
RECIPE = f"""
title = "Tiny"
question = "Is anything there?"

[caches.small]
command = "plant"
gate = "laplace"
rows = 90
layers = 4
width = 4

[caches.again]
command = "plant"
from = "small"
gate = "none"

[[train]]
cache = "small"
attn = ["laplace:heads=1", "none"]
lr = "1e-3,1e-2"
tune-seeds = "0-1"
seeds = "2-7"
epochs = 2
probe = true
compile = "off"

[[train]]
cache = "again"
attn = ["gaam:heads=1", "none"]
seeds = "2-7"
epochs = 2
probe = true
compile = "off"
{ABLATION}
[[report]]
name = "both"
title = "Both"
baseline = "none"

[[report]]
name = "one"
title = "One"
cache = "small"

[check]
accuracy = 0.3
difference = 0.3
"""


def written(tmp_path: Path, recipe: str = RECIPE) -> Path:
    """The folder of the study."""
    folder = tmp_path / "tiny"
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(recipe)
    return folder


def command(*options: str) -> list[str]:
    """Runs the study of the folder that is the current one."""
    return [*running.GAAM, "study", "tiny", "-q", *options]


def study(here: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it, as a person does."""
    return subprocess.run(command(*options), cwd=here, capture_output=True, text=True, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
