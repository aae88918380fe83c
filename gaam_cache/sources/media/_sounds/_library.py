"""The one library that decodes sounds: libsndfile, by soundfile."""

from __future__ import annotations

from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.messages import install


def soundfile() -> Any:
    """The module ``soundfile``, which is loaded when the first sound is read.

    Raises:
        ConfigError: it, or the library that it needs, is not installed.
    """
    try:
        import soundfile as module
    except (ImportError, OSError) as error:
        raise ConfigError(
            "sounds cannot be read",
            expected="the package 'soundfile' and the library libsndfile",
            found=str(error),
            hint=install("audio"),
        ) from error
    return module


RULES = "mono by the mean"
"""What we make of what libsndfile reads; to be changed with it, for it decides numbers."""


def versions() -> dict[str, str]:
    """Of what decodes sounds.

    Raises:
        ConfigError: it is not installed.
    """
    module = soundfile()
    return {
        "gaam": RULES,
        "soundfile": module.__version__,
        "libsndfile": module.__libsndfile_version__,
    }
