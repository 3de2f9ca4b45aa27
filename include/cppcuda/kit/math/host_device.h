#pragma once

// A function that runs on the host and on the device. Compilers other than nvcc have no word for the second.
#if defined(__CUDACC__)
#define CPPCUDA_HOST_DEVICE __host__ __device__
#else
#define CPPCUDA_HOST_DEVICE
#endif
