"""Files of an exported decoder: in a folder, or fetched from the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaam_cache.errors import HubError, NotFoundError
from gaam_cache.hub.errors import TIMEOUT_SECONDS, first_line, hub_errors
from gaam_cache.hub.names import only_a_path
from gaam_cache.messages import shortened, visible
from gaam_decoder.use.exported import CARD_FILE, OWN_FILES


def files_of(name: str | Path, **fetch: Any) -> dict[str, Path]:
    """The three files of an exported decoder; of the hub these and no others.

    Args:
        name: an exported folder, or an id on the hub.
        fetch: what the hub's client is told.

    Returns:
        Paths by the names of ``OWN_FILES``; the card may be missing.

    Raises:
        NotFoundError: neither a folder nor such a repository, or one without a decoder.
        HubError: the hub cannot be reached or refuses.
        StorageError: what was fetched cannot be kept.
    """
    folder = Path(name).expanduser()
    places = {file: folder / file for file in OWN_FILES}
    if folder.is_dir():
        return places
    if isinstance(name, Path) or only_a_path(name):
        raise NotFoundError(
            visible(f"no exported decoder at '{shortened(str(name))}'"),
            expected=f"a folder with {', '.join(OWN_FILES)}, or an id on the hub",
            found="a file" if folder.is_file() else "nothing there",
            where=visible(str(folder.absolute())),
            hint="make one with 'gaam export RUN DIR', or write an id as OWNER/NAME",
        )
    unreachable = None if fetch.get("local_files_only") else _asked(name, fetch)
    if unreachable is not None:  # no obstacle where there is a complete local copy
        fetch |= {"local_files_only": True, "force_download": False}
    try:
        with hub_errors(name, kind="decoder"):
            for file in OWN_FILES:
                found = _fetched(name, file, fetch)
                places[file] = found or places[file]
    except HubError as error:
        raise unreachable or error from None
    return places


def _asked(name: str, fetch: dict[str, Any]) -> HubError | None:
    """Ask the hub once for the repository: its client would try for half a minute.

    Returns:
        What to say where it cannot be reached, or refuses.

    Raises:
        NotFoundError: no such repository or revision.
    """
    from huggingface_hub import HfApi

    try:
        with hub_errors(name, kind="decoder"):
            HfApi(token=fetch.get("token")).model_info(
                name, revision=fetch.get("revision"), timeout=TIMEOUT_SECONDS
            )
    except HubError as error:
        return error
    return None


def _fetched(name: str, file: str, fetch: dict[str, Any]) -> Path | None:
    """One file of the hub; None for a card that is not there, which nobody needs."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(name, file, **fetch))
    except errors.EntryNotFoundError as error:
        if file == CARD_FILE:
            return None
        if isinstance(error, errors.LocalEntryNotFoundError):
            raise  # the hub was not asked, or gave no answer
        raise NotFoundError(
            f"'{name}' on the hub holds no exported decoder",
            expected=f"a repository with {', '.join(OWN_FILES)}",
            found=first_line(error),
            hint="send one there with 'gaam export RUN DIR --push', or name another",
        ) from error
