"""A complete cache -> a folder that a hub of data sets takes, with a card; a folder -> the hub."""

import os
import shutil
import sys
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.common.download import KINDS, hub_errors
from gaam_cache.common.errors import CacheError, ConfigError, HubError
from gaam_cache.common.markdown import (
    MOST_CLASSES,
    NOUNS,
    front_matter,
    items,
    licences,
    plain,
)
from gaam_cache.common.messages import brief, shortened, tell, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.extraction.verify import verify
from gaam_cache.store.files import whole_folder, write_synced
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, read_plan
from gaam_cache.store.reader import open_cache
from gaam_cache.store.shard import planned_receipt

CARD_FILE, FORMAT_FILE = "README.md", "FORMAT.md"
SLOTS = {  # what no program can know
    "license": "of the states: what data and encoder allow",
    "language": "of the texts or sounds, such as en",
}
CARD = """
# States of {name}

States of a frozen encoder on {what}: of every layer one pooled vector for each row, in plain HDF5,
as FORMAT.md says.

{about}

{count:,} classes; a label is the number of one, from 0 (all are in `cache.json`):

{classes}

## Use

```sh
hf download USER/NAME --repo-type dataset --local-dir cache
gaam verify cache
gaam train --cache cache --attn gaam --attn none
```

```python
gaam_cache.open_cache("cache")["{split}"].embeddings[:8]  # rows, layers, hidden size
datasets.load_dataset("USER/NAME", split="{split}")  # bfloat16 as its bits
```

## Limits

{limits}

{licences}
"""
ANY = (".gitattributes", "README.md", "FORMAT.md")
OURS = {  # files of an export, and the one that the hub makes
    "model": (*ANY, "config.json", "model.safetensors"),
    "dataset": (*ANY, "cache.json", "shards/*"),
}


@dataclass(frozen=True, slots=True)
class CacheExport:
    """What an export of a cache made."""

    path: str
    fingerprint: str
    rows: dict[str, int]
    columns: tuple[str, ...]  # kept: data of the rows, which go out with the states
    files: int
    bytes: int

    to_dict = asdict

    def in_words(self) -> str:
        rows = ", ".join(f"{name} {n:,}" for name, n in self.rows.items())
        text = f"exported to '{shown_path(self.path)}', every byte checked\n  rows         {rows}\n"
        text += f"  columns      {', '.join(self.columns) or 'none kept'}\n"
        text += f"  files        {self.files:,}, {self.bytes / 1e6:,.1f} MB"
        return visible(text, keep="\n")


def is_export(folder: Path) -> bool:
    """Whether a folder is an exported cache, and holds nothing else."""
    ours = {PLAN_FILE, SHARD_FOLDER, CARD_FILE, FORMAT_FILE}
    there = {path.name for path in folder.iterdir()}
    return there == ours and (plan := read_plan(folder)) == plan.portable()


def export_cache(
    path: str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: ReportProgress | None = None,
) -> CacheExport:
    """Make a folder of a cache that holds no path and no name of this machine.

    Shards and receipts are those of the cache, by hard links where the file system has them. The
    plan is one of the same fingerprint: the folder is a cache like any other.

    >>> made = gaam_cache.export_cache("cache", "for-the-hub")

    Args:
        path: a complete cache.
        out: a folder that is not there yet, or is empty.
        overwrite: replace an earlier export.
        progress: called with (done, total, what is going on).

    Raises:
        GaamError: it is incomplete or damaged, or something is in the way; nothing was exported.
    """
    root, out = absolute_path(path), absolute_path(out)
    cache = open_cache(root)
    plan = cache.plan.portable()
    with whole_folder(root, out, is_export, overwrite=overwrite) as folder:
        (folder / SHARD_FOLDER).mkdir()
        for shard in plan.shards():
            receipt = planned_receipt(root, cache.plan, shard)
            for name in (f"{shard.name}.json", receipt.file):
                # of a link the file that it leads to; what that holds is checked below
                file = os.path.realpath(root / SHARD_FOLDER / name)
                target = folder / SHARD_FOLDER / name
                try:
                    os.link(file, target)
                except OSError:  # another file system, or one without hard links
                    shutil.copyfile(file, target)
        write_synced(folder / PLAN_FILE, plan.to_json().encode())
        if not (found := verify(folder, progress=progress or no_progress)).good:
            raise CacheError(
                f"the cache '{visible(str(root))}' is damaged; nothing was exported",
                found="; ".join(
                    "{name}: {reason}".format(**one) for one in found.bad[:3]
                ),
                hint="'gaam verify' says how to repair it",
            )
        form = Path(gaam_cache.__file__).with_name(FORMAT_FILE)
        write_synced(folder / FORMAT_FILE, form.read_bytes())
        write_synced(folder / CARD_FILE, card(plan).encode())
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return CacheExport(
        str(out),
        plan.fingerprint,
        plan.rows,
        tuple(plan.columns),
        len(sizes),
        sum(sizes),
    )


def card(plan: Plan) -> str:
    """A card in Markdown, of a plan that names no path."""
    encoder, dataset, length = plan.encoder, plan.dataset, plan.identity["max_length"]
    how = "computed elsewhere and imported" if plan.imported else "computed in "
    how += "" if plan.imported else f"{plan.identity['dtype']}, at most {length:,} long"
    about = [
        f"data set: {brief(plan.dataset_label)}, revision {brief(str(dataset.get('revision')))}",
        f"encoder: {brief(plan.encoder_label)}, revision {encoder['revision']}, {how}",
        f"each row {plan.num_layers} layers x {plan.hidden_size}, {plan.storage_dtype}",
        f"pooled by {', '.join(plan.pooling)}; fingerprint {plan.fingerprint}",
        f"prompt around every text: {brief(str(plan.identity.get('prompt')), 500)}",
        f"kept columns, as in the data: {', '.join(plan.columns) or 'none'}",
    ]
    for split, n in plan.rows.items():
        unlabelled = ", without labels" * (split in plan.unlabelled)
        about.append(
            f"{split}: {n:,} rows, {n * plan.row_bytes / 1e6:,.1f} MB{unlabelled}"
        )
    data_files = [
        {"split": split, "path": f"shards/{split}-*.h5"} for split in plan.rows
    ]
    head = {
        "pretty_name": f"States of {brief(plan.dataset_label)}",
        "tags": ["gaam", "embeddings", "hidden-states"],
        "configs": [{"config_name": "default", "data_files": data_files}],
    }
    named = enumerate(plan.class_names[:MOST_CLASSES])
    limits = [
        "terms and privacy of the data hold for its states: they may tell what a row was"
    ]
    for split, others in plan.shared_texts.items():
        for other, n in others.items():
            limits.append(
                f"{n:,} rows of {split} have a row of {other} that is the same"
            )
    body = CARD.format(
        name=plain(brief(plan.dataset_label)),
        what=NOUNS.get(encoder["kind"], "rows"),
        about="\n".join(items(about)),
        count=len(plan.class_names),
        classes="\n".join(f"{n}. {plain(brief(name))}" for n, name in named),
        split=next(iter(plan.rows)),
        limits="\n".join(items(limits)),
        licences="\n".join(licences(("the data", "the encoder"))),
    )
    return "\n".join(front_matter(head, SLOTS)) + "\n" + body


@dataclass(frozen=True, slots=True)
class Destination:
    """A repository that may be written to, as far as the hub can tell before that."""

    repo_id: str
    kind: str
    private: bool
    user: str  # as whom
    commit: str | None  # what is there now and will be replaced; None where nothing is
    url: str

    def send(self, folder: Path, *, yes: bool) -> str:
        """Say on stderr what is sent, ask unless ``yes``, send all or nothing; returns its page."""
        from huggingface_hub import HfApi

        links = [path for path in folder.rglob("*") if path.is_symlink()]
        if links:  # what they lead to would be sent, wherever it lies
            found = f"a link, '{links[0].relative_to(folder)}'"
            raise HubError(
                "nothing was sent", expected="files", found=found, where=str(folder)
            )
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        state = "is replaced" if self.commit else "new or empty"
        seen = "private" if self.private else "PUBLIC: anyone can read it"
        said = f"to send: {len(sizes):,} files, {sum(sizes):,} bytes from '{folder}'"
        tell(f"{said}\nto {self.url} ({state}), {seen}, as {self.user}", to=sys.stderr)
        if not yes:
            print("send it? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
                raise HubError("nothing was sent", found="no", where=str(folder))
        api = HfApi()
        with hub_errors(self.repo_id, kind=self.kind):
            api.create_repo(
                self.repo_id, repo_type=self.kind, private=self.private, exist_ok=True
            )
            api.upload_folder(
                repo_id=self.repo_id,
                repo_type=self.kind,
                folder_path=folder,
                commit_message="Export of gaam",
                delete_patterns="*" if self.commit else None,
                parent_commit=self.commit,
            )
        return self.url


def check_destination(
    repo_id: str,
    *,
    kind: str,
    private: bool = False,
    overwrite: bool = False,
    yes: bool = True,
) -> Destination:
    """Ask the hub who we are and what is there; ``yes``: nobody has to be asked before sending."""
    from huggingface_hub import HfApi, get_token

    api, what = HfApi(), f"the {KINDS[kind]} '{repo_id}'"
    if repo_id.count("/") != 1:
        raise ConfigError(
            "--push needs USER/NAME", expected="one '/'", found=shortened(repo_id)
        )
    if not yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise ConfigError(
            "--push asks, and nobody is there", expected="a terminal, or --yes"
        )
    if get_token() is None:
        raise HubError("no token for the hub", hint="'hf auth login', or set HF_TOKEN")
    with hub_errors(repo_id, kind=kind):
        there = api.repo_exists(repo_id, repo_type=kind)
        found: Any = api.repo_info(repo_id, repo_type=kind) if there else None
        user = str(api.whoami()["name"])
    names = [] if found is None else [one.rfilename for one in found.siblings or ()]
    filled = any(name != ".gitattributes" for name in names)
    foreign = [
        name for name in names if not any(fnmatchcase(name, one) for one in OURS[kind])
    ]
    if private and found is not None and not found.private:
        raise ConfigError(f"{what} exists and is public", found="--private")
    if foreign or (filled and not overwrite):
        raise ConfigError(
            f"{what} exists; nothing was sent",
            found=f"{len(names):,} files, such as {visible((foreign or names)[0])}",
            hint="choose another name"
            if foreign
            else "--overwrite replaces what is there",
        )
    hidden = private if found is None else bool(found.private)
    url = f"{api.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo_id}"
    return Destination(repo_id, kind, hidden, user, found.sha if filled else None, url)
