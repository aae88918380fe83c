"""How often what is said of importance and accuracy of layers is wrong, where the truth is known.

    python -m tests.benchmarks.bench_importance [--repetitions 150]

Two Markdown tables, in percent: how often the interval holds the true rank correlation / p is below
0.05 / something is claimed / wrongly; and p below 0.05 of curves over depth that know nothing of
each other.
"""

from __future__ import annotations

import argparse

from tests.decoder.stats.layer_experiments import CELLS, DEPTHS, SCENARIOS, simulated, walks

WALKS = 1000


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=150)
    repetitions = parser.parse_args().repetitions
    header = [f"{layers} x {seeds} x {rows}" for layers, seeds, rows in CELLS]
    print(f"| scenario | {' | '.join(header)} |\n|{'---|' * (len(CELLS) + 1)}")
    for name in SCENARIOS:
        cells = []
        for cell in CELLS:
            found = simulated(name, *cell, repetitions)
            held = f"{100 * found.held / found.defined:.1f}" if found.defined else "-"
            shares = [100 * n / repetitions for n in (found.p, found.claimed, found.wrong)]
            cells.append(" / ".join([held, *(f"{share:.1f}" for share in shares)]))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| layers | p below 0.05 of random walks |\n|---|---|")
    for layers in DEPTHS:
        print(f"| {layers} | {100 * walks(layers, WALKS) / WALKS:.1f} |", flush=True)


if __name__ == "__main__":
    main()
