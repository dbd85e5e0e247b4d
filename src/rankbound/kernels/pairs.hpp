// Elementary functions of pairs, and sorting by score.
#pragma once
#include <utility>

#include "common.hpp"

namespace rankbound {

// ---- lanes ----------------------------------------------------------------------------------------------------------

#if defined(__GNUC__)

template <typename V>
inline V if_less(V a, V b, V then, V otherwise) {
  return a < b ? then : otherwise;
}

inline Lanes<float> absolute(Lanes<float> a) {
  typedef int32_t Bits __attribute__((vector_size(LANE_BYTES)));
  return reinterpret_cast<Lanes<float>>(reinterpret_cast<Bits>(a) & 0x7fffffff);
}
inline Lanes<double> absolute(Lanes<double> a) {
  typedef int64_t Bits __attribute__((vector_size(LANE_BYTES)));
  return reinterpret_cast<Lanes<double>>(reinterpret_cast<Bits>(a) & 0x7fffffffffffffff);
}

#else

template <typename T>
inline Lanes<T> if_less(Lanes<T> a, Lanes<T> b, Lanes<T> then, Lanes<T> otherwise) {
  for (int k = 0; k < WIDTH<T>; k++) then.at[k] = a.at[k] < b.at[k] ? then.at[k] : otherwise.at[k];
  return then;
}
template <typename T>
inline Lanes<T> absolute(Lanes<T> a) {
  return larger(a, Lanes<T>{} - a);
}

#endif

// 2 atanh(z) for 0 <= z <= 1/3, so that log(1 + t) is that of t / (2 + t): minimax fits in z², errors 5e-9 and 4e-20.
template <typename V>
inline V log_of_ratio(V z, float) {
  const V y = z * z;
  V p = y * 0.281577783631f + 0.279651577452f;
  p = p * y + 0.400245952307f;
  p = p * y + 0.666663216414f;
  return z * (p * y + 2.00000000768f);
}

template <typename V>
inline V log_of_ratio(V z, double) {
  const V y = z * z;
  V p = y * 0.164882859313895686 + 0.0698039049833243202;
  p = p * y + 0.109766166379474941;
  p = p * y + 0.117152746681104253;
  p = p * y + 0.133368768157438354;
  p = p * y + 0.153844470604599676;
  p = p * y + 0.181818234224952525;
  p = p * y + 0.222222221191036744;
  p = p * y + 0.28571428572622928;
  p = p * y + 0.399999999999928668;
  p = p * y + 0.666666666666666833;
  return z * (p * y + 2.0);
}

// ---- the logistic cost ----------------------------------------------------------------------------------------------

// Of d = x_j - x_i with the higher label at i: σ(d), σ(-d), and log(1 + exp(d)) if it is needed.
template <typename T>
struct Step {
  Lanes<T> above, below, cost;
};

// From exponentials of both items: σ(d) = e_j / (e_i + e_j). One division serves σ and the logarithm.
template <typename T>
inline Step<T> factored_step(Lanes<T> ej, Lanes<T> ei, Lanes<T> d) {
  const Lanes<T> sum = ej + ei, high = larger(ej, ei), low = smaller(ej, ei), divisor = sum + high;
  const Lanes<T> both = T(1) / (sum * divisor), inverse = divisor * both;
  return {ej * inverse, ei * inverse, larger(d, Lanes<T>{}) + log_of_ratio(low * (sum * both), T())};
}

// The same without a cost.
template <typename T>
inline Step<T> factored_step(Lanes<T> ej, Lanes<T> ei) {
  const Lanes<T> inverse = T(1) / (ej + ei);
  return {ej * inverse, ei * inverse, Lanes<T>{}};
}

// For scores so far apart that their exponentials would overflow.
template <typename T, bool VALUE>
inline Step<T> direct_step(Lanes<T> d) {
  const Lanes<T> t = exponentials<T>(Lanes<T>{} - absolute(d)), one = splat(T(1));
  const Lanes<T> inverse = T(1) / (T(1) + t), zero{};
  const Lanes<T> high = inverse, low = t * inverse;
  Step<T> result{if_less(zero, d, high, low), if_less(zero, d, low, high), zero};
  if (VALUE) result.cost = larger(d, zero) + log_of_ratio(t / (one + one + t), T());
  return result;
}

// The sum of log(1 + t) over many 0 <= t <= 1 with equal weights, by few logarithms: p = product of (1 + t) minus 1 follows
// from p + t + p t. That loses nothing where all t are small.
template <typename T>
class LogOfProduct {
 public:
  static constexpr int64_t MOST = 64;  // factors per lane between two calls of `make_room`

  // Makes room for so many factors per lane, at most MOST, and returns the lanes to continue with `multiply`.
  Lanes<T> make_room(int64_t factors) {
    if (factors_ + factors > IN_LANES) fold();
    factors_ += factors;
    return lanes_;
  }
  static Lanes<T> multiply(Lanes<T> lanes, Lanes<T> t) { return lanes * t + (lanes + t); }
  void keep(Lanes<T> lanes) { lanes_ = lanes; }

  // The sum so far; starts again at 0.
  double take() {
    fold();
    log();
    const double result = total_;
    total_ = 0;
    return result;
  }

 private:
  static constexpr int64_t IN_LANES = sizeof(T) == 4 ? 120 : 240, IN_PRODUCT = 960;  // 2^1024 overflows

  void fold() {
    if (in_product_ + factors_ > IN_PRODUCT) log();
    for (int k = 0; k < WIDTH<T>; k++) {
      const double t = lanes_[k];
      product_[k] = product_[k] * t + (product_[k] + t);
    }
    in_product_ += factors_;
    factors_ = 0;
    lanes_ = Lanes<T>{};
  }
  void log() {
    for (double& product : product_) {
      total_ += std::log1p(product);
      product = 0;
    }
    in_product_ = 0;
  }

  Lanes<T> lanes_{};
  double product_[WIDTH<T>] = {}, total_ = 0;
  int64_t factors_ = 0, in_product_ = 0;
};

// ---- sorting --------------------------------------------------------------------------------------------------------

inline uint32_t descending_key(float score) {
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  if (bits << 1 == 0) bits = 0;  // -0 equals 0
  return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

inline uint64_t descending_key(double score) {
  uint64_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  if (bits << 1 == 0) bits = 0;
  return bits >> 63 ? bits : ~bits & 0x7fffffffffffffffu;
}

// The lowest and the highest score.
template <typename T>
inline std::pair<T, T> range_of(const T* scores, int64_t n) {
  T lowest = scores[0], highest = scores[0];
  int64_t j = 0;
  if (n >= WIDTH<T>) {
    Lanes<T> low = load(scores), high = low;
    for (; j + WIDTH<T> <= n; j += WIDTH<T>) {
      low = smaller(low, load(scores + j));
      high = larger(high, load(scores + j));
    }
    for (int k = 0; k < WIDTH<T>; k++) {
      lowest = std::min<T>(lowest, low[k]);
      highest = std::max<T>(highest, high[k]);
    }
  }
  for (; j < n; j++) {
    lowest = std::min(lowest, scores[j]);
    highest = std::max(highest, scores[j]);
  }
  return {lowest, highest};
}

// Sorts the items of a query by descending score; ties keep their order.
template <typename T>
class Sorter {
 public:
  explicit Sorter(int64_t most) : now_(most), then_(most) {}

  // by_rank[r] becomes the item of rank r + 1.
  void sort(const T* scores, int64_t n, int32_t* by_rank) {
    if (n <= COUNTED)
      count(scores, n, by_rank);
    else if (n > FEW || !sort_buckets(scores, n, by_rank))
      sort_digits(scores, n, by_rank);
  }

 private:
  using Key = decltype(descending_key(T()));
  struct Entry {
    Key key;
    int32_t item;
  };
  static constexpr int64_t COUNTED = 80, FEW = 256, CROWDED = 32;

  // Counts for each item those with a higher score: without branches, of few items the quickest.
  static void count(const T* scores, int64_t n, int32_t* by_rank) {
    T values[COUNTED + WIDTH<T>], above[COUNTED + WIDTH<T>];
    const int64_t width = in_lanes<T>(n);
    std::copy(scores, scores + n, values);
    std::fill(values + n, values + width, T(0));
    const Lanes<T> one = splat(T(1)), zero{};
    for (int64_t j = 0; j < width; j += WIDTH<T>) {
      const Lanes<T> here = load(values + j);
      Lanes<T> sum{};
      for (int64_t i = 0; i < n; i++) sum += if_less(here, splat(scores[i]), one, zero);
      store(above + j, sum);
    }
    int32_t ties[COUNTED] = {};  // that have their rank already
    for (int64_t j = 0; j < n; j++) {
      const int64_t rank = static_cast<int64_t>(above[j]);
      by_rank[rank + ties[rank]++] = static_cast<int32_t>(j);
    }
  }

  // Distributes few items over as many buckets of equal width, and inserts those that are still in the wrong order.
  static bool sort_buckets(const T* scores, int64_t n, int32_t* by_rank) {
    const auto [least, most] = range_of(scores, n);
    const T top = most / 2, scale = static_cast<T>(n - 1) / (top - least / 2);
    if (!(scale > 0 && scale <= std::numeric_limits<T>::max())) return false;  // equal scores, or nearly so
    int32_t bucket[FEW], next[FEW + 1] = {};
    for (int64_t j = 0; j < n; j++) bucket[j] = static_cast<int32_t>((top - scores[j] / 2) * scale);
    for (int64_t j = 0; j < n; j++) next[bucket[j] + 1]++;
    if (*std::max_element(next + 1, next + n + 1) > CROWDED) return false;  // insertions would take long
    for (int64_t k = 1; k < n; k++) next[k] += next[k - 1];
    for (int64_t j = 0; j < n; j++) by_rank[next[bucket[j]]++] = static_cast<int32_t>(j);
    for (int64_t r = 1; r < n; r++) {
      const int32_t item = by_rank[r];
      int64_t to = r;
      for (; to > 0 && scores[by_rank[to - 1]] < scores[item]; to--) by_rank[to] = by_rank[to - 1];
      by_rank[to] = item;
    }
    return true;
  }

  void sort_digits(const T* scores, int64_t n, int32_t* by_rank) {
    constexpr int digits = sizeof(Key);
    int32_t counts[digits][256] = {};
    for (int64_t j = 0; j < n; j++) {
      const Key key = descending_key(scores[j]);
      now_[j] = {key, static_cast<int32_t>(j)};
      for (int digit = 0; digit < digits; digit++) counts[digit][key >> (8 * digit) & 255]++;
    }
    for (int digit = 0; digit < digits; digit++) {
      if (counts[digit][now_[0].key >> (8 * digit) & 255] == n) continue;
      int32_t position[256], next = 0;
      for (int value = 0; value < 256; value++) {
        position[value] = next;
        next += counts[digit][value];
      }
      for (int64_t j = 0; j < n; j++) then_[position[now_[j].key >> (8 * digit) & 255]++] = now_[j];
      now_.swap(then_);
    }
    for (int64_t r = 0; r < n; r++) by_rank[r] = now_[r].item;
  }

  std::vector<Entry> now_, then_;
};

}  // namespace rankbound
