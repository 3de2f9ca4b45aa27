// Splits the rows over threads, and adds the CPU kernels to the table of kernels.
#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/spherical_harmonics/cpu/kernel.h"

namespace sph::ops::spherical_harmonics {
namespace {

template <class Params, class T>
void run(const Params& p, const kit::CpuContext& cpu) {
  kit::parallel_rows(cpu, p.rows.count, size(p.degree), kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    RowKernel<typename decltype(isa)::type, T>::run(p, begin, end);
  });
}

[[maybe_unused]] const bool added = kit::for_each_dtype([]<class T>() {
  kit::add_to_table(&run<ForwardParams<T>, T>);
  kit::add_to_table(&run<BackwardParams<T>, T>);
  kit::add_to_table(&run<PartialsParams<T>, T>);
  kit::add_to_table(&run<PartialsTransposedParams<T>, T>);
});

}  // namespace
}  // namespace sph::ops::spherical_harmonics
