"""Running envs of several agents: what they show, preprocessed, and episode statistics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import CheckpointError, ConfigError
from rlox.preprocessing import Preprocessor
from rlox.protocols import (
    AgentGroup,
    MultiAgentObs,
    MultiAgentStep,
    MultiAgentVecEnv,
    StatefulVecEnv,
)
from rlox.rollouts import require_same_option
from rlox.seeding import ResetSeeds
from rlox.spaces import leaf_spaces, map_leaves

from rlox_marl.envs.statistics import TeamStatistics

__all__ = ["RunningTeams", "TeamPreprocessor"]

Frames = dict[str, dict[str, Any]]
"""By group: ``seen``, what its N * A agents saw as they last acted, and ``known``, (N * A,) whether
they have acted in the episode."""


class TeamPreprocessor:
    """Normalises what a team sees, and stacks the last few observations of each agent.

    A :class:`rlox.preprocessing.Preprocessor` for each group, and one for the state. The moments
    are those of the observations that agents acted on, of all agents of a group together. Frames
    are those on which the agent itself acted, and what it sees now: an agent that waits for its
    turn or has not joined adds none, and its first action of an episode begins a stack. The state
    is not stacked.

    Args:
        env: its groups and its state.
        normalize: normalise boxes of floats, of observations and of the state.
        frame_stack: number of frames; 1 stacks nothing.

    Raises:
        ConfigError: there is nothing to normalise.
        SpaceError: the frames cannot be stacked.
    """

    def __init__(self, env: MultiAgentVecEnv, *, normalize: bool, frame_stack: int) -> None:
        can = {group.name: _has_floats(group.observation_space) for group in env.groups}
        if normalize and not any(can.values()):
            raise ConfigError(
                "normalize_observations: no observation of the agents has a Box of floats; leave "
                "it out"
            )
        self.possible_agents = env.possible_agents
        """Names of all agents, in the env's order."""
        self.by_group = {
            group.name: Preprocessor(
                group.observation_space,
                normalize=normalize and can[group.name],
                frame_stack=frame_stack,
            )
            for group in env.groups
        }
        """What one group's observations pass through."""
        self.has_frames = any(one.has_frames for one in self.by_group.values())
        """Whether what the networks see depends on what they saw before."""
        self.normalizes = any(one.moments for one in self.by_group.values())
        """Whether there are moments."""
        self.groups: tuple[AgentGroup, ...] = tuple(
            replace(group, observation_space=self.by_group[group.name].space)
            for group in env.groups
        )
        """The env's groups, with the spaces of what policies see."""
        self.state_space: gymnasium.Space[Any] | None = env.state_space
        """Space of what critics see of the state."""
        self._state: Preprocessor | None = None
        if normalize and env.state_space is not None and _has_floats(env.state_space):
            self._state = Preprocessor(env.state_space, normalize=True, frame_stack=1)
            self.state_space = self._state.space
        self._frames: Frames | None = None

    def reset(self, shown: MultiAgentObs) -> MultiAgentObs:
        """Take in what N envs show first; return what is seen."""
        self._take_in(shown)
        seen, self._frames = self.see(shown, None, None)
        return seen

    def step(self, step: MultiAgentStep) -> MultiAgentStep:
        """Take in what a step of N envs shows; return it with what is seen instead."""
        self._take_in(step)
        final = {
            name: self._rows(name, step["final_obs"][name], self._frames)[0]
            for name in self.by_group
        }
        final_state = step["final_state"]
        if self._state is not None and final_state is not None:
            final_state = self._state.begin(final_state)
        seen, self._frames = self.see(step, self._frames, step["episode_ended"])
        return {**step, **seen, "final_obs": final, "final_state": final_state}

    def see(
        self,
        shown: MultiAgentObs,
        frames: Frames | None,
        starts: npt.NDArray[np.bool_] | None,
    ) -> tuple[MultiAgentObs, Frames | None]:
        """Return what is seen of N envs and the frames to pass next, and take in nothing.

        ``frames`` are what this method returned for the step before, ``None`` if all episodes
        begin, and (N,) ``starts`` says which do.
        """
        obs, after = {}, {}
        for name in self.by_group:
            obs[name], rows, known = self._rows(name, shown["obs"][name], frames, starts)
            if not self.has_frames:
                continue
            active = shown["active"][name].reshape(-1)
            kept = rows if frames is None else frames[name]["seen"]
            after[name] = {
                "seen": map_leaves(lambda old, new, on=active: _chosen(on, new, old), kept, rows),
                "known": known | active,
            }
        state = shown["state"]
        if self._state is not None and state is not None:
            state = self._state.begin(state)
        seen: MultiAgentObs = {
            "obs": obs, "active": shown["active"], "masks": shown["masks"], "state": state,
        }  # fmt: skip
        return seen, after if self.has_frames else None

    def _rows(
        self,
        name: str,
        obs: Any,
        frames: Frames | None,
        starts: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
        """Return what is seen (N, A, ...), as rows (N * A, ...), and who has acted before."""
        first = next(iter(obs.values())) if isinstance(obs, dict) else obs
        n_envs, n_agents = first.shape[:2]
        flat = map_leaves(lambda leaf: leaf.reshape(n_envs * n_agents, *leaf.shape[2:]), obs)
        known = np.zeros(n_envs * n_agents, np.bool_)
        if frames is not None:
            known = frames[name]["known"].copy()
            if starts is not None:
                known &= ~np.repeat(starts, n_agents)
        before = None if frames is None else frames[name]["seen"]
        rows = self.by_group[name].see(flat, before, ~known)
        shaped = map_leaves(lambda leaf: leaf.reshape(n_envs, n_agents, *leaf.shape[1:]), rows)
        return shaped, rows, known

    def _take_in(self, shown: MultiAgentObs) -> None:
        for name, one in self.by_group.items():
            active = shown["active"][name]
            if active.any():
                one.take_in(map_leaves(lambda leaf, on=active: leaf[on], shown["obs"][name]))
        if self._state is not None:
            self._state.take_in(shown["state"])

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Let all ranks take in, at the block's end, what each has taken in within it."""
        with ExitStack() as shared:
            for one in (*self.by_group.values(), *filter(None, [self._state])):
                shared.enter_context(one.sharing())
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the frames of the running episodes."""
        frames = {} if self._frames is None else _copied(self._frames)
        return {
            "groups": {name: one.state_dict() for name, one in self.by_group.items()},
            "state": {} if self._state is None else self._state.state_dict(),
            "frames": frames,
        }

    def load_state_dict(self, state: Mapping[str, Any], *, keep_frames: bool) -> None:
        """Restore the moments, and the frames if the envs go on where they were."""
        for name, one in self.by_group.items():
            one.load_state_dict(state["groups"][name])
        if self._state is not None:
            self._state.load_state_dict(state["state"])
        self._frames = _copied(state["frames"]) if keep_frames and state["frames"] else None


def _has_floats(space: gymnasium.Space[Any]) -> bool:
    return any(
        isinstance(leaf, spaces.Box) and leaf.dtype is not None and leaf.dtype.kind == "f"
        for leaf in leaf_spaces(space).values()
    )


def _chosen(
    rows: npt.NDArray[np.bool_], new: npt.NDArray[Any], old: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the new rows where asked, else the old ones."""
    return np.where(rows.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


class RunningTeams:
    """N envs of several agents, what they show, and the statistics of their episodes.

    Args:
        env: steps N envs together.
        seed: fixes the envs' random streams.
        preprocessor: of what the envs show; ``None`` changes nothing.
    """

    def __init__(
        self,
        env: MultiAgentVecEnv,
        seed: int = 0,
        *,
        preprocessor: TeamPreprocessor | None = None,
    ) -> None:
        self.env = env
        self.preprocessor = preprocessor
        self.statistics = TeamStatistics(env.groups, env.n_envs)
        self._seeds = ResetSeeds(seed, env.n_envs)
        self._shown: MultiAgentObs | None = None

    @property
    def started(self) -> bool:
        """Whether the envs stand in episodes; if not, :attr:`shown` resets them."""
        return self._shown is not None

    @property
    def shown(self) -> MultiAgentObs:
        """What the envs show before the next step.

        The first look resets them, and so does the next one after a step that failed.
        """
        if self._shown is None:
            shown = self.env.reset_all(self._seeds.next())
            if self.preprocessor is not None:
                shown = self.preprocessor.reset(shown)
            self._seeds.resets += 1
            self.statistics.forget()
            self._shown = shown
        return self._shown

    def step(self, actions: Mapping[str, Any]) -> MultiAgentStep:
        """Step all envs with (N, A, ...) actions by group.

        If that fails, some envs may have moved on, and all begin new episodes at the next look.
        """
        self._shown = None
        step = self.env.step_all(actions)
        if self.preprocessor is not None:
            step = self.preprocessor.step(step)
        shown = {key: step[key] for key in MultiAgentObs.__annotations__}  # type: ignore[literal-required]
        self._shown = shown  # type: ignore[assignment]
        rewards = {name: paid[None] for name, paid in step["rewards"].items()}
        self.statistics.add(rewards, step["episode_ended"][None])
        return step

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics and, if the env exposes it, the env's state."""
        stateful = self.started and isinstance(self.env, StatefulVecEnv)
        state: dict[str, Any] = {
            "started": self.started or self._seeds.resets > 0,
            "statistics": self.statistics.state_dict(),
            "env": self.env.state() if stateful else None,  # type: ignore[attr-defined]
            "shown": _copied(self._shown) if stateful else None,
        }
        if self.preprocessor is not None:
            state["observations"] = self.preprocessor.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; without that of as many envs, new episodes begin at the next look.

        Returns:
            Whether the envs go on where they were.

        Raises:
            CheckpointError: the envs' state is one of other envs, or was saved with another choice
                of what is normalised.
        """
        seen = self.preprocessor
        require_same_option(
            "normalize_observations", _normalizes(state.get("observations")),
            seen is not None and seen.normalizes,
        )  # fmt: skip
        as_many = self.statistics.fits(state["statistics"])
        exact = state["env"] is not None and as_many and isinstance(self.env, StatefulVecEnv)
        if exact:
            try:
                self.env.set_state(dict(state["env"]))  # type: ignore[attr-defined]
            except (KeyError, ValueError) as error:
                raise CheckpointError(
                    f"its envs' state does not fit a {type(self.env).__name__} ({error}); pass the "
                    "env_backend and env_kwargs that it was trained with"
                ) from error
            self._shown = _copied(state["shown"])
            self._seeds.resets += 1
        elif state["started"]:
            logging.getLogger("rlox").warning(
                "%s has no state to go on from, so that new episodes begin",
                type(self.env).__name__,
            )
            self._shown = None
            self._seeds.go_on_after(int(state["statistics"]["team"]["finished"]))
        self.statistics.load_state_dict(state["statistics"], keep_running=exact)
        if self.preprocessor is not None:
            self.preprocessor.load_state_dict(state["observations"], keep_frames=exact)
        return exact


def _normalizes(observations: Mapping[str, Any] | None) -> bool:
    """Return whether there are moments in a preprocessor's state."""
    return any(observations["groups"].values()) if observations else False


def _copied(value: Any) -> Any:
    """Return nested dicts of arrays with copies of the arrays."""
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return None if value is None else np.array(value)
