"""Log lines: nobody sees them without ``GAAM_LOG``, and then on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.log import show_log_lines

PACKAGES = ("gaam_cache", "gaam_decoder")


@pytest.fixture
def restored_loggers() -> Iterator[None]:
    """Loggers belong to the process: later tests get them as they were."""
    loggers = [logging.getLogger(package) for package in PACKAGES]
    states = [(logger.level, logger.handlers, logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, states, strict=True):
        logger.setLevel(level)
        logger.handlers = handlers
        logger.propagate = propagate


@pytest.mark.usefixtures("restored_loggers")
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    ("level", "shown"),
    [
        pytest.param("", [], id="nothing asked for"),
        pytest.param("info", ["news"], id="info"),
        pytest.param("DEBUG", ["detail", "news"], id="debug"),
    ],
)
def test_log_lines_go_to_stderr_from_the_level_that_is_asked_for(
    package: str,
    level: str,
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GAAM_LOG", level)
    show_log_lines()
    logger = logging.getLogger(f"{package}.some.module")
    logger.debug("detail")
    logger.info("news")
    output = capsys.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == shown
    assert all(f"{package}.some.module" in line for line in lines)


def test_a_level_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GAAM_LOG", "loud")
    with pytest.raises(ConfigError, match="GAAM_LOG") as refusal:
        show_log_lines()
    assert refusal.value.details["expected"] == "debug, info, warning, error"
