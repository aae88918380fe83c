"""What is promised of every engine: the same tasks in workers of each."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.engines._base import load_engine
from gaam_cache.errors import GaamError, GaamWarning
from gaam_cache.placing import Placing
from tests.cache.engines import tasks


@pytest.fixture(autouse=True)
def _many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many workers on any machine."""
    monkeypatch.setattr("gaam_cache.engines.local._cores", lambda: [*range(8)])


class Ran:
    """What came of a task: results, what workers said, warnings of the caller."""

    def __init__(self, engine: str, name: str, argument: Any, folder: Path, count: int = 2) -> None:
        self.said: list[tuple[int, str, Any]] = []
        self.folder = folder
        placing = Placing(engine=engine, devices=str(count))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            task = tasks.task_of(name, argument, folder)
            self.results = load_engine(placing).run(task, placing, self.hear)
        self.warnings = [str(w.message) for w in caught if w.category is GaamWarning]

    def hear(self, number: int, kind: str, value: Any) -> None:
        if kind != "waiting":
            self.said.append((number, kind, value))
        if kind in ("here", "died"):
            tasks.note(self.folder, kind)


def test_every_worker_works_in_a_process_of_its_own_and_its_result_arrives(
    engine: str, tmp_path: Path
) -> None:
    argument = {"text": "\U0001f600", "numbers": (1, 2.5), "path": tmp_path}
    ran = Ran(engine, "echo", argument, tmp_path, 3)
    # a Ray that could not place one before the others were done has no need of it
    assert len(ran.results) == 3 if engine == "local" else 1 <= len(ran.results) <= 3
    places = [place for _, place, _ in ran.results]
    assert all(back == argument for back, _, _ in ran.results)
    assert len({place.number for place in places}) == len(places)
    assert {place.total for place in places} == {3}
    assert len({os.getpid(), *(pid for *_, pid in ran.results)}) == len(places) + 1
    assert not list(tmp_path.iterdir())


def test_what_workers_say_arrives_whole_and_in_order_and_so_do_large_results(
    engine: str, tmp_path: Path
) -> None:
    ran = Ran(engine, "talk", None, tmp_path)
    assert all(result == bytes(tasks.LARGE) for result in ran.results)
    workers = {number for number, _, _ in ran.said}  # a Ray with room for one may take any
    assert len(workers) == len(ran.results) >= 1
    for worker in workers:
        said = [(kind, value) for number, kind, value in ran.said if number == worker]
        warned = ("warning", f"worker {worker} warns")
        counted = [("count", number) for number in range(100)]
        assert said == [*counted, ("large", bytes(tasks.LARGE)), *[warned] * 3]


def test_an_error_of_ours_or_of_the_system_arrives_as_itself(engine: str, tmp_path: Path) -> None:
    # of Ray, whose workers take long to start, one
    for cls in tasks.ERRORS if engine == "local" else tasks.ERRORS[-1:]:
        direct = cls("it went wrong", **tasks.DETAILS)
        with pytest.raises(GaamError) as caught:
            Ran(engine, "fail", cls.__name__, tmp_path)
        error = caught.value
        assert type(error) is cls
        assert (str(error), error.details) == (str(direct), direct.details)
    with pytest.raises(OSError, match="No space left") as refused:
        Ran(engine, "fail", "OSError", tmp_path)
    assert refused.value.errno == 28


def test_an_error_that_cannot_be_sent_is_said(engine: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="code 7"):
        Ran(engine, "fail", "UnsendableError", tmp_path)


def test_a_worker_of_ray_that_is_killed_is_named_and_started_again(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray (the extra 'ray') is not installed")
    ran = Ran("ray", "die_at_first", tmp_path, tmp_path)
    assert sorted(ran.results) == [0, 1]
    counts = Counter((number, kind) for number, kind, _ in ran.said)
    assert counts == {(0, "here"): 3, (0, "died"): 2}
    assert all("started again" in text for text in ran.warnings)


def test_a_worker_that_dies_is_named_and_the_others_go_on(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_cache.engines.ray.MOST_RESTARTS", 0)
    ran = Ran(engine, "die_always", tmp_path, tmp_path)
    assert ran.results == [1]
    assert [(number, kind) for number, kind, _ in ran.said] == [(0, "here"), (0, "died")]
    [text] = ran.warnings
    assert text.startswith("worker 1 ")
    assert "the others go on" in text


def test_where_all_die_there_is_one_clear_error(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_cache.engines.ray.MOST_RESTARTS", 0)
    with pytest.raises(GaamError, match="all workers died") as caught:
        Ran(engine, "all_die", tmp_path, tmp_path)
    assert caught.value.exit_code == 1
    assert not list(tmp_path.glob(".*"))


def test_an_engine_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(GaamError, match="unknown engine 'rya'") as caught:
        load_engine(Placing(engine="rya"))
    assert caught.value.exit_code == 2
