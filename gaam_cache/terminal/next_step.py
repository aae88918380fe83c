"""What to type next, so that a shell takes it as it is printed."""

from __future__ import annotations

import shlex
from pathlib import Path

FOLDS = 5


def after_extract(path: str | Path) -> str:
    """The training that this cache can be used for: splits, layers and rows are what they are.

    Raises:
        CacheError: no plan, or a damaged one.
    """
    from gaam_cache.format.plan import read_plan  # imports numpy

    plan = read_plan(Path(path))
    words = ["gaam train", "--attn", "laplace" if plan.num_layers > 1 else "mha"]
    words += ["--cache", in_shell(path)]
    learned = "train" if "train" in plan.rows else next(iter(plan.rows))
    content = plan.fingerprint_fields["content"]
    others = [s for s in plan.rows if s != learned and content[s] != content[learned]]
    if learned != "train":
        words += ["--train-split", learned]
    rows = plan.rows[learned]
    if not others:
        folds = max(2, min(FOLDS, rows))
        words += ["--folds", str(folds)]
        rows -= -(-rows // folds)
    elif "test" not in others:
        words += ["--test-split", others[0]]
    if rows <= len(plan.class_names):  # perhaps no class has a row to spare for the choice
        words += ["--select", "last"]
    return " ".join(words)


def after_planting(path: str | Path, attn: str) -> str:
    """The training that shows whether a planted gate is found."""
    # where no gate is planted, none may win; mha is no gate, and may
    several = ("none", attn, "mha") if attn != "none" else ("none", "gaam", "laplace")
    words = ["gaam train", *(word for name in several for word in ("--attn", name))]
    return " ".join([*words, "--lr", "1e-3,3e-3,1e-2", "--cache", in_shell(path)])


def after_training(runs: str | Path) -> str:
    """The report of a folder of runs."""
    return f"gaam report {in_shell(runs)}"


def in_shell(path: str | Path) -> str:
    """A path as one word of a shell that no command takes for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
