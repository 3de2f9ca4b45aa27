"""Mistakes that the tests must notice, for tools/run mutate: the text that each replaces, and the tests that must fail.

`tests` names as few tests as possible: "pytest", a file in tests/python and keywords for pytest's -k; or "unit" for
tests/cpp or "simt" for the CUDA kernels in the emulator, and a GoogleTest filter.
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
        "return value.unsqueeze(0).expand_symint(sizes);",
        "return value.unsqueeze(0).expand_symint(sizes).contiguous();",
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
        "include/cppcuda/kit/elementwise/define.h",
        "    Checks::written(args...).unsafeGetTensorImpl()->bump_version();\n",
        "",
        "pytest test_elementwise.py test_versions",
    ),
    Mutation(
        "kit.overlap_is_never_found",
        "src/kit/elementwise.cpp",
        "return distances.contains(0);",
        "return false;",
        "pytest test_elementwise.py test_overlaps",
    ),
    Mutation(
        "kit.dense_memory_ends_an_element_early",
        "src/kit/elementwise.cpp",
        "return t.numel();",
        "return t.numel() - 1;",
        "pytest test_elementwise.py test_overlaps",
    ),
    Mutation(
        "kit.memory_ends_an_element_early",
        "src/kit/elementwise.cpp",
        "    return last + 1;\n",
        "    return last;\n",
        "pytest test_elementwise.py test_overlaps",
    ),
    Mutation(
        "kit.shapes_may_differ",
        "src/kit/elementwise.cpp",
        "    check.same_shape(name, t, first_name, first);\n",
        "",
        "pytest test_operators.py message-",
    ),
    Mutation(
        "kit.second_derivative_in_16_bits",
        "include/cppcuda/kit/elementwise/autograd.h",
        "in_opmath(direction) * in_opmath(grad)",
        "direction * grad",
        "pytest test_elementwise.py test_second_derivatives_of_16_bits_do_not_overflow",
    ),
    Mutation(
        "kit.dual_product_loses_a_term",
        "include/cppcuda/kit/elementwise/dual.h",
        "sum(times(a.tangent_, b.value_), times(b.tangent_, a.value_))",
        "times(a.tangent_, b.value_)",
        "pytest test_operators.py gradgradcheck and quick_gelu",
    ),
    Mutation(
        "kit.unaligned_nontemporal_stores",
        "include/cppcuda/kit/elementwise/cpu_loop.h",
        "    nontemporal &= reinterpret_cast<uintptr_t>(out) % sizeof(T) == 0;\n",
        "",
        "pytest test_elementwise.py test_memory_that_is_not_aligned_to_its_elements",
    ),
    Mutation(
        "kit.strided_loop_reads_its_first_block_again",
        "include/cppcuda/kit/elementwise/cpu_loop.h",
        "data[input + 1] + begin * step;",
        "data[input + 1];",
        "pytest test_cpu_kernels.py test_bits_do_not_depend_on_the_place",
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
        "simt CudaElementwise/0.AnySizeAndOffset",
    ),
    # ---------------------------------------------------------------- sigmoid, quick_gelu
    Mutation(
        "sigmoid.slope",
        "src/elementwise/sigmoid.h",
        "return (A(1) - y) * y;",
        "return (A(1) + y) * y;",
        "pytest test_operators.py gradients_against_float64 and sigmoid",
    ),
    Mutation(
        "quick_gelu.slope",
        "src/elementwise/quick_gelu.h",
        "return s.value + A(k) * (x * s.slope());",
        "return s.value + x * s.slope();",
        "pytest test_operators.py gradients_against_float64 and quick_gelu",
    ),
    # ---------------------------------------------------------------- trilinear
    Mutation(
        "trilinear.mask_is_ignored",
        "src/interpolation/formulas.h",
        'x, saved["points"], c10::List<bool>({of_features, of_points}));',
        'x, saved["points"], c10::List<bool>({true, true}));',
        "pytest test_operators.py each_gradient_alone and trilinear",
    ),
    Mutation(
        "trilinear.saved_tensor_is_missing",
        "src/interpolation/formulas.h",
        '{"points", {"grad", Table::features, "points"}},',
        '{"points", {"grad", "points"}},',
        "pytest test_operators.py each_gradient_alone and trilinear",
    ),
    Mutation(
        "trilinear.second_derivative_lacks_a_term",
        "src/ops/trilinear/math.h",
        "direction[0] * slope(c, 0) + direction[1] * slope(c, 1) + direction[2] * slope(c, 2)",
        "direction[0] * slope(c, 0) + direction[1] * slope(c, 1)",
        "pytest test_operators.py gradgradcheck and trilinear",
    ),
    Mutation(
        "trilinear.third_derivative_lacks_a_term",
        "src/interpolation/formulas.h",
        "      if (of_features) kit::accumulate(dx, spread(w.along({v, of_p}), g));\n",
        "",
        "pytest test_operators.py gradcheck and trilinear_double_backward",
    ),
    Mutation(
        "trilinear.tangent_of_backward_lacks_a_term",
        "src/interpolation/formulas.h",
        "      if (of_features) kit::accumulate(dx, second[Table::grad_features]);\n",
        "",
        "pytest test_operators.py gradgradcheck and trilinear",
    ),
    Mutation(
        "trilinear.second_derivative_reads_another_corner",
        "src/ops/trilinear/cuda/kernel.cuh",
        "kit::store(p.grad_feats + (row * 8 + c) * p.features + f, out);\n        }\n      }\n    }\n"
        "    if (!p.grad_points)",
        "kit::store(p.grad_feats + (row * 8 + 7 - c) * p.features + f, out);\n        }\n      }\n    }\n"
        "    if (!p.grad_points)",
        "simt All/CudaTrilinearDoubleBackward.AnyNumberOfFeatures/*",
    ),
    Mutation(
        "trilinear.dtypes_may_differ",
        "src/kit/shape.cpp",
        "    if (other != nullptr && !a.may_be_wider) check.same_dtype(a.name, *t, like.name, *other);\n",
        "",
        "pytest test_operators.py message- and trilinear",
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
        "trilinear.one_corner_too_few",
        "src/ops/trilinear/cuda/kernel.cuh",
        "for (int c = 0; c < 8; ++c) sum += voxel.weight(c)",
        "for (int c = 0; c < 7; ++c) sum += voxel.weight(c)",
        "simt All/CudaTrilinear.AnyNumberOfFeatures/*",
    ),
    Mutation(
        "trilinear.warp_barrier_is_missing",
        "src/ops/trilinear/cuda/staged_kernel.cuh",
        "      __syncwarp();  // all lanes are done with the previous tile\n",
        "",
        "simt All/CudaTrilinear.AnyNumberOfRows/*",
    ),
    Mutation(
        "trilinear.barrier_before_stores_is_missing",
        "src/ops/trilinear/cuda/staged_kernel.cuh",
        "    __syncwarp();\n    const unsigned output_packs",
        "    const unsigned output_packs",
        "simt All/CudaTrilinear.AnyNumberOfFeatures/*",
    ),
    # ---------------------------------------------------------------- upsample_bilinear2d
    Mutation(
        "upsample.scales_are_one",
        "src/ops/upsample_bilinear2d/autograd.cpp",
        'saved.template attribute<"scale_w">()',
        'saved.template attribute<"scale_h">()',
        "pytest test_upsample_bilinear2d.py test_gradient_of_scales_against_plain_torch",
    ),
    Mutation(
        "upsample.exact_pixels_are_halved",
        "src/ops/upsample_bilinear2d/cpu/tables.h",
        """\
      lower_weight_.push_back(tap.lower_weight);
      upper_weight_.push_back(tap.upper_weight);
""",
        """\
      const bool exact = tap.lower == tap.upper;
      lower_weight_.push_back(exact ? A(0.5) : tap.lower_weight);
      upper_weight_.push_back(exact ? A(0.5) : tap.upper_weight);
""",
        "pytest test_upsample_bilinear2d.py test_pixels_that_are_met_exactly_are_copied_bit_by_bit",
    ),
    Mutation(
        "upsample.placeholders_add_a_positive_zero",
        "src/ops/upsample_bilinear2d/cpu/tables.h",
        "weights_.resize(max_readers_ * stride_, A(-0.0));",
        "weights_.resize(max_readers_ * stride_, A(0));",
        "pytest test_upsample_bilinear2d.py test_gradients_keep_the_sign_of_zero",
    ),
    Mutation(
        "upsample.row_of_another_plane",
        "src/ops/upsample_bilinear2d/cpu/launch.cpp",
        "const int64_t row = plane * p_.y.in + y;",
        "const int64_t row = y;",
        "pytest test_upsample_bilinear2d.py test_onnxruntime_of_size",
    ),
    Mutation(
        "upsample.memory_format_is_lost",
        "src/ops/upsample_bilinear2d/shape.h",
        "return {sizes, tensor.options().memory_format(memory_format_of(tensor))};",
        "return {sizes, tensor.options()};",
        "pytest test_upsample_bilinear2d.py test_formats_are_kept",
    ),
    Mutation(
        "upsample.barrier_of_a_tile_is_missing",
        "src/ops/upsample_bilinear2d/cuda/tile_kernel.cuh",
        "    __syncthreads();  // all threads are done with the previous row\n",
        "",
        "simt *CudaUpsample.ManyPixels/*",
    ),
    # ---------------------------------------------------------------- lltm_cell
    Mutation(
        "lltm_cell.hessian_lacks_a_term",
        "src/ops/lltm_cell/formulas.h",
        "h1 = wide_grad_hy * (p.dt * cy * p.dO + p.t * p.ddo * d.g1);",
        "h1 = wide_grad_hy * (p.dt * cy * p.dO);",
        "pytest test_operators.py gradgradcheck and lltm_cell",
    ),
    Mutation(
        "lltm_cell.tangent_of_backward_lacks_a_term",
        "src/ops/lltm_cell/formulas.h",
        'if (extra_grad_cx.defined() && saved.is_requested("grad(cx)")) '
        'kit::accumulate(result["grad(cx)"], extra_grad_cx);',
        "",
        "pytest test_operators.py gradgradcheck and lltm_cell",
    ),
    Mutation(
        "lltm_cell.too_much_is_saved",
        "src/ops/lltm_cell/formulas.h",
        '{"weight", {"input", "hx", "cx", "gates"}},',
        '{"weight", {"input", "weight", "hx", "cx", "gates"}},',
        "pytest test_operators.py only_what_is_needed and lltm_cell",
    ),
    Mutation(
        "lltm_cell.last_gate_is_not_written",
        "src/ops/lltm_cell/cpu/kernel.cpp",
        "for (; gate < end; ++gate) gates_tile<M, 1>(p, row, gate);",
        "for (; gate < end - 1; ++gate) gates_tile<M, 1>(p, row, gate);",
        "pytest test_operators.py against_float64 and lltm_cell",
    ),
    Mutation(
        "lltm_cell.bias_of_the_first_group_only",
        "src/ops/lltm_cell/gemm.cpp",
        "} else if (is_shared(weight) && is_shared(bias)) {",
        "} else if (is_shared(weight)) {",
        "pytest test_operators.py vmap_in_dims_and_out_dims and lltm_cell",
    ),
    Mutation(
        "kit.autocast_casts_down_what_may_be_wider",
        "src/kit/define.cpp",
        "cached_cast(is_wide ? at::kFloat : *dtype,",
        "cached_cast(dtype.value_or(at::kFloat),",
        "pytest test_operators.py dtypes_of_outputs and lltm_cell",
    ),
    Mutation(
        "lltm_cell.block_barrier_is_missing",
        "src/ops/lltm_cell/cuda/small_kernel.cuh",
        "  small_gate_gradients(p, total_grad_gates);\n  __syncthreads();\n",
        "  small_gate_gradients(p, total_grad_gates);\n",
        "simt All/CudaLltmCell.AllGradients/*",
    ),
    Mutation(
        "lltm.every_step_reads_the_first_cell_state",
        "src/ops/lltm_cell/cpu/steps_kernel.cpp",
        "      cx = cy;\n",
        "",
        "pytest test_lltm.py step_by_step",
    ),
    Mutation(
        "lltm.weights_meet_the_state_after_the_step",
        "src/ops/lltm_cell/cpu/steps_kernel.cpp",
        "p.output + (later - p.rows) * p.size",
        "p.output + later * p.size",
        "pytest test_lltm.py step_by_step",
    ),
    Mutation(
        "lltm.barrier_after_the_state_is_missing",
        "src/ops/lltm_cell/cuda/steps_kernel.cuh",
        "        cell_state[r * size + s] = static_cast<A>(cy);\n      }\n      __syncthreads();\n",
        "        cell_state[r * size + s] = static_cast<A>(cy);\n      }\n",
        "simt All/CudaLltm.ValuesAndGradients/*",
    ),
    Mutation(
        "lltm.rows_of_a_block_share_a_state",
        "src/ops/lltm_cell/cuda/steps_kernel.cuh",
        "dot<K>(weights, state + r * K)",
        "dot<K>(weights, state)",
        "simt All/CudaLltm.ValuesAndGradients/*",
    ),
    Mutation(
        "lltm.gradient_of_later_steps_is_lost",
        "src/ops/lltm_cell/autograd.cpp",
        '      h = of["grad_hy"], c = of["grad_cy"];\n',
        "",
        "pytest test_lltm.py higher_orders",
    ),
    # ---------------------------------------------------------------- interpolation
    Mutation(
        "interpolation.second_derivative_along_one_axis_is_lost",
        "src/interpolation/cells.h",
        "      } else if constexpr (Curved) {",
        "      } else if constexpr (false) {",
        "pytest test_operators.py gradgradcheck and hash_grid",
    ),
    Mutation(
        "interpolation.missing_corners_are_the_first_row",
        "src/interpolation/cpu/loops.h",
        "is_own ? first + row * row_bytes : 0",
        "first + (is_own ? row : 0) * row_bytes",
        "pytest test_operators.py against_float64-trilinear_indexed-float32",
    ),
    Mutation(
        "interpolation.block_repeats_the_terms_of_the_next_one",
        "src/interpolation/cpu/loops.h",
        "      f(n, blocks[now], blocks[next].terms);",
        "      f(n, blocks[next], blocks[next].terms);",
        "pytest test_operators.py against_float64-grid_sample3d-float32",
    ),
    Mutation(
        "trilinear_indexed.last_row_is_out_of_range",
        "src/ops/trilinear_indexed/lookup.h",
        "        out_of_range |= cells.row[c][i] < -1 || cells.row[c][i] >= rows;",
        "        out_of_range |= cells.row[c][i] < -1 || cells.row[c][i] > rows;",
        "pytest test_trilinear_indexed.py index",
    ),
    Mutation(
        "grid_sample3d.border_has_a_gradient",
        "src/ops/grid_sample3d/lookup.h",
        "    slope = is_inside ? slope : A(0);\n",
        "",
        "pytest test_grid_sample3d.py gradients",
    ),
    Mutation(
        "hash_grid.neighbours_are_not_wrapped",
        "src/ops/hash_grid/lookup.h",
        "          for (int i = 0; i < L; ++i) index[c][i] %= at.size;",
        "          for (int i = 0; i < L; ++i) index[c][i] = index[c][i] < at.size ? index[c][i] : at.size - 1;",
        "pytest test_operators.py against_float64-hash_grid-float32",
    ),
    # ---------------------------------------------------------------- interpolation on CUDA
    Mutation(
        "interpolation.cuda_lanes_add_up_only_half",
        "src/interpolation/cuda/kernel.cuh",
        "for (int offset = count / 2; offset > 0; offset /= 2) value += __shfl_xor_sync",
        "for (int offset = count / 4; offset > 0; offset /= 2) value += __shfl_xor_sync",
        "simt *CudaGridSample3d.AnyNumberOfFeatures*",
    ),
    Mutation(
        "interpolation.cuda_grad_of_the_first_level",
        "src/interpolation/cuda/kernel.cuh",
        "const T* grad = p.grad.at(place.batch, place.n) + level * features * p.grad.column;",
        "const T* grad = p.grad.at(place.batch, place.n);",
        "simt *CudaHashGrid.AnyNumberOfAxesAndFeatures*",
    ),
    Mutation(
        "interpolation.cuda_second_table_has_the_rows_of_the_first_level",
        "src/interpolation/cuda/kernel.cuh",
        "const T* from = table.at(place.batch, first_row);",
        "const T* from = table.at(place.batch, p.second.data == table.data ? 0 : first_row);",
        "simt *CudaHashGrid.AnyNumberOfAxesAndFeatures*",
    ),
    Mutation(
        "interpolation.cuda_missing_corner_has_a_gradient",
        "src/interpolation/cuda/kernel.cuh",
        "          if (at.is_missing(c)) continue;\n",
        "",
        "simt *CudaTrilinearIndexed.MissingVertices*",
    ),
    Mutation(
        "interpolation.cuda_launch_forgets_the_levels_before",
        "src/interpolation/cuda/kernel.cuh",
        "    if (adds) stored = kit::load<width>(to + d);\n",
        "",
        "simt *CudaHashGridLargeTables*",
    ),
    Mutation(
        "interpolation.cuda_last_levels_are_stored_past_the_end",
        "src/interpolation/cuda/kernel.cuh",
        "        if (levels.first + i / F < levels.end) store_rounded<width>(out + i, sum + i);",
        "        store_rounded<width>(out + i, sum + i);",
        "simt *CudaHashGrid.AnyNumberOfLevels*",
    ),
    Mutation(
        "interpolation.cuda_row_of_two_runs_is_added_once",
        "src/interpolation/cuda/kernel.cuh",
        "      for (int64_t r = run + 1; r <= last; ++r) sum += p.partial[r * p.features + f];",
        "      for (int64_t r = run + 1; r < last; ++r) sum += p.partial[r * p.features + f];",
        "simt *CudaGridSample3dInOrder.*",
    ),
    Mutation(
        "interpolation.cuda_run_begins_a_row_again",
        "src/interpolation/cuda/kernel.cuh",
        "            began_before = false;\n",
        "",
        "simt *CudaGridSample3dInOrder.*",
    ),
    # ---------------------------------------------------------------- Python
    Mutation(
        "distributed.mask_is_ignored",
        "python/cppcuda/distributed.py",
        "[sharded(o, Partial()) if c else Replicate() for o, c in zip(outputs, computed, strict=True)]",
        "[sharded(o, Partial()) for o in outputs]",
        "pytest test_operators.py every_placement and trilinear",
    ),
]
