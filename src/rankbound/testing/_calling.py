"""Calling a user's measure: the conventions by which it can take its input, and what came of a call."""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.measures import Measure
from rankbound.testing._examples import Example, Expected, Query, expected_values

# roles of the arguments -> what the function gets
SIGNATURES: dict[tuple[str, ...], str] = {
    ("labels", "scores"): "labels and scores of the documents of one query, in any order",
    ("y_true", "y_score"): "2-D arrays with one row per query, as in scikit-learn",
    ("qrels", "run"): "{query: {document: label}} and {query: {document: score}}",
    ("relevant_ids", "ranked_ids"): "ids of the relevant documents, and of the retrieved documents in ranked order",
    ("ranked_labels",): "labels of the documents of one query in ranked order",
}
_CUTOFFS = frozenset({"k", "top_k", "topk", "cutoff", "at", "at_k", "n", "depth", "p_at", "max_k"})
_NAMES: dict[str, frozenset[str]] = {
    role: frozenset(names.split())
    for role, names in {
        "labels": "labels label y_true y true target targets rel rels relevance relevances relevancy grades gains",
        "scores": "scores score y_score y_scores y_pred y_hat pred preds prediction predictions",
        "y_true": "y_true labels targets",
        "y_score": "y_score y_scores y_pred scores preds",
        "qrels": "qrels qrel judgments judgements qrels_dict",
        "run": "run runs run_dict results",
        "relevant_ids": "relevant_ids relevant relevant_docs relevant_items actual ground_truth gt truth gold",
        "ranked_ids": "ranked_ids ranked ranking predicted recommended recommendations retrieved ranked_list",
        "ranked_labels": "ranked_labels r rel rels relevance relevances relevancy labels grades gains ranking x",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Convention:
    """How a function is called: the roles of its arguments in order, the type of sequences, and how ``k`` is passed."""

    roles: tuple[str, ...]
    container: str = "array"  # or "list", "tensor" of torch, "dict", "set" of relevant ids, "rows": a list per query
    k_name: str = ""  # pass k by this name; "" passes it by position

    @property
    def signature(self) -> str:
        """The roles as one text, such as "labels,scores,k"."""
        return ",".join(self.roles)

    @property
    def takes_k(self) -> bool:
        """Whether the function takes the cutoff."""
        return "k" in self.roles

    def arguments(self, example: Example) -> tuple[list[Any], dict[str, Any]]:
        """New arguments for one call."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for role in self.roles:
            if role != "k":
                positional.append(self._value(role, example))
            elif self.k_name:
                named[self.k_name] = example.k
            else:
                positional.append(example.k)
        return positional, named

    def call_text(self, name: str, example: Example) -> str:
        """The call as Python code."""
        positional, named = self.arguments(example)
        shown = [*(_show(value) for value in positional), *(f"{key}={value}" for key, value in named.items())]
        return f"{name}({', '.join(shown)})"

    @property
    def takes_queries(self) -> bool:
        """Whether the function takes several queries at once."""
        return self.container in ("dict", "rows") or "y_true" in self.roles

    def _value(self, role: str, example: Example) -> Any:
        if role in ("qrels", "run"):
            pairs = {"qrels": _judgments, "run": _scores}[role]
            return {f"q{i}": dict(pairs(query)) for i, query in enumerate(example.queries, start=1)}
        if role in ("y_true", "y_score"):
            return self._sequence([list(_column(role, query)) for query in example.queries], role)
        if self.container == "rows":
            return [self._row(role, query) for query in example.queries]
        return self._row(role, example.query)

    def _row(self, role: str, query: Query) -> Any:
        query = query if role in ("labels", "scores") else query.ranked()
        if role == "relevant_ids":
            labels = (*query.labels, *query.not_retrieved)
            relevant = [number for number, label in zip(query.numbers(), labels, strict=True) if label > 0]
            relevant = list(dict.fromkeys(relevant))
            return set(relevant) if self.container == "set" else relevant
        if role == "ranked_ids":  # numbers, because a function of several queries would take a text for a list
            return query.numbers()[: len(query)]
        return self._sequence(list(_column(role, query)), role)

    def _sequence(self, values: list[Any], role: str) -> Any:
        if self.container not in ("array", "tensor"):
            return values
        array = np.array(values, dtype=np.float64 if role in ("scores", "y_score") else np.int64)
        return array if self.container == "array" else sys.modules["torch"].from_numpy(array)


def _column(role: str, query: Query) -> Sequence[float]:
    return query.scores if role in ("scores", "y_score") else query.labels


def _judgments(query: Query) -> Iterator[tuple[str, int]]:
    labels = [label if known else None for label, known in zip(query.labels, query.known(), strict=True)]
    for name, label in zip(query.names(), (*labels, *query.not_retrieved), strict=True):
        if label is not None:
            yield name, label


def _scores(query: Query) -> Iterator[tuple[str, float]]:
    return zip(query.names()[: len(query)], query.scores, strict=True)


def _show(value: Any) -> str:
    if hasattr(value, "tolist"):
        return f"{'np.array' if isinstance(value, np.ndarray) else 'torch.tensor'}({value.tolist()})"
    return repr(sorted(value)).replace("[", "{", 1)[:-1] + "}" if isinstance(value, set) and value else repr(value)


# ---- one call --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one call: one value, or one per query, or a problem such as "raises ZeroDivisionError"."""

    values: tuple[float, ...] = ()
    problem: str = ""
    modified: bool = False
    shown: str = ""  # the result as it came, where it is no number

    @property
    def kind(self) -> str:
        """What kind of problem it is, "" for a value; shrinking an example must not change it.

        >>> Outcome(problem="raises IndexError: list index out of range").kind
        'raises IndexError'
        """
        return " ".join(self.problem.split()[:2]).rstrip(":") or ("returns None" if self.shown else "")

    def agrees(self, expected: Expected, tolerance: float) -> bool:
        """Whether the values are those expected: of every query, or their mean if there is one value only."""
        if self.problem:
            return False
        wanted = (expected.mean,) if len(self.values) == 1 else expected.per_query
        return all(_close(value, goal, tolerance) for value, goal in zip(self.values, wanted, strict=True))

    def text(self) -> str:
        """The value or values, or the problem."""
        return self.problem or self.shown or ", ".join(f"{value:.6g}" for value in self.values)


def _close(value: float, goal: float, tolerance: float) -> bool:
    if math.isnan(goal) or math.isnan(value):
        return math.isnan(goal) and math.isnan(value)
    return abs(value - goal) <= tolerance * max(1.0, abs(goal))


class _TooSlowError(BaseException):
    """Raised in a call that takes longer than the time budget; a function that catches Exception does not stop it."""


@dataclass
class Caller:
    """Calls the function with new arguments each time, and records what it prints and which warnings it raises.

    No call runs beyond ``deadline`` (of `time.monotonic`) where it can be interrupted: in the main thread, not on
    Windows.
    """

    function: Callable[..., Any]
    convention: Convention
    deadline: float = math.inf
    printed: bool = False
    warned: dict[str, None] = field(default_factory=dict)

    def __call__(self, example: Example) -> Outcome:
        """Call the function with one example."""
        positional, named = self.convention.arguments(example)
        out = io.StringIO()
        start = time.monotonic()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            try:
                with _interrupted_at(self.deadline):
                    result = self.function(*positional, **named)
                outcome = _read(result, example)
            except KeyboardInterrupt:
                raise
            except _TooSlowError:
                seconds = time.monotonic() - start
                outcome = Outcome(problem=f"takes too long: the call was interrupted after {seconds:.1f} s")
            except BaseException as error:  # the user's function can fail in any way, SystemExit included
                message = " ".join(str(error).split())[:200]
                outcome = Outcome(problem=f"raises {type(error).__name__}" + (f": {message}" if message else ""))
        self.printed |= bool(out.getvalue())
        self.warned |= {f"{warning.category.__name__}: {warning.message}": None for warning in caught}
        before = self.convention.arguments(example)
        modified = not _same(positional, before[0]) or not _same(list(named.values()), list(before[1].values()))
        return replace(outcome, modified=modified)


@contextlib.contextmanager
def _interrupted_at(deadline: float) -> Iterator[None]:
    seconds = max(deadline - time.monotonic(), 0.01)
    if (
        math.isinf(deadline)
        or not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def stop(*_: object) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _same(first: Any, second: Any) -> bool:
    if hasattr(first, "tolist") and hasattr(second, "tolist"):
        return bool(first.tolist() == second.tolist())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):  # the order of entries matters, too
        return list(first) == list(second) and all(_same(first[key], second[key]) for key in first)
    return bool(first == second)


def _read(result: Any, example: Example) -> Outcome:
    """Convert the result of a call to numbers."""
    names = [f"q{i}" for i in range(1, len(example.queries) + 1)]
    if isinstance(result, Mapping):
        if set(result) <= set(names):  # a query that is not there was left out
            values = [_number(_only(result[name])) if name in result else math.nan for name in names]
        else:
            values = [_number(_only(result))]
    else:
        shape = np.shape(result) if hasattr(result, "shape") or isinstance(result, (list, tuple)) else ()
        if shape == (len(names),) and len(names) > 1:
            values = [_number(value) for value in result]
        elif math.prod(shape) == 1 and shape:
            values = [_number(np.asarray(result).reshape(-1)[0])]
        else:
            values = [_number(result)]
    if any(value is None for value in values):
        return Outcome(problem=f"returns {_describe(result)}")
    numbers = tuple(float(value) for value in values if value is not None)
    if any(math.isinf(value) for value in numbers):
        return Outcome(problem=f"returns {next(value for value in numbers if math.isinf(value))}")
    return Outcome(numbers, shown="None" if result is None else "")


def _only(value: Any) -> Any:
    """The value of a mapping that has one, as {measure: value}; anything else as it is."""
    return next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else value


def _number(value: Any) -> float | None:
    if value is None:
        return math.nan  # left out
    if isinstance(value, (str, bytes, complex, Mapping)):
        return None
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def _describe(result: Any) -> str:
    if hasattr(result, "shape"):
        return f"an array of shape {tuple(result.shape)} where a number was expected"
    if isinstance(result, (list, tuple, Mapping)):
        kind = type(result).__name__
        return f"a {kind} of {len(result)} where a number was expected: {result!r:.60}"
    return f"{result!r:.60} where a number was expected"


# ---- which convention ------------------------------------------------------------------------------------------------


def find_convention(function: Callable[..., Any], measure: Measure, signature: str, budget: float) -> Convention:
    """The convention of a signature such as "labels,scores,k", or with "auto" the one that fits the function.

    Names of parameters decide first. Where they leave a choice, or the function fails with what they stand for, it is
    called with a few plain rankings in every way that its number of parameters allows, for at most ``budget`` seconds;
    the way in which it agrees most often with the measure is taken.
    """
    if not callable(function):
        raise ArgumentError(f"function must be callable, got {type(function).__name__}")
    if not isinstance(signature, str):
        raise ArgumentError(f"signature must be 'auto' or names of arguments, got {signature!r}")
    k_name = _k_parameter(function)
    deadline = time.monotonic() + budget
    likely, others = ([_roles(signature, measure)], []) if signature != "auto" else _candidates(function, measure)
    problems: dict[str, str] = {}
    for candidates in filter(None, (likely, others)):
        tried = [
            Convention(roles, container, k_name if roles[-1] == "k" else "")
            for roles in candidates
            for container in _containers(roles)
        ]
        if candidates is likely and len(tried) == 1:
            return tried[0]
        results = [_probe(function, convention, measure, deadline) for convention in tried]
        best = max(range(len(tried)), key=lambda i: (results[i][0], results[i][1], -i))
        if results[best][1] > 0:
            return tried[best]
        for convention, (_, _, problem) in zip(tried, results, strict=True):
            problems.setdefault(convention.signature, problem)
    if likely:  # the names say how to call it, and the report says that it fails
        return Convention(likely[0], _containers(likely[0])[0], k_name if likely[0][-1] == "k" else "")
    listed = "; ".join(f"({name}) {problem}" for name, problem in problems.items())
    raise ArgumentError(
        f"the function fits no calling convention: {listed}. Name its arguments with signature=, as in "
        f"'labels,scores,k', or pass a function that wraps it"
    )


def _roles(signature: str, measure: Measure) -> tuple[str, ...]:
    roles = tuple(role.strip() for role in signature.split(","))
    data = tuple(role for role in roles if role != "k")
    if len(set(roles)) != len(roles) or not any(sorted(data) == sorted(known) for known in SIGNATURES):
        known = ", ".join(",".join(names) for names in SIGNATURES)
        raise ArgumentError(
            f"signature must be 'auto' or one of {known}, in any order and with k where the function takes the cutoff; "
            f"got {signature!r}"
        )
    if "k" in roles and measure.cutoff is None:
        raise ArgumentError(f"measure must have a cutoff, as {measure.name}@10, for a function of k; got {measure}")
    return roles


def _containers(roles: tuple[str, ...]) -> tuple[str, ...]:
    if "run" in roles:
        return ("dict",)
    if "relevant_ids" in roles:
        return ("list", "set", "rows")
    if "ranked_labels" in roles:
        return ("array", "list", "rows")
    return ("array", "list", "tensor") if "torch" in sys.modules else ("array", "list")


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function written in C
        return None


def _k_parameter(function: Callable[..., Any]) -> str:
    for parameter in _parameters(function) or ():
        named = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if named and parameter.name.lower() in _CUTOFFS:
            return parameter.name
    return ""


def _candidates(function: Callable[..., Any], measure: Measure) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Roles that the names of the parameters tell, and others that their number allows, the likeliest first."""
    both = [roles[::step] for roles in SIGNATURES if len(roles) == 2 for step in (1, -1)]
    parameters = _parameters(function)
    if parameters is None:
        every = [*both, ("ranked_labels",)]
        return [], [*every, *((*roles, "k") for roles in every if measure.cutoff is not None)]
    k_name = _k_parameter(function)
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) and parameter.name != k_name
    ]
    required = [parameter for parameter in positional if parameter.default is parameter.empty]
    needs_k = any(parameter.name == k_name and parameter.default is parameter.empty for parameter in parameters)
    unnamed_k = not k_name and len(required) == 3
    if (needs_k or unnamed_k) and measure.cutoff is None:
        raise ArgumentError(f"measure must have a cutoff, as {measure.name}@10, for a function of k; got {measure}")
    extra = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is parameter.empty
        and parameter.name != k_name
    ]
    many = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    data = len(required) - unnamed_k
    sizes = [size for size in (2, 1) if data <= size and (many or size <= len(positional))]
    if data == 1 and 1 in sizes:
        sizes = [1, *(size for size in sizes if size != 1)]
    if extra or not sizes:
        text = ", ".join(parameter.name for parameter in parameters)
        raise ArgumentError(
            f"function must take labels and scores (and k), qrels and a run, or labels in ranked order; its parameters "
            f"are ({text}), so wrap it in a function of these"
        )
    with_k = ("k",) if (k_name or unnamed_k) and measure.cutoff is not None else ()
    names = [parameter.name.lower() for parameter in positional]
    choices = [roles for size in sizes for roles in (both if size == 2 else [("ranked_labels",)])]
    fit = {
        roles: sum(name in _NAMES[role] for name, role in zip(names, roles, strict=False)) / len(roles)
        for roles in choices
    }
    choices.sort(key=lambda roles: -fit[roles])
    certain = [(*roles, *with_k) for roles in choices if fit[roles] == 1]
    return certain, [(*roles, *with_k) for roles in choices if fit[roles] < 1]


def _probe(
    function: Callable[..., Any], convention: Convention, measure: Measure, deadline: float
) -> tuple[int, int, str]:
    """On how many plain rankings the function agrees, on how many it returns numbers, and the first problem."""
    relevant = max(math.ceil(measure.rel), 1)
    examples = [
        Example((Query(tuple(relevant * label for label in labels), scores),), measure.cutoff)
        for labels, scores in (
            ((1, 0, 1), (3.0, 2.0, 1.0)),
            ((0, 0, 1, 1), (4.0, 3.0, 2.0, 1.0)),
            ((1, 0, 0, 1, 0), (1.0, 5.0, 4.0, 3.0, 2.0)),
            ((0, 1), (1.0, 2.0)),
        )
    ]
    if "ranked_labels" in convention.roles or "ranked_ids" in convention.roles:
        examples = examples[:2]
    goals = expected_values(examples, measure, "average", "zero")
    caller = Caller(function, convention, deadline)
    outcomes = [caller(example) for example in examples if time.monotonic() < deadline]
    agreed = sum(outcome.agrees(goal, 1e-3) for outcome, goal in zip(outcomes, goals, strict=False))
    answered = [outcome for outcome in outcomes if not outcome.problem]
    problem = next((outcome.problem for outcome in outcomes if outcome.problem), "returns other values")
    return agreed, len(answered), problem
