"""A hub in this process: what its client asks and sends is answered from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

GIT_ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
"""What the hub puts into a new repository."""
KINDS = {404: errors.RepositoryNotFoundError, 403: errors.GatedRepoError}


@dataclass
class Repository:
    """Commits and the branches that point to them."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    refused: int | None = None
    """Status for whoever asks for anything."""
    private: bool = False

    def commit(self, files: Mapping[str, bytes]) -> str:
        """Make ``files`` the content of the branch; returns the commit."""
        listing = "".join(f"{name} {files[name]!r}\n" for name in sorted(files))
        commit = hashlib.sha1(f"{listing}{len(self.commits)}".encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches["main"] = commit
        return commit


def folder_content(folder: Path) -> dict[str, bytes]:
    """Files of a folder as the content of a commit."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Writable:
    """The client's calls, answered in this process; the token decides who one is."""

    endpoint = "https://hub.example"

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path | None = None
    ) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.written = 0
        """Calls that change something."""
        self.fetched = set[str]()
        """Names of the files of models that were fetched."""
        self.silent = False
        """Whether it cannot be reached."""
        self._folder = folder
        for name in (
            "repo_exists",
            "repo_info",
            "whoami",
            "create_repo",
            "upload_folder",
        ):
            monkeypatch.setattr(huggingface_hub.HfApi, name, getattr(self, name))
        monkeypatch.setattr(
            huggingface_hub, "snapshot_download", self.snapshot_download
        )
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", self.endpoint)
        monkeypatch.setenv("HF_TOKEN", "token-of-someone")

    def content(self, repo_id: str) -> dict[str, bytes]:
        """Of the last commit."""
        repository = self.datasets[repo_id]
        return repository.commits[repository.branches["main"]]

    def whoami(self) -> dict[str, str]:
        if huggingface_hub.get_token() != "token-of-someone":
            raise refusal(401)
        return {"name": "someone"}

    def repo_exists(self, repo_id: str, *, repo_type: str) -> bool:
        return repo_id in self.datasets

    def repo_info(
        self,
        repo_id: str,
        *,
        repo_type: str,
        revision: str | None = None,
        timeout: Any = None,
    ) -> Any:
        if self.silent:
            raise ConnectionError("nobody there")
        there = getattr(self, f"{repo_type}s").get(repo_id)
        if there is None or there.refused:
            raise refusal(404 if there is None else there.refused)
        sha = there.branches.get(revision or "main", revision)
        if sha not in there.commits:
            raise refusal(404, errors.RevisionNotFoundError)
        siblings = [SimpleNamespace(rfilename=name) for name in there.commits[sha]]
        return SimpleNamespace(sha=sha, private=there.private, siblings=siblings)

    def snapshot_download(
        self, repo_id: str, *, repo_type: str, revision: str | None, local_files_only: bool,
        **patterns: Any,
    ) -> str:  # fmt: skip
        """Files at the top of a repository; of a hub that is silent what was fetched before."""
        assert self._folder is not None
        commits = getattr(self, f"{repo_type}s")[repo_id]
        sha = commits.branches.get(revision or "main", revision or "none")
        folder = self._folder / repo_id.replace("/", "--") / sha
        if local_files_only:
            if not folder.is_dir():
                raise errors.LocalEntryNotFoundError("nothing there")
            return str(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content = commits.commits[sha]
        for name in huggingface_hub.utils.filter_repo_objects(content, **patterns):
            (folder / name).write_bytes(content[name])
            self.fetched |= {name} if repo_type == "model" else set()
        return str(folder)

    def create_repo(
        self, repo_id: str, *, private: bool = False, **options: Any
    ) -> None:
        self.written += 1
        if repo_id not in self.datasets:
            self.datasets[repo_id] = Repository(private=private)
            self.datasets[repo_id].commit({".gitattributes": GIT_ATTRIBUTES})

    def upload_folder(
        self,
        *,
        repo_id: str,
        folder_path: Path,
        delete_patterns: Any,
        parent_commit: Any,
        **_: Any,
    ) -> None:
        self.written += 1
        there, before = self.datasets[repo_id], self.content(repo_id)
        if parent_commit not in (None, there.branches["main"]):
            raise refusal(412)
        kept = (
            {".gitattributes": before[".gitattributes"]}
            if delete_patterns == "*"
            else before
        )
        there.commit(kept | folder_content(folder_path))


def refusal(status: int, kind: Any = None) -> Exception:
    """What the client raises where the hub answers so."""
    response: Any = SimpleNamespace(status_code=status, headers={}, request=None)
    error: Exception = (kind or KINDS.get(status, errors.HfHubHTTPError))(
        "no", response=response
    )
    return error
