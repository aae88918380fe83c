"""Options that take one whole number, and what people write there instead.

The parser's own reading drops zeros at the beginning before it looks at what follows: 0-3 would be
-3.
"""

from __future__ import annotations

import re
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import shortened

_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*(\.0*)?", re.ASCII)
"""As Python writes them; a fraction of nothing is none."""
_SEVERAL = re.compile(r"[0-9]+\s*(([-,:]|\.\.)\s*[0-9]+\s*)+", re.ASCII)
"""A range or a list."""
TAKES_SEVERAL = "gaam train --seeds"
"""Where a range of seeds may be written."""


def is_whole(param: Any, ctx: Any) -> bool:
    """Whether an option or argument takes whole numbers."""
    return "int" in re.findall("[a-z]+", param.display_type(ctx))


def check(param: Any, value: str, command: Any, ctx: Any) -> None:
    """Refuse what is no whole number.

    Args:
        param: an option or argument that takes one.
        value: what was written.
        command: whose it is.
        ctx: its context.

    Raises:
        ConfigError: with what was written, and which option takes it where one does.
    """
    if _WHOLE.fullmatch(value.strip()):
        return
    several = _SEVERAL.fullmatch(value.strip())
    raise ConfigError(
        f"bad value for {'/'.join(param.opts)}",
        expected="one whole number" if several else "a whole number",
        found=repr(shortened(value)),
        hint=_instead(param, shortened(value), command, ctx)
        if several
        else f"{ctx.command_path} --help",
    )


def _instead(param: Any, value: str, command: Any, ctx: Any) -> str:
    """Where a range or a list may be written: an option of the same name that takes several."""
    own = max(param.opts, key=len)
    for other in command.get_params(ctx):
        if f"{own}s" in other.opts and not is_whole(other, ctx):
            return f"{own}s {value}"
    if own == "--seed":
        return f"{TAKES_SEVERAL} {value} trains several; here {own} is one of them"
    return f"give {own} one of them"
