// Losses of whole lists: softmax cross entropy, and the likelihood of an order.
#include "pairs.hpp"

namespace rankbound {
namespace {

struct Lists {
  const void* scores;
  const int64_t* queries;
  const int64_t* offsets;
  const int64_t* order;  // likelihood: items of each query, the best first
  const double* target;  // softmax: per item
  double scale;          // softmax: multiplies the scores
  double outer;          // multiplies gradient and hessian
  double* values;
  void* gradient;
  void* hessian;  // null if it is not needed
};

// Cross entropy of softmax(scale * scores) and a target, in float64; its gradient is scale (sum(target) softmax - target).
template <typename T>
void softmax(const Lists& a, int64_t first, int64_t last) {
  std::vector<double> memory;
  for (int64_t entry = first; entry < last; entry++) {
    const int64_t q = a.queries[entry], low = a.offsets[q], n = a.offsets[q + 1] - low;
    const T* const scores = static_cast<const T*>(a.scores) + low;
    const double* const target = a.target + low;
    const double highest = range_of(scores, n).second;
    memory.resize(n);
    double mass[4] = {}, total[4] = {}, mean[4] = {};
    for (int64_t j = 0; j < n; j++) memory[j] = exponential(a.scale * (scores[j] - highest));
    for (int64_t begin = 0; begin < n; begin += 4)
      for (int64_t k = 0; k < std::min<int64_t>(4, n - begin); k++) {
        mass[k] += memory[begin + k];
        total[k] += target[begin + k];
        mean[k] += target[begin + k] * (scores[begin + k] - highest);
      }
    const double all = (mass[0] + mass[1]) + (mass[2] + mass[3]), sum = (total[0] + total[1]) + (total[2] + total[3]);
    a.values[q] = sum * std::log(all) - a.scale * ((mean[0] + mean[1]) + (mean[2] + mean[3]));
    T* const gradient = static_cast<T*>(a.gradient) + low;
    const double inverse = 1 / all, slope = a.outer * a.scale, curve = std::fabs(slope * a.scale) * sum;
    for (int64_t j = 0; j < n; j++) gradient[j] = static_cast<T>(slope * (sum * (memory[j] * inverse) - target[j]));
    if (!a.hessian) continue;
    T* const hessian = static_cast<T*>(a.hessian) + low;
    for (int64_t j = 0; j < n; j++) {
      const double probability = memory[j] * inverse;
      hessian[j] = static_cast<T>(curve * probability * (1 - probability));
    }
  }
}

constexpr double CLOSE = 300;  // scores within this range have exponentials, and products of two, in float64

// -log likelihood of an order under Plackett-Luce. With S_i the sum of exp(x_j) over j >= i it is sum_i log S_i - x_i;
// the gradient of item j is the sum over i <= j of exp(x_j) / S_i, minus 1. In float64.
template <typename T>
void likelihood(const Lists& a, int64_t first, int64_t last) {
  std::vector<double> memory;
  for (int64_t entry = first; entry < last; entry++) {
    const int64_t q = a.queries[entry], low = a.offsets[q], n = a.offsets[q + 1] - low;
    const T* const scores = static_cast<const T*>(a.scores) + low;
    const int64_t* const order = a.order + low;
    T* const gradient = static_cast<T*>(a.gradient) + low;
    T* const hessian = a.hessian ? static_cast<T*>(a.hessian) + low : nullptr;
    memory.resize(3 * n);
    double *const x = memory.data(), *const e = x + n, *const sums = e + n;
    const auto [least, most] = range_of(scores, n);
    const double top = most;
    const bool close = top - static_cast<double>(least) <= CLOSE;
    for (int64_t j = 0; j < n; j++) x[j] = static_cast<double>(scores[order[j]]) - top;
    double result = 0;
    if (close) {
      for (int64_t j = 0; j < n; j++) e[j] = exponential(x[j]);
      double mass = 0, product = 1, linear = 0;  // one logarithm serves many sums
      for (int64_t i = n - 1; i >= 0; i--) {
        mass += e[i];
        sums[i] = mass;
        product *= mass;
        linear += x[i];
        if (product < 1e-150 || product > 1e150) {
          result += std::log(product);
          product = 1;
        }
      }
      result += std::log(product) - linear;
    } else {  // sums relative to the largest score so far, so that no score can overflow; sums[i] is log S_i
      double highest = x[n - 1], mass = 0;
      for (int64_t i = n - 1; i >= 0; i--) {
        if (x[i] > highest) {
          mass *= std::exp(highest - x[i]);
          highest = x[i];
        }
        mass += std::exp(x[i] - highest);
        sums[i] = highest + std::log(mass);
        result += sums[i] - x[i];
      }
    }
    a.values[q] = result;
    double inverse = 0, squared = 0, reference = close ? 0 : sums[0];
    for (int64_t j = 0; j < n; j++) {
      double own, shrink = 1, term = 1;
      if (close) {
        own = e[j];
        term = 1 / sums[j];
      } else {  // log S falls with i: running sums of 1 / S_i are relative to the newest and largest term
        shrink = std::exp(sums[j] - reference);
        reference = sums[j];
        own = std::exp(x[j] - reference);
      }
      inverse = inverse * shrink + term;
      squared = squared * shrink * shrink + term * term;
      gradient[order[j]] = static_cast<T>(a.outer * (own * inverse - 1));
      if (hessian) hessian[order[j]] = static_cast<T>(std::fabs(a.outer) * std::max(own * inverse - own * own * squared, 0.0));
    }
  }
}

}  // namespace
}  // namespace rankbound

RANKBOUND_KERNEL_BY_TYPE(softmax, rankbound::Lists, rankbound::softmax)
RANKBOUND_KERNEL_BY_TYPE(likelihood, rankbound::Lists, rankbound::likelihood)
