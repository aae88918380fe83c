"""Planted gates: does the mechanism of that shape win, and does the report say so as it promises?

    python -m tests.benchmarks.bench_planted [--data-sets 20] [--seeds 6] [--gate laplace ...]
    python -m tests.benchmarks.bench_planted --heads

Every data set is planted anew (``gaam plant --seed``). ``none``, the mechanism of the planted gate
and the others are trained on it, and reported on as ``gaam report --baseline`` does. A row: how
often the verdict on a mechanism against a baseline was which, the mean difference in points, the
mean MDD (what the report says it would find four times of five), and among the data sets on which
the mean difference over all data sets is at least the MDD of the data set, how many verdicts have
its sign, which is promised of 80% at least. ``--heads``: GAAM with 1, 2, 4 and 8 heads. It
holds the figures of the study planted-gates.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch

from gaam_decoder import load_runs, train
from gaam_decoder.analysis.learned import GATES
from gaam_decoder.analysis.planting import plant
from gaam_decoder.config import PlantConfig
from gaam_decoder.reports.entries import Comparison
from gaam_decoder.reports.table import build_tables
from gaam_decoder.specs import parse_attention
from tests.decoder.configs import loose_config

SHAPES = ("laplace:heads=1", "gaam:heads=1", "student-t:heads=1", "chi2:heads=1")
HEADS = tuple(f"gaam:heads={heads}" for heads in (1, 2, 4, 8))


def compared(
    folder: Path, gate: str, seed: int, attn: tuple[str, ...], baselines: tuple[str, ...],
    options: argparse.Namespace,
) -> tuple[dict[tuple[str, str], Comparison], dict[str, float]]:  # fmt: skip
    """(baseline, mechanism) -> what the report says; and the accuracies."""
    cache, runs = folder / f"{gate}-{seed}", folder / f"runs-{gate}-{seed}"
    made = plant(
        PlantConfig(
            out=cache, gate=gate, strength=options.strength, rows=options.rows, seed=seed  # type: ignore[arg-type]
        )
    )  # fmt: skip
    train(
        loose_config(
            cache=cache, runs=runs, attn=attn, seeds=tuple(range(options.seeds)),
            lr=options.lr, epochs=options.epochs, batch_size=options.batch_size,
            weight_decay=options.weight_decay, probe=False, compile="off",
        )
    )  # fmt: skip
    found = {}
    accuracy = {"teacher": made.teacher_accuracy}
    for baseline in baselines:
        (table,) = build_tables(load_runs(runs), baseline=baseline)
        for row in table.entries:
            accuracy[row.attention] = row.default_score.mean or 0.0
            if row.comparison is not None:
                found[baseline, row.attention] = row.comparison
    return found, accuracy


def show(
    found: list[tuple[dict[tuple[str, str], Comparison], dict[str, float]]], gate: str
) -> None:
    """One line for every pair, and the accuracies."""
    means = {
        name: sum(accuracy[name] for _, accuracy in found) / len(found)
        for name in found[0][1]
    }
    shown = ", ".join(f"{name} {100 * value:.1f}" for name, value in means.items())
    print(f"\n{gate}: mean accuracy over {len(found)} data sets: {shown}\n")
    print("| baseline | mechanism | better | worse | equivalent | undecided | difference | MDD | "
          "right where promised |\n|:--|:--|--:|--:|--:|--:|--:|--:|--:|")  # fmt: skip
    for pair in found[0][0]:
        claims = [comparisons[pair].claim for comparisons, _ in found]
        verdicts = Counter(claim.verdict for claim in claims)
        difference = sum(claim.difference for claim in claims) / len(claims)
        mdd = [claim.on_these_rows.detectable or float("nan") for claim in claims]
        right = "better" if difference > 0 else "worse"
        due = [c.verdict == right for c, least in zip(claims, mdd, strict=True)
               if abs(difference) >= least]  # fmt: skip
        promised = f"{sum(due)} of {len(due)}" if due else "-"
        counts = " | ".join(
            str(verdicts[name])
            for name in ("better", "worse", "equivalent", "undecided")
        )
        print(f"| {pair[0]} | {pair[1]} | {counts} | {100 * difference:+.2f} | "
              f"{100 * sum(mdd) / len(mdd):.2f} | {promised} |", flush=True)  # fmt: skip


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gate", nargs="+", default=list(GATES), choices=list(GATES))
    parser.add_argument(
        "--attn", nargs="+", default=SHAPES, help="Beside none and the planted."
    )
    parser.add_argument("--data-sets", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--strength", type=float, default=4.0)
    parser.add_argument("--lr", type=float, default=3e-2)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--heads", action="store_true", help="GAAM with 1, 2, 4 and 8 heads."
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for gate in options.gate:
        shape = str(parse_attention(GATES[gate].attn))  # as runs spell it
        rivals = HEADS if options.heads else options.attn
        attn = tuple(dict.fromkeys(["none", shape, *rivals]))
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(options.data_sets):
                found.append(
                    compared(
                        Path(folder), gate, seed, attn, tuple({"none", shape}), options
                    )
                )
                print(".", end="", flush=True)
        show(found, gate)


if __name__ == "__main__":
    main()
