// Sorting the items of each query by level, highest first; equal levels keep their input order.
#include "common.hpp"

namespace rankbound {

struct CountingSort {
  int64_t levels_below;    // all levels are smaller than this, and not negative
  const int64_t* offsets;  // of the queries
  const uint8_t* levels;   // per item
  int64_t* order;          // result: indices within the query
};

static void counting_sort(const CountingSort& a, int64_t first, int64_t last) {
  const int64_t most = a.levels_below;
  std::vector<int64_t> position(most + 1);  // position[c]: where the next item of level most - 1 - c goes
  for (int64_t q = first; q < last; q++) {
    const int64_t low = a.offsets[q], high = a.offsets[q + 1];
    std::fill(position.begin(), position.end(), 0);
    for (int64_t j = low; j < high; j++) position[most - a.levels[j]]++;
    for (int64_t c = 1; c <= most; c++) position[c] += position[c - 1];
    for (int64_t j = low; j < high; j++) a.order[low + position[most - 1 - a.levels[j]]++] = j - low;
  }
}

}  // namespace rankbound

RANKBOUND_KERNEL(counting_sort, rankbound::CountingSort, rankbound::counting_sort)

// Which library this processor can run: 2 for AVX-512, 1 for AVX2 and FMA, 0 for the baseline, the only one that is asked.
RANKBOUND_API int best_library() {
#if defined(__GNUC__) && defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512bw")
             ? 2
             : 1;
#else
  return 0;
#endif
}
