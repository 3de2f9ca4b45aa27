"""Fits a voxel feature field to an MRI volume, draws the result and exports the model."""

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

import data
import picture
import torch
import torch.nn.functional as F
from model import VoxelField
from torch import Tensor
from tqdm import tqdm

SEED = 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("out/voxel_field"), help="output folder (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=1000, help="training steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8192, help="voxels per step (default: %(default)s)")
    parser.add_argument("--features", type=int, default=16, help="features per grid vertex (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of the MLP (default: %(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


@torch.no_grad()
def render(field: VoxelField, coordinates: Tensor) -> Tensor:
    return torch.cat([field(part) for part in coordinates.split(65536)])


def fit(field: VoxelField, volume: data.Volume, steps: int, batch: int) -> tuple[list[float], dict[int, float]]:
    """Trains the field; returns the loss of each step, and the held-out loss of some steps."""
    device = field.grid.device
    train, held_out = volume.train.to(device), volume.held_out.to(device)
    coordinates, truth = volume.coordinates().to(device), volume.values.flatten().to(device)
    # Only the few voxels around a grid vertex contribute to its gradient, so the grid can take a higher rate.
    groups = [{"params": [field.grid], "lr": 5e-2}, {"params": field.mlp.parameters(), "lr": 5e-3}]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    losses: list[float] = []
    held_out_losses: dict[int, float] = {}
    progress = tqdm(range(1, steps + 1), desc="training", unit="step")
    for step in progress:
        voxels = train[torch.randint(len(train), (batch,)).to(device)]
        loss = F.mse_loss(field(coordinates[voxels]), truth[voxels])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % max(1, steps // 10) == 0 or step == steps:
            held_out_losses[step] = F.mse_loss(render(field, coordinates[held_out]), truth[held_out]).item()
            psnr = -10 * torch.tensor(held_out_losses[step]).log10().item()
            progress.set_postfix_str(f"held-out PSNR {psnr:.2f} dB")
    return losses, held_out_losses


def export(field: VoxelField, coordinates: Tensor, out: Path) -> None:
    """Writes the model as TorchScript and as an AOTInductor package; both take any number of points."""
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns if there is no GPU
    points = torch.export.Dim("points", min=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit.script is deprecated; C++ programs still load it
        print("Exporting to TorchScript", flush=True)
        torch.jit.script(field).save(str(out / "field.pt"))
        print("Compiling with AOTInductor, which runs a C++ compiler", flush=True)
        program = torch.export.export(field, (coordinates,), dynamic_shapes={"coordinates": {0: points}})
        torch._inductor.aoti_compile_and_package(program, package_path=str(out / "field.pt2"))


def size(shape: torch.Size) -> str:
    return "x".join(map(str, shape))


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    start = time.perf_counter()

    volume = data.load(held_out=0.1, seed=SEED)
    shape = volume.values.shape
    print(f"Volume: {size(shape)} voxels, {len(volume.train):,} to train on, {len(volume.held_out):,} held out")
    print("Computing the upsampled volumes to compare with", flush=True)
    upsampled = data.baselines(volume)
    scores = {name: volume.psnr(image) for name, image in upsampled.items()}
    best = max(scores, key=lambda name: scores[name]["all"])

    half = data.pool_training_voxels(volume)
    field = VoxelField((shape[0] // 2, shape[1] // 2, shape[2] // 2), args.features, args.width, half)
    field.to(args.device)
    parameters = sum(p.numel() for p in field.parameters())
    print(f"Field:  {size(half.shape)} vertices of {args.features} features, {parameters:,} parameters with the MLP")
    print(f"Training on {args.device}", flush=True)

    losses, held_out_losses = fit(field, volume, args.steps, args.batch)
    trained = time.perf_counter()

    field.eval().requires_grad_(False)
    ours = render(field, volume.coordinates().to(args.device)).cpu().view(shape)
    z = shape[2] // 2
    images = {"truth": volume.values, "ours": ours, "baseline": upsampled[best]}
    slices = {name: image[:, :, z] for name, image in images.items()}
    slices["half"] = half[:, :, z // 2].repeat_interleave(2, 0).repeat_interleave(2, 1)
    score = volume.psnr(ours)
    psnr = {"ours": score["all"], "baseline": scores[best]["all"]}
    picture.save(args.out / "picture.png", slices, psnr, losses, held_out_losses)

    # The slice that the C++ program renders, too.
    coordinates = volume.coordinates().view(*shape, 3)[:, :, z].reshape(-1, 3).clone()
    torch.save(coordinates, args.out / "coordinates.pt")
    torch.save(render(field, coordinates.to(args.device)).cpu(), args.out / "render_python.pt")
    export(field, coordinates.to(args.device), args.out)

    report = {
        "ours": score,
        "baselines": scores,
        "best_baseline": best,
        "neighbour_mean": volume.psnr(data.neighbour_mean(volume)),
        "voxels": volume.values.numel(),
        "parameters": parameters,
        "steps": args.steps,
        "device": args.device,
        "seconds": {"training": trained - start, "export": time.perf_counter() - trained},
    }
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
