#pragma once

// What traffic.cpp calls for each access of device code that is compiled with -fsanitize=thread.

#include <cstddef>

namespace cppcuda::simt {

void check_access(const void* address, size_t bytes, bool is_write, const void* code);  // races.cpp

}  // namespace cppcuda::simt
