"""A run in a line, and how its head was fitted if it was fitted at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gaam_decoder import stats

if TYPE_CHECKING:
    from gaam_decoder.runs.result import RunResult


def summary(run: RunResult) -> str:
    """One line for people."""
    text = f"{run.title}: "
    if run.finished:
        text += _accuracy(run)
        if not run.fit:
            text += " over" if run.evaluated else ","
            text += f" {len(run.finished)} seed{'s' * (len(run.finished) > 1)}"
        text += f", {len(run.failed)} FAILED" if run.failed else ""
    else:
        text += f"0 of {len(run.seeds)} seed{'s' * (len(run.seeds) > 1)} finished: "
        text += str(run.failure)
    mean_seconds = np.mean([run.seconds[seed] for seed in run.seeds])
    if run.fit:
        return f"{text}, {mean_seconds:.2f} s, {fit_in_words(run.fit)}  {run.path}"
    text += f", {mean_seconds:.2f} s a seed"
    text += " (compiled" if run.engine["compiled"] else " (not compiled"
    text += f", up to {run.engine['seed_batch']} together, {run.engine['dtype']})"
    return f"{text}  {run.path}"


def _accuracy(run: RunResult) -> str:
    if not run.evaluated:
        return "not evaluated"
    spread = stats.standard_deviation(run.accuracy)
    text = f"{100 * run.accuracy.mean():.1f}%"
    return text + (f" (sd {100 * spread:.1f})" if spread is not None else "")


def fit_in_words(fit: dict[str, Any]) -> str:
    """What a fit chose, such as ``C 2.0 chosen from 40 (0.0001 to 10,000)``."""
    text = f"{fit['setting']} {fit['value']:.3g} chosen from {fit['tried']} "
    text += f"({fit['lowest']:g} to {fit['highest']:g})"
    text += f", the {fit['edge']} of them" if fit.get("edge") else ""
    if lost := len(fit["unconverged"]):
        text += f", {lost} of which did not converge"
    return text


def values(run: RunResult) -> dict[str, Any]:
    """JSON values: what was run and how every seed ended."""
    accuracy = {}
    if run.evaluated:
        accuracy = dict(zip(run.finished, run.accuracy.tolist(), strict=True))
    return {
        "kind": "run",
        "path": str(run.path.absolute()),
        "attention": run.attention,
        "head": run.head,
        "recipe": run.recipe,
        "parameters": run.parameters,
        "cache": run.cache,
        "evaluated": run.evaluated,
        "majority_accuracy": run.majority_accuracy,
        "seeds": [
            {
                "seed": seed,
                "accuracy": accuracy.get(seed),
                "epoch": run.epochs[seed],
                "seconds": run.seconds[seed],
                "failed": run.failed.get(seed),
            }
            for seed in run.seeds
        ],
        **({"created": run.created} if run.created else {}),
        "environment": run.environment,
        "engine": run.engine,
        **({"groups": run.groups} if run.groups else {}),
        **({"drawn": run.drawn} if run.drawn else {}),
        **({"fit": run.fit} if run.fit else {}),
    }
