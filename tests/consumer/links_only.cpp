// Does not even include a header of the library.

#include <ATen/core/dispatch/Dispatcher.h>

int main() { TORCH_CHECK(c10::Dispatcher::singleton().findSchema({"cppcuda::trilinear", ""})); }
