#include "ops/trilinear_indexed/op.h"

#include <cppcuda/ops/trilinear_indexed.h>
#include <cppcuda/ops/trilinear_indexed_with_grad.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"

namespace cppcuda {
namespace {

void check_defined(const char* op, const Tensor& table, const Tensor& corners, const Tensor& points) {
  kit::check_defined(op, "table", table);
  kit::check_defined(op, "corners", corners);
  kit::check_defined(op, "points", points);
}

}  // namespace

Tensor trilinear_indexed(const Tensor& table, const Tensor& corners, const Tensor& points) {
  check_defined("trilinear_indexed", table, corners, points);
  return ops::trilinear_indexed::Forward::call(table, corners, points);
}

std::tuple<Tensor, Tensor> trilinear_indexed_with_grad(const Tensor& table, const Tensor& corners,
                                                       const Tensor& points) {
  check_defined("trilinear_indexed_with_grad", table, corners, points);
  return ops::trilinear_indexed::WithGrad::call(table, corners, points);
}

namespace ops::trilinear_indexed {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward>(m);
  kit::define<Backward>(m);
  kit::define<DoubleBackward>(m);
  kit::define<WithGrad>(m);
}

}  // namespace ops::trilinear_indexed
}  // namespace cppcuda
