"""Which settings of an extraction go together: what has no effect or misleads is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import shortened

if TYPE_CHECKING:
    from gaam_cache.config import ExtractConfig

POOL_OVER = ("all", "text")


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
        from gaam_cache.encoders._text.prompt import Prompt

        Prompt.parse(config.prompt, "--prompt")
