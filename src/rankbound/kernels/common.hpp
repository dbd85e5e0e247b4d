// What all kernels share: how they are exported, lanes, and functions of numbers and of lanes.
//
// A sum of many terms is computed in lanes: lane k adds the terms k, k + width, k + 2 width, ..., and the lanes are added
// in a fixed order. The result does not depend on where arrays lie in memory, nor on the number of threads, because a
// query is always computed by one thread. Nothing may depend on the compiler reordering sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#if defined(_WIN32)
#define RANKBOUND_API extern "C" __declspec(dllexport)
#else
#define RANKBOUND_API extern "C" __attribute__((visibility("default")))
#endif

// Exports a kernel as `name`: it processes the entries first <= i < last of its work and returns 0, or 1 if there is no
// memory left. `name_size` is the size of its struct, which Python compares with its own.
#define RANKBOUND_KERNEL(name, Struct, function)                                              \
  RANKBOUND_API int name(const Struct* arguments, int64_t first, int64_t last) noexcept {     \
    try {                                                                                     \
      function(*arguments, first, last);                                                      \
      return 0;                                                                               \
    } catch (const std::bad_alloc&) {                                                         \
      return 1;                                                                               \
    }                                                                                         \
  }                                                                                           \
  RANKBOUND_API int64_t name##_size() { return static_cast<int64_t>(sizeof(Struct)); }

// The same for a template over the type of the scores: `name_f32` and `name_f64`.
#define RANKBOUND_KERNEL_BY_TYPE(name, Struct, function)   \
  RANKBOUND_KERNEL(name##_f32, Struct, function<float>)    \
  RANKBOUND_KERNEL(name##_f64, Struct, function<double>)

namespace rankbound {

// ---- lanes ----------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int LANE_BYTES = 64;
#else
constexpr int LANE_BYTES = 32;
#endif

template <typename T>
constexpr int WIDTH = LANE_BYTES / static_cast<int>(sizeof(T));

#if defined(__GNUC__)

template <typename T>
struct LanesOf {
  typedef T type __attribute__((vector_size(LANE_BYTES)));
};
template <typename T>
using Lanes = typename LanesOf<T>::type;

template <typename T>
inline Lanes<T> splat(T value) {
  return value - Lanes<T>{};
}
template <typename V>
inline V larger(V a, V b) {
  return a > b ? a : b;
}
template <typename V>
inline V smaller(V a, V b) {
  return a < b ? a : b;
}

#else

// For compilers without vector extensions: the same lanes, which the optimizer may or may not put into registers.
template <typename T>
struct Lanes {
  T at[WIDTH<T>]{};
  T operator[](int k) const { return at[k]; }
  T& operator[](int k) { return at[k]; }
};
template <typename T>
inline Lanes<T> splat(T value) {
  Lanes<T> result;
  for (int k = 0; k < WIDTH<T>; k++) result.at[k] = value;
  return result;
}
#define RANKBOUND_OPERATOR(op)                                               \
  template <typename T>                                                      \
  inline Lanes<T> operator op(const Lanes<T>& a, const Lanes<T>& b) {        \
    Lanes<T> result;                                                         \
    for (int k = 0; k < WIDTH<T>; k++) result.at[k] = a.at[k] op b.at[k];    \
    return result;                                                           \
  }                                                                          \
  template <typename T>                                                      \
  inline Lanes<T>& operator op##=(Lanes<T>& a, const Lanes<T>& b) {          \
    return a = a op b;                                                       \
  }                                                                          \
  template <typename T>                                                      \
  inline Lanes<T> operator op(const Lanes<T>& a, T b) {                      \
    return a op splat(b);                                                    \
  }                                                                          \
  template <typename T>                                                      \
  inline Lanes<T> operator op(T a, const Lanes<T>& b) {                      \
    return splat(a) op b;                                                    \
  }
RANKBOUND_OPERATOR(+)
RANKBOUND_OPERATOR(-)
RANKBOUND_OPERATOR(*)
RANKBOUND_OPERATOR(/)
#undef RANKBOUND_OPERATOR
template <typename T>
inline Lanes<T> larger(Lanes<T> a, Lanes<T> b) {
  for (int k = 0; k < WIDTH<T>; k++) a.at[k] = a.at[k] > b.at[k] ? a.at[k] : b.at[k];
  return a;
}
template <typename T>
inline Lanes<T> smaller(Lanes<T> a, Lanes<T> b) {
  for (int k = 0; k < WIDTH<T>; k++) a.at[k] = a.at[k] < b.at[k] ? a.at[k] : b.at[k];
  return a;
}

#endif

template <typename T>
inline Lanes<T> load(const T* from) {
  Lanes<T> result;
  std::memcpy(&result, from, sizeof result);
  return result;
}
template <typename T>
inline void store(T* to, Lanes<T> value) {
  std::memcpy(to, &value, sizeof value);
}

// The sum of the lanes, in a fixed order and in the given type.
template <typename R, typename T>
inline R sum_lanes(Lanes<T> lanes) {
  T at[WIDTH<T>];
  std::memcpy(at, &lanes, sizeof at);
  for (int half = WIDTH<T> / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) at[k] += at[k + half];
  return static_cast<R>(at[0]);
}

template <typename T>
constexpr int64_t in_lanes(int64_t count) {
  return (count + WIDTH<T> - 1) / WIDTH<T> * WIDTH<T>;
}

// Terms that are summed in the type of the scores before they are added to a double.
constexpr int64_t BLOCK = 2048;

// ---- exponential ----------------------------------------------------------------------------------------------------

// exp(x) = 2^n exp(r) with |r| <= ln(2)/2; n enters the exponent of the result through the low bits of x / ln(2) + MAGIC.
// Arguments beyond the limits count as the limits. The error is a few units in the last place.

// exp(r) for what is left of an argument, |r| <= log(2) / 2, of a number or of lanes.
template <typename V>
inline V exponential_of_rest(V r, float) {
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}

template <typename V>
inline V exponential_of_rest(V r, double) {
  V p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  return p * r * r + r + 1.0;
}

inline float exponential(float x) {
  constexpr float magic = 12582912.0f;
  x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + magic, n = shifted - magic;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = exponential_of_rest(r, 0.0f);
  int32_t bits, power;
  std::memcpy(&bits, &p, 4);
  std::memcpy(&power, &shifted, 4);
  bits = static_cast<int32_t>(static_cast<uint32_t>(bits) + (static_cast<uint32_t>(power) << 23));
  std::memcpy(&p, &bits, 4);
  return p;
}

inline double exponential(double x) {
  constexpr double magic = 6755399441055744.0;
  x = x < -708.0 ? -708.0 : x > 709.0 ? 709.0 : x;
  const double shifted = x * 1.4426950408889634 + magic, n = shifted - magic;
  const double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  double p = exponential_of_rest(r, 0.0);
  int64_t bits, power;
  std::memcpy(&bits, &p, 8);
  std::memcpy(&power, &shifted, 8);
  bits = static_cast<int64_t>(static_cast<uint64_t>(bits) + (static_cast<uint64_t>(power) << 52));
  std::memcpy(&p, &bits, 8);
  return p;
}

// The same for all lanes.
#if defined(__GNUC__)

typedef uint32_t Bits32 __attribute__((vector_size(LANE_BYTES)));
typedef uint64_t Bits64 __attribute__((vector_size(LANE_BYTES)));

template <typename T>
inline Lanes<T> exponentials(Lanes<T> x);

template <>
inline Lanes<float> exponentials<float>(Lanes<float> x) {
  constexpr float magic = 12582912.0f;
  x = smaller(larger(x, splat(-87.0f)), splat(88.0f));
  const Lanes<float> shifted = x * 1.44269504f + magic, n = shifted - magic;
  const Lanes<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  const Lanes<float> p = exponential_of_rest(r, 0.0f);
  return reinterpret_cast<Lanes<float>>(reinterpret_cast<Bits32>(p) + (reinterpret_cast<Bits32>(shifted) << 23));
}

template <>
inline Lanes<double> exponentials<double>(Lanes<double> x) {
  constexpr double magic = 6755399441055744.0;
  x = smaller(larger(x, splat(-708.0)), splat(709.0));
  const Lanes<double> shifted = x * 1.4426950408889634 + magic, n = shifted - magic;
  const Lanes<double> r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  const Lanes<double> p = exponential_of_rest(r, 0.0);
  return reinterpret_cast<Lanes<double>>(reinterpret_cast<Bits64>(p) + (reinterpret_cast<Bits64>(shifted) << 52));
}

#else

template <typename T>
inline Lanes<T> exponentials(Lanes<T> x) {
  for (int k = 0; k < WIDTH<T>; k++) x[k] = exponential(x[k]);
  return x;
}

#endif

// ln(x) of positive, finite numbers that are not denormal: x = 2^n m with m around 1, and ln(m) = 2 atanh((m - 1) / (m + 1)).
inline Lanes<double> logarithms(Lanes<double> x) {
  constexpr uint64_t to_half_root = 0x95f6400000000ull;  // what is left for m is between sqrt(1/2) and sqrt(2)
#if defined(__GNUC__)
  constexpr uint64_t magic = 0x4330000000000000ull;  // 2^52: an integer in its low bits becomes a number
  const Bits64 bits = reinterpret_cast<Bits64>(x), n = (bits + to_half_root) >> 52;
  const Lanes<double> exponent = reinterpret_cast<Lanes<double>>(n | magic) - (4503599627370496.0 + 1023.0);
  const Lanes<double> m = reinterpret_cast<Lanes<double>>(bits - ((n - 1023) << 52));
#else
  Lanes<double> exponent, m;
  for (int k = 0; k < WIDTH<double>; k++) {
    uint64_t bits;
    std::memcpy(&bits, &x[k], 8);
    const uint64_t n = (bits + to_half_root) >> 52;
    bits -= (n - 1023) << 52;
    exponent[k] = static_cast<double>(n) - 1023.0;
    std::memcpy(&m[k], &bits, 8);
  }
#endif
  const Lanes<double> s = (m - 1.0) / (m + 1.0), y = s * s;
  Lanes<double> p = splat(2.0 / 21.0);
  p = p * y + 2.0 / 19.0;
  p = p * y + 2.0 / 17.0;
  p = p * y + 2.0 / 15.0;
  p = p * y + 2.0 / 13.0;
  p = p * y + 2.0 / 11.0;
  p = p * y + 2.0 / 9.0;
  p = p * y + 2.0 / 7.0;
  p = p * y + 2.0 / 5.0;
  p = p * y + 2.0 / 3.0;
  return exponent * 0.6931471805599453 + (p * y * s + 2.0 * s);
}

template <typename T>
inline T logistic(T x) {
  return T(1) / (T(1) + exponential(-x));
}

template <typename T>
inline Lanes<T> logistics(Lanes<T> x) {
  return T(1) / (T(1) + exponentials<T>(-x));
}

// The most items of a query in a range of the work order.
template <typename Arguments>
int64_t most_items(const Arguments& a, int64_t first, int64_t last) {
  int64_t most = 1;
  for (int64_t entry = first; entry < last; entry++) {
    const int64_t q = a.queries[entry];
    most = std::max(most, a.offsets[q + 1] - a.offsets[q]);
  }
  return most;
}

}  // namespace rankbound
