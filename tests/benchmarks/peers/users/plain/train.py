"""Four mechanisms, ten seeds, one after the other; the epoch that is best on a tenth of train."""

import copy
import os
from pathlib import Path

import numpy as np
import torch
from mechanisms import make_decoder
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

OUT = Path(os.environ["OUT"])


def load(split):
    return [torch.from_numpy(np.load(OUT / f"{split}{part}.npy")) for part in ("", "-labels")]


@torch.no_grad()
def score(decoder, x, labels):
    decoder.eval()
    logits = decoder(x)
    right = (logits.argmax(1) == labels).float().mean().item()
    return right, -cross_entropy(logits, labels).item()


x, labels = load("train")
test_x, test_labels = load("test")
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
held, kept = order[: len(x) // 10], order[len(x) // 10 :]
for name in ("gaam", "laplace", "mha", "none"):
    accuracies = []
    for seed in range(int(os.environ["SEEDS"])):
        torch.manual_seed(seed)
        decoder = make_decoder(name, *x.shape[1:], classes=int(labels.max()) + 1)
        optimizer = torch.optim.AdamW(decoder.parameters(), lr=3e-4, weight_decay=0.01)
        loader = DataLoader(TensorDataset(x[kept], labels[kept]), batch_size=32, shuffle=True)
        best = (-1.0, 0.0)
        for _ in range(int(os.environ["EPOCHS"])):
            decoder.train()
            for batch, target in loader:
                optimizer.zero_grad()
                cross_entropy(decoder(batch), target).backward()
                optimizer.step()
            found = score(decoder, x[held], labels[held])
            if found > best:
                best, weights = found, copy.deepcopy(decoder.state_dict())
        decoder.load_state_dict(weights)
        torch.save(weights, OUT / f"{name}-{seed}.pt")
        accuracies.append(score(decoder, test_x, test_labels)[0])
    print(name, *accuracies)
