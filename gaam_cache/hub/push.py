"""A folder -> a repository on the hub: said first, sent when asked to, in one commit."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError, HubError
from gaam_cache.hub.fetch import NOUNS, hub_errors
from gaam_cache.messages import shortened, tell, visible

ANY = (".gitattributes", "README.md", "FORMAT.md")
OURS = {
    "model": (*ANY, "config.json", "model.safetensors"),
    "dataset": (*ANY, "cache.json", "shards/*"),
}
"""Files of an export, and the one that the hub makes."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A repository that may be written to, as far as the hub can tell before that."""

    repo_id: str
    kind: str
    private: bool
    user: str  # as whom
    commit: str | None  # what is there now and will be replaced; None where nothing is
    url: str

    def confirm(self, folder: Path, *, yes: bool) -> None:
        """Say on stderr what would be sent and, unless ``yes``, ask; HubError where that is no."""
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        lines = [
            f"to send: {len(sizes):,} files, {sum(sizes):,} bytes from '{folder}'",
            f"  to           {self.url} ({'is replaced' if self.commit else 'new or empty'})",
            f"  seen by      {'private' if self.private else 'PUBLIC: anyone can read it'}",
            f"  as           {self.user}",
        ]
        tell("\n".join(lines), to=sys.stderr)
        if not yes:
            print("send it? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
                raise HubError("nothing was sent", found="no", where=str(folder))

    def send(self, folder: Path) -> str:
        """Send the folder, all of it or nothing; returns its page."""
        from huggingface_hub import HfApi

        api = HfApi()
        with hub_errors(self.repo_id, kind=self.kind):
            api.create_repo(self.repo_id, repo_type=self.kind, private=self.private, exist_ok=True)
            api.upload_folder(
                repo_id=self.repo_id,
                repo_type=self.kind,
                folder_path=folder,
                commit_message="Export of gaam",
                delete_patterns="*" if self.commit else None,
                parent_commit=self.commit,
            )
        return self.url


def look(
    repo_id: str, *, kind: str, private: bool = False, overwrite: bool = False, yes: bool = True
) -> Destination:
    """Ask the hub who we are and what is there; ``yes``: nobody has to be asked before sending."""
    from huggingface_hub import HfApi, get_token

    api, what = HfApi(), f"the {NOUNS[kind]} '{repo_id}'"
    if repo_id.count("/") != 1:
        found_name = f"'{shortened(repo_id)}'"
        raise ConfigError("--push names no repository", expected="USER/NAME", found=found_name)
    if not yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise ConfigError("--push asks, and nobody is there", expected="a terminal, or --yes")
    if get_token() is None:
        raise HubError("no token for the hub", hint="'hf auth login', or set HF_TOKEN")
    with hub_errors(repo_id, kind=kind):
        there = api.repo_exists(repo_id, repo_type=kind)
        found: Any = api.repo_info(repo_id, repo_type=kind) if there else None
        user = str(api.whoami()["name"])
    names = [] if found is None else [one.rfilename for one in found.siblings or ()]
    filled = any(name != ".gitattributes" for name in names)
    foreign = [name for name in names if not any(fnmatchcase(name, one) for one in OURS[kind])]
    if private and found is not None and not found.private:
        hint = "make it private on its page, or choose another name"
        raise ConfigError(f"{what} exists and is public", found="--private", hint=hint)
    if foreign or (filled and not overwrite):
        such = f" that no export made, such as {visible(foreign[0])}" if foreign else ""
        raise ConfigError(
            f"{what} exists; nothing was sent",
            found=f"{len(names):,} files{such}",
            hint="choose another name" if foreign else "--overwrite replaces what is there",
        )
    hidden = private if found is None else bool(found.private)
    url = f"{api.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo_id}"
    return Destination(repo_id, kind, hidden, user, found.sha if filled else None, url)
