"""What must hold of the settings of sounds, before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaam_cache.errors import ConfigError

if TYPE_CHECKING:
    from gaam_cache.config import ExtractConfig

PUBLISHED_SECONDS = 5.0
"""Of every sound in the published code."""


def check_sounds(config: ExtractConfig) -> None:
    """Refuse settings that contradict what the published code does with a sound.

    Raises:
        ConfigError: naming the option.
    """
    if not config.published_audio:
        return
    if config.clip_seconds not in (None, PUBLISHED_SECONDS):
        raise ConfigError(
            "--published-audio has its own length",
            expected=f"--clip-seconds {PUBLISHED_SECONDS:g}, or none",
            found=f"--clip-seconds {config.clip_seconds:g}",
        )
    if config.pool != ("mean",):
        raise ConfigError(
            "--published-audio is the mean over all that the encoder hears",
            expected="--pool mean",
            found=f"--pool {','.join(config.pool)}",
        )
