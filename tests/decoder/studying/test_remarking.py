"""What came out otherwise and passes is said, and counted in the last line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaam_decoder.studying.checking import compare
from gaam_decoder.studying.record import DIGEST, digest
from gaam_decoder.studying.remarking import changed_in_words
from tests.decoder.studying.test_checking import TOLERANCES, put, results
from tests.decoder.studying.tiny_study import Gaam

CHANGES: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "verdict": [(("comparison", "verdict"), "better")],
    "verdict ": [
        (("comparison", "verdict"), "equivalent"),
        (("comparison", "within_margin"), True),
    ],
    "verdict  ": [(("comparison", "within_margin"), True)],
    "learning rate": [(("tuned", 0, "lr"), 0.1), (("lr",), 0.1)],
    "learning rate ": [(("lr",), 0.1)],
    "weight decay": [(("tuned", 0, "weight_decay"), 0.1)],
    "mark of under-training": [(("undertrained",), True)],
}
"""What changes in a row together, by what it is counted as, once."""


@pytest.mark.parametrize("kind", CHANGES)
def test_what_changed_and_passes_is_counted(kind: str) -> None:
    found = results()
    for number in (1, 2):
        report = ("one", "two")[number - 1]
        for path, new in CHANGES[kind]:
            found = put(found, ("reports", report, 0, "rows", 0, *path), new)
        checked = compare(results(), found, TOLERANCES)
        assert checked.differences == ()
        assert checked.changed == {kind.strip(): number}
        assert len(checked.remarks) == number * len(CHANGES[kind])
    assert changed_in_words({kind.strip(): 1}) == f"1 {kind.strip()} differs, see above"
    assert changed_in_words(checked.changed).startswith("2 ")
    assert changed_in_words({"verdict": 2, "learning rate": 1}) == (
        "2 verdicts and 1 learning rate differ, see above"
    )
    assert changed_in_words({}) == ""


def test_the_last_line_of_a_check_counts_what_changed(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    said = gaam("study", "tiny", "--check")
    assert said.code == 0
    assert said.out.endswith(": as recorded, within the tolerances\n")
    path = here / "tiny" / "results.json"
    values = json.loads(path.read_text())
    first = values["reports"]["both"][0]["rows"]
    compared = next(row for row in first if row["comparison"])
    compared["comparison"]["verdict"] = "was otherwise"
    compared["lr"] = 0.5
    values["machines"][0]["cpu"] = "another"
    path.write_text(json.dumps(values | {DIGEST: digest(values)}))
    said = gaam("study", "tiny", "--check")
    assert said.code == 0
    assert said.out.endswith(
        ": as recorded, within the tolerances; 1 verdict, 1 learning rate and 1 machine differ, "
        "see above\n"
    )
    assert said.out.count("note: ") == 3
    told = json.loads(gaam("study", "tiny", "--check", "--json").out)["check"]
    assert told["changed"] == {"verdict": 1, "learning rate": 1, "machine": 1}
