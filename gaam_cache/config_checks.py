"""Which settings of an extraction go together: what has no effect or misleads is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import excerpt, shortened

if TYPE_CHECKING:
    from gaam_cache.config import ExtractConfig

POOL_OVER = ("all", "text")
PLACE = "{text}"
"""Of the text in a prompt."""


def check_prompt(config: ExtractConfig) -> None:
    """There is one prompt at most, and a text has a place in it.

    Raises:
        ConfigError: two, or one that is none.
    """
    if config.pool_over not in POOL_OVER:
        raise ConfigError(
            "--pool-over is out of range",
            expected=f"one of: {', '.join(POOL_OVER)}",
            found=shortened(str(config.pool_over)),
        )
    if config.prompt is not None and config.prompt_file is not None:
        raise ConfigError(
            "the prompt is given twice",
            expected="--prompt or --prompt-file",
            found=f"--prompt {shortened(config.prompt)!r} and --prompt-file {config.prompt_file}",
        )
    if config.prompt is not None:
        check_place(config.prompt, "--prompt")


def check_place(prompt: str, where: str) -> None:
    """A text has its place in a prompt once; all other braces are themselves.

    Args:
        prompt: as it was given.
        where: that was.

    Raises:
        ConfigError: nothing, or not one place for the text.
    """
    count = prompt.count(PLACE)
    if count != 1:
        raise ConfigError(
            "a prompt says once where the text stands",
            expected=f"'{PLACE}' exactly once",
            found=f"{excerpt(prompt)}, which has it {count} times" if prompt else "nothing",
            where=where,
        )
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "a prompt is text", expected="characters that UTF-8 has", found=str(error), where=where
        ) from error
