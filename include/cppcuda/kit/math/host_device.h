#pragma once

// Marks a function that runs on the host and on the device. Only nvcc knows __device__.
#if defined(__CUDACC__)
#define CPPCUDA_HOST_DEVICE __host__ __device__
#else
#define CPPCUDA_HOST_DEVICE
#endif
