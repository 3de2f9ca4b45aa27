// Runs each hot loop of the CPU kernels once on a small input. tools/run count_instructions runs this program under
// callgrind, which counts the instructions in hot_loop. The program does not need torch at run time: the kernels are
// loops over raw pointers.
//
// Prints the compiler, CPU capability and build type of the kernels, then one line per loop: its name and the number of
// elements that it writes (for a matrix product, the number of multiplications). Exits with 3 on a processor without
// that capability.

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "cppcuda/kit/elementwise/cpu_kernel.h"
#include "elementwise/family.h"
#include "interpolation/cpu/kernel.h"
#include "ops/grid_sample3d/lookup.h"
#include "ops/hash_grid/lookup.h"
#include "ops/lltm_cell/cpu/kernel.h"
#include "ops/trilinear/cpu/kernel.h"
#include "ops/trilinear_indexed/lookup.h"
#include "ops/upsample_bilinear2d/cpu/kernel.h"
#include "ops/upsample_bilinear2d/cpu/tables.h"

// The only function whose instructions are counted.
extern "C" [[gnu::noinline]] void hot_loop(const std::function<void()>& loop) {
  loop();
  asm volatile("" ::: "memory");  // prevents a tail call, which callgrind would take for a return
}

namespace {

using namespace cppcuda;
using Isa = kit::CPPCUDA_COUNTED_ISA::Isa;

void count(const std::string& name, int64_t elements, const std::function<void()>& loop) {
  std::printf("%s %lld\n", name.c_str(), static_cast<long long>(elements));
  hot_loop(loop);
}

// Memory with the same alignment in every run, because the steps of a nontemporal loop depend on it.
char* memory(int64_t bytes) {
  alignas(64) static char arena[8 << 20];
  static int64_t used = 0;
  char* result = arena + used;
  used += (bytes + 63) / 64 * 64;
  if (used > static_cast<int64_t>(sizeof(arena))) std::abort();
  return result;
}

template <class T>
T* zeros(int64_t n) {
  return reinterpret_cast<T*>(memory(n * sizeof(T)));
}

// Values from -2 to 2.
template <class T>
T* numbers(int64_t n) {
  T* result = zeros<T>(n);
  for (int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(static_cast<float>(i * 37 % 101 - 50) / 25.0F);
  return result;
}

template <class T>
constexpr const char* dtype = "float32";
template <>
constexpr const char* dtype<c10::BFloat16> = "bfloat16";

// Not a multiple of the length of any vector register.
constexpr int64_t many = 4096 + 5;

template <class Math, class T>
void count_elementwise(const std::string& op, const char* how = "", int64_t step = 1, bool nontemporal = false) {
  constexpr int tensors = Math::outputs + Math::inputs;
  char* data[tensors];
  int64_t steps[tensors];
  for (char*& d : data) d = reinterpret_cast<char*>(numbers<T>(many * step));
  std::fill_n(steps, tensors, step * sizeof(T));
  count(op + "/" + dtype<T> + how, many,
        [&] { kit::detail::ElementwiseKernel<Isa, Math, T>::run(data, steps, many, nontemporal, /*sums=*/0, Math()); });
}

template <class T>
void count_elementwise() {
  count_elementwise<kit::detail::ElementwiseForward<elementwise::Sigmoid>, T>("sigmoid/forward");
  count_elementwise<kit::detail::ElementwiseBackward<elementwise::Sigmoid>, T>("sigmoid/backward");
  count_elementwise<kit::detail::ElementwiseForward<elementwise::QuickGelu>, T>("quick_gelu/forward");
  count_elementwise<kit::detail::ElementwiseBackward<elementwise::QuickGelu>, T>("quick_gelu/backward");
  count_elementwise<kit::detail::ElementwiseForward<elementwise::Sigmoid>, T>("sigmoid/forward", "/stream", 1, true);
  count_elementwise<kit::detail::ElementwiseForward<elementwise::Sigmoid>, T>("sigmoid/forward", "/strided", 2);
}

template <class T>
void count_trilinear(int64_t features) {
  using namespace ops::trilinear;
  using Kernel = RowKernel<Isa, T, float>;
  const int64_t rows = 64;
  const std::string end = std::string("/") + dtype<T> + "/" + std::to_string(features);
  const kit::RowsOf<T> feats{.data = numbers<T>(rows * 8 * features), .row = 8 * features, .outer = features};
  const kit::RowsOf<T> grad{.data = numbers<T>(rows * features), .row = features};
  const kit::RowsOf<float> points{.data = numbers<float>(rows * 3), .row = 3};
  const ForwardParams<T, float> forward{
      .feats = feats, .points = points, .out = zeros<T>(rows * features), .rows = {rows, rows}, .features = features};
  count("trilinear/forward" + end, rows * features, [&] { Kernel::forward(forward, 0, rows, false); });

  BackwardParams<T, float> backward{.grad = grad,
                                    .feats = feats,
                                    .points = points,
                                    .grad_feats = zeros<T>(rows * 8 * features),
                                    .grad_points = zeros<float>(rows * 3),
                                    .rows = {rows, rows},
                                    .features = features};
  count("trilinear/backward" + end, rows * 8 * features, [&] { Kernel::backward(backward, 0, rows, false); });
  const DoubleBackwardParams<T, float> double_backward{.grad = grad,
                                                       .feats = feats,
                                                       .points = points,
                                                       .grad_grad_feats = {},
                                                       .grad_grad_points = points,
                                                       .grad_grad = zeros<T>(rows * features),
                                                       .grad_feats = zeros<T>(rows * 8 * features),
                                                       .grad_points = zeros<float>(rows * 3),
                                                       .rows = {rows, rows},
                                                       .features = features};
  count("trilinear/double_backward" + end, rows * 8 * features,
        [&] { Kernel::double_backward(double_backward, 0, rows, false); });
  backward.feats = {};
  backward.grad_points = nullptr;
  count("trilinear/backward_feats" + end, rows * 8 * features, [&] { Kernel::backward(backward, 0, rows, false); });
}

// All gradients of a table and of points.
template <class T, class Lookup>
void count_interpolation(const std::string& op, const Lookup& lookup, int64_t features) {
  using namespace interpolation;
  using Kernel = interpolation::Kernel<Isa, T, float, Lookup>;
  const int64_t points = 64, columns = lookup.levels() * features, values = points * columns;
  const int64_t rows = lookup.end_row(lookup.levels() - 1);
  const std::string end = std::string("/") + dtype<T> + "/" + std::to_string(features);
  float* coordinates = numbers<float>(points * Lookup::axes);
  for (int64_t i = 0; i < points * Lookup::axes; ++i) coordinates[i] /= 2;  // so that all points are in a volume
  const RowsOf<float> point{.data = coordinates, .row = Lookup::axes};
  const RowsOf<T> table{.data = numbers<T>(rows * features), .row = features},
      grad{.data = numbers<T>(values), .row = columns};
  GatherParams<T, float, Lookup> gather{
      {lookup, 1, points, features, point, {}}, table, {}, {}, zeros<T>(values), nullptr, nullptr};
  count(op + "/forward" + end, values, [&] { Kernel::gather(gather, 0, 0, points); });
  gather.direction = point;
  gather.second = table;
  gather.grad = grad;
  gather.grad_points = zeros<float>(points * Lookup::axes);
  count(op + "/double_backward" + end, values, [&] { Kernel::gather(gather, 0, 0, points); });
  gather.direction = {};
  gather.second = {};
  gather.out = nullptr;
  count(op + "/backward_points" + end, values, [&] { Kernel::gather(gather, 0, 0, points); });
  const ScatterParams<T, float, Lookup> scatter{
      {lookup, 1, points, features, point, {}}, grad, zeros<float>(rows * features)};
  count(op + "/backward_table" + end, values, [&] {
    for (int level = 0; level < lookup.levels(); ++level) {
      Kernel::scatter(scatter, 0, level, 0, lookup.end_row(level) - lookup.first_row(level));
    }
  });
}

template <class T>
void count_interpolation() {
  const ops::grid_sample3d::Lookup volume{{7, 6, 5}, ops::grid_sample3d::Padding::zeros, false};
  for (const int64_t features : {1, 2, 3, 4, 32}) count_interpolation<T>("grid_sample3d", volume, features);
  // A dense level and a hashed one.
  ops::hash_grid::Lookup<3> grid{
      .count = 2, .is_smooth = false, .level = {{3, 4, 64, false, 0}, {7, 8, 256, true, 64}}};
  count_interpolation<T>("hash_grid", grid, 2);
  grid.is_smooth = true;
  count_interpolation<T>("hash_grid/smooth", grid, 2);
  int64_t* corners = reinterpret_cast<int64_t*>(memory(64 * 8 * sizeof(int64_t)));
  for (int64_t i = 0; i < int64_t{64} * 8; ++i) corners[i] = i * 37 % 100;
  int64_t offender = 0;
  const ops::trilinear_indexed::Lookup<int64_t> indexed{{corners, 0, 8, 1}, 64, 100, &offender};
  for (const int64_t features : {1, 8}) count_interpolation<T>("trilinear_indexed", indexed, features);
}

// Upsamples one row of an image to twice its size.
template <class T>
void count_upsample() {
  using namespace ops::upsample_bilinear2d;
  using Kernel = ImageRowKernel<Isa, T>;
  constexpr int64_t in = 131, out = 2 * in, depth = 20, rows = 4;
  const auto axis = make_axis<float>(Mode::half_pixel, in, out, {});
  const std::string end = std::string("/") + dtype<T>;

  const auto taps = ops::upsample_bilinear2d::taps(axis);
  const ColumnTaps columns(taps, in);
  const T* row = numbers<T>(2 * in);
  float *above = numbers<float>(whole_blocks(out)), *below = numbers<float>(whole_blocks(out));
  count("upsample/stretch" + end, out, [&] { Kernel::stretch(columns.view(), row, 1, above); });
  count("upsample/stretch/strided" + end, out, [&] { Kernel::stretch(columns.view(), row, 2, above); });
  T* wide = zeros<T>(out * depth);
  count("upsample/blend" + end, out, [&] { Kernel::blend(above, below, 0.25F, 0.75F, out, wide, false); });
  const T *pixels = numbers<T>(in * depth), *others = numbers<T>(in * depth);
  count("upsample/write_pixels" + end, out * depth,
        [&] { Kernel::write_pixels(taps.data(), out, pixels, others, taps[5], depth, 1, depth, wide, false); });

  const Readers<float> readers(axis);
  const VectorReaders<float> columns_of(readers, out);
  const T* grad = numbers<T>(rows * out * depth);
  const float* weights = numbers<float>(rows);
  float* sums = numbers<float>(out * depth);
  count("upsample/sum_rows" + end, out * depth,
        [&] { Kernel::sum_rows(grad, out * depth, weights, rows, 0, depth, 1, out, depth, sums); });
  T* narrow = zeros<T>(in * depth);
  count("upsample/gather" + end, in, [&] { Kernel::gather(columns_of.view(), sums, narrow); });
  count("upsample/gather_pixels" + end, in * depth, [&] {
    Kernel::gather_pixels(readers.outputs.data(), readers.first_weight.data(), readers.weights.data(), in, sums, depth,
                          narrow, false);
  });
}

template <class T>
void count_lltm_cell() {
  using namespace ops::lltm_cell;
  using Kernel = CellKernel<Isa, T, T>;
  constexpr int rows = 16, inputs = 32, size = 128, width = size + inputs;
  const std::string end = std::string("/") + dtype<T>;
  const int64_t products = int64_t{3} * rows * size * width;
  const T *input = numbers<T>(rows * inputs), *weight = numbers<T>(3 * size * width), *bias = numbers<T>(3 * size);
  const T *hx = numbers<T>(rows * size), *cx = numbers<T>(rows * size);
  const T *grad_hy = numbers<T>(rows * size), *grad_cy = numbers<T>(rows * size);
  T *gates = numbers<T>(rows * 3 * size), *total_grad_gates = numbers<T>(rows * 3 * size);
  T *hy = zeros<T>(rows * size), *cy = zeros<T>(rows * size), *grad_cx = zeros<T>(rows * size);

  const auto matrix = [](const T* data, int64_t columns) { return RowsOf<T>{.data = data, .row = columns}; };
  const ForwardParams<T, T> cell{gates, matrix(cx, size), hy, cy, {rows, rows}, size};
  count("lltm_cell/forward" + end, rows * size, [&] {
    for (int64_t row = 0; row < rows; ++row) Kernel::forward(cell, row, 0, size);
  });
  const BackwardParams<T, T> cell_backward{.grad_hy = matrix(grad_hy, size),
                                           .grad_cy = matrix(grad_cy, size),
                                           .grad_gates = {},
                                           .gates = matrix(gates, 3 * size),
                                           .cx = matrix(cx, size),
                                           .total_grad_gates = total_grad_gates,
                                           .grad_cx = grad_cx,
                                           .rows = {rows, rows},
                                           .size = size};
  count("lltm_cell/backward" + end, rows * size, [&] {
    for (int64_t row = 0; row < rows; ++row) Kernel::backward(cell_backward, row, 0, size);
  });

  const SmallForwardParams<T, T> small{input, weight, bias, hx, cx, hy, cy, gates, rows, inputs, size};
  count("lltm_cell/small_forward" + end, products, [&] { Kernel::small_forward(small, 0, size); });
  const SmallBackwardParams<T, T> backward{.grad_hy = grad_hy,
                                           .grad_cy = grad_cy,
                                           .grad_gates = nullptr,
                                           .gates = gates,
                                           .input = input,
                                           .weight = weight,
                                           .hx = hx,
                                           .cx = cx,
                                           .grad_input = zeros<T>(rows * inputs),
                                           .grad_weight = zeros<T>(3 * size * width),
                                           .grad_bias = zeros<T>(3 * size),
                                           .grad_hx = zeros<T>(rows * size),
                                           .grad_cx = grad_cx,
                                           .rows = rows,
                                           .inputs = inputs,
                                           .size = size};
  float* sums = numbers<float>(rows * 3 * size);
  count("lltm_cell/small_backward" + end, products, [&] { Kernel::small_backward(backward, sums, 0, size); });
  count("lltm_cell/small_backward_inputs" + end, products,
        [&] { Kernel::small_backward_inputs(backward, sums, 0, rows); });
}

template <class T>
void count_lltm() {
  using namespace ops::lltm_cell;
  constexpr int steps = 4, rows = 8, inputs = 32, size = 128, all = steps * rows;
  const std::string end = std::string("/") + dtype<T>;
  const int64_t products = int64_t{3} * all * size * size;
  const T *state = numbers<T>(rows * size), *grad_output = numbers<T>(all * size), *input = numbers<T>(all * inputs);
  T *gates = numbers<T>(all * 3 * size), *output = zeros<T>(all * size), *cells = zeros<T>(all * size);
  float *weight = numbers<float>(3 * size * size), *memory = zeros<float>(5 * rows * size);

  const StepsForwardParams<T, T> forward{.weight = nullptr,  // the kernel reads the copy
                                         .weight_row = 0,
                                         .h0 = state,
                                         .c0 = state,
                                         .gates = gates,
                                         .output = output,
                                         .cells = cells,
                                         .steps = steps,
                                         .rows = rows,
                                         .size = size};
  using Steps = StepsKernel<Isa, T, T>;
  count("lltm/forward" + end, products, [&] { Steps::forward(forward, weight, memory, 0, rows); });
  T* total_grad_gates = zeros<T>(all * 3 * size);
  const StepsBackwardParams<T, T> backward{.weight = nullptr,
                                           .weight_row = 0,
                                           .grad_output = grad_output,
                                           .grad_hn = nullptr,
                                           .grad_cn = nullptr,
                                           .grad_cells = nullptr,
                                           .grad_gates = nullptr,
                                           .gates = gates,
                                           .cells = cells,
                                           .c0 = state,
                                           .total_grad_gates = total_grad_gates,
                                           .grad_h0 = nullptr,
                                           .grad_c0 = nullptr,
                                           .steps = steps,
                                           .rows = rows,
                                           .size = size};
  count("lltm/backward" + end, products, [&] { Steps::backward(backward, weight, memory, 0, rows); });
  const int64_t width = size + inputs;
  const StepsParametersParams<T> parameters{.total_grad_gates = total_grad_gates,
                                            .h0 = state,
                                            .output = output,
                                            .input = input,
                                            .grad_weight = zeros<T>(3 * size * width),
                                            .grad_bias = zeros<T>(3 * size),
                                            .steps = steps,
                                            .rows = rows,
                                            .inputs = inputs,
                                            .size = size};
  float* sums = zeros<float>(3 * size * width);
  count("lltm/backward_parameters" + end, int64_t{3} * all * size * width,
        [&] { StepsParametersKernel<Isa, T>::run(parameters, sums, 0, 3 * size); });
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#if defined(__clang__)
constexpr const char* compiler = "clang " TEXT(__clang_major__);
#else
constexpr const char* compiler = "GCC " TEXT(__GNUC__);
#endif

bool can_run() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return true;
#endif
}

}  // namespace

int main() {
  if (!can_run()) return 3;
  std::printf("%s %s %s\n", compiler, TEXT(CPPCUDA_COUNTED_ISA), CPPCUDA_BUILD);
  count_elementwise<float>();
  count_elementwise<c10::BFloat16>();
  count_trilinear<float>(32);
  count_trilinear<float>(1);
  count_trilinear<float>(5);
  count_trilinear<c10::BFloat16>(32);
  count_interpolation<float>();
  count_interpolation<c10::BFloat16>();
  count_upsample<float>();
  count_upsample<c10::BFloat16>();
  count_lltm_cell<float>();
  count_lltm_cell<c10::BFloat16>();
  count_lltm<float>();
  count_lltm<c10::BFloat16>();
}
