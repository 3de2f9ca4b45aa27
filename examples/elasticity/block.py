"""Twists and compresses an elastic block, and finds its shape by Newton's method and by a quasi-Newton method."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import cppcuda.kit
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.linalg import splu
from torch import Tensor
from torch.func import hessian, vmap
from tqdm import tqdm

MU, LAM = 1.0, 4.0
CORNERS = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]])
TETRAHEDRA = torch.tensor(
    [[0, 1, 3, 7], [0, 3, 2, 7], [0, 2, 6, 7], [0, 6, 4, 7], [0, 4, 5, 7], [0, 5, 1, 7]]
)  # in a cube
History = list[tuple[float, float]]  # seconds and energy after each iteration


class Block:
    """A block of tetrahedra with linear displacements, whose bottom and top are held."""

    def __init__(self, cells: int, twist: float, compression: float) -> None:
        self.energy_density = cppcuda.kit.load("elasticity", Path(__file__).with_name("neo_hookean.h")).neo_hookean
        size = torch.tensor([cells, cells, 3 * cells])
        axes = [torch.arange(n + 1, dtype=torch.float64) / cells for n in size.tolist()]
        self.rest = torch.cartesian_prod(*axes)
        numbers = torch.arange(len(self.rest)).view(*(size + 1).tolist())
        nx, ny, nz = size.tolist()
        corners = [numbers[x : nx + x, y : ny + y, z : nz + z].reshape(-1) for x, y, z in CORNERS.tolist()]
        self.tetrahedra = torch.stack(corners, -1)[:, TETRAHEDRA].view(-1, 4)
        edges = self._edges(self.rest)
        self.volume = torch.linalg.det(edges) / 6
        # Row a of `slopes` is the gradient of the function that is 1 in corner a of a tetrahedron: F = x^T slopes.
        inverse = torch.linalg.inv(edges)
        self.slopes = torch.cat([-inverse.sum(1, keepdim=True), inverse], 1)
        height = self.rest[:, 2] / 3
        angle = np.deg2rad(twist) * height
        x, y = self.rest[:, 0] - 0.5, self.rest[:, 1] - 0.5
        turned = [0.5 + angle.cos() * x - angle.sin() * y, 0.5 + angle.sin() * x + angle.cos() * y]
        self.start = torch.stack([*turned, self.rest[:, 2] * (1 - compression)], 1)
        self.free = ((height > 0) & (height < 1))[:, None].expand(-1, 3).reshape(-1)

    def _edges(self, x: Tensor) -> Tensor:
        """[T, 3, 3]: column j is the edge from corner 0 of a tetrahedron to corner j + 1."""
        corners = x[self.tetrahedra]
        return (corners[:, 1:] - corners[:, :1]).mT

    def density(self, gradients: Tensor) -> Tensor:
        return self.energy_density(gradients, MU, LAM)

    def deformation(self, x: Tensor) -> Tensor:
        return torch.einsum("tai,taj->tij", x[self.tetrahedra], self.slopes)

    def energy(self, x: Tensor) -> Tensor:
        return self.volume @ self.density(self.deformation(x))

    def stiffness(self, x: Tensor, convex: bool) -> csr_array:
        """The Hessian of the energy. Convex: that of each tetrahedron without its negative eigenvalues."""
        tangent = vmap(hessian(self.density))(self.deformation(x)) * self.volume[:, None, None, None, None]
        if convex:
            values, vectors = torch.linalg.eigh(tangent.reshape(-1, 9, 9))
            tangent = ((vectors * values.clamp_min(0)[:, None]) @ vectors.mT).view_as(tangent)
        of_elements = torch.einsum("taj,tijkl,tbl->taibk", self.slopes, tangent, self.slopes)
        places = (3 * self.tetrahedra[:, :, None] + torch.arange(3)).flatten(1)
        rows, columns = places[:, :, None].expand(-1, 12, 12), places[:, None].expand(-1, 12, 12)
        entries = (of_elements.reshape(-1).numpy(), (rows.reshape(-1).numpy(), columns.reshape(-1).numpy()))
        return csr_array(entries, shape=(x.numel(), x.numel()))


def newton(block: Block, tolerance: float = 1e-8) -> tuple[Tensor, History]:
    x, history, began = block.start.clone(), [], time.perf_counter()
    free = block.free.numpy()
    progress = tqdm(range(100), desc="Newton", unit="iteration")
    for _ in progress:
        variable = x.requires_grad_()
        energy = block.energy(variable)
        (gradient,) = torch.autograd.grad(energy, variable)
        x, gradient = x.detach(), gradient.reshape(-1).numpy()[free]
        history.append((time.perf_counter() - began, energy.item()))
        progress.set_postfix_str(f"energy {energy.item():.9f}, force {abs(gradient).max():.1e}")
        if abs(gradient).max() < tolerance:
            return x, history
        for convex in (False, True):  # far from the minimum the exact Hessian may have negative eigenvalues
            step = np.zeros(x.numel())
            step[free] = -splu(block.stiffness(x, convex)[free][:, free].tocsc()).solve(gradient)
            if step[free] @ gradient < 0:
                break
        length = 1.0
        # A tetrahedron that would turn inside out has no energy: NaN.
        while not block.energy(x + length * torch.from_numpy(step).view_as(x)) <= energy + 1e-4 * length * (
            step[free] @ gradient
        ) + 1e-14 * abs(energy):
            length /= 2
        x = x + length * torch.from_numpy(step).view_as(x)
    raise RuntimeError("Newton's method did not converge")


def quasi_newton(block: Block, iterations: int) -> tuple[Tensor, History]:
    history: History = []
    free, progress, began = block.free, tqdm(desc="L-BFGS", unit="iteration"), time.perf_counter()

    def place(values: np.ndarray) -> Tensor:
        x = block.start.reshape(-1).clone()
        x[free] = torch.from_numpy(values)
        return x.view_as(block.start).requires_grad_()

    def value_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
        x = place(values)
        energy = block.energy(x)
        (gradient,) = torch.autograd.grad(energy, x)
        return (energy.item() if energy == energy else np.inf), gradient.reshape(-1)[free].nan_to_num().numpy()

    def callback(intermediate_result: object) -> None:
        history.append((time.perf_counter() - began, intermediate_result.fun))
        progress.update()
        progress.set_postfix_str(f"energy {intermediate_result.fun:.9f}")

    start = block.start.reshape(-1)[free].numpy()
    history.append((0.0, value_and_gradient(start)[0]))
    options = {"maxiter": iterations, "maxfun": 10 * iterations, "ftol": 1e-15, "gtol": 1e-8, "maxcor": 20}
    result = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
    progress.close()
    return place(result.x).detach(), history


def draw_block(axes: Axes, block: Block, x: Tensor) -> None:
    """The surface, coloured by the energy density of the tetrahedra."""
    faces = block.tetrahedra[:, torch.tensor([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]])]
    density = block.density(block.deformation(x))[:, None].expand(-1, 4).reshape(-1)
    corners = faces.reshape(-1, 3)
    _, inverse, count = torch.unique(corners.sort(-1).values, dim=0, return_inverse=True, return_counts=True)
    outside = count[inverse] == 1
    shown = axes.add_collection3d(Poly3DCollection(x[corners[outside]].numpy(), linewidths=0.2, edgecolors="0.3"))
    shown.set_array(density[outside].numpy())
    shown.set_cmap("viridis")
    for limits, low, high in ((axes.set_xlim, 0, 1), (axes.set_ylim, 0, 1), (axes.set_zlim, 0, 3)):
        limits(low, high)
    axes.set_box_aspect((1, 1, 3), zoom=1.9)
    axes.set_axis_off()
    axes.figure.colorbar(shown, ax=axes, shrink=0.6, label="energy density", location="left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/elasticity"), help="output folder (default: %(default)s)")
    parser.add_argument("--cells", type=int, default=8, help="along the short edges (default: %(default)s)")
    parser.add_argument("--twist", type=float, default=120, help="of the top, in degrees (default: %(default)s)")
    parser.add_argument("--compression", type=float, default=0.15, help="of the height (default: %(default)s)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    block = Block(args.cells, args.twist, args.compression)
    block.stiffness(block.start, convex=False)  # imports what torch.func needs, which takes seconds
    runs: dict[str, Callable[[], tuple[Tensor, History]]] = {
        "Newton": lambda: newton(block),
        "L-BFGS": lambda: quasi_newton(block, 20000),
    }
    shapes, histories = {}, {}
    for name, run in runs.items():
        shapes[name], histories[name] = run()
    best = min(energy for history in histories.values() for _, energy in history)
    figure = plt.figure(figsize=(12, 4.5), layout="constrained")
    places = figure.add_gridspec(1, 3, width_ratios=(1, 1.3, 1.3))
    draw_block(figure.add_subplot(places[0], projection="3d"), block, shapes["Newton"])
    by_iteration, by_time = figure.add_subplot(places[1]), figure.add_subplot(places[2])
    report = {"tetrahedra": len(block.tetrahedra), "unknowns": int(block.free.sum())}
    for name, history in histories.items():
        seconds, energies = np.array(history).T
        above = np.maximum(energies / best - 1, 1e-14)  # what float64 resolves
        by_iteration.loglog(1 + np.arange(len(above)), above, ".-" if len(above) < 50 else "-", label=name)
        by_time.loglog(seconds + 1e-3, above, ".-" if len(above) < 50 else "-", label=name)
        report[name] = {"iterations": len(history) - 1, "seconds": seconds[-1], "energy": energies[-1]}
    by_iteration.set(xlabel="iteration", ylabel="energy above the minimum, relative")
    by_time.set(xlabel="seconds")
    by_iteration.legend()
    figure.savefig(args.out / "picture.png", dpi=130)
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    difference = (shapes["Newton"] - shapes["L-BFGS"]).norm(dim=1).max().item()
    print(f"The shapes differ by {difference:.1e}. The picture is {args.out / 'picture.png'}.")


if __name__ == "__main__":
    main()
