"""Who shall do the work, as it is asked for: part of every configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from gaam_cache import plugins
from gaam_cache.config_checks import KEY, check_rules
from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened

ENGINES = "gaam_cache.engines"
DEVICES = "1, a number, all, or numbers of GPUs such as 0,2 (one alone: 0,)"


def parse_devices(value: Any) -> str:
    """How many devices, 'all', or which, from a number, text or list."""
    if isinstance(value, bool) or not isinstance(value, (int, str, list, tuple)):
        raise TypeError(DEVICES)
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = "".join(text.split())
    if isinstance(value, (list, tuple)) and all(type(number) is int for number in value):
        text += ","  # [1] of a file is GPU 1, and no number of workers
    if not re.fullmatch(r"all|[1-9]\d{0,3}|(\d{1,4},)+(\d{1,4})?", text, re.ASCII):
        raise ValueError(DEVICES)
    numbers = re.findall(r"\d+", text)
    if len(set(map(int, numbers))) < len(numbers):
        raise ValueError("numbers of GPUs, each once")
    return text


@dataclass(frozen=True, kw_only=True, slots=True)
class Placing:
    """Which workers there are to be; ``check_placing`` refuses what cannot be."""

    engine: str = "local"
    """Who starts the workers."""
    devices: str = field(default="1", metadata={"parse": parse_devices})
    """Workers, one for each GPU or group of cores: a number, all, or which GPUs (0,2)."""
    address: str | None = field(default=None, metadata=KEY)
    """Address of a cluster of Ray that is there already; auto finds one."""
    gpus_per_worker: float | None = field(default=None, metadata=KEY)
    """GPUs of one worker of a cluster; default: 1, or 0 on a CPU."""
    rank: str | None = field(default=None, metadata=KEY)
    """This process is worker i of n that were started by hand: i/n, from 0."""

    @property
    def alone(self) -> bool:
        """Whether this process does the work itself."""
        return self.engine == "local" and self.devices == "1"


P = TypeVar("P", bound=Placing)


def placed(config: P) -> P:
    """The same configuration for a worker, which places nobody."""
    values: dict[str, Any] = {one.name: one.default for one in fields(Placing)}
    return replace(config, **values)


def check_placing(placing: Placing) -> None:
    """Refuse what cannot be meant, before anything is started."""
    if placing.engine not in (known := plugins.names(ENGINES)):
        raise plugins.unknown("engine", placing.engine, known)
    try:
        parse_devices(placing.devices)
    except (TypeError, ValueError) as error:
        found = shortened(str(placing.devices))
        raise ConfigError("bad --devices", expected=str(error), found=found) from None
    if placing.rank is not None:
        parse_rank(placing.rank)
    share, local = placing.gpus_per_worker, placing.engine == "local"
    fits = share is None or 0 < share < 1 or (1 <= share < 1024 and share == int(share))
    alone = ("is for a cluster", "--engine ray beside it")
    parts = "is out of range", "a part of one GPU (0.25), or whole ones"
    rules = ("gpus_per_worker", fits, *parts), ("address", not (local and placing.address), *alone)
    check_rules(placing, [*rules, ("gpus_per_worker", not (local and share), *alone)])


def parse_rank(text: str) -> tuple[int, int]:
    """Number of a worker, from 0, and how many there are."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not number < count:
        expected = "i/n, from 0/n to n-1/n, such as 0/4"
        raise ConfigError("bad rank", expected=expected, found=shortened(text))
    return number, count
