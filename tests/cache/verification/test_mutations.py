"""Random changes of the JSON files of a cache: refused with one error, or without consequence.

With the digest left as it was, as damage does it; and with a digest that fits, as somebody does it
who knows the format. Who can write both file and receipt can write any numbers; what does not agree
with the HDF5 file itself is then for ``gaam verify`` to find.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.errors import CacheError
from gaam_cache.extraction.repair import extract_again
from gaam_cache.format.files import canonical_json
from gaam_cache.format.sealed import SEAL, sealed_text
from gaam_cache.inspect import inspect
from tests.cache.published import write_kept_cache, write_random_cache
from tests.cache.verification.test_damage import everything

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, 10**30, 1.0, 0.5, "", "x", "0" * 64, "../x", "\0",
    "\ud800", "\u202e", [], [1], [[]], {}, {"a": 1}, ["a", "b"], [3, 1], "train", "test", "float32",
]  # fmt: skip
DEEP = "[" * 3000 + "]" * 3000


@pytest.fixture(params=["plain", "kept"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "plain":
        write_random_cache(tmp_path / "cache", 6, 2, 4)
    else:
        write_kept_cache(tmp_path / "cache")
    return tmp_path / "cache"


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [p for key in keys for p in places(value[key])]


def mutate(content: dict[str, Any], generator: random.Random) -> None:
    """Change something somewhere: a value, a key, or two values for each other."""
    container, key = generator.choice(places(content))
    kind = generator.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[f"{key}x"] = container.pop(key)
    elif kind == 2:
        other, at = generator.choice(places(content))
        container[key], other[at] = copy.deepcopy(other[at]), copy.deepcopy(container[key])
    elif kind == 3 and type(container[key]) is int:
        container[key] += generator.choice([-1, 1, 2**16])
    elif kind == 4 and isinstance(container[key], str) and container[key]:
        text = container[key]
        at = generator.randrange(len(text))
        container[key] = text[:at] + generator.choice("0aZ/é\0") + text[at + 1 :]
    else:
        container[key] = copy.deepcopy(generator.choice(VALUES))


def garble(text: bytes, generator: random.Random) -> bytes:
    """Change bytes, without a thought for what they mean."""
    at, kind = generator.randrange(len(text)), generator.randrange(6)
    if kind == 0:
        return text[:at] + bytes([text[at] ^ 1 << generator.randrange(8)]) + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at + generator.randrange(1, 40) :]
    if kind == 2:
        return text[:at] + text[at : at + 40] + text[at:]
    if kind == 3:  # a key that is there twice
        line = generator.choice([x for x in text.splitlines(keepends=True) if x.endswith(b",\n")])
        return text.replace(line, line + line)
    if kind == 4:
        return text.replace(b": 0", b": " + DEEP.encode()).replace(b"1", b"9" * 5000, 1)
    return text[:at] + generator.choice([b"NaN", b"Infinity", b"1e5", b"\xff", b"\0", b"\n"])


def judge(cache: Path, sound: dict[str, bytes]) -> str:
    """What reading, describing and asking for the repair make of it."""
    try:
        opened = gaam_cache.open_cache(cache)
        same = everything(cache) == sound
    except CacheError:
        verdict = "refused"
    else:
        if not same:
            assert not gaam_cache.verify(cache).good
            return "left to verify"
        assert isinstance(extract_again(cache, opened.plan), str)
        verdict = "without consequence"
    found = inspect(cache)
    assert bool(found.damage) == (verdict == "refused"), found
    json.dumps(found.to_dict(), allow_nan=False)
    found.in_words()
    return verdict


@pytest.mark.parametrize("name", ["cache.json", "shards/train-00000.json"])
@pytest.mark.parametrize("how", ["bytes", "values", "values and digest"])
def test_random_changes_are_refused_or_without_consequence(
    how: str, name: str, cache: Path
) -> None:
    sound = everything(cache)
    path = cache / name
    text = path.read_bytes()
    content = json.loads(text)
    generator = random.Random(f"{how} {name}")
    verdicts: Counter[str] = Counter()
    for _ in range(334):
        if how == "bytes":
            path.write_bytes(garble(text, generator))
        else:
            changed = copy.deepcopy(content)
            if how == "values and digest":
                del changed[SEAL]
            while canonical_json(changed) == canonical_json(content | {}):
                mutate(changed, generator)
            if how == "values and digest":
                mutate(changed, generator)
                path.write_text(sealed_text(changed))
            else:
                path.write_text(json.dumps(changed))
        verdicts[judge(cache, sound)] += 1
    print(how, name, dict(verdicts))
    assert verdicts["refused"] > 150
    assert verdicts["left to verify"] < (10 if how == "values and digest" else 1)
    if how == "values":
        assert verdicts["without consequence"] == 0
    path.write_bytes(text)
    assert judge(cache, sound) == "without consequence"


def test_the_digest_covers_every_value(cache: Path) -> None:
    """Each in turn, in both files, changed in the smallest way."""
    sound = everything(cache)
    count = 0
    for path in (cache / "cache.json", cache / "shards" / "train-00000.json"):
        text = path.read_bytes()
        for index in range(len(places(json.loads(text)))):
            content = json.loads(text)
            container, key = places(content)[index]
            container[key] = [container[key]]
            path.write_text(json.dumps(content))
            assert judge(cache, sound) == "refused"
            count += 1
        path.write_bytes(text)
    assert count > 50
    shutil.rmtree(cache)
