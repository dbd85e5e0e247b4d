// Smooth measures: value, gradient and hessian in one pass over rows x items; nothing is stored per pair.
//
// Rows are processed four at a time: steps and slopes of four rows fit into the nearest cache. The items of a query come
// in the order of its plan, rows first, and are padded to whole lanes with items at minus infinity, whose steps are 0.
// PRECISION_SUM and CASCADE pad the rows, too, because their columns count twice.
#include "series.hpp"
#include "smooth.hpp"

namespace rankbound {
namespace {

// The curvature of a pair in the hessian, relative to its gradient: alpha (1 - step) / 3. Larger values learn too slowly
// in boosting, smaller ones overshoot. The factor 1 - step counts as at least 1/20: a Newton step is at most 60 / alpha.
constexpr double CURVATURE = 1.0 / 3.0, LEAST_CURVATURE = 0.05;
constexpr double FAR = 42.0;  // logistic(-42) is below the rounding error of 1
constexpr double TIE = 0.5;    // the step of an item with itself
constexpr double NEGLIGIBLE = 1e-38;  // a probability below the range of float

// ---- steps: of K rows and the lanes of a column ---------------------------------------------------------------------

// exp(x_j) / (exp(x_j) + exp(x_i)), without exponentials per pair. Two rows share a division: 1/a = b / (a b), and if the
// range of the scores is NARROW, so that products of four cannot overflow, four rows do.
template <typename T, bool NARROW>
struct Factored {
  using Number = T;
  static T far() { return T(0); }  // what padding has in place of x
  static double slope_factor(T own) { return own; }  // of the slopes of a row, which are computed without it

  template <int K>
  static void steps(Lanes<T> other, const T* own, Lanes<T>* step, Lanes<T>* slope) {
    if constexpr (K == 1) {
      const Lanes<T> inverse = T(1) / (other + own[0]);
      step[0] = other * inverse;
      slope[0] = step[0] * inverse;
    } else if constexpr (NARROW && K == 4) {
      const Lanes<T> a = other + own[0], b = other + own[1], c = other + own[2], d = other + own[3];
      const Lanes<T> ab = a * b, cd = c * d, inverse = T(1) / (ab * cd), inverse_ab = cd * inverse, inverse_cd = ab * inverse;
      const Lanes<T> inverses[4] = {b * inverse_ab, a * inverse_ab, d * inverse_cd, c * inverse_cd};
      for (int k = 0; k < K; k++) {
        step[k] = other * inverses[k];
        slope[k] = step[k] * inverses[k];
      }
    } else {
      for (int k = 0; k < K; k += 2) {
        const Lanes<T> a = other + own[k], b = other + own[k + 1], inverse = T(1) / (a * b);
        const Lanes<T> inverse_a = b * inverse, inverse_b = a * inverse;
        step[k] = other * inverse_a;
        step[k + 1] = other * inverse_b;
        slope[k] = step[k] * inverse_a;
        slope[k + 1] = step[k + 1] * inverse_b;
      }
    }
  }
};

template <typename T>
struct Logistic {
  using Number = T;
  static T far() { return T(-1e30); }
  static double slope_factor(T) { return 1.0; }

  template <int K>
  static void steps(Lanes<T> other, const T* own, Lanes<T>* step, Lanes<T>* slope) {
    for (int k = 0; k < K; k++) {
      step[k] = logistics<T>(other - own[k]);
      slope[k] = step[k] * (T(1) - step[k]);
    }
  }
};

// ---- one query ------------------------------------------------------------------------------------------------------

// Memory of a thread, used for one query after another.
template <typename T>
struct Scratch {
  std::vector<T> x, gradient, hessian, step[4], slope[4], stops, high, low, by_rank, contribution;
  std::vector<double> ranks, weights, exact, exact_gradient;
};

template <typename T>
struct List {
  const Smooth& a;
  Scratch<T>& s;
  int64_t query, first, n, rows;
  int64_t split;   // end of the padded rows where rows are padded, else 0
  int64_t length;  // with all padding
  double cutoff, largest;
  const double* weights;

  int64_t position(int64_t j) const { return split > 0 && j >= rows ? j - rows + split : j; }
};

// The terms of rows from i on at their ranks and weights: of the discount, or of values that the caller gave.
template <typename T>
Terms terms_at(const List<T>& list, int64_t i, int64_t count, Four ranks, Four weight) {
  const Smooth& a = list.a;
  if (a.discount != GIVEN) return additive_terms(a, ranks, weight, list.cutoff);
  const double* given = a.given + list.first + i;
  return {weight * lanes_of(given, count), weight * lanes_of(given + a.items, count), Four{}};
}

// Whether sums of a list are computed by series: float if that is cheaper, as its precision is that of the series or less;
// double if the list is long. ITEM and COUPLING are the costs of an item and of a pair of boxes in pairs of items.
template <typename T>
bool is_by_series(const List<T>& list) {
  constexpr double ITEM = 45.0, COUPLING = 150.0;
  const Smooth& a = list.a;
  if (!(list.largest < 1e12)) return false;
  const double n = static_cast<double>(list.n), pairs = static_cast<double>(list.rows) * n;
  double levels = 1.0;
  if (a.structure == PAIRS) {
    if (a.levels != nullptr) return false;
    const int64_t* columns_from = a.columns_from + list.first;
    for (int64_t i = columns_from[0]; i < list.rows; i = columns_from[i]) levels += 1.0;
  }
  if (sizeof(T) == 8) return pairs >= a.long_pairs;
  const double boxes = list.largest + 1.0;
  return pairs > ITEM * n + levels * COUPLING * boxes * std::min(boxes, 41.0);
}

template <typename T>
double run_by_series(List<T>& list, double* ranks_alone = nullptr);

// The terms of a sum over s.ranks, and their derivatives in s.weights; given discounts do not look at the ranks.
template <typename T>
double terms_of_sum(List<T>& list) {
  Scratch<T>& s = list.s;
  double result = 0.0;
  for (int64_t i = 0; i < list.rows; i += WIDTH<double>) {
    const int64_t count = std::min<int64_t>(WIDTH<double>, list.rows - i);
    const Terms terms = terms_at(list, i, count, lanes_of(s.ranks.data() + i, count), lanes_of(list.weights + i, count));
    for (int k = 0; k < count; k++) result += terms.value[k], s.weights[i + k] = terms.by_rank[k];
  }
  return result;
}

template <class S, bool HESSIAN>
struct Pass {
  using T = typename S::Number;
  using V = Lanes<T>;
  static constexpr int W = WIDTH<T>;

  // Steps and slopes of rows and columns into the buffers; returns the sums of the steps.
  template <int K, bool WITH_STEPS>
  static void fill(List<T>& list, const T* own, int64_t begin, int64_t end, double* sums) {
    const T* x = list.s.x.data();
    T *step[K], *slope[K];
    for (int k = 0; k < K; k++) step[k] = list.s.step[k].data(), slope[k] = list.s.slope[k].data();
    T rows[K];
    for (int k = 0; k < K; k++) rows[k] = own[k], sums[k] = 0.0;
    for (int64_t block = begin; block < end; block += BLOCK) {
      const int64_t stop = std::min(block + BLOCK, end);
      V partial[K] = {};
      for (int64_t j = block; j < stop; j += W) {
        V steps[K], slopes[K];
        S::template steps<K>(load(x + j), rows, steps, slopes);
        for (int k = 0; k < K; k++) {
          partial[k] += steps[k];
          store(slope[k] + j, slopes[k]);
          if (WITH_STEPS) store(step[k] + j, steps[k]);
        }
      }
      for (int k = 0; k < K; k++) sums[k] += sum_lanes<double, T>(partial[k]);
    }
  }

  // Adds factor * slope of each row to the gradient of the columns, and subtracts their sum from that of the row.
  template <int K>
  static void add(List<T>& list, int64_t i, const double* factors, int64_t begin, int64_t end) {
    T *g = list.s.gradient.data(), *slope[K];
    T c[K];
    for (int k = 0; k < K; k++) slope[k] = list.s.slope[k].data(), c[k] = static_cast<T>(factors[k]);
    double sums[K] = {}, curvatures[K] = {};
    for (int64_t block = begin; block < end; block += BLOCK) {
      const int64_t stop = std::min(block + BLOCK, end);
      V partial[K] = {}, curved[K] = {};
      for (int64_t j = block; j < stop; j += W) {
        V total = load(g + j), total_curvature;
        if constexpr (HESSIAN) total_curvature = load(list.s.hessian.data() + j);
        for (int k = 0; k < K; k++) {
          const V change = load(slope[k] + j), scaled = c[k] * change;
          partial[k] += change;
          total += scaled;
          if constexpr (HESSIAN) {
            const V left = larger(T(1) - load(list.s.step[k].data() + j), splat(static_cast<T>(LEAST_CURVATURE)));
            const V curvature = larger(scaled, -scaled) * left;
            curved[k] += curvature;
            total_curvature += curvature;
          }
        }
        store(g + j, total);
        if constexpr (HESSIAN) store(list.s.hessian.data() + j, total_curvature);
      }
      for (int k = 0; k < K; k++) {
        sums[k] += sum_lanes<double, T>(partial[k]);
        if constexpr (HESSIAN) curvatures[k] += sum_lanes<double, T>(curved[k]);
      }
    }
    for (int k = 0; k < K; k++) {
      if (factors[k] == 0.0) continue;
      g[i + k] -= static_cast<T>(factors[k] * sums[k]);
      if constexpr (HESSIAN) list.s.hessian[i + k] += static_cast<T>(curvatures[k]);
    }
  }

  // The pair of an item with itself: its gradient cancels, its curvature and its factor of a product must not exist.
  template <int K>
  static void leave_out_own(List<T>& list, int64_t i, int count) {
    for (int k = 0; k < count; k++) list.s.step[k][i + k] = list.s.slope[k][i + k] = T(0);
  }

  // Calls function<K>(i, count) for rows in fours; the last group may have fewer than K rows.
  template <class Function>
  static void in_fours(int64_t begin, int64_t end, Function function) {
    for (int64_t i = begin; i < end; i += 4) {
      if (end - i == 1) function(std::integral_constant<int, 1>{}, i, 1);
      else function(std::integral_constant<int, 4>{}, i, static_cast<int>(std::min<int64_t>(4, end - i)));
    }
  }

  template <int K>
  static void own_of(const List<T>& list, int64_t i, int count, T* own) {
    for (int k = 0; k < K; k++) own[k] = list.s.x[i + std::min(k, count - 1)];
  }

  static double additive(List<T>& list) {
    double result = 0.0;
    in_fours(0, list.rows, [&](auto group, int64_t i, int count) {
      constexpr int K = decltype(group)::value;
      T own[K];
      double sums[K], factors[K];
      own_of<K>(list, i, count, own);
      fill<K, HESSIAN>(list, own, 0, list.length, sums);
      const Four ranks = lanes_of(sums, count) + (1.0 - TIE);
      const Terms terms = additive_terms(list.a, ranks, lanes_of(list.weights + i, count), list.cutoff);
      for (int k = 0; k < K; k++) {
        factors[k] = k < count ? terms.by_rank[k] * S::slope_factor(own[k]) : 0.0;
        if (k < count) result += terms.value[k];
      }
      if (HESSIAN) leave_out_own<K>(list, i, count);
      add<K>(list, i, factors, 0, list.length);
    });
    return result;
  }

  static double precision_sum(List<T>& list) {
    double result = 0.0;
    in_fours(0, list.rows, [&](auto group, int64_t i, int count) {
      constexpr int K = decltype(group)::value;
      T own[K];
      double hits[K], others[K], by_hits[K], by_rank[K];
      own_of<K>(list, i, count, own);
      fill<K, HESSIAN>(list, own, 0, list.split, hits);
      fill<K, HESSIAN>(list, own, list.split, list.length, others);
      const Four above = lanes_of(hits, count) - TIE, ranks = 1.0 + above + lanes_of(others, count);
      const Terms terms = precision_terms(list.a, ranks, above, lanes_of(list.weights + i, count), list.cutoff);
      for (int k = 0; k < K; k++) {
        by_hits[k] = by_rank[k] = 0.0;
        if (k >= count) continue;
        const double factor = S::slope_factor(own[k]);
        result += terms.value[k];
        by_rank[k] = terms.by_rank[k] * factor;
        by_hits[k] = (terms.by_rank[k] + terms.by_hits[k]) * factor;
      }
      if (HESSIAN) leave_out_own<K>(list, i, count);
      add<K>(list, i, by_hits, 0, list.split);
      add<K>(list, i, by_rank, list.split, list.length);
    });
    return result;
  }

  // With `ranks`, the list consists of its rows alone: the ranks among all items are given, and the derivatives in them
  // are left in s.weights.
  static double cascade(List<T>& list, const double* ranks = nullptr) {
    Scratch<T>& s = list.s;
    s.stops.assign(list.split, T(0));
    for (int64_t j = 0; j < list.rows; j++) s.stops[j] = static_cast<T>(list.weights[j]);
    const T* stops = s.stops.data();
    double result = 0.0;
    in_fours(0, list.rows, [&](auto group, int64_t i, int count) {
      constexpr int K = decltype(group)::value;
      T own[K];
      double hits[K], others[K], by_rank[K], ones[K];
      own_of<K>(list, i, count, own);
      fill<K, true>(list, own, 0, list.split, hits);
      fill<K, HESSIAN>(list, own, list.split, list.length, others);
      leave_out_own<K>(list, i, count);
      for (int k = 0; k < count; k++) hits[k] = ranks != nullptr ? ranks[i + k] : 1.0 - TIE + hits[k] + others[k];
      const Terms terms = terms_at(list, i, count, lanes_of(hits, count), lanes_of(list.weights + i, count));
      for (int k = 0; k < K; k++) {
        by_rank[k] = ones[k] = 0.0;
        if (k >= count) continue;
        const double value = terms.value[k], slope_in_rank = terms.by_rank[k];
        const T* step = s.step[k].data();
        V product = splat(T(1));
        for (int64_t j = 0; j < list.split; j += W)
          product *= larger(T(1) - load(stops + j) * load(step + j), splat(T(0)));
        T factors[W];
        store(factors, product);
        double no_earlier_stop = 1.0;
        for (int l = 0; l < W; l++) no_earlier_stop *= factors[l];
        result += value * no_earlier_stop;
        const double factor = S::slope_factor(own[k]);
        by_rank[k] = slope_in_rank * no_earlier_stop * factor;
        ones[k] = 1.0;
        if (ranks != nullptr) {
          s.weights[i + k] = slope_in_rank * no_earlier_stop;
          by_rank[k] = 0.0;
        }
        const T rank_factor = static_cast<T>(by_rank[k]);
        const T product_factor = static_cast<T>(value * no_earlier_stop * factor);
        T* slope = s.slope[k].data();
        // where a factor of the product is 0, so are the product and its derivative
        for (int64_t j = 0; j < list.split; j += W) {
          const V stop = load(stops + j), remaining = larger(T(1) - stop * load(step + j), splat(T(1e-30)));
          store(slope + j, load(slope + j) * (rank_factor - product_factor * stop / remaining));
        }
      }
      add<K>(list, i, ones, 0, list.split);
      add<K>(list, i, by_rank, list.split, list.length);
    });
    return result;
  }

  // The weighted sum of the steps of rows and columns [begin, list.length), its gradient unless that is known, and its
  // hessian; the weights are known.
  template <bool GRADIENT = true>
  static double weighted(List<T>& list, int64_t rows_from, int64_t rows_to, int64_t begin, const double* weights) {
    double result = 0.0;
    const T* x = list.s.x.data();
    T *g = list.s.gradient.data(), *h = list.s.hessian.data();
    const V least = splat(static_cast<T>(LEAST_CURVATURE));
    const int64_t end = begin + in_lanes<T>(list.length - begin);
    in_fours(rows_from, rows_to, [&](auto group, int64_t i, int count) {
      constexpr int K = decltype(group)::value;
      T own[K], c[K], size[K];
      own_of<K>(list, i, count, own);
      for (int k = 0; k < K; k++) {
        c[k] = k < count ? static_cast<T>(weights[i + k] * S::slope_factor(own[k])) : T(0);
        size[k] = std::abs(c[k]);
      }
      for (int64_t block = begin; block < end; block += BLOCK) {
        const int64_t stop = std::min(block + BLOCK, end);
        V values[K] = {}, changes[K] = {}, curved[K] = {};
        for (int64_t j = block; j < stop; j += W) {
          V steps[K], slopes[K];
          S::template steps<K>(load(x + j), own, steps, slopes);
          V total{}, total_curvature{};
          if constexpr (GRADIENT) total = load(g + j);
          if constexpr (HESSIAN) total_curvature = load(h + j);
          for (int k = 0; k < K; k++) {
            values[k] += steps[k];
            if constexpr (GRADIENT) {
              changes[k] += slopes[k];
              total += c[k] * slopes[k];
            }
            if constexpr (HESSIAN) {
              const V curvature = slopes[k] * larger(T(1) - steps[k], least);
              curved[k] += curvature;
              total_curvature += size[k] * curvature;
            }
          }
          if constexpr (GRADIENT) store(g + j, total);
          if constexpr (HESSIAN) store(h + j, total_curvature);
        }
        for (int k = 0; k < count; k++) {
          result += weights[i + k] * sum_lanes<double, T>(values[k]);
          if constexpr (GRADIENT) g[i + k] -= c[k] * sum_lanes<T, T>(changes[k]);
          if constexpr (HESSIAN) h[i + k] += size[k] * sum_lanes<T, T>(curved[k]);
        }
      }
      if (begin > i) return;
      for (int k = 0; k < count; k++) {  // without the pair of an item with itself, whose gradient cancels
        result -= weights[i + k] * TIE;
        if constexpr (HESSIAN) {
          V step, slope;
          S::template steps<1>(splat(own[k]), own + k, &step, &slope);
          h[i + k] -= size[k] * slope[0];  // half of it, once among the columns and once in the sum of the row
        }
      }
    });
    return result;
  }

  static double pairs(List<T>& list) {
    const int64_t* columns_from = list.a.columns_from + list.first;
    double result = 0.0;
    for (int64_t i = 0; i < list.rows;) {
      int64_t last = i + 1;
      while (last < list.rows && columns_from[last] == columns_from[i]) last++;
      if (list.a.levels == nullptr) result += weighted(list, i, last, columns_from[i], list.weights);
      else result += pairs_by_level(list, i, last);
      i = last;
    }
    return result;
  }

  // Rows of one level with each lower level, whose pairs have a weight of their own.
  static double pairs_by_level(List<T>& list, int64_t rows_from, int64_t rows_to) {
    Scratch<T>& s = list.s;
    const int64_t* levels = list.a.levels + list.first;
    const double* of_level = list.a.pair_weights + levels[rows_from] * list.a.level_count;
    const std::vector<T> x = s.x;
    const int64_t length = list.length;
    double result = 0.0;
    s.weights.assign(rows_to, 0.0);
    for (int64_t begin = list.a.columns_from[list.first + rows_from]; begin < list.n;) {
      int64_t end = begin + 1;
      while (end < list.n && levels[end] == levels[begin]) end++;
      const double weight = of_level[levels[begin]];
      for (int64_t i = rows_from; i < rows_to; i++) s.weights[i] = weight * list.weights[i];
      std::fill(s.x.begin() + end, s.x.end(), S::far());  // the lower levels do not exist for a moment
      list.length = begin + in_lanes<T>(end - begin);
      if (weight != 0.0) result += weighted(list, rows_from, rows_to, begin, s.weights.data());
      std::copy(x.begin() + end, x.end(), s.x.begin() + end);
      begin = end;
    }
    list.length = length;
    return result;
  }

  // ---- structures of smooth ranks -----------------------------------------------------------------------------------

  static void compute_ranks(List<T>& list, double* ranks) {
    in_fours(0, list.rows, [&](auto group, int64_t i, int count) {
      constexpr int K = decltype(group)::value;
      T own[K];
      double sums[K];
      own_of<K>(list, i, count, own);
      fill<K, false>(list, own, 0, list.length, sums);
      for (int k = 0; k < count; k++) ranks[i + k] = 1.0 - TIE + sums[k];
    });
  }

  // beta * (ranks - the rank of row i) in lanes, without loss of digits: a rank is a sum of two numbers.
  static V differences(const Scratch<T>& s, int64_t i, int64_t j) {
    return (load(s.high.data() + j) - s.high[i]) + (load(s.low.data() + j) - s.low[i]);
  }

  static void split_ranks(List<T>& list, T padding) {
    Scratch<T>& s = list.s;
    const int64_t padded = in_lanes<T>(list.rows);
    s.high.assign(padded, padding);
    s.low.assign(padded, T(0));
    for (int64_t i = 0; i < list.rows; i++) {
      const double scaled = list.a.beta * s.ranks[i];
      s.high[i] = static_cast<T>(scaled);
      s.low[i] = static_cast<T>(scaled - static_cast<double>(s.high[i]));
    }
  }

  static double of_ranks(List<T>& list) {
    Scratch<T>& s = list.s;
    s.ranks.resize(list.rows);
    s.weights.resize(list.rows);
    if (list.a.discount != GIVEN || list.a.structure != ADDITIVE) {
      if (is_by_series(list)) run_by_series(list, s.ranks.data());
      else compute_ranks(list, s.ranks.data());
    }
    const double result = terms_of_ranks(list);
    weighted(list, 0, list.rows, 0, s.weights.data());
    return result;
  }

  // The value that belongs to s.ranks, and its derivatives in s.weights.
  static double terms_of_ranks(List<T>& list) {
    switch (list.a.structure) {
      case ADDITIVE:
        return terms_of_sum(list);
      case COUPLED:
        return coupled(list);
      default:
        return first_hit(list);
    }
  }

  // Rows come by rank here: a step between ranks is 0 or 1 to the last digit but for neighbors.
  static double coupled(List<T>& list) {
    Scratch<T>& s = list.s;
    const int64_t rows = list.rows;
    const double cutoff = list.cutoff, beta = list.a.beta;
    std::vector<int64_t> by_rank(rows);
    for (int64_t i = 0; i < rows; i++) by_rank[i] = i;
    std::sort(by_rank.begin(), by_rank.end(), [&](int64_t i, int64_t j) {
      return s.ranks[i] < s.ranks[j] || (s.ranks[i] == s.ranks[j] && i < j);
    });
    s.exact.resize(rows);
    for (int64_t i = 0; i < rows; i++) s.exact[i] = s.ranks[by_rank[i]];
    std::swap(s.ranks, s.exact);
    s.ranks.resize(rows);
    split_ranks(list, T(1e30));  // padding is below every row
    s.contribution.assign(in_lanes<T>(rows) + W, T(0));
    s.high.resize(in_lanes<T>(rows) + W, T(1e30));
    s.low.resize(in_lanes<T>(rows) + W, T(0));
    for (int64_t i = 0; i < rows; i++) {
      const double inside = truncations(splat(s.ranks[i]), cutoff, beta).value[0];
      s.contribution[i] = static_cast<T>(list.weights[by_rank[i]] * inside / s.ranks[i]);
    }
    double result = 0.0;
    int64_t begin = 0, end = 0;
    for (int64_t i = 0; i < rows; i++) {
      while (beta * (s.ranks[i] - s.ranks[begin]) > FAR) begin++;
      while (end < rows && beta * (s.ranks[end] - s.ranks[i]) < FAR) end++;
      double hits = 0.5 + static_cast<double>(begin), change = 0.0;
      for (int64_t block = begin; block < end; block += BLOCK) {
        V hit = {}, moved = {};
        for (int64_t j = block; j < std::min(block + BLOCK, end); j += W) {
          const V above = logistics<T>(-differences(s, i, j));
          hit += above;
          moved += above * (T(1) - above) * (s.contribution[i] - load(s.contribution.data() + j));
        }
        hits += sum_lanes<double, T>(hit);
        change += sum_lanes<double, T>(moved);
      }
      const double weight = list.weights[by_rank[i]];
      const Terms terms = precision_terms(list.a, splat(s.ranks[i]), splat(hits - 1.0), splat(weight), cutoff);
      result += terms.value[0];
      s.weights[by_rank[i]] = terms.by_rank[0] + beta * change;
    }
    return result;
  }

  // Items below several others are left as soon as their probability of no hit above is negligible, so that the time is
  // about proportional to the number of rows once training has begun.
  static double first_hit(List<T>& list) {
    Scratch<T>& s = list.s;
    split_ranks(list, T(1e30));
    const int64_t padded = in_lanes<T>(list.rows), stride = 2 * W;
    if (static_cast<int64_t>(s.contribution.size()) < padded) s.contribution.resize(padded);
    T* belows = s.contribution.data();
    s.by_rank.assign(padded, T(0));
    std::fill(s.weights.begin(), s.weights.end(), 0.0);
    double result = 0.0;
    for (int64_t i = 0; i < list.rows; i++) {
      double no_hit_above = 2.0, hits_above = -0.5;  // of the item itself: 1/2 each
      for (int64_t block = 0; block < padded && no_hit_above >= NEGLIGIBLE; block += stride) {
        V hit = {};
        V product = splat(T(1));
        for (int64_t j = block; j < std::min(block + stride, padded); j += W) {
          const V below = logistics<T>(differences(s, i, j));
          store(belows + j, below);
          product *= below;
          hit += T(1) - below;
        }
        T factors[W];
        store(factors, product);
        for (int l = 0; l < W; l++) no_hit_above *= factors[l];
        hits_above += sum_lanes<double, T>(hit);
      }
      if (!(no_hit_above >= NEGLIGIBLE)) continue;
      const Terms terms = terms_at(list, i, 1, splat(s.ranks[i]), splat(1.0));
      const double value = terms.value[0];
      result += value * no_hit_above;
      s.weights[i] += no_hit_above * (terms.by_rank[0] - list.a.beta * value * hits_above);
      const T factor = static_cast<T>(list.a.beta * value * no_hit_above), before = s.by_rank[i];
      for (int64_t j = 0; j < padded; j += W)
        store(s.by_rank.data() + j, load(s.by_rank.data() + j) + factor * (T(1) - load(belows + j)));
      s.by_rank[i] = before;
    }
    for (int64_t i = 0; i < list.rows; i++) s.weights[i] += static_cast<double>(s.by_rank[i]);
    return result;
  }

  static double run(List<T>& list) {
    switch (list.a.structure) {
      case ADDITIVE:
        return list.a.discount == GIVEN ? of_ranks(list) : additive(list);
      case PRECISION_SUM:
        return precision_sum(list);
      case CASCADE:
        return cascade(list);
      case PAIRS:
        return pairs(list);
      default:
        return of_ranks(list);
    }
  }
};

// alpha * (scores - midrange) in the order of the plan. Centering preserves the precision of differences.
template <typename T>
List<T> prepare(const Smooth& a, Scratch<T>& s, int64_t q) {
  const int64_t first = a.offsets[q], n = a.offsets[q + 1] - first, rows = a.rows[q];
  const bool is_split = a.structure == PRECISION_SUM || a.structure == CASCADE;
  const T* scores = static_cast<const T*>(a.scores) + first;
  const int64_t* order = a.order + first;
  T lowest = scores[0], highest = scores[0];
  for (int64_t j = 1; j < n; j++) {
    lowest = scores[j] < lowest ? scores[j] : lowest;
    highest = scores[j] > highest ? scores[j] : highest;
  }
  const T half = (highest - lowest) / 2, middle = lowest + half, alpha = static_cast<T>(a.alpha);
  List<T> list{a, s, q, first, n, rows, is_split ? in_lanes<T>(rows) : 0, 0, a.cuts[q], a.alpha * half, a.weights + first};
  list.length = list.split > 0 ? list.split + in_lanes<T>(n - rows) : in_lanes<T>(n);
  s.x.resize(list.length + WIDTH<T>);
  for (int64_t j = 0; j < n; j++) s.x[list.position(j)] = alpha * (scores[order[j]] - middle);
  return list;
}

template <typename T>
bool can_be_factored(const List<T>& list) {
  return list.largest <= (sizeof(T) == 4 ? 40.0 : 300.0);
}

template <typename T>
void set_padding(List<T>& list, T value) {
  std::vector<T>& x = list.s.x;
  if (list.split > 0) std::fill(x.begin() + list.rows, x.begin() + list.split, value);
  std::fill(x.begin() + list.position(list.n - 1) + 1, x.end(), value);
}

// Prepares x for the steps of the list and calls function(S{}) with their type.
template <typename T, class Function>
auto with_steps(List<T>& list, Function function) {
  if (!can_be_factored(list)) {
    set_padding(list, Logistic<T>::far());
    return function(Logistic<T>{});
  }
  std::vector<T>& x = list.s.x;
  set_padding(list, T(0));  // memory of an earlier query may hold anything
  for (int64_t j = 0; j < list.length; j += WIDTH<T>) store(x.data() + j, exponentials<T>(load(x.data() + j)));
  set_padding(list, Factored<T, true>::far());
  return list.largest <= (sizeof(T) == 4 ? 20.0 : 150.0) ? function(Factored<T, true>{}) : function(Factored<T, false>{});
}

// ---- by series ------------------------------------------------------------------------------------------------------

// x in double, in the order of the plan, for series.
template <typename T>
const double* exact_x(List<T>& list) {
  const Smooth& a = list.a;
  const T* scores = static_cast<const T*>(a.scores) + list.first;
  std::vector<double>& exact = list.s.exact;
  exact.resize(list.n);
  double lowest = scores[0], highest = scores[0];
  for (int64_t j = 0; j < list.n; j++) {
    lowest = std::min(lowest, static_cast<double>(scores[j]));
    highest = std::max(highest, static_cast<double>(scores[j]));
  }
  const double middle = lowest / 2 + highest / 2;
  for (int64_t j = 0; j < list.n; j++) exact[j] = a.alpha * (scores[a.order[list.first + j]] - middle);
  return exact.data();
}

template <typename T>
double terms_by_pairs(List<T>& list);

void add(std::vector<Series>& to, const std::vector<Series>& moments) {
  to.resize(moments.size(), Series{});
  for (size_t b = 0; b < moments.size(); b++)
    for (int m = 0; m < Series::TERMS; m++) to[b].at[m] += moments[b].at[m];
}

// Pairs of each level with all lower ones; s.exact_gradient receives the gradient.
template <typename T>
double pairs_by_series(List<T>& list, const double* x) {
  const Smooth& a = list.a;
  std::vector<double>& gradient = list.s.exact_gradient;
  const Boxes boxes(x, list.n, a.tables);
  std::vector<int64_t> cuts{0};
  while (cuts.back() < list.rows) cuts.push_back(a.columns_from[list.first + cuts.back()]);
  cuts.push_back(list.n);
  const size_t levels = cuts.size() - 1;
  std::vector<Boxes::Range> ranges;
  for (size_t l = 0; l < levels; l++) ranges.push_back(boxes.range(cuts[l], cuts[l + 1]));
  double result = 0.0;
  std::vector<Series> sums;
  for (size_t l = levels - 1; l-- > 0;) {  // rows of a level and all lower items
    boxes.add_moments(ranges[l + 1], nullptr, 0, sums);
    boxes.evaluate(ranges[l], boxes.couple(sums, 0), [&](int64_t i, double value) { result += list.weights[i] * value; });
    boxes.evaluate(ranges[l], boxes.couple(sums, 1),
                   [&](int64_t i, double value) { gradient[i] -= list.weights[i] * value; });
  }
  sums.clear();
  for (size_t l = 0; l + 1 < levels; l++) {
    boxes.add_moments(ranges[l], list.weights + cuts[l], cuts[l], sums);
    boxes.evaluate(ranges[l + 1], boxes.couple(sums, 1), [&](int64_t j, double value) { gradient[j] += value; });
  }
  return result;
}

// Value of a list and, in s.exact_gradient, its gradient; or only its smooth ranks.
template <typename T>
double run_by_series(List<T>& list, double* ranks_alone) {
  const Smooth& a = list.a;
  Scratch<T>& s = list.s;
  const int64_t rows = list.rows, n = list.n;
  const double *x = exact_x(list), *weights = list.weights;
  std::vector<double>& gradient = s.exact_gradient;
  gradient.assign(n, 0.0);
  if (a.structure == PAIRS && ranks_alone == nullptr) return pairs_by_series(list, x);
  const Boxes boxes(x, n, a.tables);
  const Boxes::Range in_rows = boxes.range(0, rows), others = boxes.range(rows, n);
  const bool has_hits = a.structure == PRECISION_SUM;
  std::vector<Series> of_rows, all;
  boxes.add_moments(in_rows, nullptr, 0, of_rows);
  boxes.add_moments(others, nullptr, rows, all);
  add(all, of_rows);
  s.ranks.resize(rows);
  double* ranks = ranks_alone != nullptr ? ranks_alone : s.ranks.data();
  boxes.evaluate(in_rows, boxes.couple(all, 0), [&](int64_t i, double value) { ranks[i] = 0.5 + value; });
  if (ranks_alone != nullptr) return 0.0;
  std::vector<double> slopes(rows), hits, hit_slopes, by_hits;
  boxes.evaluate(in_rows, boxes.couple(all, 1), [&](int64_t i, double value) { slopes[i] = value; });
  s.weights.resize(rows);
  double result = 0.0;
  if (has_hits) {
    hits.resize(rows), hit_slopes.resize(rows), by_hits.resize(rows);
    boxes.evaluate(in_rows, boxes.couple(of_rows, 0), [&](int64_t i, double value) { hits[i] = value - 0.5; });
    boxes.evaluate(in_rows, boxes.couple(of_rows, 1), [&](int64_t i, double value) { hit_slopes[i] = value; });
    for (int64_t i = 0; i < rows; i += WIDTH<double>) {
      const int64_t count = std::min<int64_t>(WIDTH<double>, rows - i);
      const Terms terms = precision_terms(a, lanes_of(ranks + i, count), lanes_of(hits.data() + i, count),
                                          lanes_of(weights + i, count), list.cutoff);
      for (int k = 0; k < count; k++)
        result += terms.value[k], s.weights[i + k] = terms.by_rank[k], by_hits[i + k] = terms.by_hits[k];
    }
    std::vector<Series> hit_moments;
    boxes.add_moments(in_rows, by_hits.data(), 0, hit_moments);
    boxes.evaluate(in_rows, boxes.couple(hit_moments, 1), [&](int64_t j, double value) { gradient[j] = value; });
    for (int64_t i = 0; i < rows; i++) gradient[i] -= by_hits[i] * hit_slopes[i];
  } else {
    result = terms_by_pairs(list);
  }
  std::vector<Series> moments;
  boxes.add_moments(in_rows, s.weights.data(), 0, moments);
  const std::vector<Series> series = boxes.couple(moments, 1);
  boxes.evaluate(in_rows, series, [&](int64_t j, double value) { gradient[j] += value; });
  boxes.evaluate(others, series, [&](int64_t j, double value) { gradient[j] += value; });
  for (int64_t i = 0; i < rows; i++) gradient[i] -= s.weights[i] * slopes[i];
  return result;
}

template <class S>
double rows_of_cascade(List<typename S::Number>& list, S) {
  const int64_t n = list.n, length = list.length;
  list.n = list.rows, list.length = list.split;
  const double result = Pass<S, false>::cascade(list, list.s.ranks.data());
  list.n = n, list.length = length;
  for (int64_t i = 0; i < list.rows; i++) list.s.exact_gradient[i] += static_cast<double>(list.s.gradient[i]);
  return result;
}

// All but PRECISION_SUM and PAIRS at s.ranks: pairs of rows one by one. The derivatives in the ranks are left in s.weights,
// and those of the product of a cascade are added to the gradient.
template <typename T>
double terms_by_pairs(List<T>& list) {
  if (list.a.structure != CASCADE) return Pass<Logistic<T>, false>::terms_of_ranks(list);
  return with_steps(list, [&](auto steps) { return rows_of_cascade(list, steps); });
}

template <typename T>
void prepare_buffers(Scratch<T>& s, int64_t length, bool with_hessian) {
  s.gradient.assign(length + WIDTH<T>, T(0));
  if (with_hessian) s.hessian.assign(length + WIDTH<T>, T(0));
  for (int k = 0; k < 4; k++) {
    if (s.slope[k].size() < s.gradient.size()) s.slope[k].resize(s.gradient.size());
    if (s.step[k].size() < s.gradient.size()) s.step[k].resize(s.gradient.size());
  }
}

template <typename T>
void write_hessian(const List<T>& list, T* hessian, double scale) {
  const T factor = static_cast<T>(CURVATURE * list.a.alpha * std::abs(scale));
  const int64_t* order = list.a.order + list.first;
  for (int64_t j = 0; j < list.n; j++) hessian[list.first + order[j]] = factor * list.s.hessian[list.position(j)];
}

// ---- kernels --------------------------------------------------------------------------------------------------------

template <typename T>
void smooth(const Smooth& a, int64_t from, int64_t to) {
  Scratch<T> s;
  T *gradient = static_cast<T*>(a.gradient), *hessian = static_cast<T*>(a.hessian);
  for (int64_t entry = from; entry < to; entry++) {
    const int64_t q = a.queries[entry];
    List<T> list = prepare<T>(a, s, q);
    const int64_t* order = a.order + list.first;
    const double slope = a.slope[q], scale = a.alpha * slope * a.scale;
    if ((hessian == nullptr || a.structure == ADDITIVE) && is_by_series(list)) {
      if (a.structure == CASCADE) prepare_buffers(s, list.length, false);
      a.losses[q] = a.at_zero[q] + slope * run_by_series(list);
      for (int64_t j = 0; j < list.n; j++) gradient[list.first + order[j]] = static_cast<T>(scale * s.exact_gradient[j]);
      if (hessian == nullptr) continue;
      s.hessian.assign(list.length + WIDTH<T>, T(0));
      with_steps(list, [&](auto steps) {
        Pass<decltype(steps), true>::template weighted<false>(list, 0, list.rows, 0, s.weights.data());
      });
      write_hessian(list, hessian, scale);
      continue;
    }
    prepare_buffers(s, list.length, hessian != nullptr);
    const double value = with_steps(list, [&](auto steps) {
      return hessian == nullptr ? Pass<decltype(steps), false>::run(list) : Pass<decltype(steps), true>::run(list);
    });
    a.losses[q] = a.at_zero[q] + slope * value;
    const T factor = static_cast<T>(scale);
    for (int64_t j = 0; j < list.n; j++) gradient[list.first + order[j]] = factor * s.gradient[list.position(j)];
    if (hessian != nullptr) write_hessian(list, hessian, scale);
  }
}

// The smooth ranks of the rows of each query, in the order of the plan; other entries are left alone.
template <typename T>
void smooth_ranks(const Smooth& a, int64_t from, int64_t to) {
  Scratch<T> s;
  for (int64_t entry = from; entry < to; entry++) {
    List<T> list = prepare<T>(a, s, a.queries[entry]);
    if (list.split > 0) {  // ranks need no padding of rows
      for (int64_t j = list.rows; j < list.n; j++) s.x[j] = s.x[list.position(j)];
      list.split = 0;
      list.length = in_lanes<T>(list.n);
    }
    prepare_buffers(s, list.length, false);
    if (is_by_series(list)) run_by_series(list, a.ranks + list.first);
    else with_steps(list, [&](auto steps) { Pass<decltype(steps), false>::compute_ranks(list, a.ranks + list.first); });
  }
}

}  // namespace
}  // namespace rankbound

RANKBOUND_KERNEL_BY_TYPE(smooth, rankbound::Smooth, rankbound::smooth)
RANKBOUND_KERNEL_BY_TYPE(smooth_ranks, rankbound::Smooth, rankbound::smooth_ranks)
