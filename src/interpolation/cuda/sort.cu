// The sort of a scatter in a fixed order (params.h): the radix sort of cub, which is stable.

#define CCCL_DISABLE_NVTX

#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <utility>

#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/kernel_table.h"
#include "interpolation/params.h"

namespace cppcuda::interpolation {
namespace {

template <class Row>
cudaError_t sort_rows(const SortParams& p, cudaStream_t stream) {
  cub::DoubleBuffer<Row> row(static_cast<Row*>(p.row[0]), static_cast<Row*>(p.row[1]));
  cub::DoubleBuffer<int32_t> term(p.term[0], p.term[1]);
  const cudaError_t error = cub::DeviceRadixSort::SortPairs(p.memory, *p.bytes, row, term, static_cast<int>(p.terms), 0,
                                                            std::bit_width(static_cast<uint64_t>(p.rows)), stream);
  if (row.selector == 1) std::swap(p.row[0], p.row[1]);
  if (term.selector == 1) std::swap(p.term[0], p.term[1]);
  return error;
}

void sort(const SortParams& p, kit::CudaStream& stream) {
  kit::on_stream(stream, [&](cudaStream_t handle) {
    return p.is_wide ? sort_rows<uint64_t>(p, handle) : sort_rows<uint32_t>(p, handle);
  });
}

[[maybe_unused]] const bool added = (kit::add_to_table(&sort), true);

}  // namespace
}  // namespace cppcuda::interpolation
