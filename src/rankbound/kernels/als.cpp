// Alternating least squares: the vectors of one side, given those of the other.
#include "vectors.hpp"

namespace rankbound {

struct SolveSide {
  int64_t width, steps;    // entries of a vector, a multiple of WIDTH; steps of conjugate gradients
  const int64_t* offsets;  // of the rows in `codes` and `weights`
  const int32_t* codes;    // the other side of each interaction
  const float* weights;    // of the interactions
  const float* ridge;      // per row
  const float* gram;       // [width, width], symmetric
  const float* others;     // [others, width]
  float* vectors;          // [rows, width]
};

// Sets image = G x + ridge x.
static void apply_gram(const SolveSide& a, float ridge, const float* x, float* image) {
  constexpr int w = WIDTH<float>;
  int64_t f = 0;
  for (; f + 4 * w <= a.width; f += 4 * w) {
    Lanes<float> sum[4];
    for (int k = 0; k < 4; k++) sum[k] = ridge * load(x + f + k * w);
    for (int64_t b = 0; b < a.width; b++)
      for (int k = 0; k < 4; k++) sum[k] += x[b] * load(a.gram + b * a.width + f + k * w);
    for (int k = 0; k < 4; k++) store(image + f + k * w, sum[k]);
  }
  for (; f < a.width; f += w) {
    Lanes<float> sum = ridge * load(x + f);
    for (int64_t b = 0; b < a.width; b++) sum += x[b] * load(a.gram + b * a.width + f);
    store(image + f, sum);
  }
}

// Adds factor(weight, x y) y for each interaction of a row, four of them at a time.
template <typename Factor>
static void add_interactions(const SolveSide& a, int64_t low, int64_t high, const float* x, float* total, Factor factor) {
  constexpr int w = WIDTH<float>;
  int64_t r = low;
  for (; r + 4 <= high; r += 4) {
    const float* y[4];
    for (int k = 0; k < 4; k++) y[k] = a.others + a.codes[r + k] * a.width;
    Lanes<float> products[4] = {};
    for (int64_t f = 0; f < a.width; f += w)
      for (int k = 0; k < 4; k++) products[k] += load(x + f) * load(y[k] + f);
    float by[4];
    for (int k = 0; k < 4; k++) by[k] = factor(a.weights[r + k], sum_lanes<float, float>(products[k]));
    for (int64_t f = 0; f < a.width; f += w)
      store(total + f, load(total + f) + ((by[0] * load(y[0] + f) + by[1] * load(y[1] + f)) +
                                          (by[2] * load(y[2] + f) + by[3] * load(y[3] + f))));
  }
  for (; r < high; r++) {
    const float* y = a.others + a.codes[r] * a.width;
    const float by = factor(a.weights[r], inner_product(x, y, a.width));
    for (int64_t f = 0; f < a.width; f += w) store(total + f, load(total + f) + by * load(y + f));
  }
}

// Row u minimizes sum_i w_ui (x y_i - 1)^2 + x G x + ridge_u |x|^2 over the interactions i of u, where G is the weighted
// Gram matrix of all others. The matrix of the problem, G + ridge_u I + sum_i w_ui y_i y_i', is never formed.
static void solve_side(const SolveSide& a, int64_t first, int64_t last) {
  std::vector<float> memory(3 * a.width);
  float *residual = memory.data(), *direction = residual + a.width, *image = direction + a.width;
  for (int64_t row = first; row < last; row++) {
    const int64_t low = a.offsets[row], high = a.offsets[row + 1];
    float* x = a.vectors + row * a.width;
    apply_gram(a, a.ridge[row], x, residual);
    for (int64_t f = 0; f < a.width; f++) residual[f] = -residual[f];
    add_interactions(a, low, high, x, residual, [](float weight, float product) { return weight * (1 - product); });
    std::copy(residual, residual + a.width, direction);
    float norm = inner_product(residual, residual, a.width);
    for (int64_t step = 0; step < a.steps && norm >= 1e-20f; step++) {
      apply_gram(a, a.ridge[row], direction, image);
      add_interactions(a, low, high, direction, image, [](float weight, float product) { return weight * product; });
      const float length = norm / inner_product(direction, image, a.width), before = norm;
      for (int64_t f = 0; f < a.width; f++) {
        x[f] += length * direction[f];
        residual[f] -= length * image[f];
      }
      norm = inner_product(residual, residual, a.width);
      const float momentum = norm / before;
      for (int64_t f = 0; f < a.width; f++) direction[f] = residual[f] + momentum * direction[f];
    }
  }
}

}  // namespace rankbound

RANKBOUND_KERNEL(solve_side, rankbound::SolveSide, rankbound::solve_side)
