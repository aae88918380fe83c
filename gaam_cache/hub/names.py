"""What a repository on the hub can be called, as far as that shows without asking the hub."""

from __future__ import annotations

from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_cache.hub.errors import first_line
from gaam_cache.messages import shortened


def problem_with_id(name: str) -> str | None:
    """Why no repository can be called so; None if one can."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        return first_line(error)
    return None


def only_a_path(name: str) -> bool:
    """Whether a name can be a path alone: no id, a file, or below a folder that there is."""
    path = Path(name)
    return (
        problem_with_id(name) is not None
        or path.exists()
        or (len(path.parts) > 1 and path.parent.is_dir())
    )


def check_pushed_name(name: str) -> None:
    """Refuse what the hub cannot take, before anything is read or made.

    Raises:
        ConfigError: it is no name, or has no owner.
    """
    problem = problem_with_id(name)
    if problem or name.count("/") != 1:
        raise ConfigError(
            "--push names no repository",
            expected="USER/NAME, or ORGANISATION/NAME",
            found=f"'{shortened(name)}'",
            where="--push",
            hint=problem or "put your name on the hub, or that of an organisation, before it",
        )
