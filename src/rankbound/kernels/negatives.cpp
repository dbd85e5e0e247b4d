// Negative items of users. Each user has a random stream of its own (SplitMix64), so that the items depend neither on
// the batch that the user is in nor on the number of threads.
#include "common.hpp"

namespace rankbound {

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15;

// The output function of SplitMix64 (Steele, Lea & Flood, Fast splittable pseudorandom number generators).
static inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// An integer from 0 to bound - 1; the 32 upper bits are scaled, with a bias below bound / 2^32.
static inline int64_t draw_below(uint64_t state, int64_t bound) {
  return static_cast<int64_t>(((mix(state) >> 32) * static_cast<uint64_t>(bound)) >> 32);
}

struct DrawNegatives {
  int64_t seed, catalog, popular, interactions;
  const int32_t* users;    // whose lists are wanted
  const int64_t* starts;   // of all users in `items`
  const int32_t* items;    // positive items
  const int64_t* offsets;  // of the lists
  const int64_t* counts;   // negatives per list
  int32_t* lists;          // positives, then negatives
};

static void draw_negatives(const DrawNegatives& a, int64_t first, int64_t last) {
  std::vector<uint8_t> marked(a.catalog);
  for (int64_t u = first; u < last; u++) {
    const int64_t user = a.users[u], low = a.starts[user], high = a.starts[user + 1], count = a.counts[u];
    int32_t* list = a.lists + a.offsets[u];
    for (int64_t r = low; r < high; r++) {
      marked[a.items[r]] = 1;
      *list++ = a.items[r];
    }
    int32_t* const end = list + count;
    uint64_t state = mix(static_cast<uint64_t>(a.seed) + static_cast<uint64_t>(user) * GOLDEN);
    int64_t left = a.catalog - (high - low);
    if (a.popular || 2 * count <= left) {  // draw until there are enough that are new
      int32_t* at = list;
      while (at < end) {
        state += GOLDEN;
        const int32_t item = a.popular ? a.items[draw_below(state, a.interactions)]
                                       : static_cast<int32_t>(draw_below(state, a.catalog));
        if (marked[item]) continue;
        marked[item] = 1;
        *at++ = item;
      }
      for (at = list; at < end; at++) marked[*at] = 0;
    } else {  // selection sampling: item by item, with the probability that is left (Knuth, algorithm S)
      for (int64_t item = 0; item < a.catalog; item++) {
        if (marked[item]) continue;
        state += GOLDEN;
        if (draw_below(state, left) < end - list) *list++ = static_cast<int32_t>(item);
        left--;
      }
    }
    for (int64_t r = low; r < high; r++) marked[a.items[r]] = 0;
  }
}

struct KeepBest {
  int64_t candidates;
  const float* scores;      // of the rows of all lists
  const int64_t* offsets;   // of the lists
  const int64_t* positives; // rows with which a list begins
  const int64_t* kept;      // offsets of the lists in `chosen`
  int64_t* chosen;          // all positives, and the best of every so many candidates
};

static void keep_best(const KeepBest& a, int64_t first, int64_t last) {
  for (int64_t u = first; u < last; u++) {
    int64_t* chosen = a.chosen + a.kept[u];
    const int64_t negatives = a.offsets[u] + a.positives[u];
    for (int64_t r = a.offsets[u]; r < negatives; r++) *chosen++ = r;
    for (int64_t start = negatives; start < a.offsets[u + 1]; start += a.candidates) {
      int64_t best = start;
      for (int64_t r = start + 1, end = std::min(start + a.candidates, a.offsets[u + 1]); r < end; r++)
        best = a.scores[r] > a.scores[best] ? r : best;
      *chosen++ = best;
    }
  }
}

}  // namespace rankbound

RANKBOUND_KERNEL(draw_negatives, rankbound::DrawNegatives, rankbound::draw_negatives)
RANKBOUND_KERNEL(keep_best, rankbound::KeepBest, rankbound::keep_best)
