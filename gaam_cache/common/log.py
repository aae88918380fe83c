"""Log lines for whoever looks into what gaam does: ``GAAM_LOG=debug gaam extract``.

Results, progress and warnings are not log lines: every user sees them. Modules log with
the standard ``logging.getLogger(__name__)``, so a program that uses gaam as a library
configures the loggers ``gaam_cache`` and ``gaam_decoder`` as it does all others.
"""

import os

from gaam_cache.common.errors import ConfigError

VARIABLE = "GAAM_LOG"
LEVELS = ("debug", "info", "warning", "error")
LINE = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


def show_log_lines() -> None:
    """Write log lines of at least the level that ``GAAM_LOG`` names to stderr.

    Without this environment variable nothing happens.

    Raises:
        ConfigError: there is no such level.
    """
    level = os.environ.get(VARIABLE, "").casefold()
    if not level:
        return
    if level not in LEVELS:
        raise ConfigError(
            f"{VARIABLE} names no level of the log",
            expected=", ".join(LEVELS),
            found=level,
        )

    # Every command would wait for this import, and few ask for log lines.
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LINE))
    for package in ("gaam_cache", "gaam_decoder"):
        logger = logging.getLogger(package)
        logger.setLevel(level.upper())
        logger.handlers = [handler]
        # The root logger may have a handler of its own, which would repeat each line.
        logger.propagate = False
