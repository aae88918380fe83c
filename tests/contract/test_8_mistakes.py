"""Promise 8: a mistake gets one message and its exit code; names from elsewhere are harmless."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt

import gaam_cache
import gaam_decoder
from tests.contract.conftest import extract, files_of, rows_of, run, train
from tests.hostile_strings import HOSTILE, flooded, harmful
from tests.tiny import build_encoder, write_csv

SHORT = {
    "E": "extract --encoder encoder --out new --dataset",
    "T": "train --runs new --cache",
    "I": "import --out new",
}
MISTAKES = """
extrct                                           | 2 | extract
E texts --poool mean                             | 2 | --poool; --pool'
E texts --pool meen                              | 2 | meen; mean
E texts --text-column txt                        | 2 | txt; label, text
E texts --label-column lable                     | 2 | lable; label
E unnamed.csv --test-fraction 0.5                | 2 | kind; --label-column
E ./nowhere                                      | 2 | nowhere
E nowhere/                                       | 2 | nowhere
E empty.csv --test-fraction 0.5                  | 3 | empty.csv
E header.csv --test-fraction 0.5                 | 3 | header.csv
E three.csv                                      | 2 | three.csv; --test-fraction
E pictures                                       | 3 | 1.png; 0 bytes
E cache                                          | 2 | train
E texts --max-length many                        | 2 | --max-length
E texts --dtype float23                          | 2 | float23; float32
E texts --test-fraction 1.5                      | 2 | 1.5
E texts --subset sst2                            | 2 | --subset; texts
E hidden                                         | 3 | 'test' has no labels; unlabelled=test
E minus                                          | 3 | -1; odd-classes=-1
E shards                                         | 3 | train-00001-of-00002; missing
E texts --split train --split valid              | 2 | valid; test.csv
E texts --split train --split Train              | 2 | train; Train
E texts --device gpu                             | 2 | gpu; cuda
T cache --config key.toml                        | 2 | key.toml; epoch; epochs
E texts --preset smal                            | 2 | smal; demo
E texts --config section.toml                    | 2 | trian; train
E texts --config nowhere.toml                    | 2 | nowhere.toml
extract --encoder ./nowhere --dataset texts      | 2 | nowhere
extract --encoder encoder --dataset texts --out three.csv | 2 | three.csv; --out
extract --encoder other --dataset texts --out cache | 2 | config.json; --out
T cache --attn gam                               | 2 | gam; did you mean 'gaam'
T cache gaam                                     | 2 | gaam
T cache --attn broken.py:Gate                    | 2 | broken.py; SyntaxError
T cache --attn gaam:head=3                       | 2 | head; heads
T cache --attn gaam:heads=5                      | 2 | heads=5; 6 layers
T cache --head linaer                            | 2 | linaer; did you mean 'linear'
T cache --lr 0                                   | 2 | --lr; 0
T cache --lr -0.1                                | 2 | --lr; -0.1
T cache --epochs 1.5                             | 2 | --epochs
T cache --seeds 3-1                              | 2 | 3-1; rises
T cache --tune-seeds 0-2 --lr 1                  | 2 | --tune-seeds; --lr
T cache --layers 9                               | 2 | 9; 1 to 6
T cache --loss crossentropy                      | 2 | crossentropy; cross-entropy
T cache --pool max                               | 2 | max; mean
T cache --folds 2 --groups speaker               | 2 | speaker; --keep-column
T cache --select best                            | 2 | best; val
T cache --train-rows 999                         | 2 | 999; 60
T cache --config type.toml                       | 2 | epochs; many
T nowhere                                        | 2 | nowhere; gaam extract
T texts                                          | 2 | texts; cache.json
T cache/cache.json                               | 2 | cache.json; a file
T away                                           | 3 | away; /mnt/not-mounted
T ~nosuchuser/cache                              | 2 | nosuchuser
extract --encoder encoder --dataset texts --out away | 2 | /mnt/not-mounted; --out
inspect away                                     | 2 | away; /mnt/not-mounted
report away                                      | 2 | away; /mnt/not-mounted
T unfinished                                     | 3 | test; gaam extract
T unlabelled                                     | 2 | label
train --cache cache --runs three.csv             | 2 | three.csv; --runs
report empty                                     | 2 | empty; gaam train
report runs --format pdf                         | 2 | pdf; markdown
report runs --baseline perceiver                 | 2 | perceiver; gaam train
report runs --attn perceiver                     | 2 | perceiver
report runs --top                                | 2 | --top
report runs --score accuraci                     | 2 | did you mean 'accuracy'
report runs --margin -1                          | 2 | --margin; -1
report runs --out empty                          | 2 | empty; --out
predict run                                      | 2 | texts; --file
predict run goal --file texts/test.csv           | 2 | goal; --file
predict run --file texts/test.csv --text-column words | 2 | words; label, text
predict run --file texts/test.csv --out new.pdf  | 2 | .pdf; .csv
predict run --file empty.csv --out new.csv       | 3 | empty.csv
predict run --top 9 goal                         | 2 | --top; 9
predict run --file texts/test.csv --set encodin=x | 2 | encodin; encoding
predict run --cache others --split test          | 3 | config.json
predict run --cache cache --split valid          | 2 | valid; train, test
I                                                | 2 | FILE
I nan/train.npz                                  | 1 | train.npz; nan
I inf/train.npz                                  | 1 | train.npz; inf
I short/train.npz                                | 3 | 2; 6
I flat/train.npz                                 | 3 | train.npz
I good/train.npz wide/test.npz                   | 3 | 4; 3
inspect nowhere                                  | 2 | nowhere
export run runs                                  | 2 | runs; another folder
export run new --seed 77                         | 2 | 77; 0, 1
ablate run --num-layers 99                       | 2 | 99; 1 to 3
plant new --gate laplase                         | 2 | laplase; laplace
study ag-news                                    | 2 | did you mean 'ag-news-minilm'
"""


def arrays(file: str, states: np.ndarray, rows: int = 6) -> None:
    Path(file).parent.mkdir()
    np.savez(file, embeddings=states, labels=np.arange(rows) % 2)


@pytest.fixture(scope="module")
def place(
    encoder: Path,
    texts: Path,
    cache: Path,
    runs: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """A folder with what an ordinary week has."""
    folder = tmp_path_factory.mktemp("mistakes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, one in {
            "encoder": encoder,
            "texts": texts,
            "cache": cache,
            "runs": runs,
        }.items():
            shutil.copytree(one, name)
        shutil.copytree(next(runs.glob("mha*")), "run")
        shutil.copytree(cache, "unfinished")
        Path("unfinished/shards/test-00000.json").unlink()
        Path("away").symlink_to("/mnt/not-mounted")
        build_encoder(Path("other"), "llama")
        extract(Path("other"), Path("texts"), Path("others"))
        states, labels = (
            np.random.default_rng(0).normal(size=(6, 2, 4)),
            np.arange(6) % 2,
        )
        gaam_cache.write(
            "unlabelled", {"train": (states, None), "test": (states, labels)}
        )
        for name, bad in {"nan": np.nan, "inf": np.inf, "good": 1.0}.items():
            arrays(f"{name}/train.npz", np.where(np.arange(4) == 2, bad, states))
        arrays("short/train.npz", states, 2)
        arrays("flat/train.npz", states[:, 0, 0])
        arrays("wide/test.npz", states[:, :, :3])
        for name in ("pictures/train/a", "pictures/test/a", "empty"):
            Path(name).mkdir(parents=True)
        for name in ("pictures/train/a/1.png", "pictures/test/a/2.png", "empty.csv"):
            Path(name).touch()
        write_csv(Path("header.csv"), [])
        write_csv(Path("three.csv"), [("a", "goal"), ("b", "cup"), ("a", "bank")])
        write_csv(Path("hidden/train.csv"), [("a", "goal"), ("b", "cup")])
        write_csv(Path("hidden/test.csv"), [("-1", "goals"), ("-1", "cups")])
        write_csv(
            Path("minus/train.csv"), [("0", "goal"), ("1", "cup"), ("-1", "bank")]
        )
        write_csv(
            Path("shards/train-00000-of-00002.csv"), [("a", "goal"), ("b", "cup")]
        )
        write_csv(Path("unnamed.csv"), [("a", "goal")] * 9, header="kind,text")
        Path("broken.py").write_text("def gate(:")
        Path("key.toml").write_text("[train]\nepoch = 3\n")
        Path("section.toml").write_text("[trian]\nepochs = 3\n")
        Path("type.toml").write_text("[train]\nepochs = 'many'\n")
        yield folder


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_mistake_is_one_message(mistake: str, place: Path) -> None:
    command, code, words = (part.strip() for part in mistake.split(" | "))
    first, _, rest = command.partition(" ")
    before = files_of(place)
    outcome = run(*shlex.split(f"{SHORT.get(first, first)} {rest}"))
    assert (outcome.code, outcome.out) == (int(code), ""), outcome.err
    assert len(re.findall("error:", outcome.err)) == 1
    assert "Traceback" not in outcome.err
    assert [word for word in words.split("; ") if word not in outcome.err] == [], (
        outcome.err
    )
    assert files_of(place) == before, "nothing is written"


ODD = re.compile("[\0\ud800-\udfff]|.{4000}|^\\s*$")
KEPT = [name for name in HOSTILE.values() if not ODD.search(name)]
"""What a cache takes as a name; others it refuses, since UTF-8 or HDF5 have no such text."""


def harmless(text: str) -> str:
    assert not harmful(text), harmful(text)
    assert not flooded(text)
    assert "Traceback" not in text
    return text


def reports_of(names: list[str], folder: Path) -> dict[str, str]:
    """Reports of decoders on caches whose encoders, data sets and classes have these names.

    Of every cache one run is exported, and reported alone: two more formats.
    """
    cards, screens, labels = [], [], np.arange(24) % 6
    learned, test = np.random.default_rng(0).normal(size=(2, 24, 2, 8))
    for number, six in enumerate(zip(*[iter(names)] * 6, strict=True)):
        cache = folder / f"{number}"
        gaam_cache.write(
            cache, {"train": (learned + number, labels), "test": (test, labels)},
            encoder_name=six[0], dataset_name=six[1], class_names=[f"{one}n" for one in six],
        )  # fmt: skip
        result = train(cache, folder / "runs", attn=("none", "layer-mean"), epochs=1)[0]
        gaam_decoder.export_run(result.path, folder / f"card{number}")
        cards.append((folder / f"card{number}" / "README.md").read_text("utf-8"))
        screens.append(run("report", result.path).out)
    for command, name in (("inspect", "0"), ("inspect", "runs"), ("runs", "runs")):
        harmless(run(command, folder / name).out)
    told = {
        to: run("report", folder / "runs", "--format", to) for to in list(SHAPES)[:-2]
    }
    assert {one.code for one in told.values()} == {0}, [
        one.err for one in told.values()
    ]
    reports = {to: one.out for to, one in told.items()}
    return reports | {"card": "".join(cards), "screens": "".join(screens)}


def terminal(text: str) -> Any:
    widest = max(map(len, text.split("\n")))
    return len(re.findall("^ *\u2500+ *$", text, re.MULTILINE)), widest > 100


def tokens(text: str) -> list[str]:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    found = [
        one for token in parser.parse(text) for one in [token, *(token.children or ())]
    ]
    return [one.type for one in found if one.type != "text"]


def card(text: str) -> Any:
    fronts = re.findall(r"^---\n(.*?)\n---\n", text, re.DOTALL | re.MULTILINE)
    return [list(yaml.safe_load(front)) for front in fronts], tokens(text)


def commands(text: str) -> Any:
    """Commands of LaTeX and what parts cells; those that print a sign stand for the sign."""
    body = text.split("\\makeatother\n", 1)[-1]
    plain = re.sub(r"\\text[a-z]+\{\}|\\[&%$#_{}]|\{\[\}|\{\*\}|([-,])\{\}", "", body)
    assert plain.count("{") == plain.count("}")
    return (
        Counter(re.findall(r"\\([a-zA-Z@]+|.)", plain)),
        plain.count("&"),
        plain.count("\n"),
    )


def cells(text: str) -> Any:
    lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    for cell in (cell for line in lines for cell in line):
        if not re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", cell):
            assert not re.search("(^|;)\\s*[-=+@\t\r\uff1d\uff0b\uff0d\uff20]", cell), (
                cell
            )
    return [len(line) for line in lines]


class Tags(HTMLParser):
    """Tags and names of attributes; of pictures, which names lay out, only what is none."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.drawing = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.drawing |= tag == "svg"
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("href", "src") or re.match("#|data:,$", str(value)), (
                value
            )
        if tag != "wbr" and not (self.drawing and tag in PICTURE):
            self.seen.append((tag, [name for name, _ in attrs]))

    def handle_endtag(self, tag: str) -> None:
        self.drawing &= tag != "svg"

    def handle_comment(self, data: str) -> None:
        self.seen.append(data)


PICTURE = {"g", "path", "text", "tspan", "use", "defs", "clippath", "rect"}
SHAPES: dict[str, Callable[[str], Any]] = {
    "terminal": terminal, "markdown": tokens, "latex": commands, "csv": cells,
    "json": lambda text: len(json.loads(text)), "html": lambda text: Tags(text).seen,
    "card": card, "screens": terminal,
}  # fmt: skip


def test_names_are_harmless_in_every_report(tmp_path: Path) -> None:
    """In every format: reports of hostile names have the shape of those of as many plain ones."""
    plain_names = [f"plain{number}" for number in range(len(KEPT))]
    hostile = reports_of(KEPT, tmp_path / "hostile")
    plain = reports_of(plain_names, tmp_path / "plain")
    for to, shape in SHAPES.items():
        assert len(plain[to]) > 1000, to
        assert shape(harmless(hostile[to])) == shape(plain[to]), to
    content = json.dumps(json.loads(hostile["json"]), ensure_ascii=False)
    others = (
        KEPT[::6] + KEPT[1::6]
    )  # of an encoder, of a data set; the others are of classes alone
    assert [
        name for name in others if json.dumps(name, ensure_ascii=False) not in content
    ] == []


def test_names_are_harmless_through_predict(encoder: Path, tmp_path: Path) -> None:
    """Names of classes, values of columns, and paths; programs read the true ones."""
    data, cache, runs = (
        tmp_path / f"\x1b[31m\u202e[red]\n{name}" for name in ("data", "c", "r")
    )
    data.mkdir()
    # a field that begins with a byte-order mark is refused
    names = [name for name in KEPT if not name.startswith("\ufeff")]
    rows = [{"label": f"{name}n", "text": "goal", "note": name} for name in names]
    for split, times in (("train", 2), ("test", 1)):
        (data / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows * times)))
    command = (
        "extract",
        "--encoder",
        encoder,
        "--dataset",
        data,
        "--keep-column",
        "note",
    )
    assert run(*command, "--out", cache).code == 0
    command = ("train", "--lr", 1, "--cache", cache, "--runs", runs, "--no-probe")
    assert run(*command, "--seeds", 2, "--epochs", 1).code == 0
    result, texts = next(runs.glob("gaam*")), [f"a {name}" for name in KEPT]
    classes = json.loads(run("inspect", cache, "--json").out)["class_names"]
    assert classes == sorted(row["label"] for row in rows)
    for command in (
        ("predict", result, *texts),
        ("inspect", cache),
        ("report", runs, "--all"),
    ):
        outcome = run(*command)
        assert outcome.code == 0
        harmless(outcome.out + outcome.err)
    for to in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"out.{to}"
        assert (
            run("predict", result, "--file", data / "test.jsonl", "--out", out).code
            == 0
        )
        found = rows_of(out)
        for name in ("label", "note"):
            assert [row[name] for row in found] == [row[name] for row in rows]
        assert {row["predicted"] for row in found} <= set(classes)
