"""Mistakes that the tests must notice, for tools/run mutate: the text that each replaces, and the tests that must fail.

`tests` names as few tests as possible: "pytest", a file in tests/python and keywords for pytest's -k; or "unit" for
tests/cpp or "emulator" for the CUDA kernels in the emulator, and a GoogleTest filter.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    file: str
    text: str  # occurs exactly once in the file
    replacement: str
    tests: str


MUTATIONS = [
    # ---------------------------------------------------------------- kit
    Mutation(
        "kit.node_keeps_its_outputs",
        "src/kit/autograd.cpp",
        "    for (SavedVariable& v : outputs_) v.reset_data();\n",
        "",
        "pytest test_operators.py backward_frees_what_was_saved and sigmoid",
    ),
    Mutation(
        "kit.outputs_saved_before_their_tangents",
        "src/kit/autograd.cpp",
        """\
  if (have_tangents(inputs)) set_forward_gradients(formula, inputs, outputs, attributes);
  // Outputs are saved after their forward gradients are set; otherwise forward-over-reverse would lose a term.
  if (node) node->save_outputs(outputs);
""",
        """\
  if (node) node->save_outputs(outputs);
  if (have_tangents(inputs)) set_forward_gradients(formula, inputs, outputs, attributes);
""",
        "pytest test_operators.py gradgradcheck and sigmoid",
    ),
    Mutation(
        "kit.accumulate_loses_a_term",
        "include/cppcuda/kit/formula.h",
        "sum = sum.defined() ? sum + term : term;",
        "sum = term;",
        "pytest test_operators.py gradgradcheck and trilinear",
    ),
    Mutation(
        "kit.autocast_reaches_formulas",
        "src/kit/autograd.cpp",
        """\
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  formula.vjp(""",
        "  formula.vjp(",
        "unit AutogradKernel.FormulasRunWithoutAutocast",
    ),
    Mutation(
        "kit.compiled_autograd_forgets_outputs",
        "src/kit/autograd.cpp",
        "    for (const SavedVariable& v : outputs_) args.collect(v, /*is_output=*/true);\n",
        "",
        "pytest test_operators.py compiled_autograd- and sigmoid",
    ),
    Mutation(
        "kit.vmap_moves_by_a_swap",
        "src/kit/vmap.cpp",
        "value.movedim(*dim, 0)",
        "value.transpose(*dim, 0)",
        "pytest test_operators.py vmap_in_dims_and_out_dims and trilinear",
    ),
    Mutation(
        "kit.vmap_copies_what_has_no_batch",
        "src/kit/vmap.cpp",
        "value = value.unsqueeze(0).expand_symint(sizes);",
        "value = value.unsqueeze(0).expand_symint(sizes).contiguous();",
        "pytest test_operators.py vmap_copies_nothing",
    ),
    Mutation(
        "kit.vmap_unfolds_the_wrong_way",
        "src/kit/vmap.cpp",
        "unflatten_symint(dim, {batch, inner})",
        "unflatten_symint(dim, {inner, batch})",
        "pytest test_operators.py vmap_of_every_sample and trilinear",
    ),
    Mutation(
        "kit.version_is_not_bumped",
        "src/kit/variants.cpp",
        "  for (const Tensor& t : written) t.unsafeGetTensorImpl()->bump_version();\n",
        "",
        "pytest test_elementwise.py test_versions",
    ),
    Mutation(
        "kit.overlap_is_never_found",
        "src/kit/variants.cpp",
        "return distances.contains(0);",
        "return false;",
        "pytest test_elementwise.py test_overlaps",
    ),
    Mutation(
        "kit.shapes_may_differ",
        "src/kit/elementwise.cpp",
        "check.same_shape(names.tensors[i], *tensors[i], names.tensors[first], *tensors[first]);",
        ";",
        "pytest test_operators.py message-",
    ),
    Mutation(
        "kit.dual_product_loses_a_term",
        "include/cppcuda/kit/math/dual.h",
        "detail::multiply_add(a.value, b.tangent, A(a.tangent * b.value))",
        "A(a.tangent * b.value)",
        "pytest test_operators.py gradgradcheck and quick_gelu",
    ),
    Mutation(
        "kit.unaligned_nontemporal_stores",
        "include/cppcuda/kit/elementwise/cpu_loop.h",
        "      nontemporal &= reinterpret_cast<uintptr_t>(out[0]) % sizeof(T) == 0;\n",
        "",
        "pytest test_elementwise.py test_memory_that_is_not_aligned_to_its_elements",
    ),
    Mutation(
        "kit.last_vector_is_one_too_long",
        "include/cppcuda/kit/cpu/loops.h",
        "  if (i < n) f(i, n - i);\n",
        "  if (i < n) f(i, n - i + 1);\n",
        "pytest test_operators.py gradients_against_float64 and trilinear",
    ),
    Mutation(
        "kit.meta_forgets_strides",
        "src/kit/output.cpp",
        "return at::empty_like(output.strides_of, output.options);",
        "return at::empty_symint(output.strides_of.sym_sizes(), output.options);",
        "pytest test_operators.py meta_is_real and sigmoid",
    ),
    Mutation(
        "kit.cuda_tail_is_one_too_long",
        "include/cppcuda/kit/elementwise/kernel.cuh",
        "if (blockIdx.x == 0 && last < p.count)",
        "if (blockIdx.x == 0 && last <= p.count)",
        "emulator CudaElementwise/0.AnySizeAndOffset",
    ),
    Mutation(
        "kit.autocast_leaves_what_may_be_wider",
        "src/kit/define.cpp",
        "if (is_wide || dtype) value =",
        "if (!is_wide && dtype) value =",
        "pytest test_operators.py autocast and trilinear",
    ),
    Mutation(
        "trilinear.padding_lanes_read_a_value",
        "src/ops/trilinear/cpu/kernel.cpp",
        "at < values ? at % features : features;",
        "at < values ? at % features : 0;",
        "pytest test_cpu_kernels.py test_an_infinite_gradient_reaches_the_axes_that_it_must",
    ),
    Mutation(
        "trilinear.warp_barrier_is_missing",
        "src/ops/trilinear/cuda/staged_kernel.cuh",
        "      __syncwarp();  // all lanes are done with the previous tile\n",
        "",
        "emulator All/CudaTrilinear.AnyNumberOfRows/*",
    ),
    Mutation(
        "upsample.row_of_another_plane",
        "src/ops/upsample_bilinear2d/cpu/launch.cpp",
        "const int64_t row = plane * p_.y.in + y;",
        "const int64_t row = y;",
        "pytest test_upsample_bilinear2d.py test_onnxruntime_of_size",
    ),
    Mutation(
        "upsample.barrier_of_a_tile_is_missing",
        "src/ops/upsample_bilinear2d/cuda/tile_kernel.cuh",
        "    __syncthreads();  // all threads are done with the previous row\n",
        "",
        "emulator *CudaUpsample.ManyPixels/*",
    ),
    Mutation(
        "lltm_cell.last_gate_is_not_written",
        "src/ops/lltm_cell/cpu/kernel.cpp",
        "for (; gate < end; ++gate) gates_tile<M, 1>(p, row, gate);",
        "for (; gate < end - 1; ++gate) gates_tile<M, 1>(p, row, gate);",
        "pytest test_operators.py against_float64 and lltm_cell",
    ),
    Mutation(
        "lltm.barrier_after_the_state_is_missing",
        "src/ops/lltm_cell/cuda/steps_kernel.cuh",
        "        cell_state[r * size + s] = static_cast<A>(cy);\n      }\n      __syncthreads();\n",
        "        cell_state[r * size + s] = static_cast<A>(cy);\n      }\n",
        "emulator All/CudaLltm.ValuesAndGradients/*",
    ),
    Mutation(
        "interpolation.missing_corners_are_the_first_row",
        "src/interpolation/cpu/loops.h",
        "is_own ? at : other",
        "is_own ? at : first",
        "pytest test_operators.py against_float64-trilinear_indexed-float32",
    ),
    Mutation(
        "interpolation.cuda_run_begins_a_row_again",
        "src/interpolation/cuda/kernel.cuh",
        "            began_before = false;\n",
        "",
        "emulator *CudaGridSample3dInOrder.*",
    ),
]
