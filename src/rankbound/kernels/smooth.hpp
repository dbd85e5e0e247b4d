// Smooth measures: what their kernels share. The formulas are those of rankbound/losses/formulas.py; step is the logistic.
//
// structure      term of a row i, with R its smooth rank, w its weight and d the discount
// ADDITIVE       w d(R)
// PRECISION_SUM  w (1 + H) / R, where H is the smooth number of relevant items above
// COUPLED        the same, with H = sum over relevant j of logistic(beta (R_i - R_j))
// CASCADE        w d(R) prod over relevant j of (1 - w_j step(x_j - x_i))
// FIRST_HIT      d(R) prod over relevant j of logistic(beta (R_j - R_i))
// PAIRS          w sum over j of lower level of v_ij step(x_j - x_i)
//
// A cutoff k multiplies a term by logistic(beta (k + 1/2 - R)).
#pragma once

#include "common.hpp"

namespace rankbound {

enum Structure { ADDITIVE, PRECISION_SUM, COUPLED, CASCADE, PAIRS, FIRST_HIT };
enum DiscountKind { LOG2, GEOMETRIC, CONSTANT, RECIPROCAL, GIVEN = -1 };

struct Smooth {
  int64_t structure, discount;  // see the enums
  double alpha, beta, parameter;  // parameter: of the discount
  const int64_t* queries;         // in the order in which they are computed
  const int64_t* offsets;
  const int64_t* order;           // per item: indices within the query, rows first
  const int64_t* rows;            // per query
  const double* weights;          // per item in this order
  const double* cuts;             // per query: the cutoff, 0 for none
  const int64_t* columns_from;    // PAIRS: per item in this order, the first item of a lower level
  const int64_t* levels;          // PAIRS with weights v: per item in this order; null otherwise
  const double* pair_weights;     // level x level
  int64_t level_count;
  const double* at_zero;          // per query: its loss is at_zero + slope * value
  const double* slope;
  double scale;                   // of gradient and hessian
  double long_pairs;              // of scores in double: rows x items from which sums are computed by series
  const double* tables;           // of the series
  const void* scores;
  const double* given;            // GIVEN: the truncated discounts of all items and, behind them, their derivatives
  int64_t items;                  // of the batch
  double* losses;                 // results; only queries with rows are written
  void* gradient;
  void* hessian;                  // null if it is not needed
  double* ranks;                  // result of the kernel of ranks
};

// ---- discounts ------------------------------------------------------------------------------------------------------

// Four ranks at a time, or as many as there are lanes: logarithms and divisions of one rank would take as long as a row.
using Four = Lanes<double>;
static_assert(WIDTH<double> >= 4, "terms are computed for four rows");

struct Terms {
  Four value, by_rank, by_hits;
};

inline Terms discounts_at(const Smooth& a, Four rank) {
  switch (a.discount) {
    case LOG2: {
      const Four value = 0.6931471805599453 / logarithms(1.0 + rank);
      return {value, -value * value / ((1.0 + rank) * 0.6931471805599453), Four{}};
    }
    case GEOMETRIC: {
      const double log_persistence = std::log(a.parameter);
      const Four value = exponentials<double>((rank - 1.0) * log_persistence);
      return {value, value * log_persistence, Four{}};
    }
    case CONSTANT:
      return {splat(1.0), Four{}, Four{}};
    default: {
      const Four value = 1.0 / rank;
      return {value, -value * value, Four{}};
    }
  }
}

// Smooth "rank <= cutoff" and its derivative; a cutoff of 0 means none.
inline Terms truncations(Four rank, double cutoff, double beta) {
  if (cutoff <= 0.0) return {splat(1.0), Four{}, Four{}};
  const Four inside = logistics<double>(beta * (cutoff + 0.5 - rank));
  return {inside, -beta * inside * (1.0 - inside), Four{}};
}

inline Terms additive_terms(const Smooth& a, Four rank, Four weight, double cutoff) {
  const Terms d = discounts_at(a, rank), inside = truncations(rank, cutoff, a.beta);
  return {weight * d.value * inside.value, weight * (d.by_rank * inside.value + d.value * inside.by_rank), Four{}};
}

inline Terms precision_terms(const Smooth& a, Four rank, Four hits, Four weight, double cutoff) {
  const Terms inside = truncations(rank, cutoff, a.beta);
  const Four per_rank = weight / rank, precision = (1.0 + hits) * per_rank;
  return {precision * inside.value, precision * (inside.by_rank - inside.value / rank), per_rank * inside.value};
}

// Up to as many numbers as there are lanes; further lanes are 1.
inline Four lanes_of(const double* from, int64_t count) {
  double result[WIDTH<double>];
  for (int k = 0; k < WIDTH<double>; k++) result[k] = k < count ? from[k] : 1.0;
  return load(result);
}

}  // namespace rankbound
