#!/usr/bin/env python3
"""Trains a small LLTM to predict the next character of Python's own source code.

    python examples/lltm_text/train.py --out out/lltm_text     # --help lists the hyperparameters

Prints the loss on held-out files in bits per character, and for comparison that of a uniform guess and of two models
that only count: how often each character occurs (unigram), and how often each pair of characters (bigram). Writes
picture.png and report.json.
"""

from __future__ import annotations

import argparse
import json
import math
import sysconfig
import time
from pathlib import Path

import cppcuda
import matplotlib
import torch
from torch import Tensor, nn
from tqdm import tqdm

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
SEED = 0
WINDOW = 64  # characters through which gradients are propagated back
HELD_OUT = 100_000  # characters
ROWS, COLUMNS = 22, 80  # of the passage in the picture


class NextCharacter(nn.Module):
    """Maps characters [B, T] to the logits of the next characters [B, T, characters]."""

    def __init__(self, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), embedding)
        self.lltm = cppcuda.nn.LLTM(embedding, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, len(ALPHABET))

    def forward(
        self, text: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        output, state = self.lltm(self.embedding(text), state)
        return self.head(self.norm(output)), state


def load() -> tuple[Tensor, Tensor]:
    """The standard library as indices into the alphabet: files to train on, and the start of the held-out files."""
    index = {c: i for i, c in enumerate(ALPHABET)}
    parts: tuple[list[int], list[int]] = ([], [])
    for i, file in enumerate(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))):
        text = file.read_text(encoding="utf-8", errors="ignore")
        parts[i % 10 == 9].extend(index[c] for c in text if c in index)
    train, held_out = (torch.tensor(p) for p in parts)
    return train, held_out[:HELD_OUT]


def baselines(train: Tensor, held_out: Tensor) -> dict[str, float]:
    """Bits per held-out character for a uniform guess, and for the frequencies of characters and of pairs of them."""
    n = len(ALPHABET)
    alone = torch.bincount(train, minlength=n).double() + 1
    pairs = torch.bincount(train[:-1] * n + train[1:], minlength=n * n).double().view(n, n) + 1
    unigram = (alone / alone.sum()).log2()[held_out].mean()
    bigram = (pairs / pairs.sum(1, keepdim=True)).log2()[held_out[:-1], held_out[1:]].mean()
    return {"uniform": math.log2(n), "unigram": -unigram.item(), "bigram": -bigram.item()}


def windows(text: Tensor, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(text) - WINDOW - 1, (batch, 1), generator=generator)
    indices = starts + torch.arange(WINDOW + 1)
    return text[indices[:, :-1]], text[indices[:, 1:]]


def bits(logits: Tensor, expected: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), expected.flatten()) / math.log(2)


@torch.no_grad()
def evaluate(model: NextCharacter, text: Tensor, batch: int, device: str) -> float:
    """The loss on the whole text, which is cut into `batch` streams that are read from beginning to end."""
    streams = text[: len(text) // batch * batch].view(batch, -1).to(device)
    total, count, state = 0.0, 0, None
    for begin in range(0, streams.shape[1] - 1, WINDOW):
        part = streams[:, begin : begin + WINDOW + 1]
        logits, state = model(part[:, :-1], state)
        total += bits(logits, part[:, 1:]).item() * (part.shape[1] - 1)
        count += part.shape[1] - 1
    return total / count


@torch.no_grad()
def passage(model: NextCharacter, text: Tensor, device: str) -> tuple[list[str], Tensor]:
    """Lines of the text, beginning with a function, and the probability that the model assigned to each character."""
    whole = "".join(ALPHABET[i] for i in text.tolist())
    begin = max(1, whole.find("\n    def ", len(whole) // 2) + 1)
    part = text[max(0, begin - 1000) : begin + ROWS * COLUMNS]
    logits, _ = model(part[None, :-1].to(device))
    probability = logits[0].softmax(-1).cpu().gather(1, part[1:, None])[begin - max(0, begin - 1000) - 1 :, 0]
    lines, shown = [""], torch.full((ROWS, COLUMNS), math.nan)
    for character, p in zip(whole[begin:], probability.tolist(), strict=False):
        if character == "\n" or len(lines[-1]) == COLUMNS:
            lines.append("")
        if len(lines) > ROWS:
            break
        if character != "\n":
            shown[len(lines) - 1, len(lines[-1])] = p
            lines[-1] += character
    return lines[:ROWS], shown


def learning_curve(axes: Axes, losses: list[float], held_out: dict[int, float], baseline: dict[str, float]) -> None:
    axes.plot(range(1, len(losses) + 1), losses, color="C0", alpha=0.35, linewidth=0.8, label="LLTM, training batches")
    axes.plot(list(held_out), list(held_out.values()), "o-", color="C1", markersize=4, label="LLTM, held-out files")
    axes.set(xlabel="training step", ylabel="bits per character (lower is better)", ylim=(0, None))
    axes.set_title(f"After training: {list(held_out.values())[-1]:.2f} bits per held-out character")
    names = {
        "uniform": "uniform guess",
        "unigram": "frequency of each character",
        "bigram": "frequency after the previous character",
    }
    for (name, value), style in zip(baseline.items(), ("-.", "--", ":"), strict=True):
        axes.axhline(value, color="0.3", linestyle=style, label=f"{names[name]}: {value:.2f}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9, loc="lower left")


def picture(
    path: Path, losses: list[float], held_out: dict[int, float], baseline: dict[str, float], text: list[str], p: Tensor
) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(15, 5.4), width_ratios=(1, 1.25), layout="constrained")
    learning_curve(left, losses, held_out, baseline)
    shown = right.imshow(p.numpy(), cmap="YlGn", vmin=0, vmax=1, aspect="auto")
    for row, line in enumerate(text):
        for column, character in enumerate(line):
            style = {"family": "monospace", "fontsize": 8, "color": "white" if p[row, column] > 0.7 else "black"}
            right.text(column, row, character.replace("$", r"\$"), ha="center", va="center", **style)
    right.set_axis_off()
    right.set_title("How well the LLTM predicts a passage of a held-out file")
    figure.colorbar(shown, ax=right, pad=0.01, label="probability that the LLTM assigned to this character")
    figure.suptitle("An LLTM (cppcuda.nn.LLTM) learns to predict the next character of Python source", fontsize=14)
    note = (
        "Horizontal lines: simpler predictors on the same held-out text; the frequencies are counted in the training "
        "files. Right: the probability of each character, as the LLTM predicts it from the text before."
    )
    figure.supxlabel(note, fontsize=9, color="0.35")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the picture and the report")
    parser.add_argument("--steps", type=int, default=1000, help="training steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--embedding", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    start = time.perf_counter()

    print("Reading the source of Python's standard library", flush=True)
    train, held_out = load()
    baseline = baselines(train, held_out)
    print(f"{len(train):,} characters to train on, {len(held_out):,} held-out characters of other files")

    model = NextCharacter(args.embedding, args.hidden).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=args.steps)
    print(f"Training on {args.device}", flush=True)
    losses: list[float] = []
    held_out_losses = {0: evaluate(model, held_out, 64, args.device)}
    for step in (progress := tqdm(range(1, args.steps + 1), desc="training", unit="step", mininterval=0.5)):
        text, following = (t.to(args.device) for t in windows(train, args.batch, generator))
        loss = bits(model(text)[0], following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % max(1, args.steps // 10) == 0:
            held_out_losses[step] = evaluate(model, held_out, 64, args.device)
            progress.set_postfix_str(f"held out {held_out_losses[step]:.2f} bits per character", refresh=False)
    if args.steps not in held_out_losses:
        held_out_losses[args.steps] = evaluate(model, held_out, 64, args.device)

    final = held_out_losses[args.steps]
    print("Drawing the picture", flush=True)
    picture(args.out / "picture.png", losses, held_out_losses, baseline, *passage(model, held_out, args.device))
    report = {"bits_per_character": {"lltm": final, **baseline}, "steps": args.steps, "device": args.device}
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print("\nBits per character of held-out files (lower is better):")
    for name, value in {"LLTM": final, **baseline}.items():
        print(f"  {name:8} {value:.3f}")
    print(f"\nPicture: {args.out / 'picture.png'} ({time.perf_counter() - start:.0f} s in all)")
    if not final < baseline["unigram"]:  # also true for NaN
        raise SystemExit("error: the LLTM predicts no better than the frequencies of characters")


if __name__ == "__main__":
    main()
