"""The parent and child processes of test_child_processes.py. Imports little, because each process imports it again."""

from __future__ import annotations

import multiprocessing
import sys

import cppcuda.functional as F
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

SECONDS = 120  # a child that runs longer counts as hanging


def results() -> list[Tensor]:
    """Outputs and gradients of operators that use several threads here. The bits do not depend on the thread count."""
    x = torch.linspace(-4, 4, 1 << 20, requires_grad=True)
    feats = torch.linspace(-1, 1, 1 << 20).view(-1, 8, 16).requires_grad_()
    points = torch.linspace(-1, 1, feats.shape[0])[:, None].repeat(1, 3)
    y, z = F.sigmoid(x), F.trilinear(feats, points)
    return [y.detach(), z.detach(), *torch.autograd.grad([y, z], [x, feats], [y.detach(), z.detach()])]


def assert_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))


def compute_in_child(threads: int, path: str) -> None:
    torch.set_num_threads(threads)
    assert_equal(results(), torch.load(path))


class Results(Dataset[list[Tensor]]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[Tensor]:
        return results()


def parent_of_process(method: str, threads: int, path: str) -> None:
    torch.set_num_threads(4)
    torch.save(results(), path)
    context = multiprocessing.get_context(method)
    child = context.Process(target=compute_in_child, args=(threads, path), daemon=True)
    child.start()
    child.join(SECONDS)
    code = child.exitcode
    child.kill()
    assert code == 0, "the child hangs" if code is None else f"the child ended with {code}"


def parent_of_data_loader() -> None:
    torch.set_num_threads(4)
    expected = results()
    loader = DataLoader(Results(), batch_size=None, num_workers=1, timeout=SECONDS, multiprocessing_context="fork")
    for actual in loader:
        assert_equal(actual, expected)


if __name__ == "__main__":
    if sys.argv[1] == "process":
        parent_of_process(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        parent_of_data_loader()
