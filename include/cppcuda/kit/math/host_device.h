#pragma once

// Marks a function for the host and the device. Only nvcc knows the keywords.
#if defined(__CUDACC__)
#define CPPCUDA_HOST_DEVICE __host__ __device__
#else
#define CPPCUDA_HOST_DEVICE
#endif
