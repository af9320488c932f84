"""Running envs of teams, their returns, rollouts, and advantages of agents that rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from rlox import kernels
from rlox.batches import add_values, estimate_advantages
from rlox.batches.rollout import RolloutBatch, Unroll
from rlox.envs.preprocessing import RewardScaler
from rlox.envs.running import (
    SHOWN_KEYS,
    CheckedTeams,
    EpisodeStatistics,
    Running,
    leaves_of,
    require_same_option,
)
from rlox.networks.predict import taking_masks
from rlox.protocols import (
    AgentGroup,
    MultiAgentObs,
    MultiAgentStep,
    MultiAgentVecEnv,
    RecurrentActor,
)
from rlox.rollouts import EnvMemory, MemoryActor, UnrollWriter
from rlox.spaces import map_leaves, map_nested
from torch import Tensor

from rlox_marl.self_play import OpponentPool
from rlox_marl.views import PolicyView, TeamPreprocessor


class TeamStatistics:
    """Returns and lengths of the last finished episodes of N envs of several agents.

    An agent's return sums all its rewards in an episode, including those while it waits for its
    turn; it is 0 for an agent that never joins. A team's return is the mean over its agents.

    Args:
        groups: the env's agents.
        n_envs: number of envs N.
        window: number of episodes that the means cover.
    """

    def __init__(self, groups: Sequence[AgentGroup], n_envs: int, window: int = 100) -> None:
        self._groups = tuple(groups)
        agents = [agent for group in groups for agent in group.agents]
        self._counted = {name: EpisodeStatistics(n_envs, window) for name in ("", *agents)}
        """By agent; the team is ``""``."""

    def add(
        self, rewards: Mapping[str, npt.NDArray[Any]], episode_ended: npt.NDArray[np.bool_]
    ) -> None:
        """Add T vector steps.

        Args:
            rewards: by group, (T, N, A).
            episode_ended: (T, N) True where the step ended an env's episode.
        """
        for group in self._groups:
            for column, agent in enumerate(group.agents):
                self._counted[agent].add(rewards[group.name][:, :, column], episode_ended)
        everybody = [np.asarray(rewards[group.name], np.float64) for group in self._groups]
        self._counted[""].add(np.concatenate(everybody, axis=2).mean(axis=2), episode_ended)

    @property
    def finished(self) -> int:
        """Number of episodes finished so far."""
        return self._counted[""].finished

    def forget(self, envs: Any) -> None:
        """Drop the running episodes of some envs that have been reset; a slice or indices."""
        for one in self._counted.values():
            one.forget(envs)

    def metrics(self) -> dict[str, Any]:
        """Return an iteration's metrics, with ``return/<agent>`` for each agent."""
        returns = {f"return/{name}": one.mean_return for name, one in self._counted.items() if name}
        return {**self._counted[""].metrics(), "agents": returns}

    def state_dict(self) -> dict[str, Any]:
        """Return the running sums and the windows."""
        return {name: one.state_dict() for name, one in self._counted.items()}

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Whether a state comes from the same number of envs and the same agents."""
        return set(state) == set(self._counted) and self._counted[""].fits(state[""])

    def load_state_dict(self, state: Mapping[str, Any], *, keep_running: bool) -> None:
        """Restore the windows and, with ``keep_running``, the running sums."""
        for name, one in self._counted.items():
            one.load_state_dict(state[name], keep_running=keep_running)


class RunningTeams(Running):
    """N envs of several agents, what they show, and their episode statistics.

    Args:
        env: steps N envs together.
        seed: fixes the envs' random streams.
        preprocessor: changes the observations; ``None`` changes nothing.
    """

    def __init__(
        self, env: MultiAgentVecEnv, seed: int = 0, *, preprocessor: TeamPreprocessor | None = None
    ) -> None:
        leaves = {g.name: leaves_of(g) for g in env.groups}
        super().__init__(env, seed, TeamStatistics(env.groups, env.n_envs), leaves)
        self.preprocessor = preprocessor
        self._steps = CheckedTeams(env)

    def _reset(self, seeds: list[int]) -> MultiAgentObs:
        shown: MultiAgentObs = self.env.reset_all(seeds)
        self._steps.check(shown, SHOWN_KEYS)
        return shown if self.preprocessor is None else self.preprocessor.reset(shown)

    def step(self, actions: Mapping[str, Any]) -> MultiAgentStep:
        """Step all envs with (N, A, ...) actions by group.

        If this fails, some envs may have moved on, so the next look begins new episodes in all.
        """
        self.obs = None
        step: MultiAgentStep = self.env.step_all(actions)
        self._steps.check(step)
        if self.preprocessor is not None:
            step = self.preprocessor.step(step)
        self.obs = {key: step[key] for key in SHOWN_KEYS}  # type: ignore[literal-required]
        rewards = {name: paid[None] for name, paid in step["rewards"].items()}
        self.statistics.add(rewards, step["episode_ended"][None])
        return step

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics, the moments and, if the env exposes it, the env's state."""
        seen = self.preprocessor
        return {**super().state_dict(), "observations": None if seen is None else seen.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; see :meth:`rlox.envs.running.Running.load_state_dict`.

        Raises:
            CheckpointError: see there; or the normalisation options differ.
        """
        seen, saved = self.preprocessor, state["observations"] or {"groups": {}}
        now = seen is not None and seen.normalizes
        require_same_option("normalize_observations", any(saved["groups"].values()), now)
        exact = super().load_state_dict(state)
        if seen is not None:
            seen.load_state_dict(saved, keep_frames=exact)
        return exact


ENDS = ("terminated", "truncated", "final_values")
"""An unroll's fields about episode ends."""


class MultiAgentCollector:
    """Steps envs of several agents and returns a batch for each policy.

    A policy of A agents in N envs fills N * A columns, the agents of env 0 first.

    Args:
        envs: the envs to step; the caller closes them.
        views: the policies' views.
        device: device of the batches.
        team_reward: reward that an agent learns from; see :class:`rlox_marl.configs.MAPPOConfig`.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        normalize_rewards: divide each policy's rewards by the deviation of its agents' discounted
            returns, see :class:`rlox.envs.preprocessing.RewardScaler`.
    """

    def __init__(
        self,
        envs: RunningTeams,
        views: tuple[PolicyView, ...],
        *,
        device: str | torch.device = "cpu",
        team_reward: Literal["own", "mean", "sum"] = "own",
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        normalize_rewards: bool = False,
    ) -> None:
        self.envs = envs
        self.env = envs.env
        self.views = views
        self.statistics = envs.statistics
        self.device = torch.device(device)
        self.gamma, self.gae_lambda = gamma, gae_lambda
        self.pool: OpponentPool | None = None
        """Opponents in two-player games; ``None``: the policies act for all agents."""
        self._team_reward = team_reward
        self.reward_scalers = {
            view.name: RewardScaler(envs.env.n_envs * len(view.columns), gamma)
            for view in views
            if normalize_rewards
        }
        """Scaler per policy; empty if rewards are not scaled."""
        self.memory: dict[str, EnvMemory] = {}
        """Recurrent state per policy; empty for feed-forward policies."""

    def collect(
        self,
        policies: Mapping[str, Any],
        n_steps: int,
        on_step: Callable[[int], None] | None = None,
    ) -> dict[str, RolloutBatch]:
        """Step every env ``n_steps`` times and estimate advantages; arguments as :meth:`unroll`.

        Returns:
            A batch per policy, of the steps in which its agents acted; left out if none acted.
        """
        batches = {
            name: estimate_team_advantages(*steps, policies[name], self.gamma, self.gae_lambda)
            for name, steps in self.unroll(policies, n_steps, on_step).items()
        }
        return {name: batch for name, batch in batches.items() if batch is not None}

    @torch.no_grad()
    def unroll(
        self,
        policies: Mapping[str, Any],
        n_steps: int,
        on_step: Callable[[int], None] | None = None,
    ) -> dict[str, tuple[Unroll, npt.NDArray[np.bool_]]]:
        """Step every env ``n_steps`` times.

        Args:
            policies: by view name; each acts on the nested observations of its view.
            n_steps: steps T per env.
            on_step: called after each vector step with the number of env steps taken (N).

        Returns:
            By policy, T steps of its N * A columns, and (T, N * A) True where an agent acted.

        Raises:
            ValueError: ``n_steps`` is not positive.
            EnvError: an env returned a value that is not finite.
            SpaceError: an env masks actions and the policy does not take masks.
        """
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        if not self.envs.started:  # a failed step may have cut episodes
            self.memory = {}
            for scaler in self.reward_scalers.values():
                scaler.forget()
        runs = [self._begin(view, policies[view.name], n_steps) for view in self.views]
        for t in range(n_steps):
            shown = self.envs.obs
            parts = [(run.view, self._act(run, t, shown)) for run in runs]
            step = self.envs.step(gather_actions(parts, self.env.n_envs))
            if self.pool is not None:
                self.pool.add(step["rewards"][self.views[0].group.name], step["episode_ended"])
            for run in runs:
                self._add(run, t, step)
            if on_step is not None:
                on_step(self.env.n_envs)
        unrolls = {}
        for run in runs:
            shown = self.envs.obs
            unroll = run.writer.unroll(run.view.see(shown["obs"], shown["state"]))
            unroll = unroll if run.memory is None else run.memory.complete(unroll)
            unrolls[run.view.name] = unroll, run.active
        return unrolls

    def _begin(self, view: PolicyView, policy: Any, n_steps: int) -> _Run:
        n, memory = self.env.n_envs * len(view.columns), None
        if isinstance(policy, RecurrentActor):
            if view.name not in self.memory:
                self.memory[view.name] = EnvMemory.blank(n, policy.state_size, self.device)
            memory = MemoryActor(policy, self.memory[view.name])
        writer = UnrollWriter(view.rows, n_steps, n, self.device)
        return _Run(view, policy, writer, memory, np.zeros((n_steps, n), np.bool_))

    def _act(self, run: _Run, t: int, shown: MultiAgentObs) -> Any:
        """Return a policy's actions in the env's format, and store its inputs and outputs."""
        view, writer = run.view, run.writer
        active = run.active[t] = view.take(shown["active"])
        if self.pool is not None:
            active = run.active[t] = active & self.pool.learning.reshape(-1)
        row = writer.observe(view.see(shown["obs"], shown["state"]))
        act: Any
        if run.memory is None:
            act = run.policy.get_action_and_logprob
        else:
            acts = torch.from_numpy(active).to(self.device)
            act = partial(run.memory.act, active=None if acts.all() else acts)
        given = None
        if view.group.name in shown["masks"]:
            act = act if writer.masked else taking_masks(act)
            given = writer.mask(np.ascontiguousarray(view.take(shown["masks"])))
            actions, log_probs = act(row, given)
        else:
            actions, log_probs = act(row)
        chosen = writer.act(actions, log_probs)
        if self.pool is not None:
            chosen = self.pool.act(row, given, chosen)
        return view.actions.to_env(chosen)

    def _add(self, run: _Run, t: int, step: MultiAgentStep) -> None:
        """Store the results of a step for a policy's agents."""
        view = run.view
        rewards = view.take(step["rewards"])
        if self._team_reward != "own":
            everybody = np.concatenate(list(step["rewards"].values()), axis=1)
            total = getattr(everybody, self._team_reward)(axis=1)
            rewards = np.repeat(total, len(view.columns))
        terminated, truncated = view.take(step["terminated"]), view.take(step["truncated"])
        over = np.repeat(step["episode_ended"], len(view.columns))
        scaler, scaled = self.reward_scalers.get(view.name), None
        if scaler is not None:
            rests = ~run.active[t] & (rewards == 0)
            scaled = scaler.scale(rewards, terminated | truncated | over, lost=rests)
        final = view.see(step["final_obs"], step["final_state"]) if truncated.any() else {}
        row: Any = {"rewards": rewards, "terminated": terminated, "truncated": truncated}
        last = run.writer.add({"obs": None, "final_obs": final} | row, scaled)
        if run.memory is not None:
            run.memory.end_step(last, terminated, truncated, begins=over)


@dataclass(frozen=True)
class _Run:
    """A rollout of one policy's N * A columns."""

    view: PolicyView
    policy: Any
    writer: UnrollWriter
    memory: MemoryActor | None
    active: npt.NDArray[np.bool_]
    """(T, N * A) True where an agent acted."""


def gather_actions(parts: list[tuple[PolicyView, Any]], n_envs: int) -> dict[str, Any]:
    """Return (N, A, ...) actions by group from each policy's (N * agents, ...) actions.

    Args:
        parts: views and actions, nested like the action space.
        n_envs: number of envs N.
    """
    found: dict[str, Any] = {}
    for view, actions in parts:
        rows = map_nested(lambda leaf: leaf.reshape(n_envs, -1, *leaf.shape[1:]), actions)
        found.setdefault(view.group.name, []).append((view.columns, rows))
    for name, some in found.items():
        columns, rows = zip(*some, strict=True)
        found[name] = rows[0]
        if len(rows) > 1:
            order = np.argsort(np.concatenate(columns))
            found[name] = map_nested(
                lambda *leaves, order=order: np.concatenate(leaves, axis=1)[:, order], *rows
            )
    return found


@torch.no_grad()
def estimate_team_advantages(
    unroll: Unroll, active: npt.NDArray[np.bool_], policy: Any, gamma: float, gae_lambda: float
) -> RolloutBatch | None:
    """Return the steps in which agents acted, with values and generalised advantage estimates.

    An agent's step lasts until it acts again, and includes the rewards and the end in between; γ
    and λ count the agent's own steps. A step that lasts beyond the rollout is bootstrapped from the
    value of the agent's observation at the rollout's end. Rewards after that, and rewards before
    an agent's first action, are not learnt from.

    Args:
        unroll: T steps of C agents.
        active: (T, C) True where an agent acted.
        policy: estimates values with ``get_value(obs)``.
        gamma: discount γ in [0, 1].
        gae_lambda: trace decay λ in [0, 1].

    Returns:
        A batch of the acting agents' rows, step 0 first; ``None`` if no agent acted. Its rewards
        are summed over the agents' steps; advantages are estimated from scaled rewards if the
        unroll has them.
    """
    if active.all():
        return estimate_advantages(unroll, policy, gamma, gae_lambda)
    if not active.any():
        return None
    if unroll.values is None:
        unroll = add_values(unroll, policy.get_value)
    unroll = _owned(unroll, active)
    assert unroll.values is not None
    assert unroll.final_values is not None
    values = unroll.values.cpu().numpy()
    # each agent's own steps, packed to the beginning of its column
    place = np.cumsum(active, axis=0) - 1
    t, column = np.nonzero(active)
    row = place[t, column]
    shape = (int(row.max()) + 1, active.shape[1])

    def packed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros(shape, array.dtype)
        out[row, column] = array[t, column]
        return out

    def on_device(array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(unroll.log_probs.device)

    def chosen(steps: Any, rows: npt.NDArray[Any]) -> Any:
        """Return rows of steps, indexed along the flattened T * C."""
        if steps is None:
            return None
        where = on_device(rows)
        return map_leaves(lambda leaf: leaf.flatten(0, 1)[where], steps)

    cut, final_values = packed(unroll.truncated), packed(unroll.final_values)
    terminated = packed(unroll.terminated)
    acted = np.flatnonzero(place[-1] >= 0)
    last = place[-1, acted]
    goes_on = ~(cut | terminated)[last, acted]
    cut[last[goes_on], acted[goes_on]] = True
    final_values[last[goes_on], acted[goes_on]] = values[-1, acted[goes_on]]
    advantages, returns = kernels.kernel("compute_gae_time_major")(
        packed(unroll.rewards if unroll.scaled_rewards is None else unroll.scaled_rewards),
        packed(values[:-1]), terminated, cut, final_values, values[-1], gamma, gae_lambda,
    )  # fmt: skip
    sequences: dict[str, Any] = {}
    seen = np.flatnonzero(active)
    if unroll.initial_state is not None:  # recurrent policies replay L own steps per agent
        acted_at = np.cumsum(active.any(axis=0)) - 1
        source = np.zeros((shape[0], len(acted)), np.int64)  # step 0 pads the rest
        there = np.zeros(source.shape, np.bool_)
        source[row, acted_at[column]] = t * shape[1] + column
        there[row, acted_at[column]] = True
        row, found = np.nonzero(there)
        t, column, seen = source[row, found] // shape[1], acted[found], source.reshape(-1)
        sequences = {
            "n_steps": shape[0],
            "n_envs": len(acted),
            "initial_state": unroll.initial_state[on_device(acted)],
            "episode_starts": chosen(unroll.episode_starts, seen),
            "active": on_device(there.reshape(-1)),
        }
    learnt = t * shape[1] + column
    return RolloutBatch(
        obs=chosen(map_leaves(lambda leaf: leaf[:-1], unroll.obs), seen),
        actions=chosen(unroll.actions, seen),
        log_probs=chosen(unroll.log_probs, learnt),
        values=chosen(unroll.values[:-1], learnt),
        rewards=on_device(unroll.rewards[t, column]),
        terminated=on_device(unroll.terminated[t, column]),
        truncated=on_device(unroll.truncated[t, column]),
        advantages=on_device(advantages[row, column]),
        returns=on_device(returns[row, column]),
        action_masks=chosen(unroll.action_masks, seen),
        **({"n_steps": unroll.n_steps, "n_envs": unroll.n_envs} | sequences),
    )


def _owned(unroll: Unroll, active: npt.NDArray[np.bool_]) -> Unroll:
    """Return the unroll, with resting rows' rewards and ends moved to the agent's last step."""
    paid = ["rewards"] if unroll.scaled_rewards is None else ["rewards", "scaled_rewards"]
    given = {name: getattr(unroll, name) for name in (*paid, *ENDS)}
    owned = {name: np.zeros_like(array) for name, array in given.items()}
    step_of = np.full(active.shape[1], -1)  # each agent's current step, -1 for none
    for t in range(len(active)):
        step_of = np.where(active[t], t, step_of)
        lasting = np.flatnonzero(step_of >= 0)
        for name in paid:
            owned[name][step_of[lasting], lasting] += given[name][t, lasting]
        ends = lasting[(given["terminated"] | given["truncated"])[t, lasting]]
        for name in ENDS:
            owned[name][step_of[ends], ends] = given[name][t, ends]
        step_of[ends] = -1
    return replace(unroll, **owned)
