// The first items of each query by descending score, and ranks of relevant items, without sorting the others.
#include "top.hpp"

namespace rankbound {

// ---- first items of queries -----------------------------------------------------------------------------------------

struct FirstItems {
  int64_t k;
  const int64_t* offsets;  // of the queries
  const void* scores;      // T
  double* limits;          // per query: a score that at least k items reach, minus infinity if there are fewer
  int64_t* counts;         // per query: how many items reach it
  const int64_t* starts;   // of the queries in `order`
  int64_t* order;          // the items that reach the limit of their query, by descending score
};

template <typename T>
static void first_items_count(const FirstItems& a, int64_t first, int64_t last) {
  const int64_t groups = groups_for<T>(a.k);
  std::vector<T> largest(groups);
  for (int64_t q = first; q < last; q++) {
    const T* scores = static_cast<const T*>(a.scores) + a.offsets[q];
    const int64_t size = a.offsets[q + 1] - a.offsets[q];
    a.limits[q] = -std::numeric_limits<double>::infinity(), a.counts[q] = size;
    if (size <= groups) continue;
    const T limit = score_of_first(scores, size, a.k, largest.data());
    int64_t count = 0;
    for (int64_t block = 0; block < size; block += BLOCK) {
      int32_t reached = 0;
      for (int64_t j = block, end = std::min(block + BLOCK, size); j < end; j++) reached += scores[j] >= limit;
      count += reached;
    }
    a.limits[q] = limit, a.counts[q] = count;
  }
}

template <typename T>
static void first_items_collect(const FirstItems& a, int64_t first, int64_t last) {
  constexpr int64_t run = 4 * WIDTH<T>;
  const T* scores = static_cast<const T*>(a.scores);
  for (int64_t q = first; q < last; q++) {
    int64_t* order = a.order + a.starts[q];
    const int64_t low = a.offsets[q], high = a.offsets[q + 1], count = a.starts[q + 1] - a.starts[q];
    const T limit = static_cast<T>(a.limits[q]);
    const bool few = count * 2 * run < high - low;  // most runs of items have none that reaches the limit
    int64_t found = 0;
    for (int64_t j = low; j < high && found < count;) {
      const int64_t end = std::min(j + run, high);
      if (few && end - j == run && !one_reaches(largest_of_run(scores + j), limit)) {
        j = end;
        continue;
      }
      for (; j < end && found < count; j++) {
        order[found] = j;  // overwritten by the next item unless this one reaches the limit
        found += scores[j] >= limit;
      }
    }
    if (count > 64) {
      std::stable_sort(order, order + count, [scores](int64_t i, int64_t j) { return scores[i] > scores[j]; });
      continue;
    }
    for (int64_t r = 1; r < count; r++) {
      const int64_t item = order[r];
      int64_t at = r;
      for (; at > 0 && scores[order[at - 1]] < scores[item]; at--) order[at] = order[at - 1];
      order[at] = item;
    }
  }
}

// ---- first items of dense rows --------------------------------------------------------------------------------------

struct TopOfRows {
  int64_t k, width;
  const float* scores;  // [rows, width]
  int32_t* items;       // [rows, k]
  float* values;        // [rows, k]: at first, those that others must exceed
};

// The items are scanned in short runs, and a run is looked at more closely only if its maximum reaches the k-th best
// score so far, which soon becomes rare.
static void top_of_rows(const TopOfRows& a, int64_t first, int64_t last) {
  constexpr int64_t run = 4 * WIDTH<float>;
  for (int64_t row = first; row < last; row++) {
    const float* scores = a.scores + row * a.width;
    int32_t* items = a.items + row * a.k;
    float* values = a.values + row * a.k;
    for (int64_t start = 0; start < a.width; start += run) {
      const int64_t end = std::min(start + run, a.width);
      if (end - start == run && !one_reaches(largest_of_run(scores + start), values[a.k - 1])) continue;
      for (int64_t j = start; j < end; j++) {
        const float value = scores[j];
        if (value <= values[a.k - 1]) continue;
        int64_t at = a.k - 1;
        for (; at > 0 && values[at - 1] < value; at--) values[at] = values[at - 1], items[at] = items[at - 1];
        values[at] = value, items[at] = static_cast<int32_t>(j);
      }
    }
  }
}

// ---- ranks of relevant items ----------------------------------------------------------------------------------------

struct RelevantRanks {
  int64_t width;
  const void* scores;     // T [rows, width]
  const int8_t* labels;   // [rows, width]; 0: an item that counts
  const void* relevant;   // T, ascending in each row
  const int64_t* starts;  // of the rows in `relevant`
  int64_t* above;         // per relevant item: how many items that count have a higher score
  int64_t* equal;         // per relevant item: how many have the same
};

// Every item that counts is looked up among the sorted scores of the relevant ones, which are few.
template <typename T>
static void relevant_ranks(const RelevantRanks& a, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; row++) {
    const T* scores = static_cast<const T*>(a.scores) + row * a.width;
    const int8_t* labels = a.labels + row * a.width;
    const T* relevant = static_cast<const T*>(a.relevant) + a.starts[row];
    int64_t *above = a.above + a.starts[row], *equal = a.equal + a.starts[row];
    const int64_t count = a.starts[row + 1] - a.starts[row];
    if (count == 0) continue;
    for (int64_t j = 0; j < a.width; j++) {
      const T score = scores[j];
      if (labels[j] != 0 || score < relevant[0]) continue;
      int64_t low = 0;  // of the relevant items, the last that does not score more
      for (int64_t size = count; size > 1;) {
        const int64_t half = size / 2;
        low += relevant[low + half] <= score ? half : 0;
        size -= half;
      }
      if (relevant[low] < score) {
        above[low]++;
        continue;
      }
      while (low > 0 && relevant[low - 1] == score) low--;
      if (low > 0) above[low - 1]++;
      equal[low]++;
    }
    for (int64_t r = count - 2; r >= 0; r--) above[r] += above[r + 1];  // above an item is above all with lower scores
    for (int64_t r = 1; r < count; r++)
      if (relevant[r] == relevant[r - 1]) equal[r] = equal[r - 1];
  }
}

}  // namespace rankbound

RANKBOUND_KERNEL_BY_TYPE(first_items_count, rankbound::FirstItems, rankbound::first_items_count)
RANKBOUND_KERNEL_BY_TYPE(first_items_collect, rankbound::FirstItems, rankbound::first_items_collect)
RANKBOUND_KERNEL(top_of_rows, rankbound::TopOfRows, rankbound::top_of_rows)
RANKBOUND_KERNEL_BY_TYPE(relevant_ranks, rankbound::RelevantRanks, rankbound::relevant_ranks)
