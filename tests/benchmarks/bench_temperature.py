"""How rough a temperature is that few rows fit.

    python -m tests.benchmarks.bench_temperature

Logits are normal, as large as makes the decoder as accurate as is said, and labels are drawn from
the softmax of them divided by 1.5: the temperature that is looked for. Of every number of rows the
standard deviation of what is fitted relative to its mean, over data sets, and of how many nothing
was fitted.
"""

from __future__ import annotations

import argparse

import numpy as np

from gaam_decoder.stats.temperature import fit_temperature

TRUE = 1.5
ROWS = (30, 100, 300, 1000)
SETTINGS = ((2, 3.0), (4, 2.0), (4, 4.0), (4, 8.0), (20, 4.0))
"""Classes, and standard deviation of the logits."""


def main() -> None:
    """Print one line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=300)
    trials = parser.parse_args().trials
    print("| classes | accuracy | " + " | ".join(f"{rows:,} rows" for rows in ROWS) + " |")
    print("|--:|--:|" + "--:|" * len(ROWS))
    for classes, size in SETTINGS:
        generator = np.random.default_rng(0)
        cells, right = [], []
        for rows in ROWS:
            found = []
            for _ in range(trials):
                logits_NC = generator.normal(0, size, (rows, classes)).astype(np.float32)
                noise_NC = generator.gumbel(size=(rows, classes))
                label_N = (logits_NC / TRUE + noise_NC).argmax(1)
                right.append((logits_NC.argmax(1) == label_N).mean())
                if (one := fit_temperature(logits_NC, label_N)) is not None:
                    found.append(one)
            lacking = 100 * (1 - len(found) / trials)
            rough = 100 * np.std(found, ddof=1) / np.mean(found)
            cells.append(f"{rough:.0f}%" + (f" ({lacking:.0f}% not fitted)" if lacking else ""))
        accuracy = f"{100 * np.mean(right):.0f}%"
        print(f"| {classes} | {accuracy} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
