"""A decoder that was pushed to a hub comes back from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.hub.push import look
from gaam_decoder.use.export import export_run
from gaam_decoder.use.exported import CARD_FILE, OWN_FILES, WEIGHTS_FILE
from gaam_decoder.use.hub_model import HubDecoder
from tests.cache.hub.hub_server import GIT_ATTRIBUTES, Hub, folder_content
from tests.decoder.use.exports import train

NAME = "someone/decoder"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as hub:
        hub.is_spoken_to(monkeypatch)
        yield hub


@pytest.fixture(scope="module")
def folder(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    [run] = train(tiny_cache, root / "runs", "laplace").values()
    export_run(run.path, root / "out")
    return root / "out"


def test_it_comes_back_bit_for_bit(hub: Hub, folder: Path) -> None:
    look(NAME, kind="model").send(folder)
    repository = hub.models[NAME]
    there = repository.commits[repository.branches["main"]]
    assert there == {".gitattributes": GIT_ATTRIBUTES} | folder_content(folder)
    hub.requests.clear()
    found, expected = HubDecoder.from_pretrained(NAME), HubDecoder.from_pretrained(folder)
    assert hub.asked(NAME) == set(OWN_FILES)
    assert (found.config, found.card) == (expected.config, expected.card)
    x_BLD = torch.randn(5, found.config.num_layers, found.config.hidden_size)
    assert torch.equal(found(x_BLD), expected(x_BLD))
    expected.push_to_hub("someone/again")
    repository = hub.models["someone/again"]
    assert repository.commits[repository.branches["main"]] == there, "what the client itself sends"


def test_a_repository_with_other_files_is_refused(hub: Hub, folder: Path) -> None:
    with pytest.raises(NotFoundError, match=f"no model '{NAME}'"):
        HubDecoder.from_pretrained(NAME)
    look(NAME, kind="model").send(folder)
    whole = folder_content(folder)
    repository = hub.models[NAME]
    repository.commit({name: whole[name] for name in OWN_FILES if name != CARD_FILE})
    assert HubDecoder.from_pretrained(NAME).card is None, "nobody needs a card"
    repository.commit(whole | {WEIGHTS_FILE: whole[WEIGHTS_FILE][:-1] + b"\0"})
    with pytest.raises(CacheError, match="no decoder"):
        HubDecoder.from_pretrained(NAME)
    pickled = {name: whole[name] for name in OWN_FILES if name != WEIGHTS_FILE}
    repository.commit(pickled | {"pytorch_model.bin": b"\x80"})
    hub.requests.clear()
    with pytest.raises(CacheError, match="no decoder"):
        HubDecoder.from_pretrained(NAME)
    assert "pytorch_model.bin" not in hub.asked(NAME)
