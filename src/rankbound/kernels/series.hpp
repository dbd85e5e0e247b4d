// Sums of logistics in linear time, by Chebyshev series in boxes.
//
// A sum over j of w_j logistic(x_j - x_i) can be computed for all i at once, because the logistic is smooth: no
// singularity is nearer than pi to the real line. The x are sorted into boxes of width 2. Each box has the moments sum of
// w_j T_m(x_j) of its items for m < 12, and its effect on a box at a given distance is one 12 x 12 matrix, which Python
// computes (`rankbound.losses.smooth.series_tables`). For boxes more than 20 apart the logistic is 0 or 1, so that only
// their weight matters. The series of a box then gives the sum for each of its items. The error of each term is below
// 1e-9 min(s, 1 - s) for the logistic s, so that the relative error of a smooth rank is below 1e-9.
#pragma once

#include "common.hpp"

namespace rankbound {

struct Series {
  static constexpr int TERMS = 12, FAR = 20;
  static constexpr double BOX = 2.0;
  double at[TERMS];
};

// Items of a list in boxes. Those of a range, such as the rows, come by box, so that a box has its items in sequence.
class Boxes {
  static constexpr int TERMS = Series::TERMS, FAR = Series::FAR, W = WIDTH<double>;
  static constexpr double BOX = Series::BOX;
  using V = Lanes<double>;

 public:
  Boxes(const double* x, int64_t n, const double* tables) : tables_(tables), box_(n) {
    std::vector<int64_t> number(n);
    int64_t lowest = std::numeric_limits<int64_t>::max(), highest = std::numeric_limits<int64_t>::min();
    for (int64_t j = 0; j < n; j++) {
      number[j] = static_cast<int64_t>(std::floor(x[j] / BOX));
      lowest = std::min(lowest, number[j]);
      highest = std::max(highest, number[j]);
    }
    if (highest - lowest < 4 * n) {  // few enough boxes for a table of all of them
      std::vector<int64_t> index(highest - lowest + 1, -1);
      for (int64_t j = 0; j < n; j++) index[number[j] - lowest] = 0;
      for (int64_t b = 0; b <= highest - lowest; b++)
        if (index[b] == 0) {
          index[b] = static_cast<int64_t>(number_.size());
          number_.push_back(b + lowest);
        }
      for (int64_t j = 0; j < n; j++) box_[j] = index[number[j] - lowest];
    } else {
      number_ = number;
      std::sort(number_.begin(), number_.end());
      number_.erase(std::unique(number_.begin(), number_.end()), number_.end());
      for (int64_t j = 0; j < n; j++)
        box_[j] = std::lower_bound(number_.begin(), number_.end(), number[j]) - number_.begin();
    }
    local_.resize(n);
    for (int64_t j = 0; j < n; j++) local_[j] = x[j] / BOX * 2.0 - (2.0 * static_cast<double>(number[j]) + 1.0);
  }

  // A range of the items, sorted by box.
  struct Range {
    std::vector<int64_t> item, start;  // start: of each box
    std::vector<double> local;         // from -1 to 1, the range of the polynomials; zeros for whole lanes at the end
  };

  Range range(int64_t first, int64_t last) const {
    Range r{std::vector<int64_t>(last - first), std::vector<int64_t>(number_.size() + 1), {}};
    for (int64_t j = first; j < last; j++) r.start[box_[j] + 1]++;
    for (size_t b = 0; b < number_.size(); b++) r.start[b + 1] += r.start[b];
    std::vector<int64_t> next(r.start.begin(), r.start.end() - 1);
    for (int64_t j = first; j < last; j++) r.item[next[box_[j]]++] = j;
    r.local.assign(last - first + W, 0.0);
    for (size_t i = 0; i < r.item.size(); i++) r.local[i] = local_[r.item[i]];
    return r;
  }

  // Moments of all boxes; `weights` are indexed by item - first, null means 1. They are added to earlier ones.
  void add_moments(const Range& r, const double* weights, int64_t first, std::vector<Series>& moments) const {
    moments.resize(number_.size(), Series{});
    for (size_t b = 0; b < number_.size(); b++) {
      V sums[TERMS] = {};
      const int64_t end = r.start[b + 1];
      for (int64_t i = r.start[b]; i < end; i += W) {
        double own[W] = {};
        const int64_t count = std::min<int64_t>(W, end - i);
        for (int64_t k = 0; k < count; k++) own[k] = weights == nullptr ? 1.0 : weights[r.item[i + k] - first];
        const V weight = load(own);
        const V x = load(r.local.data() + i), twice = x + x;
        V before = weight, now = weight * x;
        sums[0] += before;
        for (int m = 1; m < TERMS; m++) {
          sums[m] += now;
          const V after = twice * now - before;
          before = now;
          now = after;
        }
      }
      for (int m = 0; m < TERMS; m++) moments[b].at[m] += sum_lanes<double, double>(sums[m]);
    }
  }

  // The series of each box for the value (0) or the slope (1) of the logistic.
  std::vector<Series> couple(const std::vector<Series>& moments, int kind) const {
    const double* table = tables_ + kind * (2 * FAR + 1) * TERMS * TERMS;
    const int64_t boxes = static_cast<int64_t>(number_.size());
    std::vector<Series> series(boxes);
    std::vector<double> above(boxes + 1);  // weights from the end
    for (int64_t b = boxes - 1; b >= 0; b--) above[b] = above[b + 1] + moments[b].at[0];
    int64_t begin = 0, end = 0;
    for (int64_t t = 0; t < boxes; t++) {
      while (number_[begin] < number_[t] - FAR) begin++;
      while (end < boxes && number_[end] <= number_[t] + FAR) end++;
      double sums[TERMS] = {};
      for (int64_t s = begin; s < end; s++) {
        const double* matrix = table + (number_[s] - number_[t] + FAR) * TERMS * TERMS;
        for (int k = 0; k < TERMS; k++)
          for (int m = 0; m < TERMS; m++) sums[m] += matrix[k * TERMS + m] * moments[s].at[k];
      }
      std::copy(sums, sums + TERMS, series[t].at);
      if (kind == 0) series[t].at[0] += above[end];
    }
    return series;
  }

  // Calls store_at(item, value) with the series of its box at each item of a range, by Clenshaw's recurrence.
  template <class Function>
  void evaluate(const Range& r, const std::vector<Series>& series, Function store_at) const {
    for (size_t b = 0; b < number_.size(); b++) {
      const double* c = series[b].at;
      const int64_t end = r.start[b + 1];
      for (int64_t i = r.start[b]; i < end; i += W) {
        const V x = load(r.local.data() + i), twice = x + x;
        V ahead = {}, now = {};
        for (int m = TERMS - 1; m > 0; m--) {
          const V next = twice * now - ahead + c[m];
          ahead = now;
          now = next;
        }
        const V value = c[0] + x * now - ahead;
        double values[W];
        store(values, value);
        for (int64_t k = 0; k < std::min<int64_t>(W, end - i); k++) store_at(r.item[i + k], values[k]);
      }
    }
  }

 private:
  const double* tables_;
  std::vector<int64_t> number_, box_;
  std::vector<double> local_;
};

}  // namespace rankbound
