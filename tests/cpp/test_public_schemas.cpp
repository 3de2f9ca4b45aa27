// Schemas of public libraries, of every kind, can be declared, and kit::define registers what torch reads from the same
// text. tools/schema_coverage counts how many of a longer list can be.
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

#include <sstream>
#include <string>
#include <type_traits>

#include "cppcuda/kit/define.h"
#include "testing.h"

namespace {

namespace kit = cppcuda::kit;

template <class... Ops>
struct List {
  static constexpr size_t size = sizeof...(Ops);
  static void for_each(auto f) { (f(std::type_identity<Ops>()), ...); }
};

using Public = List<
    // pyg-lib
    kit::Op<"public_schemas::radius(Tensor x, Tensor y, Tensor? ptr_x=None, Tensor? ptr_y=None, float r=1.0, int "
            "max_num_neighbors=32, int num_workers=1, bool ignore_same_index=False) -> Tensor">,
    kit::Op<"public_schemas::grouped_matmul(Tensor[] input, Tensor[] other) -> Tensor[]">,
    kit::Op<"public_schemas::relabel_neighborhood(Tensor seed, Tensor sampled_nodes_with_duplicates, int[] "
            "num_sampled_neighbors_per_node, int num_nodes, Tensor? batch = None, bool csc = False, bool disjoint = "
            "False) -> (Tensor, Tensor)">,
    kit::Op<"public_schemas::sampled_op(Tensor left, Tensor right, Tensor? left_index, Tensor? right_index, str op) -> "
            "Tensor">,
    // sphericart
    kit::Op<"public_schemas::solid_harmonics_with_gradients(Tensor xyz, int l_max) -> (Tensor, Tensor)">,
    kit::Op<"public_schemas::solid_harmonics_omp_num_threads(int l_max) -> int">,
    kit::Op<"public_schemas::spherical_harmonics_omp_num_threads(int l_max) -> int">,
    kit::Op<"public_schemas::solid_harmonics(Tensor xyz, int l_max) -> Tensor">,
    // FBGEMM
    kit::Op<"public_schemas::bounds_check_indices(Tensor rows_per_table, Tensor(a!) indices, Tensor(b!) offsets, int "
            "bounds_check_mode, Tensor(c!) warning, Tensor(d!)? weights=None, Tensor? B_offsets=None, SymInt max_B=-1, "
            "Tensor? b_t_map=None, int info_B_num_bits=-1, int info_B_mask=-1, int bounds_check_version=1, bool "
            "prefetch_pipeline=False) -> ()">,
    kit::Op<"public_schemas::direct_mapped_lru_cache_populate_byte(Tensor weights, Tensor hash_size_cumsum, int "
            "total_cache_hash_size, Tensor cache_index_table_map, Tensor weights_offsets, Tensor weights_tys, Tensor "
            "D_offsets, Tensor linear_cache_indices, Tensor(a!) lxu_cache_state, Tensor(b!) lxu_cache_weights, int "
            "time_stamp, Tensor(c!) lru_state, Tensor(d!) lxu_cache_miss_timestamp, int row_alignment=16, bool "
            "gather_cache_stats=False, Tensor(e!)? uvm_cache_stats=None) -> ()">,
    kit::Op<"public_schemas::merge_pooled_embeddings(Tensor[] pooled_embeddings, SymInt uncat_dim_size, Device "
            "target_device, SymInt cat_dim=1) -> Tensor">,
    kit::Op<"public_schemas::index_select_dim0(Tensor input, Tensor indices, SymInt? consecutive_range_start=0, "
            "SymInt? consecutive_range_length=0, bool? skip_indices_sorting_fwd=None) -> Tensor">,
    // torchao
    kit::Op<"public_schemas::bit_weight(Tensor weight_qvals, Tensor weight_scales, Tensor? weight_zeros, int "
            "group_size, Tensor? bias, str? target) -> Tensor">,
    kit::Op<
        "public_schemas::rowwise_scaled_linear_sparse_cutlass_f8f8(Tensor input, Tensor input_scale, Tensor weight, "
        "Tensor weight_meta, Tensor weight_scale, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor">,
    kit::Op<"public_schemas::bit_weight_with_lut(Tensor weight_qval_ids, Tensor luts, Tensor weight_scales, int "
            "group_size, Tensor? bias, str? target) -> Tensor">,
    kit::Op<"public_schemas::bit(Tensor weight_qvals) -> Tensor">,
    // xformers
    kit::Op<"public_schemas::efficient_attention_forward_ck(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, "
            "Tensor? seqstart_q, Tensor? seqstart_k, int? max_seqlen_q, float dropout_p, bool compute_logsumexp, int "
            "custom_mask_type, float? scale, Tensor? seqlen_k, int? window_size, Tensor? block_tables, int? page_size) "
            "-> (Tensor, Tensor?, int, int)">,
    kit::Op<"public_schemas::_nvcc_build_version() -> (int, int, int)">,
    kit::Op<"public_schemas::sparseNM_dense(Tensor input, str sort_preproc, int N, int M) -> Tensor">,
    // flash-attn-3
    kit::Op<"public_schemas::bwd(Tensor dout,Tensor q,Tensor k,Tensor v,Tensor out,Tensor softmax_lse,Tensor(dq!)? dq "
            "= None,Tensor(dk!)? dk = None,Tensor(dv!)? dv = None,Tensor? cu_seqlens_q = None,Tensor? cu_seqlens_k = "
            "None,Tensor? seqused_q = None,Tensor? seqused_k = None,int? max_seqlen_q = None,int? max_seqlen_k = "
            "None,float? softmax_scale = None,bool is_causal = False,int window_size_left = -1,int window_size_right = "
            "-1,float softcap = 0.0,bool deterministic = False,int sm_margin = 0) -> (Tensor, Tensor, Tensor, Tensor, "
            "Tensor)">,
    kit::Op<"public_schemas::get_scheduler_metadata(int batch_size,int max_seqlen_q,int max_seqlen_k,int num_heads,int "
            "num_heads_k,int headdim,int headdim_v,ScalarType qkv_dtype,Tensor seqused_k,Tensor? cu_seqlens_q = "
            "None,Tensor? cu_seqlens_k = None,Tensor? cu_seqlens_k_new = None,Tensor? seqused_q = None,Tensor? "
            "leftpad_k = None,int? page_size = None,int max_seqlen_k_new = 0,bool is_causal = False,int "
            "window_size_left = -1,int window_size_right = -1,int attention_chunk = 0,bool has_softcap = False,int "
            "num_splits = 0,bool? pack_gqa = None,int sm_margin = 0) -> Tensor">,
    // gsplat
    kit::Op<"public_schemas::gaussian_render_inference_only(Tensor means_planar, Tensor qso_packed, Tensor "
            "colors_packed, Tensor viewmat, Tensor K, int width, int height, int sh_degree, int tile_size, float "
            "near_plane, float far_plane, float radius_clip, float eps2d, int sh_compression_mode, Tensor? background, "
            "*, Tensor(a!)? out_renders=None, Tensor(b!)? out_alphas=None) -> (Tensor renders, Tensor alphas)">,
    kit::Op<"public_schemas::quat_scale_to_covar_preci(Tensor quats, Tensor scales, bool compute_covar, bool "
            "compute_preci, bool triu) -> (Tensor?, Tensor?)">,
    kit::Op<"public_schemas::gaussian_losses_fwd(Tensor scales, Tensor densities, Tensor z_scales, Tensor positions, "
            "Tensor cuboid_dims, Tensor? visibility, float z_scale_threshold, Tensor(a!) loss_scale, Tensor(b!) "
            "loss_density, Tensor(c!) loss_z_scale, Tensor(d!) loss_oob) -> ()">,
    // aphrodite (vLLM fork)
    kit::Op<"public_schemas::init_custom_ar(Tensor meta, Tensor rank_data, str[] handles, int[] offsets, int rank, "
            "bool full_nvlink) -> int">,
    kit::Op<"public_schemas::init_cpu_threads_env(str cpu_ids) -> str">,
    kit::Op<"public_schemas::cutlass_scaled_mm_supports_fp8(int cuda_device_capability) -> bool">,
    // HF kernels-community
    kit::Op<"public_schemas::fwd(Tensor! q, Tensor k, Tensor v, Tensor(out_!)? out_, Tensor? alibi_slopes_, float "
            "p_dropout, float softmax_scale, bool is_causal,int window_size_left, int window_size_right, float "
            "softcap, bool return_softmax, Generator? gen_) -> Tensor[]">,
    kit::Op<"public_schemas::mha_fwd(Tensor! q, Tensor k, Tensor v, float dropout_p, float softmax_scale, bool "
            "is_causal, int window_size_left, int window_size_right, int sink_size, bool return_softmax_lse, bool "
            "return_dropout_randval, Tensor? cu_seqlens_q, Tensor? cu_seqlens_kv, Tensor(out!)? out, Tensor? bias, "
            "Tensor? alibi_slopes, Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, Tensor? s_aux, Generator? "
            "gen) -> Tensor[]">,
    kit::Op<"public_schemas::fused_experts(Tensor hidden_states, Tensor w1, Tensor w2, Tensor topk_weights, Tensor "
            "topk_ids, bool inplace=False, bool use_int8_w8a8=False, bool use_fp8_w8a16=False, bool use_mxfp4=False, "
            "Tensor? w1_scale=None, Tensor? w2_scale=None, int[]? block_size=None, Tensor? a1_scale=None, Tensor? "
            "a2_scale=None, Tensor? w1_bias=None, Tensor? w2_bias=None, float? alpha=None, float? limit=None, bool "
            "is_vnni=False) -> Tensor">,
    // OpenEquivariance
    kit::Op<"public_schemas::jit_tp_forward(Tensor json_bytes, int hash, Tensor L1_in, Tensor L2_in, Tensor W, int "
            "L3_dim) -> Tensor">,
    kit::Op<"public_schemas::jit_tp_backward(Tensor json_bytes, int hash, Tensor L1_in, Tensor L2_in, Tensor W, Tensor "
            "L3_grad) -> (Tensor, Tensor, Tensor)">,
    kit::Op<"public_schemas::jit_conv_forward(Tensor json_bytes, int hash, Tensor L1_in, Tensor L2_in, Tensor W, int "
            "L3_dim, Tensor rows, Tensor cols, Tensor workspace, Tensor transpose_perm) -> Tensor">,
    // NNPOps
    kit::Op<"public_schemas::getNeighborPairs(Tensor positions, Scalar cutoff, Scalar max_num_neighbors, Tensor "
            "box_vectors, bool checkErrors) -> (Tensor neighbors, Tensor deltas, Tensor distances, Tensor num_pairs)">,
    kit::Op<"public_schemas::pme_direct(Tensor positions, Tensor charges, Tensor neighbors, Tensor deltas, Tensor "
            "distances, Tensor exclusions, Scalar alpha, Scalar coulomb) -> Tensor">,
    kit::Op<"public_schemas::pme_reciprocal(Tensor positions, Tensor charges, Tensor box_vectors, Scalar gridx, Scalar "
            "gridy, Scalar gridz, Scalar order, Scalar alpha, Scalar coulomb, Tensor xmoduli, Tensor ymoduli, Tensor "
            "zmoduli) -> Tensor">,
    // torch_scatter
    kit::Op<"public_schemas::scatter_sum(Tensor src, Tensor index, int dim, Tensor? optional_out, int? dim_size) -> "
            "Tensor">,
    kit::Op<"public_schemas::scatter_min(Tensor src, Tensor index, int dim, Tensor? optional_out, int? dim_size) -> "
            "(Tensor, Tensor)">,
    kit::Op<"public_schemas::segment_min_coo(Tensor src, Tensor index, Tensor? optional_out, int? dim_size) -> "
            "(Tensor, Tensor)">,
    // torch_cluster
    kit::Op<"public_schemas::random_walk(Tensor rowptr, Tensor col, Tensor start, int walk_length, float p, float q) "
            "-> (Tensor, Tensor)">,
    kit::Op<"public_schemas::neighbor_sampler(Tensor start, Tensor rowptr, int count, float factor) -> Tensor">,
    kit::Op<"public_schemas::fps(Tensor src, Tensor ptr, Tensor ratio, bool random_start) -> Tensor">,
    // torch_sparse
    kit::Op<"public_schemas::neighbor_sample(Tensor colptr, Tensor row, Tensor input_node, int[] num_neighbors, bool "
            "replace, bool directed) -> (Tensor, Tensor, Tensor, Tensor)">,
    kit::Op<"public_schemas::ind2ptr(Tensor ind, int M) -> Tensor">,
    kit::Op<"public_schemas::ptr2ind(Tensor ptr, int E) -> Tensor">,
    // causal-conv1d (pybind)
    kit::Op<"public_schemas::causal_conv1d_fwd(Tensor x, Tensor weight, Tensor? bias_, Tensor? seq_idx_, Tensor? "
            "initial_states_, Tensor! out, Tensor!? final_states_out_, bool silu_activation) -> ()">,
    kit::Op<"public_schemas::causal_conv1d_bwd(Tensor x, Tensor weight, Tensor? bias_, Tensor! dout, Tensor? seq_idx_, "
            "Tensor? initial_states_, Tensor? dfinal_states_, Tensor! dx, Tensor! dweight, Tensor!? dbias_, Tensor!? "
            "dinitial_states_, bool silu_activation) -> ()">,
    kit::Op<"public_schemas::causal_conv1d_update(Tensor x, Tensor conv_state, Tensor weight, Tensor? bias_, Tensor! "
            "out, bool silu_activation, Tensor? cache_seqlens_, Tensor? conv_state_indices_) -> ()">,
    // flash-attn 2 (pybind)
    kit::Op<"public_schemas::fwd_kvcache(Tensor! q, Tensor kcache, Tensor vcache, Tensor!? k_, Tensor!? v_, Tensor!? "
            "seqlens_k_, Tensor!? rotary_cos_, Tensor!? rotary_sin_, Tensor!? cache_batch_idx_, Tensor!? leftpad_k_, "
            "Tensor!? block_table_, Tensor!? alibi_slopes_, Tensor!? out_, float softmax_scale, bool is_causal, int "
            "window_size_left, int window_size_right, float softcap, bool is_rotary_interleaved, int num_splits) -> "
            "Tensor[]">,
    kit::Op<"public_schemas::varlen_fwd(Tensor! q, Tensor k, Tensor v, Tensor!? out_, Tensor cu_seqlens_q, Tensor "
            "cu_seqlens_k, Tensor!? seqused_k, Tensor!? leftpad_k_, Tensor!? block_table_, Tensor!? alibi_slopes_, int "
            "max_seqlen_q, int max_seqlen_k, float p_dropout, float softmax_scale, bool zero_tensors, bool is_causal, "
            "int window_size_left, int window_size_right, float softcap, bool return_softmax, Tensor? "
            "unused_generator_compat, int num_splits) -> Tensor[]">,
    kit::Op<"public_schemas::varlen_bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, "
            "Tensor!? dq_, Tensor!? dk_, Tensor!? dv_, Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor!? "
            "alibi_slopes_, int max_seqlen_q, int max_seqlen_k, float p_dropout, float softmax_scale, bool "
            "zero_tensors, bool is_causal, int window_size_left, int window_size_right, float softcap, bool "
            "deterministic, Tensor? unused_generator_compat, Tensor!? rng_state) -> Tensor[]">,
    // NATTEN (pybind)
    kit::Op<"public_schemas::na3d_forward(Tensor! out, Tensor query, Tensor key, Tensor value, Tensor? logsumexp, "
            "int[3] kernel_size, int[3] stride, int[3] dilation, float[3] is_causal, float attn_scale, int[3] "
            "query_tile_size, int[3] key_tile_size) -> ()">,
    kit::Op<"public_schemas::na1d_forward(Tensor! out, Tensor query, Tensor key, Tensor value, Tensor? logsumexp, "
            "int[1] kernel_size, int[1] stride, int[1] dilation, float[1] is_causal, float attn_scale, int[1] "
            "query_tile_size, int[1] key_tile_size) -> ()">,
    kit::Op<"public_schemas::na2d_forward(Tensor! out, Tensor query, Tensor key, Tensor value, Tensor? logsumexp, "
            "int[2] kernel_size, int[2] stride, int[2] dilation, float[2] is_causal, float attn_scale, int[2] "
            "query_tile_size, int[2] key_tile_size) -> ()">,
    // kaolin (pybind)
    kit::Op<"public_schemas::scan_octrees_cuda(Tensor octrees, Tensor lengths) -> (int, Tensor, Tensor)">,
    kit::Op<"public_schemas::Conv3d_forward(Tensor octree, Tensor points, int level, Tensor pyramid, Tensor exsum, "
            "Tensor inputs, Tensor params, Tensor kernel_vectors, int jump) -> (Tensor, int)">,
    kit::Op<"public_schemas::ConvTranspose3d_forward(Tensor octree, Tensor points, int level, Tensor pyramid, Tensor "
            "exsum, Tensor inputs, Tensor params, Tensor kernel_vectors, int jump) -> (Tensor, int)">,
    // mmcv (pybind)
    kit::Op<"public_schemas::dynamic_point_to_voxel_forward(Tensor feats, Tensor coors, str reduce_type) -> Tensor[]">,
    kit::Op<"public_schemas::dynamic_point_to_voxel_backward(Tensor! grad_feats, Tensor grad_reduced_feats, Tensor "
            "feats, Tensor reduced_feats, Tensor coors_idx, Tensor reduce_count, str reduce_type) -> ()">,
    kit::Op<"public_schemas::sync_bn_forward_mean(Tensor input, Tensor mean) -> ()">,
    // torchvision
    kit::Op<"public_schemas::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
            "pooled_width, int sampling_ratio, bool aligned) -> Tensor">,
    kit::Op<"public_schemas::roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
            "pooled_width) -> (Tensor, Tensor)">,
    kit::Op<"public_schemas::ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
            "pooled_width) -> (Tensor, Tensor)">,
    // torchaudio
    kit::Op<"public_schemas::overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) "
            "last_out, Tensor(c!) output_waveform) -> ()">,
    kit::Op<"public_schemas::_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) "
            "padded_output_waveform) -> ()">,
    kit::Op<"public_schemas::_lfilter(Tensor waveform, Tensor a_coeffs, Tensor b_coeffs) -> Tensor">>;
static_assert(Public::size >= 60);

// Kernels that compute nothing.
template <class TheOp>
struct Empty {
  static auto shape(const kit::Args<TheOp>&) {
    if constexpr (TheOp::declaration.outputs.size() == 1) {
      return kit::Output();
    } else {
      return std::array<kit::Output, TheOp::declaration.outputs.size()>();
    }
  }
  static void compute(const kit::Args<TheOp>&, const kit::Outputs<TheOp>&) {}
  static typename TheOp::Result results(const kit::Args<TheOp>&) { return typename TheOp::Result(); }
};

template <class TheOp>
void define_empty(torch::Library& m, std::type_identity<TheOp>) {
  if constexpr (TheOp::declaration.allocates) {
    kit::define<TheOp, &Empty<TheOp>::shape>(m).template implement<&Empty<TheOp>::compute>();
  } else {
    kit::define<TheOp>(m).template implement<&Empty<TheOp>::results>();
  }
}

TORCH_LIBRARY_FRAGMENT(public_schemas, m) {
  Public::for_each([&](auto op) { define_empty(m, op); });
}

// "Tensor(!) name" for an argument that is written to.
std::string spell(const c10::Argument& a) {
  const bool is_written = a.alias_info() != nullptr && a.alias_info()->isWrite();
  std::ostringstream result;
  result << a.type()->repr_str() << (is_written ? "(!) " : " ") << a.name() << " " << a.N().value_or(-1);
  if (a.default_value().has_value()) result << " = " << *a.default_value();
  return result.str();
}

TEST(PublicSchemas, AreRegisteredAsTorchReadsThem) {
  const auto check = []<class TheOp>(std::type_identity<TheOp>) {
    const c10::FunctionSchema expected = torch::jit::parseSchema(std::string(TheOp::text));
    const c10::FunctionSchema& schema = TheOp::schema();
    ASSERT_EQ(schema.name(), expected.name());
    for (const auto& [found, wanted] :
         {std::pair(&schema.arguments(), &expected.arguments()), {&schema.returns(), &expected.returns()}}) {
      ASSERT_EQ(found->size(), wanted->size()) << expected;
      for (size_t i = 0; i < found->size(); ++i) EXPECT_EQ(spell((*found)[i]), spell((*wanted)[i])) << expected;
    }
  };
  Public::for_each(check);
}

}  // namespace
