// Operations on vectors of users and items.
#pragma once

#include "common.hpp"

namespace rankbound {

// The inner product of two vectors of any length.
inline float inner_product(const float* x, const float* y, int64_t size) {
  constexpr int w = WIDTH<float>;
  Lanes<float> first{}, second{};
  int64_t f = 0;
  for (; f + 2 * w <= size; f += 2 * w) {
    first += load(x + f) * load(y + f);
    second += load(x + f + w) * load(y + f + w);
  }
  if (f + w <= size) {
    first += load(x + f) * load(y + f);
    f += w;
  }
  float total = sum_lanes<float, float>(first + second);
  for (; f < size; f++) total += x[f] * y[f];
  return total;
}

}  // namespace rankbound
