#pragma once

#define CPPCUDA_EXPORT __attribute__((visibility("default")))
