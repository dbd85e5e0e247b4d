// Losses of pairs: RankNet, DirectRanker, LambdaRank and the LambdaLoss family. Nothing is stored per pair.
//
// Items come in sorted order, those of the highest label first. The items of one label are rows, which are compared with
// the columns of lower label. With d = x_j - x_i, x = alpha * score, i of the higher label:
//
//   cost       of a pair                    gradient in d           hessian (exact, or that of Gauss and Newton)
//   logistic   log(1 + exp(d))              σ                       σ (1 - σ)
//   square     (1 - tanh(-d/2))² = 4 σ²     8 σ² (1 - σ)            8 σ'²
//   tanh       log(1 + exp(tanh(d/2)))      2 σ(tanh(d/2)) σ'       4 s (1 - s) σ'², s = σ(tanh(d/2))
//   soft       log(1 + exp(d)) - w d        σ - w                   σ (1 - σ)
//
// Soft pairs are all pairs of a query; w = σ(t_j - t_i) is what a teacher's scores t say.
//
// Weights of pairs are the swap deltas of `losses/pairwise.py`. What they need of a ranking is one entry per item, by one
// sort and a few running sums; the weights of a row are computed from these entries. Under a cutoff or a truncation,
// pairs of an additive measure are visited in the order of their ranks instead, where they are the first rows of a square.
#include "pairs.hpp"

namespace rankbound {
namespace {

enum Cost { LOGISTIC, SQUARE, TANH, SOFT };
enum Swap { NO_SWAP, ADDITIVE, PUBLISHED, PRECISION_SUM, FIRST_HIT, CASCADE, PAIRS, LOSS1, LOSS2, LOSS2PP };
enum Normalization { NONE, SQRT, LIGHTGBM };

constexpr double NEARNESS = 0.01;     // added to the distance of two scores before a weight is divided by it, as in LightGBM
constexpr int64_t ROWS_AT_ONCE = 64;  // rows whose gradients are added up in the type of the scores
constexpr int64_t SUMMED = 512;       // columns of a row, likewise

struct PairLoss {
  const void* scores;
  const void* ranked_by;  // what ranks are taken from
  const int64_t* queries;
  const int64_t* offsets;
  const int64_t* order;      // items of each query by label, highest first
  const int64_t* rows;       // items per query above the lowest label
  const int64_t* ends;       // per entry of the order, where the run of its label ends
  const double* weights;     // per entry: gain, stop probability, or relevance, over the normalizer; SOFT: the teacher's score
  const double* scales;      // per query: multiplies the loss before its normalization
  const double* cuts;        // per query: the cutoff, 0 for none
  const int64_t* levels;     // per entry: row and column of pair_weights; null if pairs weigh alike
  const double* pair_weights;
  int64_t level_count;
  const double* discounts;   // of the ranks 1, 2, ...
  double alpha, mu;
  int64_t cost, swap, truncation, normalization;
  int64_t measure_scores;    // measure the ranking by scores, not that by ranked_by
  int64_t needs_values;
  int64_t is_monotone;       // weights never rise along the order
  const double* factors;     // per query: multiplies the normalized loss; null for 1
  double outer;              // multiplies gradient and hessian
  double* values;
  double* measured;          // the measure of the ranking; for pairs the weight of the wrong ones
  void* gradient;
  void* hessian;             // null if it is not needed
};

template <typename T>
constexpr double LARGEST = sizeof(T) == 4 ? 40.0 : 300.0;  // |x| whose exponentials, and products of two, do not overflow

double normalizing_factor(int64_t normalization, double lambdas) {
  if (normalization == NONE || lambdas <= 0) return 1;
  return normalization == SQRT ? 1 / std::sqrt(lambdas) : std::log1p(lambdas) / (std::log(2.0) * lambdas);
}

// ---- weights of a row of pairs --------------------------------------------------------------------------------------

template <typename T>
struct GivenWeights {
  static constexpr bool SIGNED = false;
  const T* weight[2];
  Lanes<T> at(int row, int64_t j, Lanes<T>) const { return load(weight[row] + j); }
};

template <typename T>
struct EqualWeights {
  static constexpr bool SIGNED = false;
  Lanes<T> at(int, int64_t, Lanes<T>) const { return splat(T(1)); }
};

template <typename T>
struct AdditiveWeights {
  static constexpr bool SIGNED = false;
  const T *gain, *discount;
  Lanes<T> own_gain[2], own_discount[2];
  Lanes<T> at(int row, int64_t j, Lanes<T>) const {
    return absolute((load(gain + j) - own_gain[row]) * (load(discount + j) - own_discount[row]));
  }
};

// Of rows and columns by rank: negative where the column has the higher label, and 0 for a row with itself.
template <typename T>
struct RankWeights : AdditiveWeights<T> {
  static constexpr bool SIGNED = true;
  bool divides;
  T unit;  // of distances
  Lanes<T> at(int row, int64_t j, Lanes<T> d) const {
    const Lanes<T> w = (this->own_gain[row] - load(this->gain + j)) * absolute(load(this->discount + j) - this->own_discount[row]);
    return divides ? w / (T(NEARNESS) + absolute(d) * unit) : w;
  }
};

// ---- one query ------------------------------------------------------------------------------------------------------

template <typename T>
class Query {
 public:
  Query(const PairLoss& loss, int64_t most)
      : a(loss), stride(in_lanes<T>(most) + 4 * WIDTH<T> + 16), memory(stride * 14), sums(2 * most), powers(most), ranks(2 * most), sorter(most) {
    T* next = memory.data();
    for (T** array : {&x, &e, &inverse_e, &gradient, &hessian, &weight, &other_weight, &rank, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5]}) {
      *array = next;
      next += stride;
    }
    by_rank = ranks.data();
    place = by_rank + most;
  }

  void run(int64_t q) {
    low = a.offsets[q];
    n = a.offsets[q + 1] - low;
    order = a.order + low;
    ends = a.ends + low;
    rows = a.rows[q];
    scores = static_cast<const T*>(a.scores) + low;
    center();
    by_distance = a.normalization == LIGHTGBM && half > 0;
    is_factored = a.alpha * half <= LARGEST<T>;
    if (a.cost == SOFT) is_factored = is_factored && *std::max_element(a.weights + low, a.weights + low + n) <= LARGEST<T>;
    total = lambdas = 0;
    std::fill(sums.begin(), sums.begin() + n, 0.0);
    if (a.hessian) std::fill(sums.begin() + n, sums.begin() + 2 * n, 0.0);
    if (a.swap != NO_SWAP) {
      for (int64_t j = 0; j < n; j++) place[order[j]] = static_cast<int32_t>(j);
      rank_items(static_cast<const T*>(a.ranked_by) + low);
    }
    int64_t last = 0;
    if (a.swap == ADDITIVE && (last = rows_by_rank(q)) > 0)
      visit_by_rank(q, last);
    else
      visit_by_label(q);
    total += logs.take();
    write(q, last > 0 ? by_rank : nullptr);
    if (a.swap != NO_SWAP && a.measure_scores) {
      rank_items(scores);
      a.measured[q] = fill_table(q);
    }
  }

 private:
  const PairLoss& a;
  int64_t stride;
  std::vector<T> memory;
  std::vector<double> sums;  // of gradient and hessian
  std::vector<double> powers;
  std::vector<int32_t> ranks;
  Sorter<T> sorter;
  T *x, *e, *inverse_e, *gradient, *hessian, *weight, *other_weight, *rank, *t[6];
  int32_t *by_rank, *place;  // item, or place in the order, of each rank; place in the order of each item
  std::vector<T> level_sums;          // of pairs
  int64_t level_number = 0;

  int64_t low = 0, n = 0, rows = 0, first_stop = -1;
  const int64_t *order = nullptr, *ends = nullptr;
  const T* scores = nullptr;
  double half = 0, middle = 0, total = 0, lambdas = 0;
  LogOfProduct<T> logs;
  bool by_distance = false, is_factored = false;

  // Centering preserves the precision of differences however large the scores are.
  void center() {
    const auto [lowest, highest] = range_of(scores, n);
    half = static_cast<double>(highest) / 2 - static_cast<double>(lowest) / 2;
    middle = static_cast<double>(lowest) + half;
  }

  // x and e in an order, followed by items at minus infinity, which fill the last lanes and contribute nothing.
  template <typename Index>
  void fill_scores(const Index* items) {
    double* const centered = powers.data();
    for (int64_t j = 0; j < n; j++) centered[j] = a.alpha * (static_cast<double>(scores[items[j]]) - middle);
    for (int64_t j = 0; j < n; j++) x[j] = static_cast<T>(centered[j]);
    if (is_factored) {
      for (int64_t j = 0; j < n; j++) centered[j] = exponential(centered[j]);
      for (int64_t j = 0; j < n; j++) {
        e[j] = static_cast<T>(centered[j]);
        inverse_e[j] = static_cast<T>(1 / centered[j]);
      }
    }
    for (int64_t j = n; j < n + 2 * WIDTH<T>; j++) {
      x[j] = -std::numeric_limits<T>::infinity();
      e[j] = inverse_e[j] = 0;
    }
    std::fill(gradient, gradient + n + 2 * WIDTH<T>, T(0));
    if (a.hessian) std::fill(hessian, hessian + n + 2 * WIDTH<T>, T(0));
  }

  void rank_items(const T* ranked_by) { sorter.sort(ranked_by, n, by_rank); }

  // Add what was summed in the type of the scores to the sums in float64.
  void flush() {
    for (int64_t j = 0; j < n; j++) {
      sums[j] += gradient[j];
      gradient[j] = 0;
    }
    if (!a.hessian) return;
    for (int64_t j = 0; j < n; j++) {
      sums[n + j] += hessian[j];
      hessian[j] = 0;
    }
  }

  template <typename Index>
  void write_in(int64_t q, const Index* items) {
    double scale = a.scales[q] * normalizing_factor(a.normalization, 2 * a.scales[q] * a.alpha * lambdas);
    if (a.factors) scale *= a.factors[q];
    a.values[q] = scale * total;
    const double slope = a.outer * scale * a.alpha, curve = std::fabs(slope * a.alpha);
    T* const out = static_cast<T*>(a.gradient) + low;
    for (int64_t j = 0; j < n; j++) out[items[j]] = static_cast<T>(slope * sums[j]);
    if (!a.hessian) return;
    T* const curved = static_cast<T*>(a.hessian) + low;
    for (int64_t j = 0; j < n; j++) curved[items[j]] = static_cast<T>(curve * sums[n + j]);
  }

  void write(int64_t q, const int32_t* items) {
    flush();
    if (items)
      write_in(q, items);
    else
      write_in(q, order);
  }

  // ---- rows and columns by label ----

  void visit_by_label(int64_t q) {
    fill_scores(order);
    if (a.swap != NO_SWAP) a.measured[q] = fill_table(q);
    if (a.cost == SOFT) fill_teacher();
    const GivenWeights<T> ones{{weight, weight}};  // until weights of a row are filled in
    std::fill(weight, weight + n, T(1));
    std::fill(weight + n, weight + n + 2 * WIDTH<T>, T(0));
    const bool adjusted = by_distance || a.truncation > 0;
    int64_t visited = 0;
    for (int64_t begin = 0; begin < rows;) {
      const int64_t end = ends[begin];
      for (int64_t i = begin; i < end;) {
        const int count = i + 1 < end ? 2 : 1;
        if (visited >= ROWS_AT_ONCE) {
          flush();
          visited = 0;
        }
        if (a.cost == LOGISTIC && a.swap == NO_SWAP) {
          add_rows<LOGISTIC>(i, end, count, EqualWeights<T>());
        } else if (a.cost == SOFT) {
          add_rows<SOFT>(i, end, count, EqualWeights<T>());
        } else if (a.cost == SQUARE) {
          add_rows<SQUARE>(i, end, count, ones);
        } else if (a.cost == TANH) {
          add_rows<TANH>(i, end, count, ones);
        } else if (is_factored && a.swap == ADDITIVE && !adjusted) {
          add_rows<LOGISTIC>(i, end, count, additive_weights(i, count));
        } else {
          fill_weights(i, end, weight);
          if (count == 2) fill_weights(i + 1, end, other_weight);
          add_rows<LOGISTIC>(i, end, count, GivenWeights<T>{{weight, other_weight}});
        }
        i += count;
        visited += count;
      }
      begin = end;
    }
  }

  AdditiveWeights<T> additive_weights(int64_t i, int count) const {
    const int64_t other = i + count - 1;
    return {t[1], t[0], {splat(t[1][i]), splat(t[1][other])}, {splat(t[0][i]), splat(t[0][other])}};
  }

  // The teacher's scores in t[0], and their exponentials in t[1].
  void fill_teacher() {
    const double* const teacher = a.weights + low;
    for (int64_t j = 0; j < n; j++) t[0][j] = static_cast<T>(teacher[j]);
    for (int64_t j = 0; j < n; j++) t[1][j] = is_factored ? static_cast<T>(exponential(teacher[j])) : T(0);
    std::fill(t[0] + n, t[0] + n + 2 * WIDTH<T>, -std::numeric_limits<T>::infinity());
    std::fill(t[1] + n, t[1] + n + 2 * WIDTH<T>, T(0));
  }

  template <int COST, typename W>
  void add_rows(int64_t i, int64_t start, int count, const W& weights) {
    if (!a.hessian)
      add_by_range<COST, false, true>(i, start, count, weights);
    else if (a.needs_values)
      add_by_range<COST, true, true>(i, start, count, weights);
    else
      add_by_range<COST, true, false>(i, start, count, weights);
  }

  template <int COST, bool HESSIAN, bool VALUE, typename W>
  void add_by_range(int64_t i, int64_t start, int count, const W& weights) {
    if (is_factored)
      count == 2 ? add<COST, HESSIAN, VALUE, false, 2>(i, start, weights) : add<COST, HESSIAN, VALUE, false, 1>(i, start, weights);
    else
      count == 2 ? add<COST, HESSIAN, VALUE, true, 2>(i, start, weights) : add<COST, HESSIAN, VALUE, true, 1>(i, start, weights);
  }

  template <int COST, bool HESSIAN, bool VALUE>
  static void finish(Step<T>& step, Lanes<T>& slope, Lanes<T>& curve) {
    slope = step.above;
    if (HESSIAN || COST == SQUARE || COST == TANH) curve = step.above * step.below;
    if (COST == SQUARE) {
      if (VALUE) step.cost = T(4) * step.above * step.above;
      slope = T(8) * step.above * curve;
      if (HESSIAN) curve = T(8) * curve * curve;
    } else if (COST == TANH) {
      const Step<T> outer = direct_step<T, VALUE>(step.above - step.below);
      if (VALUE) step.cost = outer.cost;
      slope = T(2) * outer.above * curve;
      if (HESSIAN) curve = T(4) * outer.above * (T(1) - outer.above) * curve * curve;
    }
  }

  // Cost, gradient and hessian of the pairs of ROWS rows from i on and the columns from start on. DIRECT is for scores
  // without exponentials. Where weights have a sign, it tells which item has the higher label.
  template <int COST, bool HESSIAN, bool VALUE, bool DIRECT, int ROWS, typename W>
  void add(int64_t i, int64_t start, const W& weights) {
    constexpr bool LOG = VALUE && (COST == LOGISTIC || COST == SOFT);
    constexpr bool EQUAL = LOG && !DIRECT && std::is_same<W, EqualWeights<T>>::value;  // one logarithm serves many pairs
    // local, because a store could change members as far as compilers know
    const T *const exponential = e, *const score = x, *const inverse = inverse_e, *const teacher = t[0], *const teacher_power = t[1];
    T *const to_gradient = gradient, *const to_hessian = hessian;
    const W weight_of = weights;
    const int64_t items = n;
    const Lanes<T> zero{};
    Lanes<T> own_e[ROWS], own_x[ROWS], own_inverse[ROWS], own_teacher[ROWS];
    for (int row = 0; row < ROWS; row++) {
      own_e[row] = splat(e[i + row]);
      own_x[row] = splat(x[i + row]);
      own_inverse[row] = splat(inverse_e[i + row]);
      own_teacher[row] = splat((DIRECT ? teacher : teacher_power)[i + row]);
    }
    double cost = 0, size = 0, own[ROWS] = {}, own_curve[ROWS] = {};
    constexpr int64_t at_once = EQUAL ? LogOfProduct<T>::MOST * WIDTH<T> / ROWS : SUMMED;
    for (int64_t begin = start; begin < items; begin += at_once) {
      const int64_t end = std::min(begin + at_once, items);
      Lanes<T> costs{}, sizes{}, slopes[ROWS] = {}, curves[ROWS] = {}, product{};
      if (EQUAL) product = logs.make_room((end - begin + WIDTH<T> - 1) / WIDTH<T> * ROWS);
      for (int64_t j = begin; j < end; j += WIDTH<T>) {
        const Lanes<T> ej = load(exponential + j), xj = load(score + j);
        Lanes<T> g = load(to_gradient + j), h{}, inverse_ej{};
        if (HESSIAN) h = load(to_hessian + j);
        if (EQUAL) inverse_ej = load(inverse + j);
        for (int row = 0; row < ROWS; row++) {
          const Lanes<T> d = xj - own_x[row], w = weight_of.at(row, j, d);
          const Lanes<T> wrong = W::SIGNED ? if_less(w, zero, zero - d, d) : d;  // of padding, whose weight is 0: -inf
          Step<T> step;
          if (DIRECT)
            step = direct_step<T, LOG>(wrong);
          else if (LOG && !EQUAL)
            step = factored_step<T>(ej, own_e[row], wrong);
          else
            step = factored_step<T>(ej, own_e[row]);
          if (EQUAL) {
            const Lanes<T> part = smaller(ej * own_inverse[row], own_e[row] * inverse_ej);
            product = LogOfProduct<T>::multiply(product, part);
            step.cost = larger(d, zero);
          }
          Lanes<T> slope, curve{};
          finish<COST, HESSIAN, VALUE>(step, slope, curve);
          if (W::SIGNED && !DIRECT) slope = if_less(zero, w, step.above, step.below);
          if (COST == SOFT) {
            Lanes<T> target;
            if (DIRECT)
              target = direct_step<T, false>(load(teacher + j) - own_teacher[row]).above;
            else
              target = factored_step<T>(load(teacher_power + j), own_teacher[row]).above;
            slope -= target;
            if (VALUE) step.cost -= target * if_less(d, splat(std::numeric_limits<T>::lowest()), zero, d);  // padding has -inf
          }
          const Lanes<T> weight_size = W::SIGNED ? absolute(w) : w;
          slope = slope * w;
          if (VALUE) costs += step.cost * weight_size;
          g += slope;
          slopes[row] += slope;
          if (W::SIGNED) sizes += absolute(slope);
          if (HESSIAN) {
            curve = curve * weight_size;
            h += curve;
            curves[row] += curve;
          }
        }
        store(to_gradient + j, g);
        if (HESSIAN) store(to_hessian + j, h);
      }
      if (EQUAL) logs.keep(product);
      if (VALUE) cost += sum_lanes<double, T>(costs);
      if (W::SIGNED) size += sum_lanes<double, T>(sizes);
      for (int row = 0; row < ROWS; row++) {
        own[row] += sum_lanes<double, T>(slopes[row]);
        if (HESSIAN) own_curve[row] += sum_lanes<double, T>(curves[row]);
      }
    }
    total += cost;
    lambdas += size;
    for (int row = 0; row < ROWS; row++) {
      if (!W::SIGNED) lambdas += own[row];
      sums[i + row] -= own[row];
      if (HESSIAN) sums[n + i + row] += own_curve[row];
    }
  }

  // ---- rows and columns by rank, for additive measures ----

  // How many rows the square of ranks has, or 0 if fewer pairs are visited by label. Gains must not rise along the order,
  // so that the item of higher gain is that of the higher label.
  int64_t rows_by_rank(int64_t q) const {
    int64_t last = n;
    if (a.cuts[q] > 0) last = std::min(last, static_cast<int64_t>(a.cuts[q]));  // no swap below changes the measure
    if (a.truncation > 0) last = std::min(last, a.truncation);
    const bool adjusted = a.truncation > 0 || by_distance;  // weights are stored before they are used
    if (!a.is_monotone || (last == n && !adjusted)) return 0;
    int64_t pairs = 0;
    for (int64_t begin = 0; begin < rows; begin = ends[begin]) pairs += (ends[begin] - begin) * (n - ends[begin]);
    return last * (2 * n - last) / 2 < (adjusted ? 2 * pairs : pairs) ? last : 0;
  }

  void visit_by_rank(int64_t q, int64_t last) {
    fill_scores(by_rank);
    const double* const gains = a.weights + low;
    const int64_t cut = static_cast<int64_t>(a.cuts[q]);
    double measure = 0;
    for (int64_t r = 0; r < n; r++) {
      const double gain = gains[place[by_rank[r]]], discount = 0 < cut && cut <= r ? 0.0 : a.discounts[r];
      t[0][r] = static_cast<T>(discount);
      t[1][r] = static_cast<T>(gain);
      measure += discount * gain;
    }
    for (int64_t r = n; r < n + 2 * WIDTH<T>; r++) t[0][r] = t[1][r] = 0;
    a.measured[q] = measure;
    if (by_distance) is_factored = false;
    int64_t visited = 0;
    for (int64_t r = 0; r < last;) {
      const int count = r + 1 < last ? 2 : 1;
      if (visited >= ROWS_AT_ONCE) {
        flush();
        visited = 0;
      }
      add_rows<LOGISTIC>(r, r + 1, count, RankWeights<T>{additive_weights(r, count), by_distance, static_cast<T>(1 / a.alpha)});
      r += count;
      visited += count;
    }
  }

  // ---- tables: what the swap deltas need of a ranking ----

  // Fills one entry per item, in sorted order, in the type of the scores; running sums are in float64. Returns the measure.
  double fill_table(int64_t q) {
    for (int64_t r = 0; r < n; r++) {
      by_rank[r] = place[by_rank[r]];
      rank[by_rank[r]] = static_cast<T>(r + 1);
    }
    first_stop = -1;
    double measure = 0;
    switch (a.swap) {
      case PRECISION_SUM: measure = fill_precision(q); break;
      case FIRST_HIT: measure = fill_first_hit(q); break;
      case CASCADE: measure = fill_cascade(q); break;
      case PAIRS: return fill_pairs();
      default: measure = fill_additive(q);
    }
    for (int64_t j = n; j < n + 2 * WIDTH<T>; j++)
      for (T* array : t) array[j] = 0;
    return measure;
  }

  double discount_of(int64_t q, int64_t r) const { return 0 < a.cuts[q] && a.cuts[q] <= static_cast<double>(r) ? 0.0 : a.discounts[r]; }

  double fill_additive(int64_t q) {
    double measure = 0;
    for (int64_t r = 0; r < n; r++) {
      const int64_t j = by_rank[r];
      const double discount = discount_of(q, r), gain = a.weights[low + j];
      t[0][j] = static_cast<T>(a.swap == LOSS1 ? a.discounts[r] : discount);  // that of loss 1 has no cutoff
      t[1][j] = static_cast<T>(gain);
      measure += discount * gain;
    }
    if (a.swap == LOSS2 || a.swap == LOSS2PP)  // by the distance of ranks
      for (int64_t r = 1; r < n; r++) t[2][r - 1] = static_cast<T>(a.mu * std::fabs(a.discounts[r - 1] - a.discounts[r]));
    return measure;
  }

  // t[2]: count * discount - sum of the discounts of relevant items down to the rank; t[3]: the negative of it.
  double fill_precision(int64_t q) {
    double running = 0, count = 0, measure = 0;
    for (int64_t r = 0; r < n; r++) {
      const int64_t j = by_rank[r];
      const double discount = discount_of(q, r), gain = a.weights[low + j];
      if (gain > 0) {
        count += 1;
        running += discount;
        measure += discount * count * gain;
      }
      t[0][j] = static_cast<T>(discount);
      t[1][j] = static_cast<T>(gain);
      t[2][j] = static_cast<T>(count * discount - running);
      t[3][j] = static_cast<T>(running - count * discount);
    }
    return measure;
  }

  T first_discount = 0, second_discount = 0;

  double fill_first_hit(int64_t q) {
    double first = 0, second = 0;
    int count = 0;
    for (int64_t r = 0; r < n; r++) {
      const int64_t j = by_rank[r];
      const double discount = discount_of(q, r);
      t[0][j] = static_cast<T>(discount);
      if (a.weights[low + j] > 0) {
        if (count == 0) first = discount;
        if (count == 1) second = discount;
        count++;
      }
    }
    first_discount = static_cast<T>(first);
    second_discount = static_cast<T>(second);
    return first;
  }

  // The discount t[0] is multiplied by the probability to come that far. t[2] is the running sum of the measure, t[3] that
  // before the item plus t[0], t[4] is 1 / (1 - stop), and t[5] is t[3] without the first certain stop.
  double fill_cascade(int64_t q) {
    double running = 0, probability = 1, beyond = 0;
    for (int64_t r = 0; r < n; r++) {
      const int64_t j = by_rank[r];
      double discount = discount_of(q, r);
      const double stop = a.weights[low + j];
      t[0][j] = t[4][j] = t[5][j] = 0;
      t[1][j] = static_cast<T>(stop);
      if (first_stop >= 0) {  // nobody comes this far unless the first certain stop is passed over
        t[3][j] = static_cast<T>(running);
        t[5][j] = static_cast<T>(beyond + probability * discount);
        beyond += probability * discount * stop;
      } else {
        discount *= probability;
        t[0][j] = static_cast<T>(discount);
        t[3][j] = static_cast<T>(running + discount);
        running += discount * stop;
      }
      t[2][j] = static_cast<T>(running);
      if (stop < 1) {
        t[4][j] = static_cast<T>(1 / (1 - stop));
        probability *= 1 - stop;
      } else if (first_stop < 0) {
        first_stop = j;
      } else {
        probability = 0;
      }
    }
    return running;
  }

  // level_sums[l * stride + j] is the sum of the weights of level l and the items down to the rank of j, negative for items
  // of a higher level; t[0] is that of the item's own level, t[1] the number of its level.
  double fill_pairs() {
    level_number = 0;
    for (int64_t at = 0; at < n; at = ends[at]) level_number++;
    const int64_t count = level_number;
    level_sums.assign(count * stride, T(0));
    std::vector<int64_t> starts;
    for (int64_t at = 0; at < n; at = ends[at]) starts.push_back(at);
    for (int64_t level = 0; level < count; level++)
      for (int64_t j = starts[level]; j < ends[starts[level]]; j++) t[1][j] = static_cast<T>(level);
    std::vector<double> weights(count * count), running(count), seen(count);
    for (int64_t high = 0; high < count; high++)
      for (int64_t other = high + 1; other < count; other++) {
        double of_pair = 1;
        if (a.levels) of_pair = a.pair_weights[a.levels[low + starts[high]] * a.level_count + a.levels[low + starts[other]]];
        weights[high * count + other] = of_pair;
        weights[other * count + high] = -of_pair;
      }
    double wrong = 0;
    for (int64_t r = 0; r < n; r++) {
      const int64_t j = by_rank[r], own = static_cast<int64_t>(t[1][j]);
      for (int64_t other = own + 1; other < count; other++) wrong += weights[own * count + other] * seen[other];
      seen[own] += 1;
      for (int64_t level = 0; level < count; level++) {
        running[level] += weights[level * count + own];
        level_sums[level * stride + j] = static_cast<T>(running[level]);
      }
      t[0][j] = static_cast<T>(running[own]);
    }
    return wrong;
  }

  // ---- weights of the pairs of item i and the columns from start on ----

  void fill_weights(int64_t i, int64_t start, T* out) {
    switch (a.swap) {
      case PUBLISHED:
      case LOSS1: std::fill(out + start, out + n, t[0][i] * t[1][i]); break;
      case LOSS2: fill_by_distance<false>(i, start, out); break;
      case LOSS2PP: fill_by_distance<true>(i, start, out); break;
      case PRECISION_SUM: fill_precision_row(i, start, out); break;
      case FIRST_HIT: fill_first_hit_row(i, start, out); break;
      case CASCADE: fill_cascade_row(i, start, out); break;
      case PAIRS: fill_pair_row(i, start, out); break;
      default: fill_additive_row(i, start, out);
    }
    if (0 < a.truncation && static_cast<T>(a.truncation) < rank[i])  // a pair counts if one of its ranks is within
      for (int64_t j = start; j < n; j++) out[j] = rank[j] <= static_cast<T>(a.truncation) ? out[j] : T(0);
    if (by_distance) {
      const T near = T(NEARNESS), unit = static_cast<T>(1 / a.alpha);
      for (int64_t j = start; j < n; j += WIDTH<T>) {
        store<T>(out + j, load(out + j) / (near + absolute(load(x + j) - splat(x[i])) * unit));
      }
    }
    for (int64_t j = n; j < n + 2 * WIDTH<T>; j++) out[j] = 0;
  }

  void fill_additive_row(int64_t i, int64_t start, T* out) {
    for (int64_t j = start; j < n; j += WIDTH<T>)
      store<T>(out + j, absolute((splat(t[1][i]) - load(t[1] + j)) * (splat(t[0][i]) - load(t[0] + j))));
  }

  template <bool WITH_SWAP>
  void fill_by_distance(int64_t i, int64_t start, T* out) {
    const T discount = t[0][i], gain = t[1][i], r = rank[i];
    for (int64_t j = start; j < n; j++) {
      T factor = t[2][static_cast<int64_t>(std::fabs(r - rank[j])) - 1];
      if (WITH_SWAP) factor += std::fabs(discount - t[0][j]);
      out[j] = std::fabs(gain - t[1][j]) * factor;
    }
  }

  void fill_precision_row(int64_t i, int64_t start, T* out) {
    const Lanes<T> discount = splat(t[0][i]), factor = splat(t[1][i]), own = splat(t[3][i]), r = splat(rank[i]), zero{};
    for (int64_t j = start; j < n; j += WIDTH<T>) {
      const Lanes<T> raised = if_less(load(rank + j), r, load(t[0] + j) - discount, zero);
      store<T>(out + j, absolute(load(t[2] + j) + own + raised) * factor);
    }
  }

  void fill_first_hit_row(int64_t i, int64_t start, T* out) {
    const Lanes<T> r = splat(rank[i]), first = splat(first_discount), second = splat(second_discount), zero{};
    const Lanes<T> own = splat(t[0][i] == first_discount && t[0][i] > 0 ? T(1) : T(0));  // whether the item is the first
    for (int64_t j = start; j < n; j += WIDTH<T>) {
      const Lanes<T> discount = load(t[0] + j), lowered = own * (first - larger(discount, second));
      store<T>(out + j, if_less(load(rank + j), r, larger(discount - first, zero), lowered));
    }
  }

  void fill_cascade_row(int64_t i, int64_t start, T* out) {
    const Lanes<T> discount = splat(t[0][i]), stop = splat(t[1][i]), sum = splat(t[2][i]), before = splat(t[3][i]);
    const Lanes<T> inverse = splat(t[4][i]), r = splat(rank[i]);
    for (int64_t j = start; j < n; j += WIDTH<T>) {
      const Lanes<T> rj = load(rank + j), at_upper = if_less(rj, r, load(t[0] + j), discount);
      const Lanes<T> between = if_less(rj, r, before - load(t[2] + j), load(t[3] + j) - sum);
      const Lanes<T> passed = if_less(rj, r, load(t[4] + j), inverse);
      store<T>(out + j, absolute((load(t[1] + j) - stop) * (at_upper - between * passed)));
    }
    if (i == first_stop) {
      for (int64_t j = start; j < n; j++)
        if (rank[j] > rank[i]) out[j] = std::fabs((t[1][j] - t[1][i]) * (t[0][i] - t[5][j]));
    } else if (first_stop >= start && rank[first_stop] < rank[i]) {
      out[first_stop] = std::fabs((t[1][first_stop] - t[1][i]) * (t[0][first_stop] - t[5][i]));
    }
  }

  void fill_pair_row(int64_t i, int64_t start, T* out) {
    const T* const of_row = level_sums.data() + static_cast<int64_t>(t[1][i]) * stride;
    for (int64_t begin = start; begin < n; begin = ends[begin]) {  // the columns of one level
      const T at_row = level_sums[static_cast<int64_t>(t[1][begin]) * stride + i] - t[0][i];
      for (int64_t j = begin; j < ends[begin]; j++) out[j] = std::fabs(of_row[j] - t[0][j] + at_row);
    }
  }
};

template <typename T>
void pair_loss(const PairLoss& a, int64_t first, int64_t last) {
  Query<T> query(a, most_items(a, first, last));
  for (int64_t entry = first; entry < last; entry++)
    if (a.rows[a.queries[entry]] > 0) query.run(a.queries[entry]);
}

}  // namespace
}  // namespace rankbound

RANKBOUND_KERNEL_BY_TYPE(pair_loss, rankbound::PairLoss, rankbound::pair_loss)
