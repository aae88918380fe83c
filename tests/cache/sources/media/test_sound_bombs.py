"""Small files that would become large: looked at in bounded memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cache.sources.media.sounds import noise, written

pytest.importorskip("soundfile")

ROOM_MIB = 64
"""Beyond what a process has that has looked at a small sound."""
LOOK = f"""
import json, re, resource, sys
from pathlib import Path
from gaam_cache.errors import DataError
from tests.cache.sources.media.sounds import sounds_of

folder = Path(sys.argv[1])
contents = {{path.stem: path.read_bytes() for path in sorted(folder.iterdir())}}
for code in ("wav", "flac", "ogg", "mp3"):
    sounds_of(contents.pop("small_" + code))
size = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + {ROOM_MIB} * 2**20,) * 2)
found = {{}}
for name, content in contents.items():
    try:
        found[name] = sounds_of(content)[0].frames
    except DataError as error:
        found[name] = error.message
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_memory_is_bounded_whatever_a_header_promises_and_whatever_comes_out(
    tmp_path: Path,
) -> None:
    frames = 48000 * 40
    silence = np.zeros((frames, 8))  # 120 MB as it is decoded
    flac = bytearray(written(noise(302, 1), 16000, "FLAC", "PCM_16"))
    flac[21] |= 0x0F
    flac[22:26] = b"\xff" * 4
    less = bytearray(written(noise(302, 1), 16000, "FLAC", "PCM_16"))
    less[22:26] = struct.pack(">I", 16000 * 3600 * 11)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
    large = b"ds64" + struct.pack("<IQQQI", 28, 2**62, 2**62, 2**61, 0)
    files = {
        "small_wav": written(noise(302, 1), 16000, "WAV", "PCM_16"),
        "small_flac": written(noise(302, 1), 16000, "FLAC", "PCM_16"),
        "small_ogg": written(noise(302, 1), 16000, "OGG", "VORBIS"),
        "small_mp3": written(noise(302, 1), 16000, "MP3", None),
        "hours": bytes(flac),
        "fewer_hours": bytes(less),
        "wav": b"RIFF\xff\xff\xff\xf0WAVE" + form + b"data\xf0\xff\xff\xff" + bytes(1000),
        "list": b"RIFF\xff\xff\xff\xf0WAVE" + b"LIST\xf0\xff\xff\xff" + form + b"data\0\0\0\0",
        "rf64": b"RF64\xff\xff\xff\xffWAVE" + large + form + b"data" + b"\xff" * 4 + bytes(1000),
        "au": b".snd" + struct.pack(">5I", 24, 0xFFFFFFF0, 3, 8000, 1) + bytes(1000),
        "silence": written(silence, 48000, "FLAC", "PCM_16"),
    }
    for name, content in files.items():
        assert len(content) < 500_000
        (tmp_path / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.pop("silence") == frames
    assert found.pop("hours") == "a sound is too long"
    assert set(found.values()) == {"a sound is damaged"}
