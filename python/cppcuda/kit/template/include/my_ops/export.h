// Marks the functions that programs can call. Change: nothing.
#pragma once

#define MY_OPS_EXPORT __attribute__((visibility("default")))
