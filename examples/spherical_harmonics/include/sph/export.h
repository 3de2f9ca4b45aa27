// Marks the functions that programs can call.
#pragma once

#define SPH_EXPORT __attribute__((visibility("default")))
