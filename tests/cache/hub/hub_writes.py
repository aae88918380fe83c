"""The hub of ``hub_server``, which also takes files from those whom it knows.

It has what ``huggingface_hub`` asks of the real one when it writes: who a token is, new
repositories, the check of a card, which files are large, their upload to another host, and commits,
which are all or nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import huggingface_hub
import pytest
import yaml

from tests.cache.hub.hub_server import LARGE, ApiHandler, Hub, Repository, StoreHandler

GIT_ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
"""What the hub puts into a new repository."""
WRITE = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)/(preupload|commit)/([^/]+)")
BATCH = re.compile(r"/(?:(datasets)/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch")


class WritableHub(Hub):
    """Tokens are those of people, who may write to some owners' repositories."""

    def __init__(self) -> None:
        super().__init__()
        self.people = {"token-of-someone": "someone"}
        self.owners = {"someone": {"someone"}}
        self.uploaded: dict[str, bytes] = {}
        """Large files by SHA-256, in a commit or not."""

    def is_spoken_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """This process talks to it as somebody, over LFS, and waits for nothing."""
        constants = huggingface_hub.constants
        where = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, self.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", where)
        monkeypatch.setattr(constants, "ENDPOINT", self.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
        monkeypatch.setenv("HF_TOKEN", "token-of-someone")

    def handlers(self) -> tuple[type[ApiHandler], type[StoreHandler]]:
        return _ApiHandler, _StoreHandler


class _Breaking:
    """A fault that cuts an answer cuts the connection here, before anything is done."""

    def _breaks(self: Any) -> bool:
        if self.fault.cut_at is None or self.command in ("GET", "HEAD"):
            return False
        self.close_connection = True
        self.connection.close()
        return True


class _StoreHandler(_Breaking, StoreHandler):
    hub: WritableHub

    def do_PUT(self) -> None:
        self._handle()

    def _answer(self) -> None:
        if self._breaks():
            return
        if self.command != "PUT":
            super()._answer()
        elif hashlib.sha256(self.body).hexdigest() != self.url.rpartition("/")[2]:
            self._refuse(400)
        else:
            self.hub.uploaded[self.url.rpartition("/")[2]] = self.body
            self._send(b"")


class _ApiHandler(_Breaking, ApiHandler):
    hub: WritableHub

    def _answer(self) -> None:
        if self._breaks():
            return
        if self.url == "/api/whoami-v2":
            if user := self._user():
                self._json({"name": user, "type": "user", "orgs": [], "auth": {}})
        elif self.url == "/api/validate-yaml":
            self._validate()
        elif self.url == "/api/repos/create":
            self._create()
        elif match := BATCH.fullmatch(self.url):
            if self._may_write(match[2]):
                self._batch(match[2])
        elif match := WRITE.fullmatch(self.url):
            kind, name, what, branch = match.groups()
            if self._may_write(name) and (found := self._find(kind, name, branch)):
                (self._preupload if what == "preupload" else self._commit)(name, *found, branch)
        else:
            super()._answer()

    def _user(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.hub.people:
            self._refuse(401, message="Invalid credentials in Authorization header")
            return None
        return self.hub.people[token]

    def _may_write(self, name: str) -> bool:
        user = self._user()
        if user is None:
            return False
        owner = name.split("/")[0]
        if owner not in self.hub.owners.get(user, set()):
            self._refuse(403, message=f"You don't have the rights to write to {owner}")
            return False
        return True

    def _validate(self) -> None:
        content = json.loads(self.body)["content"]
        try:
            card = yaml.safe_load(content.split("---\n")[1])
            faults = [] if isinstance(card, dict) else ["no metadata"]
        except (IndexError, yaml.YAMLError) as error:
            faults = [str(error)]
        self._json({"errors": [{"message": fault} for fault in faults], "warnings": []})

    def _create(self) -> None:
        asked = json.loads(self.body)
        owner = asked["organization"] or self._user()
        name, kind = f"{owner}/{asked['name']}", f"{asked.get('type', 'model')}s"
        if not self._may_write(name):
            return
        repositories = getattr(self.hub, kind)
        if name in repositories:
            body = {"error": "You already created this repo", "url": f"{self.hub.endpoint}/{name}"}
            self._send(json.dumps(body).encode(), 409)
            return
        repositories[name] = Repository(private=asked.get("visibility") == "private")
        repositories[name].commit({".gitattributes": GIT_ATTRIBUTES})
        prefix = "" if kind == "models" else f"{kind}/"
        self._json({"url": f"{self.hub.endpoint}/{prefix}{name}"})

    def _preupload(self, name: str, repository: Repository, commit: str, branch: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith((*LARGE, ".h5")) else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(self.body)["files"]
        ]
        self._json({"files": files})

    def _batch(self, name: str) -> None:
        asked = json.loads(self.body)["objects"]
        address = f"{self.hub.store_address}/{name}"
        found = [
            one
            if one["oid"] in self.hub.uploaded
            else one | {"actions": {"upload": {"href": f"{address}/{one['oid']}"}}}
            for one in asked
        ]
        self._json({"transfer": "basic", "objects": found})

    def _commit(self, name: str, repository: Repository, commit: str, branch: str) -> None:
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
                if value["oid"] not in self.hub.uploaded:
                    self._refuse(400, message=f"{value['path']} was not uploaded")
                    return
                files[value["path"]] = self.hub.uploaded[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        made = repository.commit(files, branch)
        self._json({"commitUrl": f"{self.hub.endpoint}/{name}/commit/{made}", "commitOid": made})
