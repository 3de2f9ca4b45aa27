// Names nothing of the library: that its header is included and that it is linked is enough to have its ops.

#include <ATen/core/dispatch/Dispatcher.h>
#include <cppcuda/cppcuda.h>

int main() { TORCH_CHECK(c10::Dispatcher::singleton().findSchema({"cppcuda::trilinear", ""})); }
