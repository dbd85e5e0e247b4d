// Losses of whole lists: softmax cross entropy, the likelihood of an order, and distillation by pairs.
#include "pairs.hpp"

namespace rankbound {
namespace {

// ---- softmax --------------------------------------------------------------------------------------------------------

struct Softmax {
  const void* scores;
  const int64_t* queries;
  const int64_t* offsets;
  const double* target;  // per item
  double scale;          // multiplies the scores
  double outer;  // multiplies gradient and hessian
  double* values;
  void* gradient;
  void* hessian;  // null if it is not needed
};

// Cross entropy of softmax(scale * scores) and a target, in float64; its gradient is scale (sum(target) softmax - target).
template <typename T>
void softmax(const Softmax& a, int64_t first, int64_t last) {
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

// ---- likelihood of an order -----------------------------------------------------------------------------------------

struct Likelihood {
  const void* scores;
  const int64_t* queries;
  const int64_t* offsets;
  const int64_t* order;  // items of each query, the best first
  double outer;  // multiplies gradient and hessian
  double* values;
  void* gradient;
  void* hessian;  // null if it is not needed
};

constexpr double CLOSE = 300;  // scores within this range have exponentials, and products of two, in float64

// -log likelihood of an order under Plackett-Luce. With S_i the sum of exp(x_j) over j >= i it is sum_i log S_i - x_i;
// the gradient of item j is the sum over i <= j of exp(x_j) / S_i, minus 1. In float64.
template <typename T>
void likelihood(const Likelihood& a, int64_t first, int64_t last) {
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

// ---- distillation by pairs ------------------------------------------------------------------------------------------

struct SoftPairs {
  const void* scores;
  const int64_t* queries;
  const int64_t* offsets;
  const double* teacher;  // per item: divided by its temperature, with the middle of its range at 0 in every query
  double scale;           // multiplies the scores
  double outer;  // multiplies gradient and hessian
  double* values;
  void* gradient;
  void* hessian;  // null if it is not needed
};

// Mean binary cross entropy of all pairs i < j of a query: with d = x_j - x_i and the target w = σ(t_j - t_i) it is
// log(1 + exp(d)) - w d, whose derivatives in d are σ(d) - w and σ(d) (1 - σ(d)).
template <typename T>
class SoftPairQuery {
 public:
  SoftPairQuery(const SoftPairs& loss, int64_t most) : a(loss), stride(in_lanes<T>(most) + 2 * WIDTH<T> + 16), memory(7 * stride), sums(2 * most) {
    T* next = memory.data();
    for (T** array : {&x, &e, &inverse_e, &t, &f, &gradient, &hessian}) {
      *array = next;
      next += stride;
    }
  }

  void run(int64_t q) {
    const int64_t low = a.offsets[q];
    n = a.offsets[q + 1] - low;
    const T* const scores = static_cast<const T*>(a.scores) + low;
    const auto [least, most] = range_of(scores, n);
    const double half = static_cast<double>(most) / 2 - static_cast<double>(least) / 2, middle = least + half;
    const double widest = *std::max_element(a.teacher + low, a.teacher + low + n);
    const bool factored = std::max(a.scale * half, widest) <= (sizeof(T) == 4 ? 40.0 : 300.0);  // products of two exponentials do not overflow
    std::fill(memory.begin(), memory.end(), T(0));
    for (int64_t j = 0; j < n; j++) {
      const double student = a.scale * (static_cast<double>(scores[j]) - middle), teacher = a.teacher[low + j];
      x[j] = static_cast<T>(student);
      t[j] = static_cast<T>(teacher);
      const double power = factored ? exponential(student) : 0.0;
      e[j] = static_cast<T>(power);
      inverse_e[j] = factored ? static_cast<T>(1 / power) : T(0);
      f[j] = factored ? static_cast<T>(exponential(teacher)) : T(0);
    }
    total = 0;
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t i = 0; i + 1 < n; i++) {
      if (i % 64 == 63) flush();
      if (a.hessian)
        factored ? add_row<true, true>(i) : add_row<true, false>(i);
      else
        factored ? add_row<false, true>(i) : add_row<false, false>(i);
    }
    flush();
    const double weight = 2 / (static_cast<double>(n) * static_cast<double>(n - 1));
    total += logs.take();
    a.values[q] = weight * total;
    T* const out = static_cast<T*>(a.gradient) + low;
    for (int64_t j = 0; j < n; j++) out[j] = static_cast<T>(a.outer * weight * a.scale * sums[j]);
    if (!a.hessian) return;
    T* const curved = static_cast<T*>(a.hessian) + low;
    for (int64_t j = 0; j < n; j++) curved[j] = static_cast<T>(std::fabs(a.outer) * weight * a.scale * a.scale * sums[n + j]);
  }

 private:
  const SoftPairs& a;
  int64_t stride, n = 0;
  std::vector<T> memory;
  std::vector<double> sums;
  T *x, *e, *inverse_e, *t, *f, *gradient, *hessian;
  double total = 0;
  LogOfProduct<T> logs;

  void flush() {
    for (int64_t j = 0; j < n; j++) {
      sums[j] += gradient[j];
      gradient[j] = 0;
      sums[n + j] += hessian[j];
      hessian[j] = 0;
    }
  }

  template <bool HESSIAN, bool FACTORED>
  void add_row(int64_t i) {
    const T *const score = x, *const power = e, *const inverse = inverse_e, *const teacher = t, *const teacher_power = f;
    T *const to_gradient = gradient, *const to_hessian = hessian;
    const Lanes<T> own_x = splat(x[i]), own_e = splat(e[i]), own_inverse = splat(inverse_e[i]), zero{};
    const Lanes<T> own_t = splat(t[i]), own_f = splat(f[i]);
    const int64_t items = n;
    constexpr int64_t at_once = LogOfProduct<T>::MOST * WIDTH<T>;
    double own = 0, own_curve = 0;
    for (int64_t begin = i + 1; begin < items; begin += at_once) {
      const int64_t end = std::min<int64_t>(begin + at_once, items);
      Lanes<T> costs{}, changes{}, curves{}, product = logs.make_room((end - begin + WIDTH<T> - 1) / WIDTH<T>);
      for (int64_t j = begin; j < end; j += WIDTH<T>) {
        const Lanes<T> d = load(score + j) - own_x;
        Lanes<T> above, below, part, target;
        if (FACTORED) {
          const Lanes<T> ej = load(power + j), fj = load(teacher_power + j), sum = ej + own_e, sum_f = fj + own_f;
          const Lanes<T> both = T(1) / (sum * sum_f);
          above = ej * (sum_f * both);
          below = own_e * (sum_f * both);
          target = fj * (sum * both);
          part = smaller(ej * own_inverse, own_e * load(inverse + j));
        } else {
          part = exponentials<T>(zero - absolute(d));
          const Lanes<T> most = T(1) / (T(1) + part), least = part * most;
          above = if_less(zero, d, most, least);
          below = if_less(zero, d, least, most);
          target = direct_step<T, false>(load(teacher + j) - own_t).above;
        }
        Lanes<T> cost = larger(d, zero) - target * d, change = above - target, curve = above * below;
        if (j + WIDTH<T> > items) {  // the last lanes hold no items
          T inside[WIDTH<T>];
          for (int k = 0; k < WIDTH<T>; k++) inside[k] = j + k < items ? T(1) : T(0);
          const Lanes<T> mask = load(inside);
          cost = cost * mask;
          part = part * mask;
          change = change * mask;
          curve = curve * mask;
        }
        costs += cost;
        product = LogOfProduct<T>::multiply(product, part);
        changes += change;
        store<T>(to_gradient + j, load(to_gradient + j) + change);
        if (HESSIAN) {
          curves += curve;
          store<T>(to_hessian + j, load(to_hessian + j) + curve);
        }
      }
      logs.keep(product);
      total += sum_lanes<double, T>(costs);
      own += sum_lanes<double, T>(changes);
      if (HESSIAN) own_curve += sum_lanes<double, T>(curves);
    }
    sums[i] -= own;
    if (HESSIAN) sums[n + i] += own_curve;
  }
};

template <typename T>
void soft_pairs(const SoftPairs& a, int64_t first, int64_t last) {
  SoftPairQuery<T> query(a, most_items(a, first, last));
  for (int64_t entry = first; entry < last; entry++) query.run(a.queries[entry]);
}

}  // namespace
}  // namespace rankbound

RANKBOUND_KERNEL_BY_TYPE(softmax, rankbound::Softmax, rankbound::softmax)
RANKBOUND_KERNEL_BY_TYPE(likelihood, rankbound::Likelihood, rankbound::likelihood)
RANKBOUND_KERNEL_BY_TYPE(soft_pairs, rankbound::SoftPairs, rankbound::soft_pairs)
