"""Running the battery: calls, shrinking, causes, and what is checked besides values."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankbound.measures import Measure
from rankbound.protocol import TIES
from rankbound.testing._calling import Caller, Convention, Outcome
from rankbound.testing._categories import Category, Generator
from rankbound.testing._causes import Cause, Result, find_causes
from rankbound.testing._diagnosis import TOO_LONG, Trial, common_cause, mean_cause, problem_cause
from rankbound.testing._examples import Example, expected_values
from rankbound.testing.report import CheckReport, Disagreement

_REPEATED = 40  # examples that are called twice, to see whether the function is deterministic
_PER_CATEGORY = 8  # examples of each category that a cause must explain
_MODIFIES, _RANDOM = "arguments", "determinism"  # what is checked besides values


@dataclass(frozen=True, slots=True)
class Policy:
    """The measure and how its values are compared."""

    measure: Measure
    ties: str
    empty: str
    tolerance: float


class Check:
    """One check of one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        convention: Convention,
        policy: Policy,
        generator: Generator,
        budget: float,
    ) -> None:
        self.convention, self.policy, self.generator, self.budget = convention, policy, generator, budget
        self.caller = Caller(function, convention)
        self.name = _function_name(function)

    def run(
        self,
        categories: Sequence[Category],
        skipped: tuple[str, ...],
        progress: Callable[[int, int], None] | None,
    ) -> CheckReport:
        """Call the function with all examples, shrink the failing ones, and look for causes."""
        cases = {category: self.generator.examples(category) for category in categories}
        outcomes = self._call_all(cases, progress)
        done = {category: [entry for entry in group if entry is not None] for category, group in outcomes.items()}
        failures = {
            category: [entry for entry in group if not entry.agrees(self.policy.tolerance)]
            for category, group in done.items()
        }
        smallest = {category: self._smallest(category, group) for category, group in failures.items() if group}
        causes = self._causes(done, smallest)
        disagreements = {
            category.name: self._disagreement(
                category.name, entry, causes[category.name], len(failures[category]), len(done[category])
            )
            for category, entry in smallest.items()
        }
        every = [entry for group in done.values() for entry in group]
        disagreements |= self._side_effects(done)
        agreements = {category.name: len(done[category]) - len(failures[category]) for category in cases}
        called, planned = len(every), sum(map(len, cases.values()))
        conventions = dict.fromkeys(text for cause in causes.values() for text in cause.conventions())
        return CheckReport(
            self.name,
            str(self.policy.measure),
            self.convention.signature,
            self.policy.ties,
            self.policy.empty,
            self.policy.tolerance,
            self.generator.seed,
            called,
            agreements,
            disagreements,
            tuple(conventions),
            tuple(self._notes(called, planned)),
            skipped,
            called == planned,
        )

    def _call_all(
        self, cases: dict[Category, list[Example]], progress: Callable[[int, int], None] | None
    ) -> dict[Category, list[Trial | None]]:
        """All outcomes; None for examples that the time budget did not allow.

        The first examples of all categories are called first, so that a slow function is checked in every category.
        """
        outcomes: dict[Category, list[Trial | None]] = {key: [None] * len(group) for key, group in cases.items()}
        goals = {
            category: expected_values(group, self.policy.measure, self.policy.ties, self.policy.empty)
            for category, group in cases.items()
        }
        start = time.monotonic()
        self.caller.deadline = start + self.budget
        rounds = max(map(len, cases.values()))
        order = [(i, category) for i in range(rounds) for category in cases if i < len(cases[category])]
        for done, (i, category) in enumerate(order):
            if time.monotonic() > self.caller.deadline:
                break
            if progress is not None:
                progress(done, len(order))
            example, before = cases[category][i], time.monotonic()
            outcome = self.caller(example)
            if outcome.kind == TOO_LONG and time.monotonic() - before < self.budget / 2:
                break  # the function is slow, but it was the battery that used up the budget
            outcomes[category][i] = Trial(example, goals[category][i], outcome)
        # shrinking calls the function again, for as long as the battery took but at least for some seconds
        self.caller.deadline = time.monotonic() + min(self.budget, max(20.0, 2 * (time.monotonic() - start)))
        return outcomes

    def _try(self, example: Example) -> Trial:
        (goal,) = expected_values([example], self.policy.measure, self.policy.ties, self.policy.empty)
        return Trial(example, goal, self.caller(example))

    def _smallest(self, category: Category, failures: list[Trial]) -> Trial:
        first = failures[0]
        if first.outcome.kind == TOO_LONG:
            return first

        def fails(example: Example) -> bool:
            if time.monotonic() > self.caller.deadline:
                return False
            entry = self._try(example)
            return not entry.agrees(self.policy.tolerance) and entry.outcome.kind == first.outcome.kind

        return self._try(self._shrink(category, first.example, fails))

    def _shrink(self, category: Category, example: Example, fails: Callable[[Example], bool]) -> Example:
        """Return the smallest example that fails."""
        return self.generator.smallest(category, fails) or example

    # ---- causes ------------------------------------------------------------------------------------------------------

    def _causes(self, done: dict[Category, list[Trial]], smallest: dict[Category, Trial]) -> dict[str, Cause]:
        """The probable cause of each disagreement."""
        measure = self.policy.measure
        results: dict[str, list[Result]] = {}
        for category, group in done.items():
            chosen = [*([smallest[category]] if category in smallest else []), *group[:_PER_CATEGORY]]
            results[category.name] = [
                Result(entry.example.query, entry.example.k, entry.expected.mean, entry.outcome.values[0])
                for entry in chosen
                if not entry.outcome.problem
                and len(entry.example.queries) == 1
                and len(entry.example.query) > 0
                and not entry.expected.undefined
                and not math.isnan(entry.outcome.values[0])
            ]
        policies = TIES if "run" in self.convention.roles else ("average", "input")
        explained = find_causes(results, measure, self.policy.ties, policies)
        every = [entry for group in done.values() for entry in group]
        simplest = next(iter(done))
        causes = {}
        for category, entry in smallest.items():
            hint = category.hint
            if simplest in smallest and category is not simplest:  # other hints would mislead
                hint = f"Look at {simplest.name} first, where the value is wrong as well."
            causes[category.name] = (
                problem_cause(category, entry, every)
                or explained.get(category.name)
                or mean_cause(entry)
                or common_cause(every, self.policy.tolerance)
                or Cause(hint)
            )
        return causes

    # ---- what is checked besides values ------------------------------------------------------------------------------

    def _side_effects(self, done: dict[Category, list[Trial]]) -> dict[str, Disagreement]:
        """Arguments that the function modified, and results that differ from call to call."""
        disagreements = {}
        every = [(category, entry) for category, group in done.items() for entry in group]
        modified = [(category, entry) for category, entry in every if entry.outcome.modified]
        if modified:
            category, entry = modified[0]
            first = self._shrink(category, entry.example, lambda example: self.caller(example).modified)
            cause = Cause("The function modifies its arguments; it must copy them before it sorts or changes them.")
            entry = self._try(first)
            changed = replace(entry, outcome=replace(entry.outcome, problem="modifies its arguments"))
            disagreements[_MODIFIES] = self._disagreement(_MODIFIES, changed, cause, len(modified), len(every))
        step = max(len(every) // _REPEATED, 1)
        repeated = [(category, entry) for category, entry in every[::step] if entry.outcome.kind != TOO_LONG]
        differing = [pair for pair in repeated if self._differs(pair[1].example, pair[1].outcome)]
        if differing:
            category, entry = differing[0]
            first = self._shrink(category, entry.example, self._differs)
            outcomes = [self.caller(first) for _ in range(10)]
            texts = list(dict.fromkeys(outcome.text() for outcome in outcomes))
            problem = f"returns other values from call to call: {' and '.join(texts[:2])}"
            cause = Cause("The function is not deterministic: equal arguments do not give equal results.")
            entry = replace(self._try(first), outcome=Outcome(problem=problem))
            disagreements[_RANDOM] = self._disagreement(_RANDOM, entry, cause, len(differing), len(repeated))
        return disagreements

    def _differs(self, example: Example, known: Outcome | None = None) -> bool:
        if time.monotonic() > self.caller.deadline:
            return False
        first = known or self.caller(example)
        again = [self.caller(example) for _ in range(1 if known else 9)]
        if any(each.kind == TOO_LONG for each in (first, *again)):
            return False
        return any(repr((each.values, each.problem)) != repr((first.values, first.problem)) for each in again)

    # ---- the report --------------------------------------------------------------------------------------------------

    def _disagreement(self, category: str, entry: Trial, cause: Cause, failed: int, examples: int) -> Disagreement:
        queries = entry.example.queries
        several = len(queries) > 1
        values = entry.outcome.values
        per_query = several and len(values) > 1
        labels = [list(query.labels) for query in queries]
        scores = [list(query.scores) for query in queries]
        returned: float | list[float] | str
        if entry.outcome.problem or entry.outcome.shown:
            returned = entry.outcome.problem or f"returns {entry.outcome.shown}"
        else:
            returned = list(values) if per_query else values[0]
        return Disagreement(
            category,
            labels if several else labels[0],
            scores if several else scores[0],
            entry.example.k,
            list(entry.expected.per_query) if per_query else entry.expected.mean,
            returned,
            str(cause),
            cause.is_convention,
            self.convention.call_text(self.name, entry.example),
            failed,
            examples,
        )

    def _notes(self, called: int, planned: int) -> list[str]:
        notes = []
        if called < planned:
            notes.append(
                f"the time budget of {self.budget:g} s ended the check after {called} of {planned} examples; a larger "
                "budget checks more"
            )
        if self.caller.printed:
            notes.append("the function prints, which was not shown")
        if self.caller.warned:
            first, more = next(iter(self.caller.warned)), len(self.caller.warned) - 1
            notes.append(f"the function raises warnings, such as {first}" + (f" (and {more} more)" if more else ""))
        return notes


def _function_name(function: Any) -> str:
    if isinstance(function, functools.partial):
        return _function_name(function.func)
    name = str(getattr(function, "__name__", type(function).__name__))
    return "function" if name == "<lambda>" else name
