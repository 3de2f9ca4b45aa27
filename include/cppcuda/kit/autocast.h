#pragma once

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// What autocast does with the floating-point tensors among the arguments of an operator, before it runs. The first
// three have the names of torch's lists of operators. None of them changes float64.
enum class CastPolicy {
  promote,             // casts to the widest dtype among them; the default for operators of several tensors
  lower_precision_fp,  // casts to autocast's dtype
  fp32,                // casts to float32
  none,                // leaves them as they are, or to a kernel of the operator's own
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
