"""A small server that speaks the protocol of the Hugging Face hub, on 127.0.0.1.

It has what ``huggingface_hub`` and ``datasets`` ask of the real one to read: information on a
repository, its tree and files at a revision. What is written goes to ``Writable``, in this process.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import huggingface_hub
import pytest

LARGE = (".safetensors", ".h5", ".bin", ".parquet")
"""Files that are known by their SHA-256, and are sent before a commit names them."""
GIT_ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
"""What the hub puts into a new repository."""
API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(\w+)/([^/]+)(?:/(.*))?)?")
RESOLVE = re.compile(r"/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class Request(NamedTuple):
    """One request that came in; the path without its query."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class Repository:
    """Commits and the branches that point to them."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    gated: int | None = None
    """Status for whoever asks for a file: 401 (not logged in) or 403 (not accepted)."""
    private: bool = False

    def commit(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Make ``files`` the content of ``branch``; returns the commit."""
        listing = "".join(f"{name} {_etag(name, files[name])}\n" for name in sorted(files))
        commit = hashlib.sha1(f"{listing}{len(self.commits)}".encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit


def folder_content(folder: Path) -> dict[str, bytes]:
    """Files of a folder as the content of a commit."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _etag(name: str, content: bytes) -> str:
    if name.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """The server; a context manager."""

    def __init__(self) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.fault: Callable[[Request], int | None] = lambda request: None
        """Asked about every request: a status that is all of its answer."""

    def __enter__(self) -> Hub:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        """What HF_ENDPOINT is set to."""
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, name: str) -> set[str]:
        """Files of a repository that anyone asked about or for."""
        matches = [RESOLVE.fullmatch(request.path) for request in self.requests]
        return {match[4] for match in matches if match and match[2] == name}


class Writable:
    """The client's calls that write, answered in this process; the token decides who one is."""

    endpoint = "https://hub.example"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.datasets: dict[str, Repository] = {}
        self.written = 0
        """Calls that change something."""
        for name in ("repo_exists", "repo_info", "whoami", "create_repo", "upload_folder"):
            monkeypatch.setattr(huggingface_hub.HfApi, name, getattr(self, name))
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

    def repo_info(self, repo_id: str, *, repo_type: str) -> Any:
        there = self.datasets[repo_id]
        siblings = [SimpleNamespace(rfilename=name) for name in self.content(repo_id)]
        sha = there.branches["main"]
        return SimpleNamespace(sha=sha, private=there.private, siblings=siblings)

    def create_repo(self, repo_id: str, *, private: bool = False, **options: Any) -> None:
        self.written += 1
        if repo_id not in self.datasets:
            self.datasets[repo_id] = Repository(private=private)
            self.datasets[repo_id].commit({".gitattributes": GIT_ATTRIBUTES})

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, delete_patterns: Any, parent_commit: Any, **_: Any
    ) -> None:
        self.written += 1
        there, before = self.datasets[repo_id], self.content(repo_id)
        if parent_commit not in (None, there.branches["main"]):
            raise refusal(412)
        kept = {".gitattributes": before[".gitattributes"]} if delete_patterns == "*" else before
        there.commit(kept | folder_content(folder_path))


def refusal(status: int) -> Exception:
    """What the client raises where the hub answers so."""
    response: Any = SimpleNamespace(status_code=status, headers={}, request=None)
    return huggingface_hub.errors.HfHubHTTPError("no", response=response)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def _handle(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.url = unquote(urlsplit(self.path).path)
        request = Request(self.command, self.url, dict(self.headers))
        self.hub.requests.append(request)
        if status := self.hub.fault(request):
            self._refuse(status)
        elif match := API.fullmatch(self.url):
            kind, name, what, revision, path = match.groups()
            if found := self._find(kind, name, revision):
                answer = {None: self._info, "revision": self._info, "tree": self._tree}
                answer[what](name, *found, path or "")
        elif match := RESOLVE.fullmatch(self.url):
            kind, name, revision, path = match.groups()
            if found := self._find(kind or "models", name, revision):
                self._resolve(*found, path)
        else:
            self._refuse(404)

    do_HEAD = do_GET = do_POST = _handle  # noqa: N815

    def _refuse(self, status: int, code: str = "", message: str = "something is wrong") -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
        self._send(json.dumps({"error": message}).encode(), status, headers)

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), status, {"Content-Type": "application/json"})

    def _send(self, body: bytes, status: int = 200, headers: Any = ()) -> None:
        self.send_response(status)
        for key, value in dict(headers).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _find(self, kind: str, name: str, revision: str | None) -> tuple[Repository, str] | None:
        repository = getattr(self.hub, kind).get(name)
        if repository is None:
            # whether it is missing or private is told to nobody who is not logged in
            self._refuse(401, "RepoNotFound", "Invalid username or password.")
            return None
        commit = repository.branches.get(revision or "main", revision)
        if commit not in repository.commits:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repository, commit

    def _info(self, name: str, repository: Repository, commit: str, path: str) -> None:
        siblings = [{"rfilename": path} for path in sorted(repository.commits[commit])]
        about = {"_id": "0" * 24, "id": name, "sha": commit, "siblings": siblings, "tags": []}
        about |= {"private": repository.private, "gated": "auto" if repository.gated else False}
        about |= dict.fromkeys(("createdAt", "lastModified"), "2024-01-01T00:00:00.000Z")
        self._json(about | {"disabled": False, "downloads": 0, "likes": 0})

    def _tree(self, name: str, repository: Repository, commit: str, path: str) -> None:
        files = repository.commits[commit]
        prefix = f"{path}/" if path else ""
        inside = [one.removeprefix(prefix) for one in files if one.startswith(prefix)]
        if path and not inside:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        folders = {str(parent) for one in inside for parent in Path(one).parents} - {"."}
        found = [{"type": "directory", "path": f, "oid": "0" * 40, "size": 0} for f in folders]
        for one in inside:
            content = files[prefix + one]
            about: dict[str, Any] = {"size": len(content), "oid": _etag(one, content)}
            if one.endswith(LARGE):
                about["lfs"] = {**about, "pointerSize": 130}
            found.append({"type": "file", "path": one, **about})
        deep = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() == "true"
        listed = [
            {**one, "path": prefix + one["path"]} for one in found if deep or "/" not in one["path"]
        ]
        self._json(sorted(listed, key=lambda one: one["path"]))

    def _resolve(self, repository: Repository, commit: str, path: str) -> None:
        content = repository.commits[commit].get(path)
        if repository.gated:
            self._refuse(repository.gated, "GatedRepo", "Access to this repository is restricted")
        elif content is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
        else:
            headers = {"X-Repo-Commit": commit, "ETag": f'"{_etag(path, content)}"'}
            self._send(content, 200, headers)
