"""Running envs of several agents with episode statistics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from rlox.errors import CheckpointError
from rlox.protocols import MultiAgentObs, MultiAgentStep, MultiAgentVecEnv, StatefulVecEnv
from rlox.rollouts import require_same_option
from rlox.seeding import ResetSeeds

from rlox_marl.envs.statistics import TeamStatistics
from rlox_marl.preprocessing import TeamPreprocessor

__all__ = ["RunningTeams"]


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
