"""Atari games over ALE's vector env, which preprocesses frames in threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.errors import EnvError, MissingDependencyError, missing_extra, suggest
from rlox.protocols import VecEnvStep
from rlox.spaces.rows import batch_of_actions

from rlox_simulators.options import AtariOptions
from rlox_simulators.seeds import seeds_of_32_bits

PREPROCESSING: dict[str, Any] = {
    "frameskip": 4,
    "repeat_action_probability": 0.25,
    "full_action_space": False,
    "max_num_frames_per_episode": 108_000,
    "noop_max": 30,
    "use_fire_reset": True,
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "maxpool": True,
    "stack_num": 4,
    "continuous": False,
    "continuous_action_threshold": 0.5,
}
"""Arguments of the envs and their defaults: the first four as in ``gymnasium.make`` for the ids
``ALE/…-v5``, the rest as in Mnih et al. 2015."""


class AtariVecEnv:
    """N copies of an Atari game, with the game's own rewards.

    Observations are ``(stack_num, img_height, img_width)`` uint8, the newest frame last: grey,
    the maximum of the last two of ``frameskip`` frames, resized by area averages. Results do not
    depend on the number of threads. States cannot be saved, so a resumed run begins new games.

    Args:
        env_id: ``"ALE/Pong-v5"``.
        n_envs: N.
        options: see :class:`AtariOptions`.
        arguments: see :data:`PREPROCESSING`.

    Raises:
        EnvError: ALE has no such game, or refuses an argument.
        MissingDependencyError: ``ale-py`` is not installed.

    Source:
        Bellemare et al. 2013; Machado et al. 2018, for sticky actions; Mnih et al. 2015, Methods.
    """

    def __init__(
        self,
        env_id: str,
        n_envs: int = 1,
        *,
        options: AtariOptions | None = None,
        **arguments: Any,
    ) -> None:
        game = _game(env_id)
        unknown = sorted(set(arguments) - set(PREPROCESSING))
        if unknown:
            raise EnvError(
                f"'{env_id}' takes no argument '{unknown[0]}'{suggest(unknown[0], PREPROCESSING)}; "
                f"it takes {', '.join(PREPROCESSING)}"
            )
        options = options or AtariOptions()
        self._env_id = env_id
        self._env = _build(
            env_id,
            game,
            n_envs,
            num_threads=options.emulator_threads or min(n_envs, os.cpu_count() or 1),
            life_loss_info=options.episodic_life,
            **{**PREPROCESSING, **arguments},
        )
        self._frames = np.zeros(n_envs, np.int64)

    @property
    def n_envs(self) -> int:
        """Number of envs N."""
        return int(self._env.num_envs)

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation."""
        space: gymnasium.Space[Any] = self._env.single_observation_space
        return space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""
        space: gymnasium.Space[Any] = self._env.single_action_space
        return space

    def reset_all(self, seed: int | Sequence[int] | None = None) -> npt.NDArray[np.uint8]:
        """Begin new games; see :class:`rlox.protocols.VecEnv`."""
        obs, infos = self._env.reset(
            seed=None if seed is None else seeds_of_32_bits(seed, self.n_envs)
        )
        self._frames = np.array(infos["episode_frame_number"])
        return np.array(obs)

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all games with (N,) actions; see :class:`rlox.protocols.VecEnvStep`."""
        actions = batch_of_actions(actions, self._env.action_space)
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        frames, final_obs = infos["episode_frame_number"], obs
        step: VecEnvStep = {
            "obs": obs,
            "rewards": np.asarray(rewards, np.float64),
            "terminated": np.asarray(terminated, np.bool_),
            "truncated": np.asarray(truncated, np.bool_),
            "final_obs": obs,
        }
        ended = step["terminated"] | step["truncated"]
        if ended.any():
            # after a lost life the frame count goes on; ALE has final frames of whole games only
            life_lost = ended & (frames > self._frames)
            over = ended & ~life_lost
            if over.any():
                step["final_obs"] = final_obs = obs.copy()
                final_obs[over] = infos["final_obs"][over]
            if life_lost.any():
                step["life_lost"] = life_lost
        self._frames = np.array(frames)
        return step

    def close(self) -> None:
        """End the emulators' threads."""
        self._env.close()


def make_vec_env(
    env_id: str,
    *,
    n_envs: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    options: AtariOptions | None = None,
) -> AtariVecEnv:
    """Build the ``ale`` backend's vector env."""
    return AtariVecEnv(env_id, n_envs, options=options, **(env_kwargs or {}))


def _game(env_id: str) -> str:
    """Return ALE's name for the game of an id."""
    try:
        import ale_py
    except ModuleNotFoundError:
        raise missing_extra(f"'{env_id}'", "atari") from None
    except ImportError as error:
        raise MissingDependencyError(f"'{env_id}' needs ale-py, which fails: {error}") from None
    gymnasium.register_envs(ale_py)
    games = {
        name: spec.kwargs["game"]
        for name, spec in gymnasium.registry.items()
        if name.startswith("ALE/") and name.endswith("-v5") and "game" in spec.kwargs
    }
    if env_id not in games:
        raise EnvError(
            f"ALE has no '{env_id}'{suggest(env_id, games)}; it has {len(games)} games, such as "
            "'ALE/Breakout-v5'"
        )
    return str(games[env_id])


def _build(env_id: str, game: str, n_envs: int, **arguments: Any) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # ALE warns before it fails, e.g. about a missing ROM
        try:
            return AtariVectorEnv(
                game, n_envs, reward_clipping=False, autoreset_mode="SameStep", **arguments
            )
        except Exception as error:
            raise EnvError(f"'{env_id}' cannot be built with {arguments}: {error}") from error
