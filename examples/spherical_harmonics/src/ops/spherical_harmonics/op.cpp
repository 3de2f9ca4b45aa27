// The C++ function, the conversion of tensors to the kernels' Params, for CPU and CUDA, and the registration.
#include "ops/spherical_harmonics/op.h"

#include <sph/spherical_harmonics.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "ops/spherical_harmonics/formulas.h"
#include "ops/spherical_harmonics/math.h"
#include "ops/spherical_harmonics/params.h"

namespace sph {

at::Tensor spherical_harmonics(const at::Tensor& xyz, int64_t degree, bool normalize) {
  return cppcuda::kit::call<ops::spherical_harmonics::Forward>(xyz, degree, normalize);
}

namespace ops::spherical_harmonics {
namespace {

// The output, after a check of what a declaration cannot say.
template <class TheOp>
kit::Output output(const kit::Args<TheOp>& args) {
  const int64_t degree = args.template get<"degree">();
  TORCH_CHECK(degree >= 0 && degree <= max_degree, TheOp::base_name(), ": degree must be between 0 and ", max_degree,
              ", got ", degree);
  return kit::outputs_of(args);
}

// Runs the kernel for Params, whose last members are the rows and the attributes.
template <template <class> class Params, class TheOp>
void run(const kit::Args<TheOp>& args, const kit::Outputs<TheOp>& out) {
  const Tensor& first = args.tensor(0);
  kit::visit_dtype(first.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const int degree = static_cast<int>(args.template get<"degree">());
    if constexpr (requires(Params<T> p) { p.normalize; }) {
      const bool normalize = args.template get<"normalize">();
      kit::run(first.device(), kit::fill<Params<T>>(args, out, kit::make_rows(args), degree, normalize));
    } else {
      kit::run(first.device(), kit::fill<Params<T>>(args, out, kit::make_rows(args), degree));
    }
  });
}

TORCH_LIBRARY_FRAGMENT(sph, m) {
  kit::define<Forward, output<Forward>>(m).implement<run<ForwardParams, Forward>>().differentiate<ForwardFormula>();
  kit::define<Backward, output<Backward>>(m)
      .implement<run<BackwardParams, Backward>>()
      .differentiate<BackwardFormula>();
  kit::define<Partials, output<Partials>>(m)
      .implement<run<PartialsParams, Partials>>()
      .differentiate<LinearFormula<Partials, PartialsTransposed>>();
  kit::define<PartialsTransposed, output<PartialsTransposed>>(m)
      .implement<run<PartialsTransposedParams, PartialsTransposed>>()
      .differentiate<LinearFormula<PartialsTransposed, Partials>>();
}

}  // namespace
}  // namespace ops::spherical_harmonics
}  // namespace sph
