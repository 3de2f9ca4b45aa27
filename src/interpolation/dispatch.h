#pragma once

// Converts tensors to the kernels' Params. An operator's op.cpp adds its lookup, and the table as [B, V, F].

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "cppcuda/kit/kernels.h"
#include "interpolation/params.h"
#include "types.h"

namespace cppcuda::interpolation {

// A tensor into which a kernel sums in the accumulation type, rounded to the dtype of `to` when it is done.
class Sums {
 public:
  explicit Sums(const Tensor& to) : to_(to) {
    if (to.defined())
      sums_ = kit::is_16bit(to.scalar_type()) ? at::empty(to.sizes(), to.options().dtype(at::kFloat)) : to;
  }
  template <class A>
  A* data() const {
    return sums_.defined() ? sums_.mutable_data_ptr<A>() : nullptr;
  }
  const Tensor& get() const { return sums_; }
  void zero() const { sums_.zero_(); }
  void finish() const {
    if (to_.defined() && !sums_.is_same(to_)) to_.copy_(sums_);
  }

 private:
  Tensor to_, sums_;
};

// The arguments of GatherParams and ScatterParams; undefined tensors are null. `table` of a scatter is the output.
struct Arguments {
  Tensor points, directions = {}, table = {}, second = {}, grad = {}, out = {}, out_slopes = {}, grad_points = {};
  Order order = {};
};

// The `order` of an operator: a number for each coordinate, or none.
inline Order order_of(const char* op, at::IntArrayRef list, const Tensor& points) {
  const int64_t axes = points.size(-1);
  TORCH_CHECK(list.empty() || static_cast<int64_t>(list.size()) == axes, op, ": order must have a number for each of ",
              axes, " coordinates, got ", list);
  Order order;
  for (size_t d = 0; d < list.size(); ++d) {
    TORCH_CHECK(list[d] >= 0, op, ": order must not be negative, got ", list);
    order.bytes |= static_cast<uint32_t>(std::min<int64_t>(list[d], 16)) << (8 * d);  // higher ones are 0
  }
  return order;
}

inline int64_t batches(const Tensor& points) { return points.dim() == 3 ? points.size(0) : 1; }

// Sets what all Params have.
template <class T, class P, class Params, class Lookup>
void set_common(Params& params, const Lookup& lookup, const Arguments& a) {
  params.lookup = lookup;
  params.batches = batches(a.points);
  params.points = a.points.size(-2);
  params.features = a.table.size(-1);
  params.point = kit::rows_of<P>(a.points, 1);
  params.direction = kit::rows_of<P>(a.directions, 1);
  params.order = a.order;
  params.grad = kit::rows_of<T>(a.grad, 1);
}

template <class Lookup>
void gather(const Lookup& lookup, const Arguments& a) {
  const Sums grad_points(a.grad_points);
  const auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    GatherParams<T, P, Lookup> params;
    set_common<T, P>(params, lookup, a);
    params.table = kit::rows_of<T>(a.table, 1);
    params.second = kit::rows_of<T>(a.second, 1);
    params.out = kit::mutable_data_of<T>(a.out);
    params.out_slopes = kit::mutable_data_of<T>(a.out_slopes);
    params.grad_points = grad_points.data<kit::opmath<T>>();
    kit::run(a.points.device(), params);
  };
  kit::visit_dtypes(a.table.scalar_type(), a.points.scalar_type(), call);
  grad_points.finish();
}

// The terms of some points, whose kernel sets them.
template <class A>
struct Terms {
  int64_t first, count;
  RowNumbers row;
  int32_t* term;
  A* weight;
};

// A scatter on CUDA that adds in a fixed order (params.h). `sums` lacks the terms, and set_terms(Terms) runs the kernel
// that sets those of `corners` per point. It takes the points in slices, because each term needs about 20 bytes of
// memory, most of them for the sort.
template <class T, class SetTerms>
void sum_in_order(SumParams<T> sums, int64_t corners, const at::TensorOptions& options, SetTerms set_terms,
                  int64_t max_terms = int64_t{1} << 24,  // not measured
                  int64_t max_narrow_row = std::numeric_limits<int32_t>::max()) {
  using A = kit::opmath<T>;
  const int64_t points = sums.batches * sums.points * sums.levels;
  const int64_t max_count = std::max<int64_t>(1, max_terms / corners);
  const bool is_wide = sums.rows > max_narrow_row;
  for (int64_t first = 0; first < points; first += max_count) {
    const int64_t count = std::min(points - first, max_count), terms = count * corners;
    const auto buffer = [&](at::ScalarType dtype) { return at::empty({terms}, options.dtype(dtype)); };
    const at::ScalarType number = is_wide ? at::kLong : at::kInt;
    const Tensor buffers[4] = {buffer(number), buffer(number), buffer(at::kInt), buffer(at::kInt)};
    void* row[] = {buffers[0].mutable_data_ptr(), buffers[1].mutable_data_ptr()};
    int32_t* term[] = {buffers[2].mutable_data_ptr<int32_t>(), buffers[3].mutable_data_ptr<int32_t>()};
    const Tensor weight = buffer(c10::CppTypeToScalarType<A>::value);
    set_terms(Terms<A>{.first = first,
                       .count = count,
                       .row = {row[0], is_wide},
                       .term = term[0],
                       .weight = weight.mutable_data_ptr<A>()});
    size_t bytes = 0;
    SortParams sort{.terms = terms,
                    .is_wide = is_wide,
                    .rows = sums.rows,
                    .row = row,
                    .term = term,
                    .memory = nullptr,
                    .bytes = &bytes};
    kit::run(options.device(), sort);
    const Tensor memory = at::empty({static_cast<int64_t>(bytes)}, options.dtype(at::kByte));
    sort.memory = memory.mutable_data_ptr();
    kit::run(options.device(), sort);
    sums.first = first;
    sums.count = count;
    sums.terms = terms;
    sums.row = {row[0], is_wide};
    sums.term = term[0];
    sums.weight = weight.const_data_ptr<A>();
    const Tensor partial = at::empty({sums.runs(), sums.features}, weight.options());
    sums.partial = partial.mutable_data_ptr<A>();
    kit::run(options.device(), sums);
  }
}

// Further arguments are those of sum_in_order.
template <class T, class P, class Lookup, class... Limits>
void scatter_in_order(const ScatterParams<T, P, Lookup>& p, const at::TensorOptions& options, Limits... limits) {
  const int64_t levels = p.lookup.levels();
  const SumParams<T> sums{.batches = p.batches,
                          .points = p.points,
                          .levels = levels,
                          .features = p.features,
                          .rows = p.batches * p.lookup.end_row(static_cast<int>(levels) - 1),
                          .grad = p.grad,
                          .table = p.table};
  const auto set_terms = [&](const auto& terms) {
    kit::run(options.device(), TermParams<P, Lookup>{.lookup = p.lookup,
                                                     .batches = p.batches,
                                                     .points = p.points,
                                                     .first = terms.first,
                                                     .count = terms.count,
                                                     .point = p.point,
                                                     .direction = p.direction,
                                                     .order = p.order,
                                                     .row = terms.row,
                                                     .term = terms.term,
                                                     .weight = terms.weight});
  };
  sum_in_order(sums, int64_t{1} << Lookup::axes, options, set_terms, limits...);
}

template <class Lookup>
void scatter(const Lookup& lookup, const Arguments& a) {
  const Sums table(a.table);
  const auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    ScatterParams<T, P, Lookup> params;
    set_common<T, P>(params, lookup, a);
    params.table = table.data<kit::opmath<T>>();
    if (a.points.is_cuda()) {
      table.zero();
      if (at::globalContext().deterministicAlgorithms()) return scatter_in_order(params, a.points.options());
    }
    kit::run(a.points.device(), params);
  };
  kit::visit_dtypes(a.table.scalar_type(), a.points.scalar_type(), call);
  table.finish();
}

// The kernels of an operator's declarations. `table` and the like are [V, F] or [B, V, F], where V may be several dims.

template <class Lookup>
void run_forward(const Lookup& lookup, const Tensor& table, const Tensor& points, const Tensor& out) {
  if (out.numel() != 0) gather(lookup, {.points = points, .table = table, .out = out});
}

// For sums without terms.
inline void clear(std::initializer_list<Tensor> sums) {
  for (const Tensor& t : sums) {
    if (t.defined()) t.zero_();
  }
}

// The outputs are undefined if they are not requested, and table unless grad_points is.
template <class Lookup>
void run_backward(const Lookup& lookup, const Tensor& grad, const Tensor& table, const Tensor& points,
                  const Tensor& grad_table, const Tensor& grad_points) {
  if (grad.numel() == 0) return clear({grad_table, grad_points});
  if (grad_points.defined())
    gather(lookup, {.points = points, .table = table, .grad = grad, .grad_points = grad_points});
  if (grad_table.defined()) scatter(lookup, {.points = points, .table = grad_table, .grad = grad});
}

// The outputs are undefined if they are not requested; table and grad_grad_table if they are zeros.
template <class Lookup>
void run_double_backward(const Lookup& lookup, const Tensor& grad, const Tensor& table, const Tensor& points,
                         const Tensor& grad_grad_table, const Tensor& directions, Order order, const Tensor& grad_grad,
                         const Tensor& grad_table, const Tensor& grad_points) {
  if (grad.numel() == 0) return clear({grad_table, grad_points});
  if (grad_grad.defined() || grad_points.defined()) {
    gather(lookup, {.points = points,
                    .directions = directions,
                    .table = table,
                    .second = grad_grad_table,
                    .grad = grad_points.defined() ? grad : Tensor(),
                    .out = grad_grad,
                    .grad_points = grad_points,
                    .order = order});
  }
  if (grad_table.defined()) {
    scatter(lookup, {.points = points, .directions = directions, .table = grad_table, .grad = grad, .order = order});
  }
}

}  // namespace cppcuda::interpolation
