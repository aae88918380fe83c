"""A folder -> a repository on the hub: said first, sent when asked to, all of it or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError, GaamError, HubError
from gaam_cache.hub.errors import NOUNS, bounded_tries, first_line
from gaam_cache.hub.names import check_pushed_name
from gaam_cache.messages import visible

WHOSE = {"model": ("config.json", "model.safetensors"), "dataset": ("cache.json", "shards/*")}
"""Files of our own in a repository of each kind, beside those of ``BESIDE``."""
BESIDE = (".gitattributes", "README.md", "FORMAT.md")
"""Files that any repository may have; with the first alone the hub makes it."""
SHOWN = 12
"""Files that are named before they are sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """A repository that may be written to, as far as the hub can tell before that."""

    repo_id: str
    kind: str
    """'model' or 'dataset'."""
    private: bool
    user: str
    """As whom."""
    commit: str | None
    """What is there now and will be replaced; None where nothing is."""
    exists: bool
    endpoint: str

    @property
    def url(self) -> str:
        """Its page."""
        return f"{self.endpoint}/{'datasets/' if self.kind == 'dataset' else ''}{self.repo_id}"

    def in_words(self, folder: Path) -> str:
        """What would be sent: lines for people."""
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files(folder)}
        total = sum(sizes.values())
        shown = [f"    {name}  {size:,} bytes" for name, size in list(sizes.items())[:SHOWN]]
        if len(sizes) > SHOWN:
            shown.append(f"    and {len(sizes) - SHOWN:,} more")
        state = "exists and is replaced" if self.commit else "exists, empty" if self.exists else ""
        seen = "private" if self.private else "PUBLIC: anyone can read it"
        lines = [
            f"to send: {len(sizes):,} files, {total:,} bytes from '{folder}'",
            *shown,
            f"  to           {self.url} ({NOUNS[self.kind]} repository, {state or 'new'})",
            f"  seen by      {seen}",
            f"  as           {self.user}",
        ]
        return visible("\n".join(lines), keep="\n")

    def send(self, folder: Path) -> str:
        """Make the repository if need be and send the folder in one commit; returns its page.

        Raises:
            HubError: the hub refused or broke off; of the files nothing is in the repository then.
        """
        from huggingface_hub import HfApi

        api = HfApi()
        with _push_errors(self.repo_id, self.kind, "no file was committed"):
            if not self.exists:
                api.create_repo(self.repo_id, repo_type=self.kind, private=self.private)
            api.upload_folder(
                repo_id=self.repo_id,
                repo_type=self.kind,
                folder_path=folder,
                commit_message="Export of gaam",
                delete_patterns="*" if self.commit else None,
                parent_commit=self.commit,
            )
        return self.url


def files(folder: Path) -> list[Path]:
    """All files below a folder, by name."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def look(repo_id: str, *, kind: str, private: bool = False, overwrite: bool = False) -> Destination:
    """Ask the hub who we are and what is there; sends nothing.

    Args:
        repo_id: ``owner/name``.
        kind: 'model' or 'dataset'.
        private: what a new repository is to be.
        overwrite: whether an earlier export there may be replaced.

    Raises:
        ConfigError: no id, or a repository that must not be replaced.
        HubError: no token, a wrong one, or a hub that does not answer.
    """
    from huggingface_hub import HfApi, get_token

    api = HfApi()
    check_pushed_name(repo_id)
    if get_token() is None:
        raise HubError(
            "no token: the hub takes files from those alone whom it knows",
            hint="log in with 'hf auth login', or set HF_TOKEN to a token that may write",
        )
    with _push_errors(repo_id, kind, "nothing was sent"):
        user = str(api.whoami()["name"])
        found = _there(api, repo_id, kind)
    names = [] if found is None else [one.rfilename for one in found.siblings or ()]
    filled = any(name != ".gitattributes" for name in names)
    if found is not None:
        _check_replaceable(repo_id, kind, names, found, private=private, overwrite=overwrite)
    return Destination(
        repo_id=repo_id,
        kind=kind,
        private=private if found is None else bool(found.private),
        user=user,
        commit=found.sha if found is not None and filled else None,
        exists=found is not None,
        endpoint=api.endpoint,
    )


def _there(api: Any, repo_id: str, kind: str) -> Any | None:
    from huggingface_hub import errors

    try:
        return api.repo_info(repo_id, repo_type=kind)
    except errors.GatedRepoError:
        raise
    except errors.RepositoryNotFoundError:
        return None


def _check_replaceable(
    repo_id: str, kind: str, names: list[str], found: Any, *, private: bool, overwrite: bool
) -> None:
    foreign = [
        name
        for name in names
        if not any(fnmatchcase(name, pattern) for pattern in (*WHOSE[kind], *BESIDE))
    ]
    if private and not found.private:
        raise ConfigError(
            f"the {NOUNS[kind]} '{repo_id}' exists and is public",
            expected="a repository that is private, or none",
            found="--private",
            hint="make it private on its page, or choose another name",
        )
    filled = any(name != ".gitattributes" for name in names)
    if foreign or (filled and not overwrite):
        raise ConfigError(
            f"the {NOUNS[kind]} '{repo_id}' exists; nothing was sent",
            expected="a repository that is new or empty",
            found=f"{len(names):,} files"
            + (f" that no export made, such as {visible(foreign[0])}" if foreign else ""),
            hint="choose another name" if foreign else "--overwrite replaces what is there",
        )


@contextmanager
def _push_errors(repo_id: str, kind: str, state: str) -> Iterator[None]:
    """What the hub says to somebody who writes; ``state`` is how things are left then."""
    from huggingface_hub import errors

    what = f"{NOUNS[kind]} '{repo_id}'"
    try:
        with bounded_tries(what):
            yield
    except GaamError:
        raise  # said already; some are OSErrors too
    except (errors.HTTPError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # a file of this disk
        raise _refused(what, error, state) from error


def _answer(error: BaseException) -> BaseException | None:
    """What the hub answered, behind an exception."""
    from huggingface_hub import errors

    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, errors.HfHubHTTPError):
        seen = seen.__cause__ or seen.__context__
    return seen


def _last(error: BaseException) -> BaseException:
    """What came first of all that led to it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _refused(what: str, error: BaseException, state: str) -> HubError:
    answer = _answer(error)
    status = None if answer is None else getattr(answer.response, "status_code", None)  # type: ignore[attr-defined]
    found = first_line(answer or _last(error)) or type(error).__name__
    login = "'hf auth login', or HF_TOKEN"
    if status == 401:
        source = "HF_TOKEN" if os.environ.get("HF_TOKEN") else "the stored token"
        message, remedy = f"the hub does not know {source}", f"give one that is valid: {login}"
    elif status == 403:
        message = f"no permission to write the {what}"
        remedy = f"give a token that may write there: {login}"
    elif status in (409, 412):
        message = f"the {what} exists, or somebody else wrote to it meanwhile"
        remedy = "run the same again"
    elif isinstance(error, ValueError) or (status is not None and status < 500):
        message, remedy = f"the hub refused the {what}", "mend what it names"
    elif status is not None:
        message, remedy = f"the hub failed to take the {what}", "run the same again later"
    else:
        message = f"the connection to the hub broke off for the {what}"
        remedy = "check the network and HF_ENDPOINT, and run the same again"
    return HubError(message, found=found, hint=f"{state}; {remedy}")
