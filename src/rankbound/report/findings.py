"""What was found, in words: plain sentences about the systems and about the gap to published numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty import QUERY_TYPES
from rankbound.display import plural
from rankbound.evaluation.inference import FEWEST_FOR_INTERVALS, FEWEST_QUERIES, caution_about_wilcoxon
from rankbound.evaluation.scores import is_lower_better
from rankbound.measures import parse_measure
from rankbound.report.against_random import random_sentences
from rankbound.report.numbers import in_interval, say_p, show_interval, show_number, show_policy
from rankbound.report.scales import describe_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from rankbound.evaluation.comparison import Comparison
    from rankbound.evaluation.leaderboards import Leaderboard
    from rankbound.evaluation.scores import ScoreMatrix
    from rankbound.report.system_tests import SystemTest, Verdict

_ROUNDING = 1e-9  # differences of means below this are not mentioned
_SETS_IN_WORDS = 4  # more data sets than this are counted, not described one by one


@dataclass(frozen=True, slots=True)
class Findings:
    """Sentences: the first to be read first, and what one should know to judge them."""

    headline: str
    sentences: tuple[str, ...]
    cautions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeGain:
    """Mean difference of two systems on the queries of one type."""

    type: str
    queries: int
    difference: float


def find_words(scores: ScoreMatrix, verdicts: Sequence[Verdict], results: pl.DataFrame | None = None) -> Findings:
    """Put the verdicts, and the results next to published numbers, into sentences."""
    lead = [verdict for verdict in verdicts if verdict.measure == scores.lead]
    published = _published_sentences(results)
    if not lead:
        headline = f"No query has a value of {scores.lead}: there is nothing to compare."
        return Findings(headline, tuple(published), ())
    if len(lead) == 1:
        sentences = _on_one_set(scores, lead[0])
    elif len(lead) <= _SETS_IN_WORDS:
        sentences = [_count_of_bests(lead), *(" ".join(_on_one_set(scores, verdict)) for verdict in lead)]
    else:
        sentences = [_count_of_bests(lead)]
    return Findings(
        sentences[0],
        (
            *sentences[1:],
            *_random_ranking(scores, lead),
            *(random_sentences(scores, lead[0].best.system, lead[0].inference) if len(lead) == 1 else ()),
            *_scale_of_lead(scores, verdicts),
            *_types_of_queries(scores),
            *_other_measures(verdicts, scores.lead),
            *published,
        ),
        tuple(_cautions(scores, lead)),
    )


def describe_worst_groups(comparison: Comparison) -> list[str]:
    """For each attribute of queries the group on which a run loses most by the first measure, if any loses."""
    sign = -1 if is_lower_better(comparison.measures[0]) else 1
    sentences = []
    for attribute in dict.fromkeys(row.attribute for row in comparison.by_group):
        rows = [
            row for row in comparison.by_group if (row.attribute, row.measure) == (attribute, comparison.measures[0])
        ]
        worst = min(rows, key=lambda row: sign * row.difference)
        if sign * worst.difference >= 0:
            sentences.append(f"By {attribute}, no group of queries loses.")
            continue
        test = "too few for a test" if worst.p_corrected is None else f"{say_p(worst.p_corrected)} after correction"
        sentences.append(
            f"By {attribute}, the largest loss is that of {worst.run} to {worst.baseline} on {worst.group} "
            f"({show_number(worst.difference, sign=True)} on {plural(worst.queries, 'query')}, {test})."
        )
    return sentences


def describe_first(board: Leaderboard) -> str:
    """Which systems may be first over several data sets."""
    first, best = board.tied_for_first, board.ranks[0]
    where = f"over {plural(len(board.data_sets), 'data set')} by {board.measure}"
    value = f"{best.system} has the best mean {where}, {show_number(best.mean)}"
    if len(first) == len(board.ranks) > 1:
        return f"{value}, and is not separable from any of the {len(first) - 1} other systems."
    if len(board.ranks) == 1:
        return f"{value}."
    if len(first) == 1:
        others = len(board.ranks) - 1
        return f"{value}, and is significantly better than the {'other system' if others == 1 else f'{others} others'}."
    named = _list_words(first) if len(first) <= _SETS_IN_WORDS else f"{len(first)} of {len(board.ranks)} systems"
    return f"{value}; tied for first are {named}."


def published_words(results: pl.DataFrame | None) -> Findings:
    """What results alone say, where there is no score of any query."""
    sentences = _published_sentences(results) or ["None of these results has a published counterpart."]
    return Findings(sentences[0], tuple(sentences[1:]), ("There are no scores of single queries to look into.",))


def gains_by_type(scores: ScoreMatrix, data_set: str, measure: str, system: str, versus: str) -> list[TypeGain]:
    """Mean of system minus versus for every type of query that occurs."""
    first, second = (scores.values[measure][scores.systems.index(name)] for name in (system, versus))
    counted = np.isfinite(first) & np.isfinite(second) & scores.in_data_set(scores.data_sets.index(data_set))
    types, gains = scores.query_types(measure), []
    for kind in QUERY_TYPES:
        chosen = counted & (types == kind)
        if chosen.any():
            gains.append(TypeGain(kind, int(chosen.sum()), float((first - second)[chosen].mean())))
    return gains


def rival(verdict: Verdict) -> SystemTest | None:
    """Whom the best system is set against in words: the next one, or the baseline where it is not the best itself."""
    if len(verdict.systems) < 2:
        return None
    if verdict.versus == verdict.best.system:
        return verdict.systems[1]
    return next(test for test in verdict.systems if test.system == verdict.versus)


# ---- sentences -------------------------------------------------------------------------------------------------------


def _on_one_set(scores: ScoreMatrix, verdict: Verdict) -> list[str]:
    best, other, measure = verdict.best, rival(verdict), verdict.measure
    where = f"On {verdict.data_set}, " if len(scores.data_sets) > 1 else ""
    queries = plural(best.queries, "query")
    if other is None:
        text = f"{where}{best.system} has a mean {measure} of {show_number(best.mean)} over {queries}"
        known = best.ci_low is not None
        return [text + (f" ({_level(verdict)} interval {show_interval(best.ci_low, best.ci_high)})." if known else ".")]
    # the pair's numbers stand in the row of the one that is not `versus`
    pair, turn = (other, -1.0) if verdict.versus == best.system else (best, 1.0)
    if pair.difference is None:
        return [f"{where}{best.system} and {other.system} share no query and cannot be compared."]
    if _all_equal(scores, verdict):
        said = f"{len(verdict.systems)} systems have the same {measure} on every query: nothing tells them apart."
        return [f"{where}all {said}" if where else f"All {said}"]
    if other is not (runner_up := verdict.systems[1]):
        return [
            where + _against_runner_up(scores, verdict, runner_up),
            f"{best.system} {_to_baseline(verdict, pair)}",
            _on_noise(verdict, pair),
            *_on_others(verdict),
            *_where_gained(scores, verdict, best, other),
        ]
    gap = turn * pair.difference
    relation = f"{show_number(abs(gap))} {'above' if gap > 0 else 'below'}" if gap else "the same as"
    span = ""
    if pair.corrected_low is not None and pair.corrected_high is not None:
        low, high = sorted((turn * pair.corrected_low, turn * pair.corrected_high))
        span = f" ({_corrected_level(verdict)} {show_interval(low, high, sign=True)})"
    value = f"{show_number(best.mean)} in the mean over {queries}, {relation} {other.system}{span}"
    if _is_clear(verdict):
        sentences = [f"{where}{best.system} is best by {measure}: {value}."]
    elif where:
        sentences = [f"{where}no system is clearly best by {measure}; {best.system} has {value}."]
    else:
        sentences = [f"No system is clearly best by {measure}. {best.system} has {value}."]
    return [*sentences, _on_noise(verdict, pair), *_on_others(verdict), *_where_gained(scores, verdict, best, other)]


def _against_runner_up(scores: ScoreMatrix, verdict: Verdict, runner_up: SystemTest) -> str:
    """The best system compared with the next one, where the tests of the page compare all with a baseline."""
    best, measure = verdict.best, verdict.measure
    rows = [scores.values[measure][scores.systems.index(test.system)] for test in (best, runner_up)]
    shared = np.isfinite(rows).all(axis=0) & scores.in_data_set(scores.data_sets.index(verdict.data_set))
    value = f"{show_number(best.mean)} in the mean over {plural(best.queries, 'query')}"
    if not shared.any():
        return f"{best.system} has the best mean {measure}, {value}; it shares no query with {runner_up.system}."
    differences = (rows[0] - rows[1])[shared]
    gap = float(differences.mean())
    relation = f"{show_number(abs(gap))} {'above' if gap > 0 else 'below'}" if gap else "the same as"
    span = ""
    if len(differences) > 1:
        low, high = verdict.inference.intervals(differences[:, None])[:, 0].tolist()
        span = f" ({_level(verdict)} interval {show_interval(low, high, sign=True)})"
    text = f"{value}, {relation} the next, {runner_up.system}{span}"
    better = gap < 0 if is_lower_better(measure) else gap > 0
    if _is_clear(verdict) and better:
        return f"{best.system} is best by {measure}: {text}."
    return f"No system is clearly best by {measure}. {best.system} has {text}."


def _to_baseline(verdict: Verdict, pair: SystemTest) -> str:
    gap = pair.difference or 0.0
    relation = f"{show_number(abs(gap))} {'above' if gap > 0 else 'below'}" if gap else "the same as"
    span = ""
    if pair.corrected_low is not None and pair.corrected_high is not None:
        interval = show_interval(pair.corrected_low, pair.corrected_high, sign=True)
        span = f" ({_corrected_level(verdict)} {interval})"
    return f"is {relation} the baseline {verdict.versus}{span}."


def _on_noise(verdict: Verdict, pair: SystemTest) -> str:
    if pair.shared < 2 or pair.p_value is None:
        return "One query cannot show whether a difference is noise: there is no interval and no test."
    numbers = f"{say_p(pair.p_value)}, {show_policy(verdict.inference)}"
    after = "" if verdict.inference.correction == "none" else " after correction"
    if verdict.is_significant(pair):
        return f"The difference is significant{after} ({numbers})."
    return f"The difference is not significant{after} ({numbers}): it may be noise."


def _on_others(verdict: Verdict) -> list[str]:
    """How many of three or more systems the tests tell apart."""
    tested = [test for test in verdict.systems if test.p_value is not None]
    if len(tested) < 2:
        return []
    significant = [test for test in tested if verdict.is_significant(test)]
    better = sum(not _is_worse(verdict, test) for test in significant)
    if verdict.versus == verdict.best.system:
        those = f"{len(tested)} other systems"
        if len(tested) < len(verdict.systems) - 1:
            those += " that share a query with it"
        return [f"{verdict.best.system} is significantly better than {len(significant) - better} of the {those}."]
    return [
        f"Of {len(tested)} systems compared with {verdict.versus}, {better} are significantly better and "
        f"{len(significant) - better} significantly worse."
    ]


def _where_gained(scores: ScoreMatrix, verdict: Verdict, best: SystemTest, other: SystemTest) -> list[str]:
    """On queries of which type the best system gains most and least, and which types are not among these."""
    every = gains_by_type(scores, verdict.data_set, verdict.measure, best.system, other.system)
    gains = [gain for gain in every if gain.queries >= FEWEST_FOR_INTERVALS and gain.type != "no choice"]
    sign = -1 if is_lower_better(verdict.measure) else 1
    gains.sort(key=lambda gain: sign * gain.difference)
    if len(gains) < 2 or gains[-1].difference - gains[0].difference == 0:
        return []
    most, least = gains[-1], gains[0]
    high, low = (
        f"{_queries_of(gain.type)} ({show_number(gain.difference, sign=True)} on {gain.queries})"
        for gain in (most, least)
    )
    if sign * most.difference <= 0:
        text = f"loses most to {other.system} on {low} and least on {high}"
    elif sign * least.difference < 0:
        text = f"gains most over {other.system} on {high} and loses most on {low}"
    else:
        text = f"gains most over {other.system} on {high} and least on {low}"
    left_out = [_left_out(gain) for gain in every if gain not in gains]
    rest = f"; left out: {_list_words(left_out)}" if left_out else ""
    return [f"By type of query, {best.system} {text}{rest}."]


def _left_out(gain: TypeGain) -> str:
    """A type of queries that the sentence does not compare, with its mean difference and the reason.

    >>> _left_out(TypeGain("ideal", 3, -0.0617))
    'ideal queries (−0.0617 on 3, fewer than 5)'
    """
    reason = "" if gain.type == "no choice" else f", fewer than {FEWEST_FOR_INTERVALS}"
    return f"{_queries_of(gain.type)} ({show_number(gain.difference, sign=True)} on {gain.queries}{reason})"


def _queries_of(kind: str) -> str:
    words = {"below random": "queries below random", "no choice": "queries without a choice"}
    return words.get(kind, f"{kind} queries")


def _count_of_bests(lead: Sequence[Verdict]) -> str:
    """On how many of several data sets which system is best, as far as the tests can tell."""
    sets, measure = f"{len(lead)} data sets", lead[0].measure
    if all(len(verdict.systems) == 1 for verdict in lead):
        return f"There is one system on each of {sets}: nothing to compare it with."
    counts = Counter(verdict.best.system for verdict in lead if _is_clear(verdict)).most_common()
    clear = sum(count for _, count in counts)
    if not clear:
        return f"By {measure}, no system is clearly best on any of {sets}."
    if len(counts) == 1 and clear == len(lead):
        return f"By {measure}, {counts[0][0]} is best on {'both data sets' if clear == 2 else f'all {sets}'}."
    parts = [f"{name} on {count}" for name, count in counts[:3]]
    parts += [f"others on {clear - sum(count for _, count in counts[:3])}"] if len(counts) > 3 else []
    rest = f"; on {len(lead) - clear} no system is clearly best" if clear < len(lead) else ""
    return f"By {measure}, clearly best of {sets}: {_list_words(parts)}{rest}."


def _is_clear(verdict: Verdict) -> bool:
    """Whether the best system is significantly better than the next one.

    Where all are compared with another system, the letters say so: systems that share none differ significantly.
    """
    if len(verdict.systems) < 2:
        return False
    best, runner_up = verdict.systems[:2]
    if rival(verdict) is not runner_up:
        return bool(best.letters) and not set(best.letters) & set(runner_up.letters)
    if verdict.versus == best.system:
        return verdict.is_significant(runner_up) and _is_worse(verdict, runner_up)
    return verdict.is_significant(best) and not _is_worse(verdict, best)


def _is_worse(verdict: Verdict, test: SystemTest) -> bool:
    """Whether a system is worse than `versus` on the queries that both have; its mean may be over others, too."""
    sign = -1 if is_lower_better(verdict.measure) else 1
    return sign * (test.difference or 0.0) < 0


def _random_ranking(scores: ScoreMatrix, lead: Sequence[Verdict]) -> list[str]:
    """The expected value of a random ranking, where one number says it."""
    expected = scores.expected_values(scores.lead)
    known = np.isfinite(expected) & np.isfinite(scores.values[scores.lead]).any(axis=0)
    if not known.any() or len(lead) > _SETS_IN_WORDS:
        return []
    plain = str(parse_measure(scores.lead).plain) if parse_measure(scores.lead).bounding != "none" else scores.lead
    mean = show_number(float(expected[known].mean()))
    complete = scores.difficulty[scores.lead].complete
    if complete is not None and len(lead) == 1:
        row = scores.systems.index(lead[0].best.system)
        tables = (complete, scores.values[scores.lead])
        as_complete, as_returned = (float(table[row, known].mean()) for table in tables)
        if plain == scores.lead and abs(as_complete - as_returned) > _ROUNDING:
            return [
                f"Read as a complete ranking of {_candidates(scores)}, {lead[0].best.system} has a mean {plain} of "
                f"{show_number(as_complete)}; a random ranking of them would have {mean}. Such a ranking leaves out "
                "all other documents, and ends with those that were not returned, in random order."
            ]
    return [f"A random ranking of {_candidates(scores)} would have a mean {plain} of {mean}."]


def _candidates(scores: ScoreMatrix) -> str:
    """What the bounds and expected values are about."""
    known = {"judged": "the judged documents", "returned": "the documents that are judged and returned"}
    return known.get(scores.candidates or "", "the candidates" if scores.candidates else "the same items")


def _scale_of_lead(scores: ScoreMatrix, verdicts: Sequence[Verdict]) -> list[str]:
    """What the first normalized measure means, and its mean for the best system by the first measure."""
    name = next((name for name in scores.measures if describe_scale(name)), None)
    if name is None:
        return []
    sentences = [describe_scale(name)]
    lead = [verdict for verdict in verdicts if verdict.measure == scores.lead]
    if name != scores.lead and len(lead) == 1:
        system = lead[0].best.system
        verdict = next((verdict for verdict in verdicts if verdict.measure == name), None)
        tests = () if verdict is None else verdict.systems
        mean = next((test.mean for test in tests if test.system == system), None)
        if mean is not None:
            sentences.append(f"On this scale, {system} has a mean of {show_number(mean)}.")
    return [" ".join(sentences)]


def _types_of_queries(scores: ScoreMatrix) -> list[str]:
    """How many queries there are of each type, by the first measure."""
    types = scores.query_types(scores.lead)
    counts = {kind: int((types == kind).sum()) for kind in QUERY_TYPES}
    typed = sum(counts.values())
    if not typed:
        return []
    no_choice = counts.pop("no choice")
    plain = parse_measure(scores.lead).plain
    parts = [f"{count:,} {kind}" for kind, count in counts.items() if count]
    text = f"Types of {plural(typed, 'query')} by {plain}: {_list_words(parts)}" if parts else ""
    if no_choice:
        counted = _have(no_choice, "query")
        text += f"{'; ' if parts else ''}{counted} no choice, as all rankings have the same {plain}"
    return [f"{text}."]


def _other_measures(verdicts: Sequence[Verdict], lead: str) -> list[str]:
    best = {(v.data_set, v.measure): v.best.system for v in verdicts if len(v.systems) > 1}
    others = [(key, name) for key, name in best.items() if key[1] != lead and (key[0], lead) in best]
    if not others:
        return []
    differing = [(key, name) for key, name in others if name != best[key[0], lead]]
    if not differing:
        measures = list(dict.fromkeys(measure for (_, measure), _ in others))
        return [f"{_list_words(measures)} {'names' if len(measures) == 1 else 'name'} the same best system."]
    if len(differing) > 3:
        return [f"Other measures name another best system than {lead} in {len(differing)} of {len(others)} cases."]
    several = len({data_set for data_set, _ in best}) > 1
    best_systems = [
        f"{name} by {measure}{f' on {data_set}' if several else ''}" for (data_set, measure), name in differing
    ]
    return [f"Another system is best by other measures: {_list_words(best_systems)}."]


def _published_sentences(results: pl.DataFrame | None) -> list[str]:
    if results is None or results.height == 0 or "published" not in results.columns:
        return []
    rows = [row for row in results.rows(named=True) if row["published"] is not None and row["ours"] is not None]
    if not rows:
        return []
    gaps = np.array([row["ours"] - row["published"] for row in rows])
    within = sum(in_interval(row["published"], row.get("ci_low"), row.get("ci_high")) for row in rows)
    index = int(np.abs(gaps).argmax())
    widest = rows[index]
    names = [
        str(widest[key])
        for key in ("data", "system", "model", "loss", "bounding", "nsr")
        if widest.get(key) not in (None, "")
    ]
    return [
        f"{_have(len(rows), 'number')} a published counterpart; {within} of them "
        f"{'lies' if within == 1 else 'lie'} within our 95 % interval. "
        f"The median gap, ours minus published, is {show_number(float(np.median(gaps)), sign=True)}; the widest is "
        f"{show_number(float(gaps[index]), sign=True)} ({', '.join([*names, str(widest['measure'])])})."
    ]


def _cautions(scores: ScoreMatrix, lead: Sequence[Verdict]) -> list[str]:
    found = []
    if all(len(verdict.systems) == 1 for verdict in lead):
        found.append("There is a single system: nothing to compare it with.")
    if max(verdict.best.queries for verdict in lead) == 1:
        found.append("There is one query only: means are its values, and nothing can be said about noise.")
    empty = int((~np.isfinite(scores.values[scores.lead])).all(axis=0).sum())
    if empty:
        counted = _have(empty, "query")
        found.append(f"{counted} no value of {scores.lead} and {'is' if empty == 1 else 'are'} left out of its mean.")
    for verdict in lead:
        if 1 < verdict.best.queries < FEWEST_QUERIES:
            where = f"On {verdict.data_set}, intervals" if len(lead) > 1 else "Intervals"
            found.append(
                f"{where} rest on {verdict.best.queries} queries; "
                f"with fewer than {FEWEST_QUERIES} they are not reliable."
            )
    caution = caution_about_wilcoxon(verdict.best.queries for verdict in lead)
    if caution and lead[0].inference.test == "wilcoxon" and any(len(verdict.systems) > 1 for verdict in lead):
        found.append(caution)
    if any(len({test.queries for test in verdict.systems}) > 1 for verdict in lead):
        found.append(
            "Not all systems have the same queries: means are over each one's own, differences over the shared ones."
        )
    return found


def _level(verdict: Verdict) -> str:
    return f"{100 * verdict.inference.confidence:g} %"


def _corrected_level(verdict: Verdict) -> str:
    corrected = "" if verdict.inference.correction == "none" else "corrected "
    return f"{corrected}{_level(verdict)} interval"


# ---- wording ---------------------------------------------------------------------------------------------------------


def _all_equal(scores: ScoreMatrix, verdict: Verdict) -> bool:
    values = scores.values[verdict.measure][:, scores.in_data_set(scores.data_sets.index(verdict.data_set))]
    spread = np.nanmax(np.where(np.isfinite(values), values, -np.inf), axis=0) - np.nanmin(
        np.where(np.isfinite(values), values, np.inf), axis=0
    )
    return bool((spread < 1e-12).all())


def _have(count: int, noun: str) -> str:
    return f"{plural(count, noun)} {'has' if count == 1 else 'have'}"


def _list_words(parts: Sequence[str]) -> str:
    """
    >>> _list_words(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
