"""Fits signed distance fields to a mesh, with and without the eikonal loss, draws them, and exports the first."""

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

import data
import evaluate
import numpy as np
import picture
import torch
from model import DistanceAndGradient, DistanceField, gradient
from render import Function, camera, draw, render
from torch import Tensor
from tqdm import tqdm

SEED = 0
VIEWS = ((-1.0, 0.25, 0.25), (1.0, 0.2, 0.1))  # where the cameras are: outside of the left half, and between the halves


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/sdf"), help="output folder (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1200, help="training steps (default: %(default)s)")
    parser.add_argument("--points", type=int, default=60_000, help="points with known distance (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=4096, help="points per step (default: %(default)s)")
    parser.add_argument("--eikonal", type=float, default=0.03, help="weight of the loss (default: %(default)s)")
    parser.add_argument("--levels", type=int, default=10, help="levels of the hash grid (default: %(default)s)")
    parser.add_argument("--log2-hashmap-size", type=int, default=16, help="(default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of the MLP (default: %(default)s)")
    parser.add_argument("--resolution", type=int, default=160, help="of marching cubes (default: %(default)s)")
    parser.add_argument("--pixels", type=int, default=480, help="width of a view (default: %(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def known_points(mesh: data.Mesh, count: int) -> Tensor:
    """The only points with a known distance: most of them near the surface, the others anywhere."""
    rng = np.random.default_rng(SEED)
    part = 2 * count // 5
    nearest, near = (data.points_near(mesh, part, deviation, rng) for deviation in (0.004, 0.02))
    return torch.cat([nearest, near, data.points_in_cube(count - 2 * part, rng)])


def eikonal_points(known: Tensor, count: int) -> Tensor:
    """Where the gradient should have length 1: anywhere, and again more often near the surface."""
    near = known[torch.randint(len(known), (count // 2,), device=known.device)]
    anywhere = torch.rand(count - count // 2, 3, device=known.device)
    return torch.cat([(near + 0.01 * torch.randn_like(near)).clamp(0, 1), anywhere])


def fit(known: Tensor, distances: Tensor, name: str, weight: float, args: argparse.Namespace) -> DistanceField:
    torch.manual_seed(SEED)
    field = DistanceField(args.levels, args.log2_hashmap_size, args.width).to(args.device)
    groups = [{"params": field.grid.parameters(), "lr": 1e-2}, {"params": field.mlp.parameters(), "lr": 2e-3}]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-15)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    progress = tqdm(range(1, args.steps + 1), desc=f"training {name}", unit="step")
    for step in progress:
        batch = torch.randint(len(known), (args.batch,), device=known.device)
        loss = data_loss = (field(known[batch]) - distances[batch]).abs().mean()
        if weight:
            # Its gradient needs second derivatives of the hash grid: by points and by parameters.
            slopes = gradient(field, eikonal_points(known, args.batch), create_graph=True)
            eikonal_loss = (slopes.norm(dim=1) - 1).square().mean()
            loss = data_loss + weight * eikonal_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, args.steps // 50) == 0:
            text = f"distances {data_loss.item():.1e}"
            progress.set_postfix_str(text + (f", eikonal {eikonal_loss.item():.1e}" if weight else ""))
    return field.eval().requires_grad_(False)


def export(field: DistanceField, out: Path, device: str) -> None:
    """Writes the model as TorchScript and, with its gradient, as an AOTInductor package."""
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns if there is no GPU
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit.script is deprecated; C++ programs still load it
        print("Exporting to TorchScript", flush=True)
        torch.jit.script(field).save(str(out / "field.pt"))
        print("Compiling with AOTInductor, which runs a C++ compiler", flush=True)
        shapes = {"points": {0: torch.export.Dim("points", min=2)}}
        example = torch.rand(100, 3, device=device)
        program = torch.export.export(DistanceAndGradient(field), (example,), dynamic_shapes=shapes)
        torch._inductor.aoti_compile_and_package(program, package_path=str(out / "field.pt2"))


def in_plane(distance: Function, count: int = 256) -> Tensor:
    """Distances in a plane from front to back through the middle of the cube: ``[count, count]``."""
    axis = (torch.arange(count) + 0.5) / count
    return distance(torch.cartesian_prod(torch.tensor([0.5]), axis, axis)).view(count, count)


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()

    mesh = data.load()
    known = known_points(mesh, args.points)
    distances = mesh.distance(known)
    print(f"Mesh: {len(mesh.faces):,} triangles; {len(known):,} points with known distance", flush=True)
    cameras = [camera(view, 3 * args.pixels // 4, args.pixels) for view in VIEWS]
    views = [draw(mesh.distance, mesh.normal, rays, mesh.trace(rays.view(-1, 6))) for rays in cameras]
    columns = [picture.Column("mesh", views, mesh.millimetres * in_plane(mesh.distance))]

    results = {}
    seconds = {}
    for name, weight in (("with eikonal loss", args.eikonal), ("without", 0.0)):
        began = time.perf_counter()
        field = fit(known.to(args.device), distances.to(args.device), name, weight, args)
        seconds[name] = time.perf_counter() - began
        if weight:
            exported = field

        def distance(points: Tensor, field: DistanceField = field) -> Tensor:
            return field(points.to(args.device)).cpu()

        def slopes(points: Tensor, field: DistanceField = field) -> Tensor:
            return gradient(field, points.to(args.device)).cpu()

        print("Extracting the surface, measuring and drawing", flush=True)
        surface = evaluate.extract(distance, args.resolution)
        chamfer = evaluate.chamfer(surface, mesh)
        results[name] = {"chamfer_mm": chamfer, **evaluate.errors(slopes, mesh)}
        views = [render(distance, slopes, rays) for rays in cameras]
        title = f"{name}: chamfer distance {chamfer:.2f} mm"
        columns.append(picture.Column(title, views, mesh.millimetres * in_plane(distance)))

    title = f"The left half of the cortex as a hash grid with an MLP, from {len(known):,} signed distances"
    parameters = sum(p.numel() for p in exported.parameters())
    note = (
        f"{parameters:,} parameters, {args.steps:,} steps. Both fields know the same distances; the eikonal loss "
        "also makes the length of the gradient 1 everywhere. Sphere-traced, with the gradients as normals."
    )
    picture.save(args.out / "picture.png", title, note, columns, mesh.millimetres)

    # What the C++ program draws, too.
    torch.save(cameras[0], args.out / "rays.pt")
    torch.save(columns[1].views[0], args.out / "render_python.pt")
    began = time.perf_counter()
    export(exported, args.out, args.device)
    seconds["export"] = time.perf_counter() - began

    seconds["all"] = time.perf_counter() - start
    report = {
        "fields": results,
        "points": len(known),
        "parameters": parameters,
        "steps": args.steps,
        "device": args.device,
        "seconds": seconds,
    }
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
