"""The Dockerfile, without a builder: what can be known of it by reading."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text("ascii")
LINES = [
    line
    for line in re.sub(r"\\\n\s*", "", TEXT).splitlines()
    if line.strip() and not line.startswith("#")
]
STEPS = [(line.split()[0], line.partition(" ")[2].strip()) for line in LINES]
SENT = {
    line.removeprefix("!")
    for line in (ROOT / ".dockerignore").read_text("ascii").splitlines()
    if line.startswith("!")
}


def of(word: str) -> list[str]:
    found = [rest for name, rest in STEPS if name == word]
    assert found, word
    return found


def test_every_step_is_one_that_builders_know() -> None:
    known = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "VOLUME", "WORKDIR"}
    assert {name for name, _ in STEPS} == known
    assert [name for name, _ in STEPS][:2] == ["ARG", "FROM"]


def test_every_argument_is_used_after_it_was_declared() -> None:
    assert {line.partition("=")[0] for line in of("ARG")} == {
        "BASE",
        "EXTRAS",
        "PIP_EXTRA_INDEX_URL",  # pip reads it from the environment of the step
    }
    at = {rest.partition("=")[0]: i for i, (name, rest) in enumerate(STEPS) if name == "ARG"}
    assert STEPS[at["BASE"] + 1] == ("FROM", "${BASE}")
    (installs,) = [i for i, (name, rest) in enumerate(STEPS) if name == "RUN" and "pip " in rest]
    assert at["EXTRAS"] < installs
    assert at["PIP_EXTRA_INDEX_URL"] < installs
    assert "${EXTRAS}" in STEPS[installs][1]


def test_what_is_copied_exists_is_sent_and_is_all_that_is_built_from() -> None:
    copied = {name for line in of("COPY") for name in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert copied == SENT
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["only-include"], *wheel["force-include"], project["project"]["readme"]}
    needed |= {*project["project"]["license-files"], "pyproject.toml", "constraints.txt"}
    assert copied == needed


def test_packages_are_those_that_were_tested_and_extras_exist() -> None:
    (install,) = [line for line in of("RUN") if "pip " in line]
    assert "-c constraints.txt" in install
    extras = next(line for line in of("ARG") if line.startswith("EXTRAS=")).partition("=")[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert f"python:{project['requires-python'].removeprefix('>=')}-slim" in TEXT


def test_it_runs_the_command_as_nobody_in_particular_and_keeps_what_it_fetches() -> None:
    assert of("ENTRYPOINT") == ['["gaam"]']
    assert int(of("USER")[-1]) > 0
    assert [name for name, _ in STEPS].index("USER") > max(
        i for i, (name, _) in enumerate(STEPS) if name == "RUN"
    )
    assert of("VOLUME") == ['["/data"]']
    places = dict(pair.split("=", 1) for pair in of("ENV")[0].split())
    for name in ("HOME", "HF_HOME", "XDG_CACHE_HOME"):
        assert places[name].startswith("/data"), name
        assert re.search(rf"install -d .*{places[name]}\b", TEXT), name
