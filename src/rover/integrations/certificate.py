"""Certificates: what part of an environment a policy or its data covers, and how it was measured.

A certificate is a dictionary of plain values, which can be made again from the file that it is of.
It goes into a README as a badge and into a Minari data set as metadata.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rover.baselines import agent_class, agent_names
from rover.data import Buffer, check_same_spaces
from rover.envs import Spaces, finite_dynamics, horizon_of, known_id, make_env
from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.evaluation import FiniteEvaluator, RolloutEvaluator, mean_interval, policy_occupancy
from rover.evaluation.rollouts import MEASURED_SETS
from rover.policies import load_policy
from rover.policies.policy import Policy
from rover.storage import RunConfig, fitting, flatten, read_run_config
from rover.training.config import validate_settings
from rover.training.environments import discount_of, repeats_itself
from rover.training.run_folder import BUFFER_FILE, POLICY_FILE, load_run_buffer
from rover.version import __version__

__all__ = [
    "badge",
    "certify",
    "certify_path",
    "check_certificate",
    "one_line",
    "pretraining_command",
]

_FORMAT = 1
_FIGURES = (
    *("states", "share", "objective", "optimality_ratio", "coverage", "unseen"),
    *("cells", "uniform_cells", "data_cells"),
)


def certify(
    policy: Policy | None,
    data: Buffer | None,
    env: gym.Env[Any, Any],
    *,
    discount: float | None = None,
    episodes: int = 20,
    repeats: int = 100,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure a policy, the data that it comes from, or both, on an environment.

    Args:
        policy: the policy; None: the data alone.
        data: transitions; None: nothing is said of what was seen.
        env: the environment. Where its dynamics are known all but ``coverage`` is exact.
        discount: γ of the occupancy; None: what the environment suggests, or 0.99.
        episodes: of a coverage figure.
        repeats: sets of episodes of its interval, ≥ 2; of roll-outs at most five.
        seed: of what is sampled.

    Returns:
        ``states`` and ``share``: states that can be reached, and the share of them that the data
        holds. ``objective``, ``optimality_ratio``: J = Σ_x d(x)² and J/J* of the policy, or else of
        the shares of the data's arrivals. ``coverage``: share of the states that `episodes`
        episodes visit together, as of :func:`rover.evaluation.mean_interval`. ``unseen``: share of
        the policy's discounted occupancy at observations that the data does not hold. Where the
        states are unknown: ``cells`` that `episodes` episodes visit, ``uniform_cells`` of random
        actions and ``data_cells`` of the data, a search with the budget of the run: bounds in the
        place of J*. Unknown figures are None.

    Raises:
        ConfigurationError: neither a policy nor data, or spaces that do not fit.
    """
    if policy is None and data is None:
        raise ConfigurationError("a certificate is of a policy, of data, or of both")
    if policy is not None:
        policy.check_fits(env)
    if data is not None:
        check_same_spaces(data, env)
    problem = finite_dynamics(env)
    gamma = discount_of(env) if discount is None else discount
    certificate = {
        "format": _FORMAT,
        "version": __version__,
        "discount": gamma,
        "episodes": episodes,
        "seed": seed,
        **dict.fromkeys(_FIGURES),
        "data_digest": None if data is None else _data_digest(data),
    }
    if problem is None:
        return certificate | _sampled(policy, data, env, episodes, repeats, seed)
    evaluator = FiniteEvaluator(
        problem, discount=gamma, horizon=horizon_of(env), n_episodes=episodes
    )
    # A stream of its own: a certificate is the same whatever was drawn before, in this process or
    # by the agent that made the data.
    return certificate | _exact(policy, data, evaluator, repeats, np.random.default_rng([seed, 9]))


def _exact(
    policy: Policy | None,
    data: Buffer | None,
    evaluator: FiniteEvaluator,
    repeats: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    problem = evaluator.problem
    reachable = problem.dynamics.steps_to_states() >= 0
    figures: dict[str, Any] = {"states": int(reachable.sum())}
    held = np.zeros(evaluator.n_states, np.bool_)
    if data is not None:
        states = problem.states_of(data.observations.rows)
        if (states < 0).any():
            raise ConfigurationError(
                f"{int((states < 0).sum())} observations of the data are none of the environment's:"
                " it was made with other keywords"
            )
        held[states] = True
        figures["share"] = float(held[reachable].mean())
    if policy is None:
        assert data is not None
        # The best that data can be: J of the shares that its arrivals have of the states.
        shares = data.visits() / data.visits().sum()
        objective = float(shares @ shares)
        ratio = evaluator.ratio(objective)
        return figures | {"objective": objective, "optimality_ratio": ratio}
    tables = policy.tables(problem.observations)
    exact = evaluator.exact_figures(tables)
    figures |= {name: exact[name] for name in ("objective", "optimality_ratio")}
    # Coverage of a handful of episodes has no closed form: it alone is sampled.
    figures["coverage"] = mean_interval(evaluator.coverage(tables, repeats, rng)[0])
    if data is not None:
        occupancy = policy_occupancy(problem.dynamics, tables, discount=evaluator.discount)
        figures["unseen"] = float(occupancy[~held].sum())
    return figures


def _sampled(
    policy: Policy | None,
    data: Buffer | None,
    env: gym.Env[Any, Any],
    episodes: int,
    repeats: int,
    seed: int,
) -> dict[str, Any]:
    evaluator = RolloutEvaluator(
        env,
        Spaces.of(env).n_actions,
        horizon=horizon_of(env),
        n_episodes=episodes,
        n_sets=max(2, min(repeats, MEASURED_SETS)),
        rng=np.random.default_rng([seed, 0]),
    )
    # The net is made of random actions of another stream, so that no policy has a net of its own.
    figures: dict[str, Any] = {"uniform_cells": evaluator.uniform["cells"]}
    rng = np.random.default_rng([seed, 1])
    if policy is not None:
        figures["cells"] = evaluator.measure(policy.sample_component, rng)["cells"]
    if data is not None:
        rows = evaluator.project(data.observations.rows)
        figures["data_cells"] = len(np.unique(evaluator.net.cells_of(rows, rng)))
    return figures


def _data_digest(data: Buffer) -> str:
    """SHA-256 of the transitions, whatever file they are in."""
    # Not of a file's bytes: a Minari data set and a buffer of the same transitions are one thing.
    digest = hashlib.sha256()
    for name, column in sorted(data.state().items()):
        # Labels, and what only a learner of rover's has, do not travel with the transitions.
        if name not in ("rewards", "skills"):
            digest.update(f"{name}{column.dtype}{column.shape}".encode())
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def certify_path(path: str | Path, env_id: str | None = None, **options: Any) -> dict[str, Any]:
    """The certificate of a run folder, a policy's file or a buffer's.

    Args:
        path: the folder of a finished run, whose policy and data are measured; or
            ``policy.safetensors`` or ``buffer.safetensors``; its folder is not looked at.
        env_id: the environment; None: the one that the file names.
        options: options of :func:`certify`.

    Returns:
        The certificate, with ``env_id``, ``env_kwargs``, and of a run the ``command`` that makes
        its data again.

    Raises:
        ArtefactError: a damaged file, or one of something else.
        ConfigurationError: the environment is not known, or does not fit.
    """
    path, config = Path(path), None
    policy: Policy | None = None
    data: Buffer | None = None
    if path.is_dir():
        config = read_run_config(path, kind="pretrain")
        policy, data = load_policy(path / POLICY_FILE), load_run_buffer(path)
    elif path.name == BUFFER_FILE:
        data = Buffer.load(path)
    else:
        policy = load_policy(path)
    # A policy names its environment; a buffer does not.
    details = {} if policy is None else policy.details
    stored = details.get("env_id")
    named = stored if env_id is None else env_id
    if named is None:
        raise ConfigurationError(f"{path} does not name its environment: give --env ID")
    env_kwargs = dict(details.get("env_kwargs") or {}) if named == stored else {}
    env = make_env(known_id(named) if env_id is None else named, env_kwargs)
    command = None if config is None else pretraining_command(config)
    is_own = config is not None and data is not None and env_id is None
    if is_own and not repeats_itself(env, data, seed=config.seed):  # type: ignore[arg-type,union-attr]
        warnings.warn(
            "the environment as its id makes it does not repeat the first episode of the run: "
            "something was set after it was made, and no command makes the data again. "
            "Register the environment as it was set",
            RoverWarning,
            stacklevel=2,
        )
        command = None
    about = {"env_id": named, "env_kwargs": env_kwargs, "command": command}
    return about | certify(policy, data, env, **{"discount": details.get("discount"), **options})


def pretraining_command(config: RunConfig) -> str:
    """The command line that makes the data of a run again, with its seed and settings."""
    words = ["rover", "pretrain", str(config.env_id), "--agent", str(config.agent)]
    for name, value in config.env_kwargs.items():
        words += ["--env", _assignment(name, value)]
    words += ["--preset", config.preset, "--seed", str(config.seed)]
    words += ["--steps", str(config.total_timesteps)]
    if config.agent in agent_names():
        agent = agent_class(str(config.agent))
        usual = validate_settings(agent.config_class, agent.presets[config.preset])
        # Only what differs from the preset, which the command names.
        before = flatten(usual.model_dump(mode="json"))
        for name, value in flatten(config.settings).items():
            # What was None is resolved anew, from the same environment.
            if value is not None and before.get(name) is not None and value != before[name]:
                words += ["--set", _assignment(name, value)]
    return " ".join(words)


def _assignment(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def check_certificate(certificate: Mapping[str, Any], data: Buffer) -> None:
    """Hold a certificate that :func:`certify` made without a policy, with ``env_id`` and
    ``env_kwargs``, against the transitions. ArtefactError: another format, other data, or figures
    that it does not have."""
    with fitting("the certificate cannot be checked"):
        env = make_env(known_id(certificate["env_id"]), certificate["env_kwargs"])
        options = {name: certificate[name] for name in ("discount", "episodes", "seed")}
    again = certify(None, data, env, **options)
    # All that data alone has: what a policy does is not in a data set.
    for name in (
        *("format", "data_digest", "states", "share", "objective", "optimality_ratio"),
        *("uniform_cells", "data_cells"),
    ):
        stated, measured = certificate.get(name), again[name]
        is_same = stated == measured
        if isinstance(stated, float) and isinstance(measured, float):
            # Another machine may round the last digits of floats otherwise.
            is_same = math.isclose(stated, measured, rel_tol=1e-6)
        if not is_same:
            raise ArtefactError(
                f"the certificate says {name} = {stated}, and it is {measured}: it was altered, "
                "is of other transitions, or of another version of rover"
            )


def one_line(certificate: Mapping[str, Any]) -> str:
    """The figures of a certificate in one line."""
    parts = []
    if certificate["states"] is not None:
        seen = certificate["share"]
        share = "" if seen is None else f"{seen:.1%} of "
        parts.append(f"{share}{certificate['states']} states" + ("" if seen is None else " seen"))
    interval = certificate["coverage"]
    if interval is not None:
        parts.append(
            f"coverage {interval['mean']:.1%} ({interval['low']:.1%} to {interval['high']:.1%}) in "
            f"{certificate['episodes']} episodes"
        )
    if certificate["objective"] is not None:
        parts.append(f"J {certificate['objective']:.4g}")
    if certificate["optimality_ratio"] is not None:
        parts.append(f"J/J* {certificate['optimality_ratio']:.4f}")
    counted = {"cells": "", "uniform_cells": " of random actions", "data_cells": " of the data"}
    cells = [f"{certificate[k]:.0f}{of}" for k, of in counted.items() if certificate[k] is not None]
    if cells:
        parts.append(f"cells {', '.join(cells)}")
    if certificate["unseen"] is not None:
        parts.append(f"{certificate['unseen']:.1%} of decisions at unseen observations")
    return f"{certificate['env_id']}: {'; '.join(parts)}"


def badge(certificate: Mapping[str, Any]) -> str:
    """The certificate as a badge of a README, SVG."""
    ratio, share, cells = (certificate[k] for k in ("optimality_ratio", "share", "cells"))
    text, is_good = "measured", True
    if ratio is not None:
        text, is_good = f"J/J* {ratio:.3f}", ratio < 1.1
    elif share is not None:
        text, is_good = f"{share:.0%} seen", share > 0.95
    elif cells is not None:
        times = cells / certificate["uniform_cells"]
        text, is_good = f"{times:.1f} × random", times > 1.5
    left, right = 62, 12 + 7 * len(text)
    colour, middle = ("#2e7d32" if is_good else "#b26a00"), left + right / 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="coverage: {text}"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/><g fill="#fff" '
        'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">coverage</text><text x="{middle}" y="14">{text}</text></g>'
        "</svg>\n"
    )
