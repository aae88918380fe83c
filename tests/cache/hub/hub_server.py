"""A small server that speaks the protocol of the Hugging Face hub, on 127.0.0.1.

It has what ``huggingface_hub`` and ``datasets`` ask of the real one: information on a repository,
its tree and files at a revision; and to write, who a token is, new repositories, the check of a
card, uploads of large files, and commits, which are all or nothing. Every request is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
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
BATCH = re.compile(r"/(?:datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch")


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
    """The server; a context manager. Whoever has the token writes to repositories of 'someone'."""

    def __init__(self) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.fault: Callable[[Request], int | None] = lambda request: None
        """Asked about every request: a status that is all of its answer."""
        self.uploaded: dict[str, bytes] = {}
        """Large files by SHA-256, in a commit or not."""

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

    def is_spoken_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """This process talks to it as somebody, over LFS, and waits for nothing."""
        constants = huggingface_hub.constants
        where = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, self.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", where)
        monkeypatch.setattr(constants, "ENDPOINT", self.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
        monkeypatch.setenv("HF_TOKEN", "token-of-someone")


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
        elif self.url.startswith("/store/"):
            self.hub.uploaded[hashlib.sha256(self.body).hexdigest()] = self.body
            self._send(b"")
        elif self.url == "/api/whoami-v2":
            if self._may_write("someone/"):
                self._json({"name": "someone", "type": "user", "orgs": [], "auth": {}})
        elif self.url == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif self.url == "/api/repos/create":
            self._create()
        elif match := BATCH.fullmatch(self.url):
            if self._may_write(match[1]):
                self._batch()
        elif match := API.fullmatch(self.url):
            kind, name, what, revision, path = match.groups()
            if what in ("preupload", "commit") and not self._may_write(name):
                return
            if found := self._find(kind, name, revision):
                answer = {None: self._info, "revision": self._info, "tree": self._tree}
                answer |= {"preupload": self._preupload, "commit": self._commit}
                answer[what](name, *found, path or "")
        elif match := RESOLVE.fullmatch(self.url):
            kind, name, revision, path = match.groups()
            if found := self._find(kind or "models", name, revision):
                self._resolve(*found, path)
        else:
            self._refuse(404)

    do_HEAD = do_GET = do_POST = do_PUT = _handle  # noqa: N815

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

    def _may_write(self, name: str) -> bool:
        known = self.headers.get("Authorization") == "Bearer token-of-someone"
        if not known or not name.startswith("someone/"):
            self._refuse(403 if known else 401, message="You may not do this")
        return known and name.startswith("someone/")

    def _create(self) -> None:
        asked = json.loads(self.body)
        name = f"{asked['organization'] or 'someone'}/{asked['name']}"
        kind = f"{asked.get('type', 'model')}s"
        repositories = getattr(self.hub, kind)
        if not self._may_write(name):
            return
        url = f"{self.hub.endpoint}/{'' if kind == 'models' else f'{kind}/'}{name}"
        if name in repositories:
            self._json({"error": "You already created this repo", "url": url}, 409)
            return
        repositories[name] = Repository(private=asked.get("visibility") == "private")
        repositories[name].commit({".gitattributes": GIT_ATTRIBUTES})
        self._json({"url": url})

    def _preupload(self, name: str, repository: Repository, commit: str, path: str) -> None:
        files = [
            {"path": file["path"], "shouldIgnore": False}
            | {"uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular"}
            for file in json.loads(self.body)["files"]
        ]
        self._json({"files": files})

    def _batch(self) -> None:
        found = []
        for one in json.loads(self.body)["objects"]:
            href = f"{self.hub.endpoint}/store/{one['oid']}"
            there = one["oid"] in self.hub.uploaded
            found.append(one if there else one | {"actions": {"upload": {"href": href}}})
        self._json({"transfer": "basic", "objects": found})

    def _commit(self, name: str, repository: Repository, commit: str, path: str) -> None:
        files = dict(repository.commits[commit])
        for line in self.body.decode().splitlines():
            entry = json.loads(line)
            key, value = entry["key"], entry["value"]
            if key == "header" and value.get("parentCommit", commit) != commit:
                self._refuse(412, message="A commit has happened since")
                return
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.uploaded[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        made = repository.commit(files)
        self._json({"commitUrl": f"{self.hub.endpoint}/{name}/commit/{made}", "commitOid": made})
