#!/usr/bin/env python3
"""Trains a small LLTM to predict the next character of Python's own source code.

    python examples/lltm_text/train.py --out out/lltm_text     # --help lists the hyperparameters

Prints the loss on files that were not trained on, in bits per character, beside two models that only count: how
often each character occurs (unigram), and how often after which (bigram). Writes picture.png and report.json.
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

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
SEED = 0
WINDOW = 64  # characters that a gradient flows back through


class NextCharacter(nn.Module):
    """Characters [B] one after another -> logits of the next ones."""

    def __init__(self, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), embedding)
        self.cell = cppcuda.nn.LLTMCell(embedding, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, len(ALPHABET))

    def forward(
        self, text: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        outputs = []  # text [B, T]
        for character in self.embedding(text).unbind(1):
            state = self.cell(character, state)
            outputs.append(state[0])
        return self.head(self.norm(torch.stack(outputs, 1))), state  # [B, T, characters]


def load() -> tuple[Tensor, Tensor]:
    """The modules of the standard library as indices into the alphabet: to train on, and every tenth file held out."""
    index = {c: i for i, c in enumerate(ALPHABET)}
    parts: tuple[list[int], list[int]] = ([], [])
    for i, file in enumerate(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))):
        text = file.read_text(encoding="utf-8", errors="ignore")
        parts[i % 10 == 9].extend(index[c] for c in text if c in index)
    train, held_out = (torch.tensor(p) for p in parts)
    return train, held_out


def counting_models(train: Tensor, held_out: Tensor) -> dict[str, float]:
    """Bits per held-out character of the frequencies of characters, alone and after each other one."""
    n = len(ALPHABET)
    alone = torch.bincount(train, minlength=n).double() + 1
    pairs = torch.bincount(train[:-1] * n + train[1:], minlength=n * n).double().view(n, n) + 1
    unigram = (alone / alone.sum()).log2()[held_out].mean()
    bigram = (pairs / pairs.sum(1, keepdim=True)).log2()[held_out[:-1], held_out[1:]].mean()
    return {"unigram": -unigram.item(), "bigram": -bigram.item()}


def windows(text: Tensor, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(text) - WINDOW - 1, (batch, 1), generator=generator)
    at = starts + torch.arange(WINDOW + 1)
    return text[at[:, :-1]], text[at[:, 1:]]


def bits(logits: Tensor, expected: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), expected.flatten()) / math.log(2)


@torch.no_grad()
def evaluate(model: NextCharacter, text: Tensor, batch: int, device: str) -> float:
    """The whole text, cut into `batch` streams that are read from their start on."""
    streams = text[: len(text) // batch * batch].view(batch, -1).to(device)
    total, count, state = 0.0, 0, None
    for begin in range(0, streams.shape[1] - 1, WINDOW):
        part = streams[:, begin : begin + WINDOW + 1]
        logits, state = model(part[:, :-1], state)
        total += bits(logits, part[:, 1:]).item() * (part.shape[1] - 1)
        count += part.shape[1] - 1
    return total / count


@torch.no_grad()
def sample(model: NextCharacter, prompt: str, length: int, device: str) -> str:
    generator = torch.Generator().manual_seed(SEED)
    text, state = prompt, None
    part = torch.tensor([[ALPHABET.index(c) for c in prompt]], device=device)
    for _ in range(length):
        logits, state = model(part, state)
        choice = torch.multinomial((logits[0, -1] / 0.7).softmax(-1).cpu(), 1, generator=generator)
        text += ALPHABET[choice.item()]
        part = choice.to(device)[None]
    return text


def picture(path: Path, losses: list[float], held_out: dict[int, float], counting: dict[str, float], text: str) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), width_ratios=(1.2, 1), layout="constrained")
    left.plot(range(1, len(losses) + 1), losses, color="C0", alpha=0.35, linewidth=0.8, label="training batches")
    left.plot(list(held_out), list(held_out.values()), "o-", color="C1", markersize=4, label="held-out files")
    for (name, value), style in zip(counting.items(), ("--", ":"), strict=True):
        left.axhline(value, color="0.3", linestyle=style, label=f"{name} model, held-out files: {value:.2f}")
    final = list(held_out.values())[-1]
    left.set(
        xlabel="step", ylabel="bits per character", title=f"LLTM on held-out files: {final:.2f} bits per character"
    )
    left.grid(alpha=0.3)
    left.legend(fontsize=9)
    right.set_axis_off()
    right.set_title("What it writes")
    lines = [line[:70] for line in text.splitlines()[:22]]
    right.text(0, 0.98, "\n".join(lines).replace("$", r"\$"), family="monospace", fontsize=8.5, va="top")
    figure.suptitle("Next character of Python's standard library, from cppcuda.nn.LLTMCell", fontsize=13)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the picture and the report")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--embedding", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)

    train, held_out = load()
    counting = counting_models(train, held_out)
    held_out = held_out[:100_000]
    print(f"Text: {len(train):,} characters to train on; {len(held_out):,} held out, of other files")

    model = NextCharacter(args.embedding, args.hidden).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=args.steps)
    start = time.perf_counter()
    losses: list[float] = []
    held_out_losses = {0: evaluate(model, held_out, 64, args.device)}
    for step in (progress := tqdm(range(1, args.steps + 1), unit="step", mininterval=0.5)):
        text, following = (t.to(args.device) for t in windows(train, args.batch, generator))
        loss = bits(model(text)[0], following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % max(1, args.steps // 5) == 0:
            held_out_losses[step] = evaluate(model, held_out, 64, args.device)
            progress.set_postfix_str(f"held out {held_out_losses[step]:.2f} bits per character", refresh=False)
    if args.steps not in held_out_losses:
        held_out_losses[args.steps] = evaluate(model, held_out, 64, args.device)

    final = held_out_losses[args.steps]
    text = sample(model, "def ", 700, args.device)
    picture(args.out / "picture.png", losses, held_out_losses, counting, text)
    report = {"bits_per_character": {"lltm": final, **counting}, "steps": args.steps, "device": args.device}
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print("Bits per character of held-out files:")
    for name, value in (("LLTM", final), *counting.items()):
        print(f"  {name:8} {value:.3f}")
    print(f"{args.out / 'picture.png'}, {time.perf_counter() - start:.0f} s on {args.device}")
    if final >= counting["unigram"]:
        raise SystemExit("error: the LLTM predicts no better than the frequencies of characters")


if __name__ == "__main__":
    main()
