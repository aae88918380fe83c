"""How often there is a difference where there is none: on real runs, whose names are swapped.

For every test row the answers of two mechanisms are exchanged at random, those of all seeds
together: neither is better in the population then, though on these rows one of them mostly is.

    python -m tests.benchmarks.bench_swapped RUNS [--times 1000]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from gaam_decoder import stats
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.runs.loading import load_runs


def main() -> None:
    """Print a line for every mechanism that has seeds in common with the baseline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--baseline", default="none")
    parser.add_argument("--times", type=int, default=1000)
    asked = parser.parse_args()
    generator = np.random.default_rng(0)
    print("| mechanism | seeds | p < 0.05 by sign-flip over seeds | by claim | 'equivalent' |")
    print("|---|---|---|---|---|")
    for table in build_tables(load_runs(asked.runs), asked.baseline):
        found = {row.attention: row.scores for row in table.rows if not row.fitted}
        theirs = found.pop(asked.baseline)
        for name, mine in found.items():
            both = sorted(set(mine.seeds) & set(theirs.seeds))
            if not both:
                continue
            first, second = (
                scores.right[[scores.seeds.index(seed) for seed in both]]
                for scores in (mine, theirs)
            )
            here = everywhere = equal = 0
            for _ in range(asked.times):
                swap_N = generator.random(first.shape[1]) < 0.5
                claim = stats.claim(
                    np.where(swap_N, second, first), np.where(swap_N, first, second)
                )
                test = claim.on_these_rows.sign_flip
                here += test is not None and test.p < stats.ALPHA
                everywhere += claim.significant
                equal += claim.verdict == "equivalent"
            rates = " | ".join(f"{count / asked.times:.3f}" for count in (here, everywhere, equal))
            print(f"| {name} | {len(both)} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
