"""The evaluation loop, its players, and its result."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.config.composition import Selection
from rlox.config.model import require_integer
from rlox.envs.make import fixed_env_count, make_vec_env
from rlox.envs.running import SHOWN_KEYS, CheckedSteps, CheckedTeams
from rlox.envs.teams import is_team, make_team_env
from rlox.errors import EnvError, RloxError, SpaceError
from rlox.files import pairs_as_html
from rlox.protocols import AgentGroup, MultiAgentObs, MultiAgentVecEnv, VecEnv
from rlox.spaces.rows import join, map_leaves, map_nested, require_finite

MAX_STEPS = 1_000_000
"""Default bound of the env steps in an episode; longer than any episode of gymnasium's envs."""


NORMALIZING = "gymnasium.wrappers.stateful_observation:NormalizeObservation"
NORMALIZING_REMEDY = (
    ", or leave NormalizeObservation to the option normalize_observations=True if the "
    "algorithm has it, whose moments evaluations and checkpoints share"
)


class Predictor(Protocol):
    """Anything that maps a batch of observations to a batch of actions.

    One that also acts for teams has ``predict_team``, see :class:`TeamPlayer`; without that,
    ``predict`` gets observations, and masks if there are any, as dicts by agent there, and returns
    actions in such a dict.

    A ``predict`` with an argument ``action_masks`` gets the masks of an env that masks actions;
    predictors without it may not act in such envs. One with ``state`` and ``episode_start`` gets
    the state that it returned next to the last actions, and the beginnings of episodes.
    """

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return actions for observations (B, *shape), as arrays nested like the action space."""


@dataclass(frozen=True)
class EvaluationResult:
    """Undiscounted returns and lengths of the episodes of one evaluation."""

    returns: npt.NDArray[np.float64]
    """(n_episodes,)"""
    lengths: npt.NDArray[np.int64]
    """(n_episodes,) in env steps."""
    random_return: float | None = None
    """Mean return of a random policy, if the training dataset provides it."""
    expert_return: float | None = None
    """Mean return of an expert, if the training dataset provides it."""
    agent_returns: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """(n_episodes,) per agent of an env of several; :attr:`returns` are their means."""

    @property
    def mean_return(self) -> float:
        """Mean over the episodes."""
        return float(self.returns.mean())

    @property
    def std_return(self) -> float:
        """Population standard deviation over the episodes."""
        return float(self.returns.std())

    def metrics(self) -> dict[str, float]:
        """Return the metrics that loggers get."""
        return {
            "mean_reward": self.mean_return,
            "std_reward": self.std_return,
            "mean_episode_length": float(self.lengths.mean()),
        }

    def normalized_score(
        self, random_return: float | None = None, expert_return: float | None = None
    ) -> float:
        """Return 100 · (mean - random) / (expert - random), which is comparable across tasks.

        Args:
            random_return: mean return of a random policy; ``None`` uses :attr:`random_return`.
            expert_return: mean return of an expert; ``None`` uses :attr:`expert_return`.

        Raises:
            ValueError: one is unknown, or both are equal.

        Source:
            Fu et al. 2020, "D4RL: datasets for deep data-driven reinforcement learning", sec. 5.
        """
        random = self.random_return if random_return is None else random_return
        expert = self.expert_return if expert_return is None else expert_return
        if random is None or expert is None:
            raise ValueError(
                "a normalised score needs the mean returns of a random policy and of an expert; "
                "pass random_return= and expert_return="
            )
        if random == expert:
            raise ValueError(f"the random and the expert return are both {random}")
        return 100 * (self.mean_return - random) / (expert - random)

    def __str__(self) -> str:
        pairs = ", ".join(f"{name} {value}" for name, value in self._pairs().items())
        return f"{pairs} over {len(self.returns)} episodes"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return pairs_as_html(f"evaluation over {len(self.returns)} episodes", self._pairs())

    def _pairs(self) -> dict[str, str]:
        low, high = float(self.returns.min()), float(self.returns.max())
        pairs = {
            "return": f"{self.mean_return:.1f} ± {self.std_return:.1f}",
            "min, max": f"{low:.1f}, {high:.1f}",
            "mean length": f"{float(self.lengths.mean()):.1f}",
        }
        if None not in (self.random_return, self.expert_return):
            pairs["normalised score"] = f"{self.normalized_score():.1f}"
        for name, returns in self.agent_returns.items():
            pairs[f"return of {name}"] = f"{float(returns.mean()):.1f}"
        return pairs


@runtime_checkable
class RunsEpisodes(Protocol):
    """Anything that evaluates itself; called by callbacks, ``rlox train`` and ``rlox eval``.

    The algorithm defines an episode: one of an env, of a team's game, or the completion of a
    prompt, whose return is its reward and whose length is its number of tokens.
    """

    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Run ``n_episodes`` episodes without learning.

        Args:
            env: env of the episodes; ``None`` takes that of the algorithm.
            n_episodes: number of episodes.
            deterministic: act with the mode of the policy rather than a sample.
            seed: fixes the episodes' starts; ``None`` draws one from the run's streams.
            max_steps: steps after which an episode counts as endless, which is an error.
        """


def evaluate(
    predictor: Predictor,
    env: Any,
    *,
    n_episodes: int = 10,
    deterministic: bool = True,
    seed: int = 0,
    max_envs: int = 16,
    max_steps: int = MAX_STEPS,
    env_kwargs: Mapping[str, Any] | None = None,
    backend: str | Selection = "auto",
) -> EvaluationResult:
    """Run whole episodes and return their returns.

    If the env can be copied, up to ``max_envs`` copies run in parallel, each for a fixed number
    of episodes: taking those that finish first would favour short ones.

    Args:
        predictor: an algorithm, or any object with its ``predict``.
        env: an id, a callable, a gymnasium env or a vector env; an env whose spec recreates it is
            recreated, any other is used itself.
        n_episodes: number of episodes.
        deterministic: passed to ``predict``.
        seed: seed of the envs' first reset.
        max_envs: upper bound of the copies.
        max_steps: env steps after which an episode counts as endless.
        env_kwargs: arguments of the envs, the same as in the training of ``predictor``.
        backend: see :func:`rlox.envs.make.make_vec_env`.

    Raises:
        ConfigError: ``env_kwargs`` are given for an env that already exists.
        TypeError: ``n_episodes``, ``seed`` or ``max_steps`` is not an integer.
        ValueError: ``n_episodes`` or ``max_steps`` is not positive, or ``seed`` is negative.
        SpaceError: the env masks actions and ``predictor`` takes no masks.
        EnvError: an episode does not end; ``predictor`` refuses the first observations, for
            example for their shape; or the env is the very instance that ``predictor`` trains on
            and cannot be recreated, so that the evaluation would end its training episodes.
    """
    n_episodes = require_integer("n_episodes", n_episodes, at_least=1)
    seed = require_integer("seed", seed, at_least=0)
    max_steps = require_integer("max_steps", max_steps, at_least=1)
    require_other_env(predictor, env)
    n_envs = min(n_episodes, max_envs)
    vec_env: Any
    player: Player
    named = backend if isinstance(backend, str) else backend.name
    # a callable is called to find out, which predictors of one agent need not pay for
    plain = callable(env) or isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv))
    asked = hasattr(predictor, "predict_team") or not plain
    if asked and is_team(env, backend=named, env_kwargs=env_kwargs):
        ours = fixed_env_count(env) is None
        vec_env = make_team_env(
            env, n_envs=n_envs if ours else None, backend=named, env_kwargs=env_kwargs
        )
        player = TeamPlayer(predictor, vec_env, deterministic)
    else:
        vec_env, ours = _evaluation_env(env, n_envs, env_kwargs, backend)
        player = OnePlayer(predictor, vec_env, deterministic)
    try:
        return _run_episodes(player, n_episodes, seed, max_steps)
    finally:
        if ours:
            vec_env.close()


def require_other_env(predictor: Any, env: Any) -> None:
    """Refuse an env that cannot be recreated and is the one that ``predictor`` trains on.

    Raises:
        EnvError: it is that env, wrapped or not.
    """
    source = getattr(predictor, "env_source", None)
    if fixed_env_count(env) is None or source is None or _can_be_made_again(env):
        return
    if getattr(env, "unwrapped", env) is getattr(source, "unwrapped", source):
        raise EnvError(
            f"cannot evaluate on the {type(env).__name__} that is trained on, which would reset "
            "it; pass another env" + (NORMALIZING_REMEDY if _normalizes(env) else "")
        )


def _normalizes(env: Any) -> bool:
    """Whether a wrapper of ``env`` has learnt moments, which a new one would lack."""
    spec = getattr(env, "spec", None)
    return spec is not None and any(w.entry_point == NORMALIZING for w in spec.additional_wrappers)


def _can_be_made_again(env: Any) -> bool:
    """Whether the spec of ``env`` makes an env that looks the same to a policy.

    It does not if a wrapper hides its arguments or has learnt statistics.
    """
    spec = env.spec if isinstance(env, gymnasium.Env) else None
    recorded = spec is not None and all(w.kwargs is not None for w in spec.additional_wrappers)
    return recorded and not _normalizes(env)


def _evaluation_env(
    env: Any, n_envs: int, env_kwargs: Mapping[str, Any] | None, backend: str | Selection
) -> tuple[VecEnv, bool]:
    if not env_kwargs and _can_be_made_again(env):
        spec = env.spec
        return make_vec_env(lambda: gymnasium.make(spec), n_envs=n_envs), True
    if fixed_env_count(env) is None:
        made = make_vec_env(env, n_envs=n_envs, backend=backend, env_kwargs=env_kwargs)
        return made, True
    return make_vec_env(env, env_kwargs=env_kwargs), False


def _run_episodes(player: Player, n_episodes: int, seed: int, max_steps: int) -> EvaluationResult:
    n_envs = player.n_envs
    remaining = np.array([(n_episodes + i) // n_envs for i in range(n_envs)])
    returns: list[float] = []
    agent_returns: list[npt.NDArray[np.float64]] = []
    lengths: list[int] = []
    running_return, running_length = np.zeros(n_envs), np.zeros(n_envs, np.int64)
    running_agents = np.zeros((n_envs, len(player.agents)))
    player.begin(np.random.SeedSequence(seed).generate_state(n_envs).tolist())
    while remaining.any():
        rewards, agent_rewards, ended = player.step()
        running_return += rewards
        running_agents += agent_rewards
        running_length += 1
        for i in np.flatnonzero(ended):
            if remaining[i]:
                remaining[i] -= 1
                returns.append(float(running_return[i]))
                agent_returns.append(running_agents[i].copy())
                lengths.append(int(running_length[i]))
            running_return[i], running_agents[i], running_length[i] = 0.0, 0.0, 0
        if (running_length[remaining > 0] >= max_steps).any():
            raise EnvError(
                f"an episode has not ended after {max_steps} env steps; bound it by the wrapper "
                "gymnasium.wrappers.TimeLimit or max_episode_steps= of gymnasium.register, or "
                "raise max_steps"
            )
    by_agent = dict(zip(player.agents, np.array(agent_returns).T, strict=True))
    return EvaluationResult(np.array(returns), np.array(lengths), agent_returns=by_agent)


Paid = npt.NDArray[np.float64]


class Player(ABC):
    """A predictor that acts in N envs.

    Args:
        env: the envs.
        predict: the predictor's method.
        deterministic: passed to it.
        observations: description of the env's observations, for an error.
    """

    agents: tuple[str, ...] = ()
    """Names of the A agents of an env; empty with a single agent."""

    def __init__(
        self, env: Any, predict: Callable[..., Any], deterministic: bool, observations: object
    ) -> None:
        self.n_envs = int(env.n_envs)
        self._env, self._predict, self._deterministic = env, predict, deterministic
        self._arguments = inspect.signature(predict).parameters
        self._stateful = "state" in self._arguments
        self._observations, self._accepted = observations, False

    def begin(self, seeds: Sequence[int]) -> None:
        """Reset all envs, each with its own seed."""
        self._obs: Any = self._env.reset_all(seeds)
        self._state: Any = None
        self._starts = np.ones(self.n_envs, np.bool_)

    @abstractmethod
    def step(self) -> tuple[Paid, Paid, npt.NDArray[np.bool_]]:
        """Act once in all envs.

        Returns:
            (N,) rewards of the envs, (N, A) rewards of the agents, (N,) whether an episode ended.

        Raises:
            EnvError: the predictor refuses the first observations, for example for their shape.
        """

    def _act(self, **given: Any) -> Any:
        if self._stateful:
            given |= {"state": self._state, "episode_start": self._starts}
        try:
            actions = self._predict(self._obs, deterministic=self._deterministic, **given)
        except ValueError as error:
            if self._accepted or isinstance(error, RloxError):
                raise
            raise EnvError(
                f"the policy does not act in an env of observations {self._observations}: "
                f"{error}; evaluate it in an env like that of its training"
            ) from error
        self._accepted = True
        if self._stateful:
            actions, self._state = actions
        return actions


class OnePlayer(Player):
    """A predictor in envs of one agent.

    Args:
        predictor: see :class:`Predictor`.
        env: N envs.
        deterministic: passed to ``predict``.
    """

    def __init__(self, predictor: Any, env: VecEnv, deterministic: bool) -> None:
        super().__init__(env, predictor.predict, deterministic, env.observation_space)
        self._steps = CheckedSteps(env)

    def begin(self, seeds: Sequence[int]) -> None:
        """Reset all envs, each with its own seed."""
        super().begin(seeds)
        self._steps.check_reset(self._obs)
        require_finite(self._obs)

    def step(self) -> tuple[Paid, Paid, npt.NDArray[np.bool_]]:
        """Act once in all envs; see :class:`Player`.

        Raises:
            SpaceError: the envs mask actions and the predictor takes no masks.
        """
        masks = self._steps.action_masks()
        if masks is not None:
            require_masks_taken(self._arguments)
        actions = self._act() if masks is None else self._act(action_masks=masks)
        space = self._env.action_space
        if isinstance(space, spaces.Box):
            actions = np.clip(actions, space.low, space.high)
        step = self._env.step_all(actions)
        self._steps.check(step)
        require_finite(step["obs"])
        self._obs = step["obs"]
        self._starts = step["terminated"] | step["truncated"]
        return step["rewards"], np.zeros((self.n_envs, 0)), self._starts


def require_masks_taken(arguments: Container[str]) -> None:
    """Check that a predictor with these arguments takes action masks.

    Raises:
        SpaceError: it does not.
    """
    if "action_masks" not in arguments:
        raise SpaceError(
            "the env masks actions, but predict has no argument 'action_masks' and would "
            "take forbidden ones; act with a policy that takes masks, such as PPO's"
        )


class TeamPlayer(Player):
    """A predictor in envs of several agents.

    Args:
        predictor: has ``predict_team(obs, deterministic)``, from a
            :class:`rlox.protocols.MultiAgentObs` to the actions by group. With the arguments
            ``state`` and ``episode_start`` it returns a pair: actions, and the state to pass next;
            the first state is ``None``. Or has only ``predict``, see :class:`Predictor`.
        env: N envs.
        deterministic: passed to ``predict_team``.
    """

    def __init__(self, predictor: Any, env: MultiAgentVecEnv, deterministic: bool) -> None:
        seen = ", ".join(f"{group.observation_space} of {group.name}" for group in env.groups)
        predict = getattr(predictor, "predict_team", None) or _for_team(predictor.predict, env)
        super().__init__(env, predict, deterministic, seen)
        self.agents = tuple(agent for group in env.groups for agent in group.agents)
        self._steps = CheckedTeams(env)

    def begin(self, seeds: Sequence[int]) -> None:
        """Reset all envs, each with its own seed."""
        super().begin(seeds)
        self._steps.check(self._obs, SHOWN_KEYS)

    def step(self) -> tuple[Paid, Paid, npt.NDArray[np.bool_]]:
        """Act once in all envs; an env gets the mean over its agents. See :class:`Player`."""
        self._obs = step = self._env.step_all(self._act())
        self._steps.check(step)
        self._starts = step["episode_ended"]
        rewards = np.concatenate([step["rewards"][g.name] for g in self._env.groups], axis=1)
        return rewards.mean(axis=1), rewards, step["episode_ended"]


def _for_team(predict: Callable[..., Any], env: MultiAgentVecEnv) -> Callable[..., Any]:
    """Return ``predict_team`` of a ``predict`` whose observations and actions are by agent."""
    places = [(agent, g, k) for g in env.groups for k, agent in enumerate(g.agents)]
    arguments = inspect.signature(predict).parameters

    def take(rows: Mapping[str, Any], group: AgentGroup, column: int) -> Any:
        return map_leaves(lambda leaf: leaf[:, column], rows[group.name])

    @wraps(predict)
    def predict_team(obs: MultiAgentObs, deterministic: bool = True, **given: Any) -> Any:
        seen = {a: join(g.observation_space, take(obs["obs"], g, k)) for a, g, k in places}
        if masks := {a: take(obs["masks"], g, k) for a, g, k in places if g.name in obs["masks"]}:
            require_masks_taken(arguments)
            given["action_masks"] = masks
        found = predict(seen, deterministic=deterministic, **given)
        actions, *state = found if "state" in given else (found,)
        if not isinstance(actions, Mapping) or not seen.keys() <= actions.keys():
            got = list(actions) if isinstance(actions, Mapping) else type(actions).__name__
            raise EnvError(f"predict must return actions by agent, {', '.join(seen)}, got {got}")
        groups = {
            g.name: map_nested(lambda *rows: np.stack(rows, 1), *(actions[a] for a in g.agents))
            for g in env.groups
        }
        return (groups, *state) if state else groups

    return predict_team
