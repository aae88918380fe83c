"""The Dockerfile, without a builder: what can be known of it by reading."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text("ascii")
LINES = re.sub(r"\\\n\s*", "", TEXT).splitlines()
STEPS = [line.split(maxsplit=1) for line in LINES if line.strip() and not line.startswith("#")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def of(word: str) -> list[str]:
    return [rest for name, rest in STEPS if name == word]


def test_what_is_copied_exists_is_sent_and_is_all_that_is_built_from() -> None:
    sent = (ROOT / ".dockerignore").read_text("ascii").splitlines()
    copied = {name for line in of("COPY") for name in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert copied == {line[1:] for line in sent if line.startswith("!")}
    wheel, about = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"], PROJECT["project"]
    needed = {*wheel["only-include"], *wheel["force-include"], "README.md"}
    assert copied == needed | {*about["license-files"], "pyproject.toml", "constraints.txt"}


def test_packages_are_those_that_were_tested_and_extras_exist() -> None:
    (install,) = [line for line in of("RUN") if "pip " in line]
    assert "-c constraints.txt" in install
    assert "${EXTRAS}" in install
    extras = next(line for line in of("ARG") if line.startswith("EXTRAS=")).partition("=")[2]
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
    assert f"python:{PROJECT['project']['requires-python'].removeprefix('>=')}-slim" in TEXT


def test_it_runs_the_command_as_nobody_in_particular_and_keeps_what_it_fetches() -> None:
    assert (of("ENTRYPOINT"), of("VOLUME")) == (['["gaam"]'], ['["/data"]'])
    assert int(of("USER")[-1]) > 0
    names = [name for name, _ in STEPS]
    assert "RUN" not in names[names.index("USER") :]
    places = dict(pair.split("=", 1) for pair in of("ENV")[0].split())
    for name in ("HOME", "HF_HOME", "XDG_CACHE_HOME"):
        assert places[name].startswith("/data"), name
        assert re.search(rf"install -d .*{places[name]}\b", TEXT), name
