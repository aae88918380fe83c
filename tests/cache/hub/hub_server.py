"""A small server that speaks the protocol of the Hugging Face hub, on 127.0.0.1.

It has what ``huggingface_hub`` and ``datasets`` ask of the real one when they read: information on
a repository, its tree, HEAD and GET of a file at a revision, large files by way of a redirect to
another host (here: another port), byte ranges, error codes in ``X-Error-Code``. Faults are made on
request. Every request is kept.
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
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".safetensors", ".bin", ".parquet", ".arrow")
"""Files that the hub keeps as LFS objects: a redirect leads to them."""
API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(\w[\w-]*)/([^/]+)(?:/(.*))?)?")
RESOLVE = re.compile(r"/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request that came in."""

    method: str
    path: str
    """Path without the query; in the store /store/<repository>/<path of the file>."""
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with a request."""

    status: int | None = None
    """Answer with this status and no more."""
    cut_at: int | None = None
    """Announce the whole body, send so many bytes of the file at most, close the connection."""


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
        listing = "".join(f"{name} {_sha1(files[name])}\n" for name in sorted(files))
        commit = hashlib.sha1(f"{listing}{len(self.commits)}".encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit


def folder_content(folder: Path) -> dict[str, bytes]:
    """Files of a folder as the content of a commit."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Hub:
    """The server; a context manager."""

    def __init__(self) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = lambda request: None
        """Asked about every request."""
        self.store: dict[str, tuple[str, bytes]] = {}
        """Large files: repository and SHA-256 -> path and content."""
        self._servers: list[ThreadingHTTPServer] = []

    def __enter__(self) -> Hub:
        for handler in self.handlers():
            kind = type(handler.__name__, (handler,), {"hub": self})
            server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self._servers.append(server)
        return self

    def __exit__(self, *error: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def handlers(self) -> tuple[type[_Handler], type[_Handler]]:
        """What answers at the endpoint and where large files lie."""
        return ApiHandler, StoreHandler

    def _address(self, server: ThreadingHTTPServer) -> str:
        return f"http://127.0.0.1:{server.server_address[1]}"

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT is set to."""
        return self._address(self._servers[0])

    @property
    def store_address(self) -> str:
        """Where redirects of large files lead."""
        return self._address(self._servers[1])

    def asked(self, name: str) -> set[str]:
        """Files of a repository that anyone asked about or for."""
        matches = [RESOLVE.fullmatch(request.path) for request in self.requests]
        return {match[4] for match in matches if match and match[2] == name}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.url = unquote(urlsplit(self.path).path)
        request = Request(
            method=self.command, path=self._named(self.url), headers=dict(self.headers)
        )
        self.hub.requests.append(request)
        self.fault = self.hub.fault(request) or Fault()
        if self.fault.status is not None:
            self._refuse(self.fault.status)
        else:
            self._answer()

    def _named(self, path: str) -> str:
        return path

    def _answer(self) -> None:
        raise NotImplementedError

    def _refuse(self, status: int, code: str = "", message: str = "") -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        body = json.dumps({"error": message or "something went wrong"}).encode()
        self._send(body, status, {key: value for key, value in headers.items() if value})

    def _json(self, value: Any) -> None:
        self._send(json.dumps(value).encode(), 200, {"Content-Type": "application/json"})

    def _send(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_file(self, content: bytes, headers: dict[str, str]) -> None:
        """The whole file or the range that is asked for, with the fault of this request."""
        start, status = 0, 200
        headers["Accept-Ranges"] = "bytes"
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        stop = len(content)
        if asked:
            start, status = int(asked[1]), 206
            stop = min(int(asked[2]) + 1, stop) if asked[2] else stop
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        body = content[start:stop]
        if self.fault.cut_at is None or self.command == "HEAD":
            self._send(body, status, headers)
            return
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: max(0, self.fault.cut_at - start)])
        self.close_connection = True


class StoreHandler(_Handler):
    """Where the large files lie: knows hashes, and nobody's name."""

    def _named(self, path: str) -> str:
        key = path.removeprefix("/")
        return f"/store/{key.rpartition('/')[0]}/{self.hub.store.get(key, ('unknown', b''))[0]}"

    def _answer(self) -> None:
        name = self.url.removeprefix("/")
        if name not in self.hub.store:
            self._refuse(404)
        else:
            self._send_file(self.hub.store[name][1], {"ETag": f'"{name.rpartition("/")[2]}"'})


class ApiHandler(_Handler):
    def _answer(self) -> None:
        if match := API.fullmatch(self.url):
            kind, name, what, revision, path = match.groups()
            found = self._find(kind, name, revision)
            if found is None:
                return
            repository, commit = found
            files = repository.commits[commit]
            if what in (None, "revision"):
                self._json(_info(name, repository, commit))
            elif what == "tree":
                query = parse_qs(urlsplit(self.path).query)
                recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
                self._tree(files, path or "", recursive)
            else:
                self._refuse(404)
        elif match := RESOLVE.fullmatch(self.url):
            kind, name, revision, path = match.groups()
            found = self._find(kind or "models", name, revision)
            if found is not None:
                self._resolve(name, *found, path)
        else:
            self._refuse(404)

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

    def _tree(self, files: dict[str, bytes], folder: str, recursive: bool) -> None:
        prefix = f"{folder}/" if folder else ""
        inside = {name: files[name] for name in files if name.startswith(prefix)}
        if folder and not inside:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        folders = {
            prefix + "/".join(parts[:depth])
            for name in inside
            for parts in [name.removeprefix(prefix).split("/")]
            for depth in range(1, len(parts))
        }
        entries = [_entry(name, content) for name, content in inside.items()]
        entries += [{"type": "directory", "path": f, "oid": _sha1(b""), "size": 0} for f in folders]
        if not recursive:
            entries = [e for e in entries if "/" not in e["path"].removeprefix(prefix)]
        self._json(sorted(entries, key=lambda entry: entry["path"]))

    def _resolve(self, name: str, repository: Repository, commit: str, path: str) -> None:
        content = repository.commits[commit].get(path)
        headers = {"X-Repo-Commit": commit}
        if repository.gated:
            self._refuse(repository.gated, "GatedRepo", "Access to this repository is restricted")
        elif content is None:
            self._send(
                b"Entry not found",
                404,
                headers | {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"},
            )
        elif path.endswith(LARGE):
            digest = _sha256(content)
            self.hub.store[f"{name}/{digest}"] = (path, content)
            headers |= {
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(content)),
                "Location": f"{self.hub.store_address}/{name}/{digest}",
            }
            self._send(b"Found. Redirecting", 302, headers)
        else:
            self._send_file(content, headers | {"ETag": f'"{_sha1(content)}"'})


def _info(name: str, repository: Repository, commit: str) -> dict[str, Any]:
    return {
        "_id": "0" * 24,
        "id": name,
        "author": name.split("/")[0],
        "sha": commit,
        "private": repository.private,
        "gated": "auto" if repository.gated else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "lastModified": "2024-01-01T00:00:00.000Z",
        "createdAt": "2024-01-01T00:00:00.000Z",
        "siblings": [{"rfilename": path} for path in sorted(repository.commits[commit])],
    }


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "oid": _sha1(content)}
    entry["size"] = len(content)
    if path.endswith(LARGE):
        entry["lfs"] = {"oid": _sha256(content), "size": len(content), "pointerSize": 130}
    return entry
