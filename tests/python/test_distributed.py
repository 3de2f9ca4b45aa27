"""DTensors: the rules of cppcuda's operators, and what only some of them have. cppcuda.testing has the rest."""

from __future__ import annotations

from typing import Any

import cppcuda.distributed
import pytest
import torch
from cppcuda.testing.compare import assert_close
from cppcuda.testing.samples import OPS, OpEntry, Sample, forward_ops, outputs_of
from support import over_ops
from torch import Tensor, distributed

if not distributed.is_available():
    pytest.skip("torch was built without distributed", allow_module_level=True)

from cppcuda.testing.properties.distributed import check_every_placement, distribute, mesh, on_cluster
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

# Before torch 2.13 operators return nothing that write to their argument.
IN_PLACE = "...->... ..." if torch.__version__ >= (2, 13) else "...-> ..."
# The dims of tensors as in einsum, then the dims along which the operator computes independently.
RULES = {
    "sigmoid": "...->... ...",
    "sigmoid_": IN_PLACE,
    "_sigmoid_backward": "...,...->... ...",
    "_sigmoid_double_backward": "...,...,...->...,... ...",
    "quick_gelu": "...->... ...",
    "quick_gelu_": IN_PLACE,
    "_quick_gelu_backward": "...,...->... ...",
    "_quick_gelu_double_backward": "...,...,...->...,... ...",
    "trilinear": "...N_F,...N_->...NF ...FN",
    "_trilinear_backward": "...NF,...N_F,...N_->...N_F,...N_ ...FN",
    "_trilinear_double_backward": "...NF,...N_F,...N_,...N_F,...N_->...NF,...N_F,...N_ ...FN",
    "trilinear_indexed": "...VF,...N_,...N_->...NF ...FN",
    "_trilinear_indexed_backward": "...NF,...VF,...N_,...N_->...VF,...N_ ...FN",
    "_trilinear_indexed_double_backward": "...NF,...VF,...N_,...N_,...VF,...N_->...NF,...VF,...N_ ...FN",
    "trilinear_indexed_with_grad": "...VF,...N_,...N_->...NF,...NF_ ...FN",
    "grid_sample3d": "...DHWF,...N_->...NF ...FN",
    "_grid_sample3d_backward": "...NF,...DHWF,...N_->...DHWF,...N_ ...FN",
    "_grid_sample3d_double_backward": "...NF,...DHWF,...N_,...DHWF,...N_->...NF,...DHWF,...N_ ...FN",
    "spline_sample2d": "...HWF,...N_->...NF ...FN",
    "_spline_sample2d_backward": "...NF,...HWF,...N_->...HWF,...N_ ...FN",
    "_spline_sample2d_double_backward": "...NF,...HWF,...N_,...HWF,...N_->...NF,...HWF,...N_ ...FN",
    "spline_sample3d": "...DHWF,...N_->...NF ...FN",
    "_spline_sample3d_backward": "...NF,...DHWF,...N_->...DHWF,...N_ ...FN",
    "_spline_sample3d_double_backward": "...NF,...DHWF,...N_,...DHWF,...N_->...NF,...DHWF,...N_ ...FN",
    "spline_splat2d": "...NF,...N_->...HWF ...FN",
    "spline_splat3d": "...NF,...N_->...DHWF ...FN",
    "spline_prefilter2d": "...HWF->...HWF ...F",
    "_spline_prefilter2d_backward": "...HWF->...HWF ...F",
    "spline_prefilter3d": "...DHWF->...DHWF ...F",
    "_spline_prefilter3d_backward": "...DHWF->...DHWF ...F",
    "hash_grid": "...P,...ND->...N_ ...N",
    "_hash_grid_backward": "...N_,...P,...ND->...P,...ND ...N",
    "_hash_grid_double_backward": "...N_,...P,...ND,...P,...ND->...N_,...P,...ND ...N",
    "upsample_bilinear2d": "NCHW->NC__ CN",
    "_upsample_bilinear2d_backward": "NCHW->NC__ CN",
    "lltm_cell": "...BI,...__,..._,...BS,...BS->...BS,...BS ...B",
    "_lltm_cell": "...BI,...__,..._,...BS,...BS->...BS,...BS,...B_ ...B",
    "_lltm_cell_backward": "...BS,...BS,...B_,...B_,...BI,...__,...BS,...BS->...BI,...__,..._,...BS,...BS ...B",
    "lltm": "...TBI,...__,..._,...BS,...BS->...TBS,...BS,...BS ...B",
    "_lltm": "...TBI,...__,..._,...BS,...BS->...TBS,...BS,...BS,...TBS,...TB_ ...B",
    "_lltm_backward": "...TBS,...BS,...BS,...TBS,...TB_,...TBS,...TBS,...TB_,...TBI,...__,...BS,...BS"
    "->...TBI,...__,..._,...BS,...BS ...B",
}


def test_rules_follow_from_the_declarations() -> None:
    rules = torch.ops.cppcuda._sharding_rule
    assert sorted(getattr(rules, name)() for name in rules.overloads()) == sorted(map(" ".join, RULES.items()))


def test_a_namespace_without_rules() -> None:
    with pytest.raises(ValueError, match=r"^register_sharding: no operator of torch\.ops\.no_such_library has a rule"):
        cppcuda.distributed.register_sharding("no_such_library")


def entry_of(name: str) -> OpEntry:
    return next(e for e in OPS if e.base_name == name)


def check_features(op: Any, sample: Sample) -> None:
    sharded = distribute(sample, (Shard(2), Replicate())).requires_grad()
    with CommDebugMode() as sent:
        out = cppcuda.functional.trilinear(*sharded.args)
        grads = torch.autograd.grad(out, sharded.args, torch.ones_like(out))
    assert sent.get_total_counts() == 0
    assert out.placements == (Shard(1),)
    assert [t.placements for t in grads] == [(Shard(2),), (Partial(),)]


def test_features_are_not_sent() -> None:
    sample = Sample("features", (torch.randn(4, 8, 6), torch.rand(4, 3)))
    on_cluster(check_features, entry_of("trilinear"), sample)


def test_a_gradient_that_is_not_requested() -> None:
    """It is an empty tensor without the dims by which the other one is sharded."""
    entry = entry_of("_trilinear_backward")
    sample = entry.sample("mask_01")
    on_cluster(check_every_placement, entry, sample, list(outputs_of(entry.reference(*sample.args))))


def check_sizes(op: Any, sample: Sample) -> None:
    """DTensor's cache of sharding decisions distinguishes calls by their arguments that are not tensors."""
    (image,) = distribute(sample, (Shard(0),)).tensors
    for size in ((8, 10), (7, 3)):
        out = cppcuda.functional.upsample_bilinear2d(image, size=size)
        assert out.shape == (2, 3, *size)
        assert out.full_tensor().shape == out.shape


def test_sizes_are_not_mistaken() -> None:
    on_cluster(check_sizes, entry_of("upsample_bilinear2d"), Sample("image", (torch.randn(2, 3, 4, 5),)))


def check_in_place(op: Any, sample: Sample, expected: Tensor) -> None:
    in_place = getattr(cppcuda.functional, f"{op._opname}_")
    (x,) = sample.tensors
    for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
        sharded = distribute_tensor(x.clone(), mesh(), [placement])
        in_place(sharded)
        assert sharded.placements == (placement,)
        assert_close(sharded.full_tensor(), expected, rtol=1e-5, atol=1e-5)
    partial = DTensor.from_local(x, mesh(), [Partial()])
    with pytest.raises(RuntimeError, match="in-place"):
        in_place(partial)
    assert_close(partial.to_local(), x)


@over_ops([e for e in forward_ops() if e.writing_names])
def test_in_place(entry: OpEntry) -> None:
    x = torch.randn(4, 6, 3)
    on_cluster(check_in_place, entry, Sample("in place", (x,)), entry.reference(x))


def test_every_operator_has_a_rule() -> None:
    # DTensor does not support operators that return nothing and write to an argument named out.
    names = {name for e in OPS for name in (e.base_name, *e.writing_names) if not name.endswith(".out")}
    assert set(RULES) == names
