// Matrix factorization: scores of pairs, and one optimizer step on the vectors of a batch of users.
//
// With f_ui = p_u q_i and g_ui the derivative of the loss in f_ui, the gradients are
//
//   dp_u = sum_i g_ui q_i + l2 p_u        over the rows of user u, which are contiguous
//   dq_i = sum_u g_ui p_u + l2 q_i        over the rows of item i, which an index by item lists
//
// so every vector belongs to one thread, there are no atomic additions, and each sum has one order.
#include "vectors.hpp"

namespace rankbound {

// ---- scores ---------------------------------------------------------------------------------------------------------

struct ScorePairs {
  int64_t factors;
  const float *users, *items;
  const int32_t *row_users, *row_items;
  float* scores;
};

static void score_pairs(const ScorePairs& a, int64_t first, int64_t last) {
  for (int64_t r = first; r < last; r++)
    a.scores[r] = inner_product(a.users + a.row_users[r] * a.factors, a.items + a.row_items[r] * a.factors, a.factors);
}

// ---- steps ----------------------------------------------------------------------------------------------------------

// SGD or Adam; the numbers of Adam include the corrections of its means.
struct Optimizer {
  int64_t adam;
  double rate, l2, factor, decay, decay_square, root, epsilon;
};

struct Table {
  float *values, *first, *second;  // Adam's running means of gradients and squared gradients
};

static void update(const Optimizer& o, const Table& table, int64_t row, int64_t factors, const float* __restrict total) {
  float* __restrict value = table.values + row * factors;
  const float rate = static_cast<float>(o.rate), l2 = static_cast<float>(o.l2), factor = static_cast<float>(o.factor);
  if (!o.adam) {
    for (int64_t f = 0; f < factors; f++) value[f] -= rate * (factor * total[f] + l2 * value[f]);
    return;
  }
  float *__restrict first = table.first + row * factors, *__restrict second = table.second + row * factors;
  const float decay = static_cast<float>(o.decay), rest = static_cast<float>(1 - o.decay);
  const float decay_square = static_cast<float>(o.decay_square), rest_square = static_cast<float>(1 - o.decay_square);
  const float root = static_cast<float>(o.root), epsilon = static_cast<float>(o.epsilon);
  for (int64_t f = 0; f < factors; f++) {
    const float gradient = factor * total[f] + l2 * value[f];
    first[f] = decay * first[f] + rest * gradient;
    second[f] = decay_square * second[f] + rest_square * gradient * gradient;
    value[f] -= rate * first[f] / (root * std::sqrt(second[f]) + epsilon);
  }
}

struct Step {
  Optimizer optimizer;
  int64_t factors;
  Table users, items;
  const float* gradient;       // per row
  const int32_t* row_items;    // per row
  const int32_t* touched_users;
  const int64_t* starts;       // of the users in the rows
  const int64_t* blocks;       // runs of users with about equal numbers of rows
  const int32_t* touched_items;
  const int64_t* item_starts;  // of the items in `by_item`
  const int32_t* by_item;      // rows by item
  const int32_t* item_users;   // their users
  const int64_t* item_blocks;  // runs of items
  float* user_totals;          // gradients of the users [users, factors]
};

// Sets total = sum of weight(r) * vectors[others[r]] for low <= r < high.
template <typename Weight>
static void weighted_sum(
    Weight weight, const int32_t* others, int64_t low, int64_t high, const float* vectors, int64_t factors, float* total) {
  constexpr int w = WIDTH<float>;
  int64_t f = 0;
  for (; f + 4 * w <= factors; f += 4 * w) {
    Lanes<float> even[4] = {}, odd[4] = {};
    int64_t r = low;
    for (; r + 2 <= high; r += 2) {
      const float *x = vectors + others[r] * factors + f, *y = vectors + others[r + 1] * factors + f;
      const float by_x = weight(r), by_y = weight(r + 1);
      for (int k = 0; k < 4; k++) {
        even[k] += by_x * load(x + k * w);
        odd[k] += by_y * load(y + k * w);
      }
    }
    if (r < high)
      for (int k = 0; k < 4; k++) even[k] += weight(r) * load(vectors + others[r] * factors + f + k * w);
    for (int k = 0; k < 4; k++) store(total + f + k * w, even[k] + odd[k]);
  }
  for (; f + w <= factors; f += w) {
    Lanes<float> sum{};
    for (int64_t r = low; r < high; r++) sum += weight(r) * load(vectors + others[r] * factors + f);
    store(total + f, sum);
  }
  for (; f < factors; f++) {
    float sum = 0;
    for (int64_t r = low; r < high; r++) sum += weight(r) * vectors[others[r] * factors + f];
    total[f] = sum;
  }
}

// Gradients of users, before the items change.
static void step_user_totals(const Step& a, int64_t first, int64_t last) {
  const auto weight = [&a](int64_t r) { return a.gradient[r]; };
  for (int64_t u = a.blocks[first]; u < a.blocks[last]; u++)
    weighted_sum(weight, a.row_items, a.starts[u], a.starts[u + 1], a.items.values, a.factors,
                 a.user_totals + u * a.factors);
}

// Gradients and steps of items, before the users change.
static void step_items(const Step& a, int64_t first, int64_t last) {
  std::vector<float> total(a.factors);
  const auto weight = [&a](int64_t r) { return a.gradient[a.by_item[r]]; };
  for (int64_t i = a.item_blocks[first]; i < a.item_blocks[last]; i++) {
    weighted_sum(weight, a.item_users, a.item_starts[i], a.item_starts[i + 1], a.users.values, a.factors, total.data());
    update(a.optimizer, a.items, a.touched_items[i], a.factors, total.data());
  }
}

static void step_users(const Step& a, int64_t first, int64_t last) {
  for (int64_t u = a.blocks[first]; u < a.blocks[last]; u++)
    update(a.optimizer, a.users, a.touched_users[u], a.factors, a.user_totals + u * a.factors);
}

struct UpdateRows {
  Optimizer optimizer;
  int64_t factors;
  Table table;
  double shrink;  // by which the vectors are multiplied before
  const int64_t* rows;
  const float* gradient;  // [rows, factors]
};

static void update_rows(const UpdateRows& a, int64_t first, int64_t last) {
  const float shrink = static_cast<float>(a.shrink);
  for (int64_t r = first; r < last; r++) {
    float* value = a.table.values + a.rows[r] * a.factors;
    for (int64_t f = 0; f < a.factors; f++) value[f] *= shrink;
    update(a.optimizer, a.table, a.rows[r], a.factors, a.gradient + r * a.factors);
  }
}

}  // namespace rankbound

RANKBOUND_KERNEL(score_pairs, rankbound::ScorePairs, rankbound::score_pairs)
RANKBOUND_KERNEL(step_user_totals, rankbound::Step, rankbound::step_user_totals)
RANKBOUND_KERNEL(step_items, rankbound::Step, rankbound::step_items)
RANKBOUND_KERNEL(step_users, rankbound::Step, rankbound::step_users)
RANKBOUND_KERNEL(update_rows, rankbound::UpdateRows, rankbound::update_rows)
