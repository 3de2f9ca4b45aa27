// The kernels of these operators, compiled for the CPU and with nvcc for CUDA.

#include "int8_linear.h"
#include "modrelu.h"
#include "public/causal_conv1d.h"
#include "public/csr.h"
#include "store.h"

namespace second {
namespace {

namespace kit = cppcuda::kit;

template <class Word>
void add_store() {
  kit::add_loop<StoreLoop<Word, int32_t>>();
  kit::add_loop<StoreLoop<Word, int64_t>>();
}

[[maybe_unused]] const bool linear_added = kit::for_each_dtype([]<class T>() { kit::add_loop<Int8LinearLoop<T>>(); });

[[maybe_unused]] const bool others_added = [] {
  kit::for_each_dtype([]<class T>() {
    kit::add_loop<csr::Sum<T>>();
    kit::add_loop<csr::Extreme<T>>();
    kit::add_loop<csr::Gather<T>>();
    kit::add_loop<csr::Softmax<T>>();
    kit::add_loop<CausalConvLoop<T>>();
  });
  kit::add_loop<ModReluLoop<float>>();
  kit::add_loop<ModReluLoop<double>>();
  add_store<uint8_t>();
  add_store<uint16_t>();
  add_store<uint32_t>();
  add_store<uint64_t>();
  add_store<Word16>();
  return true;
}();

}  // namespace
}  // namespace second
