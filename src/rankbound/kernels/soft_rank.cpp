// SoftNDCG: the expected DCG when every score carries Gaussian noise. The rank of a row is 1 plus a sum of independent coin
// flips, one per other item, whose distribution is built one flip at a time. O(rows n^2) time, O(n) memory, in double.
#include "common.hpp"

namespace rankbound {

struct SoftRank {
  const int64_t *queries, *offsets, *order, *rows;
  const double *weights, *discounts;
  int64_t ranks;  // how many discounts there are: up to the cutoff
  double factor;  // the difference of two scores times this has the distribution erfc(-d) / 2
  const double* scores;
  double *values, *gradient, *hessian;
};

namespace {

using V = Lanes<double>;
constexpr int W = WIDTH<double>;

// For W coins at a time: the sum over the ranks of the differences of discounts and of the distribution without the coin. A
// coin of probability p is removed by a recurrence, which is stable from the start for p <= 1/2 and from the end otherwise.
// `distribution` is that of a sum of n flips, of which one is removed; `steps` has a difference for each of its n - 1 ranks.
V changes_without(const double* distribution, const double* steps, int64_t n, int64_t ranks, V p, bool from_start) {
  V previous = {}, sum = {};
  if (from_start) {
    const V inverse = 1.0 / (1.0 - p), ratio = p * inverse;
    for (int64_t r = 0; r < std::min(ranks, n); r++) {
      previous = distribution[r] * inverse - ratio * previous;
      sum += steps[r] * previous;
    }
  } else {
    const V inverse = 1.0 / p, ratio = (1.0 - p) * inverse;
    for (int64_t r = n - 1; r >= 0; r--) {
      previous = distribution[r + 1] * inverse - ratio * previous;
      if (r < ranks) sum += steps[r] * previous;
    }
  }
  return sum;
}

// Adds a flip of probability p to the distribution of a sum of some flips, in place; W zeros precede and follow it.
void add_coin(double* distribution, int64_t flips, double p) {
  for (int64_t r = flips / W * W; r >= 0; r -= W)
    store(distribution + r, load(distribution + r) * (1.0 - p) + load(distribution + r - 1) * p);
}

void soft_rank(const SoftRank& a, int64_t first, int64_t last) {
  std::vector<double> x, above, density, memory, steps, gradient, hessian;
  std::vector<int64_t> coins[2];  // by the end at which removing them begins
  for (int64_t entry = first; entry < last; entry++) {
    const int64_t q = a.queries[entry], low = a.offsets[q], n = a.offsets[q + 1] - low;
    const int64_t* order = a.order + low;
    const int64_t ranks = std::min(a.ranks, n);
    x.resize(n), above.resize(n), density.resize(n), steps.assign(n, 0.0);
    memory.assign(n + 3 * W, 0.0);
    double* distribution = memory.data() + W;
    gradient.assign(n, 0.0), hessian.assign(n, 0.0);
    for (int64_t j = 0; j < n; j++) x[j] = a.factor * a.scores[low + order[j]];
    for (int64_t r = 0; r < ranks; r++) steps[r] = (r + 1 < ranks ? a.discounts[r + 1] : 0.0) - a.discounts[r];
    double result = 0.0;
    for (int64_t i = 0; i < a.rows[q]; i++) {
      std::fill(memory.begin(), memory.end(), 0.0);
      distribution[0] = 1.0;
      coins[0].clear(), coins[1].clear();
      int64_t flips = 0;
      for (int64_t j = 0; j < n; j++) {
        const double d = std::min(std::max(x[j] - x[i], -27.0), 27.0);
        above[j] = 0.5 * std::erfc(-d);
        density[j] = exponential(-d * d) * 0.5641895835477563;
        if (j == i) continue;
        add_coin(distribution, ++flips, above[j]);
        coins[above[j] > 0.5].push_back(j);
      }
      const double weight = a.weights[low + i];
      for (int64_t r = 0; r < ranks; r++) result += weight * a.discounts[r] * distribution[r];
      for (int side = 0; side < 2; side++)
        for (size_t begin = 0; begin < coins[side].size(); begin += W) {
          const size_t count = std::min<size_t>(W, coins[side].size() - begin);
          V p = splat(0.5);
          for (size_t k = 0; k < count; k++) p[static_cast<int>(k)] = above[coins[side][begin + k]];
          const V change = changes_without(distribution, steps.data(), n - 1, ranks, p, side == 0);
          for (size_t k = 0; k < count; k++) {
            const int64_t j = coins[side][begin + k];
            const double term = weight * change[static_cast<int>(k)] * density[j];
            gradient[j] += term;
            gradient[i] -= term;
            hessian[j] += std::abs(term);
            hessian[i] += std::abs(term);
          }
        }
    }
    a.values[q] = result;
    for (int64_t j = 0; j < n; j++) {
      a.gradient[low + order[j]] = a.factor * gradient[j];
      a.hessian[low + order[j]] = a.factor * a.factor * hessian[j];
    }
  }
}

}  // namespace
}  // namespace rankbound

RANKBOUND_KERNEL(soft_rank, rankbound::SoftRank, rankbound::soft_rank)
