// Values of measures that are sums over relevant items, by counting the items above each of them instead of sorting.
//
// Counting the items with a higher or an equal score is a loop without branches, which processors execute on several
// scores at once. For lists of a few hundred items this is several times faster than a sort. With a cutoff k, the items
// that cannot be among the first k are dropped before.
//
// With a items above an item and m items tied with it (itself included), its rank is a + 1 to a + m, each as likely:
//
//   additive        gain times the mean discount of these ranks, 0 beyond the cutoff
//   precision sum   mean over t = 1..m of (b + 1 + (t - 1)(h - 1)/(m - 1)) / (a + t), b relevant items above and h tied
//   first hit       only the highest: sum over t of P(the first of h relevant among m items is the t-th) d(a + t)
#include "top.hpp"

namespace rankbound {

constexpr int64_t MANY = 2;  // a cut pays for lists that are so many times as long as the groups

enum Form : int64_t { ADDITIVE, PRECISIONS, FIRST_HIT };

struct RankSums {
  int64_t form;
  int64_t k;               // items that cannot be among the first k are dropped; 0: none
  int64_t longest;         // items of the longest query
  const int64_t* offsets;  // of the queries
  const int64_t* cut;      // the ranks of each query that count
  const double* gains;     // per item
  const double* table;     // discounts
  const double* scores;    // per item
  double* sums;            // result per query
};

// Where an item stands: items above it and tied with it, itself included, and the relevant ones among both.
struct Standing {
  int64_t above, tied, hits_above, hits_tied;
};

// The sizes are multiples of STEP; scores that fill up count nothing.
constexpr int64_t STEP = 8;

static void count_items(const double* scores, int64_t size, double score, int64_t& above, int64_t& tied) {
  int64_t higher = 0, equal = 0;
  for (int64_t j = 0, end = size / STEP * STEP; j < end; j++) {  // without a remainder, as the compiler sees
    higher += scores[j] > score;
    equal += scores[j] == score;
  }
  above = higher, tied = equal;
}

static int64_t fill_up(double* scores, int64_t size) {
  for (; size % STEP != 0; size++) scores[size] = -std::numeric_limits<double>::infinity();
  return size;
}

// What an item adds, for a gain of 1.
static double share_of(const RankSums& a, const Standing& at, int64_t cut) {
  const int64_t ranked = std::min(at.tied, cut - at.above);
  const double tied = static_cast<double>(at.tied);
  double total = 0;
  if (a.form == FIRST_HIT) {
    double probability = static_cast<double>(at.hits_tied) / tied;
    for (int64_t t = 0; t < std::min(ranked, at.tied - at.hits_tied + 1); t++) {
      total += probability * a.table[at.above + t];
      const double left = static_cast<double>(at.tied - t - 1);
      probability *= (left + 1 - static_cast<double>(at.hits_tied)) / std::max(left, 1.0);
    }
    return total;
  }
  if (a.form == ADDITIVE) {
    for (int64_t t = 0; t < ranked; t++) total += a.table[at.above + t];
    return total / tied;
  }
  const double slope = static_cast<double>(at.hits_tied - 1) / std::max(tied - 1, 1.0);
  for (int64_t t = 0; t < ranked; t++)
    total += (static_cast<double>(at.hits_above + 1) + static_cast<double>(t) * slope) / static_cast<double>(at.above + t + 1);
  return total / tied;
}

static void rank_sums(const RankSums& a, int64_t first, int64_t last) {
  const int64_t groups = groups_for<double>(a.k);
  std::vector<int64_t> at(a.longest);
  std::vector<double> largest(groups), kept(a.longest + STEP), hit_scores(a.longest + STEP), hit_gains(a.longest + 1);
  for (int64_t q = first; q < last; q++) {
    const double *scores = a.scores + a.offsets[q], *gains = a.gains + a.offsets[q];
    int64_t size = a.offsets[q + 1] - a.offsets[q];
    const bool is_cut = a.k > 0 && size > MANY * groups;
    const double limit = is_cut ? score_of_first(scores, size, a.k, largest.data()) : 0;
    int64_t hits = 0;
    int64_t count = size;
    if (is_cut) {
      count = 0;
      for (int64_t j = 0; j < size; j++) {
        at[count] = j;  // overwritten by the next item unless this one is kept
        count += scores[j] >= limit;
      }
      for (int64_t r = 0; r < count; r++) kept[r] = scores[at[r]];
    } else {
      std::copy(scores, scores + size, kept.begin());
    }
    for (int64_t r = 0; r < count; r++) {
      const int64_t j = is_cut ? at[r] : r;
      hit_scores[hits] = scores[j], hit_gains[hits] = gains[j];
      hits += gains[j] != 0;
    }
    const int64_t hits_in_steps = fill_up(hit_scores.data(), hits);
    scores = kept.data(), size = fill_up(kept.data(), count);
    double total = 0, share_at_limit = -1;
    const int64_t counted = a.form == FIRST_HIT ? std::min<int64_t>(hits, 1) : hits;
    const double highest = counted < hits ? *std::max_element(hit_scores.begin(), hit_scores.begin() + hits) : 0;
    for (int64_t hit = 0; hit < counted; hit++) {
      const double score = counted < hits ? highest : hit_scores[hit];
      const bool is_at_limit = is_cut && score == limit;
      double share = share_at_limit;
      if (!is_at_limit || share_at_limit < 0) {  // many items may tie at the limit
        Standing place;
        count_items(scores, size, score, place.above, place.tied);
        if (a.form == ADDITIVE)
          place.hits_above = place.hits_tied = 0;
        else
          count_items(hit_scores.data(), hits_in_steps, score, place.hits_above, place.hits_tied);
        share = share_of(a, place, a.cut[q]);
      }
      if (is_at_limit) share_at_limit = share;
      total += hit_gains[hit] * share;
    }
    a.sums[q] = total;
  }
}

}  // namespace rankbound

RANKBOUND_KERNEL(rank_sums, rankbound::RankSums, rankbound::rank_sums)
