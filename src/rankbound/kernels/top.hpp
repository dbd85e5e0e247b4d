// A score that the first items of a query reach, which is found without sorting the others.
#pragma once

#include <functional>

#include "common.hpp"

namespace rankbound {

// Groups to which the items of a query are dealt in turn, at least 2k of them.
template <typename T>
inline int64_t groups_for(int64_t k) {
  return in_lanes<T>(2 * k);
}

// A score that at least k items reach. The k-th largest of the maxima of the groups cannot exceed the k-th largest
// score, and few items besides the first k reach it. Finding the maxima needs no branches that depend on the scores,
// which makes this several times faster than a heap. There must be at least groups_for(k) items, for which `largest`
// has room.
template <typename T>
T score_of_first(const T* scores, int64_t size, int64_t k, T* largest) {
  const int64_t groups = groups_for<T>(k);
  int64_t first = 0;
  if (groups <= 4 * WIDTH<T>) {  // the maxima stay in registers
    Lanes<T> best[4];
    const int64_t lanes = groups / WIDTH<T>;
    const auto scan = [&](auto count) {
      constexpr int n = decltype(count)::value;
      for (int g = 0; g < n; g++) best[g] = load(scores + g * WIDTH<T>);
      for (first = groups; first + groups <= size; first += groups)
        for (int g = 0; g < n; g++) best[g] = larger(load(scores + first + g * WIDTH<T>), best[g]);
    };
    switch (lanes) {
      case 1: scan(std::integral_constant<int, 1>()); break;
      case 2: scan(std::integral_constant<int, 2>()); break;
      case 3: scan(std::integral_constant<int, 3>()); break;
      default: scan(std::integral_constant<int, 4>());
    }
    for (int64_t g = 0; g < lanes; g++) store(largest + g * WIDTH<T>, best[g]);
  } else {
    std::copy(scores, scores + groups, largest);
    for (first = groups; first + groups <= size; first += groups)
      for (int64_t g = 0; g < groups; g += WIDTH<T>)
        store(largest + g, larger(load(scores + first + g), load(largest + g)));
  }
  for (int64_t item = first; item < size; item++) {
    T& most = largest[item - first];
    most = scores[item] > most ? scores[item] : most;
  }
  std::nth_element(largest, largest + k - 1, largest + groups, std::greater<T>());
  return largest[k - 1];
}

// Whether one of WIDTH scores reaches a limit.
template <typename T>
inline bool one_reaches(Lanes<T> scores, T limit) {
#if defined(__GNUC__)
  const auto reached = scores >= splat(limit);
  uint64_t bits[LANE_BYTES / 8], any = 0;
  std::memcpy(bits, &reached, sizeof bits);
  for (const uint64_t lane : bits) any |= lane;
  return any != 0;
#else
  bool any = false;
  for (int k = 0; k < WIDTH<T>; k++) any |= scores[k] >= limit;
  return any;
#endif
}

// The largest of 4 * WIDTH scores in each lane.
template <typename T>
inline Lanes<T> largest_of_run(const T* scores) {
  constexpr int w = WIDTH<T>;
  return larger(larger(load(scores), load(scores + w)), larger(load(scores + 2 * w), load(scores + 3 * w)));
}

}  // namespace rankbound
