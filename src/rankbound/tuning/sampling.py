"""What to try next: settings drawn at random, or suggested by TPE from the trials before.

A suggestion depends on the seed, the number of the trial and the results of trials up to a fixed distance before it,
never on which worker was faster: the sequence of trials is the same for every number of workers.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.tuning.log import TrialRecord
    from rankbound.tuning.space import ModelSpace, Range

__all__ = ["SAMPLERS", "choose_model", "resolve_sampler", "suggest"]

SAMPLERS = ("auto", "tpe", "random")
_RANDOM_TRIALS = 10  # finished trials of a model before TPE suggests
_EXPLORATION = 0.15  # probability of a model that is not the best so far
OTHER_MODELS_FROM = 8  # first trial of the second and later models: a small budget goes to the first one


def resolve_sampler(sampler: str) -> str:
    """Return "tpe" or "random"; "auto" is "tpe" where Optuna is installed.

    >>> resolve_sampler("random")
    'random'
    """
    if sampler not in SAMPLERS:
        raise ArgumentError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    has_optuna = importlib.util.find_spec("optuna") is not None
    if sampler == "tpe" and not has_optuna:
        raise ArgumentError("sampler='tpe' needs Optuna: pip install 'rankbound[tune]', or use sampler='random'")
    return ("tpe" if has_optuna else "random") if sampler == "auto" else sampler


def choose_model(
    spaces: Mapping[str, ModelSpace],
    number: int,
    seed: int,
    earlier: Sequence[str],
    finished: Sequence[TrialRecord],
    others_from: int = OTHER_MODELS_FROM,
) -> tuple[str, Mapping[str, Any] | None]:
    """Return the model of a trial, and the setting to start with while there is one that was not tried.

    ``earlier`` are the models of all trials before. The first model has all trials before number ``others_from``. Each
    model first gets its settings to start with. Then the model with the best trial in ``finished`` gets most trials.
    """
    names = list(spaces)
    for position, name in enumerate(names):
        tried, starts = earlier.count(name), spaces[name].starts
        if tried < len(starts) and (position == 0 or number >= others_from):
            return name, starts[tried]
    best = {name: max((r.value for r in finished if r.model == name), default=-np.inf) for name in names}
    leader = max(names, key=lambda name: best[name])  # the first of equals
    others = [name for name in names if name != leader]
    if number < others_from:
        return names[0], None
    random = np.random.default_rng([seed, number, 1])
    if others and random.random() < _EXPLORATION:
        return others[int(random.integers(len(others)))], None
    return leader, None


def suggest(
    space: ModelSpace,
    sampler: str,
    number: int,
    seed: int,
    finished: Sequence[TrialRecord],
    running: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return values for the ranges of a model.

    Parameters
    ----------
    space:
        The space of the model.
    sampler:
        "random", or "tpe" for Optuna's tree-structured Parzen estimator (Bergstra et al. 2011), multivariate.
    number, seed:
        Number of the trial and seed of the search.
    finished, running:
        Finished trials of this model, and the settings of those whose result is not used yet.
    """
    if sampler == "random" or len(finished) < _RANDOM_TRIALS or not space.ranges:
        random = np.random.default_rng([seed, number])
        return {name: r.draw(random) for name, r in space.ranges.items()}
    return _by_tpe(space, number, seed, finished, running)


def _by_tpe(
    space: ModelSpace,
    number: int,
    seed: int,
    finished: Sequence[TrialRecord],
    running: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {name: _distribution(r) for name, r in space.ranges.items()}

    def encoded(params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: r.choices.index(params[name]) if r.kind == "choice" else params[name]
            for name, r in space.ranges.items()
        }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # multivariate TPE and constant_liar are marked as experimental
        sampler = optuna.samplers.TPESampler(
            seed=int(np.random.default_rng([seed, number, 2]).integers(2**32)),
            n_startup_trials=0,
            multivariate=True,
            constant_liar=True,  # trials that are running repel suggestions
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for record in finished:
            pruned = record.status == "pruned" and record.curve
            study.add_trial(
                create_trial(
                    state=TrialState.PRUNED if pruned else TrialState.COMPLETE,
                    value=None if pruned else record.value,
                    params=encoded(record.params),
                    distributions=distributions,
                    intermediate_values=dict(record.curve) if pruned else {},
                )
            )
        for params in running:
            study.add_trial(create_trial(state=TrialState.RUNNING, params=encoded(params), distributions=distributions))
        values = study.ask(distributions).params
    return {name: r.choices[values[name]] if r.kind == "choice" else values[name] for name, r in space.ranges.items()}


def _distribution(r: Range) -> Any:
    from optuna import distributions

    if r.kind == "choice":
        return distributions.CategoricalDistribution(range(len(r.choices)))
    if r.is_integer:
        return distributions.IntDistribution(int(r.low), int(r.high), log=r.is_logarithmic)
    return distributions.FloatDistribution(r.low, r.high, log=r.is_logarithmic)
