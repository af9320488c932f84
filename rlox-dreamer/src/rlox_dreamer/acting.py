"""Acting in N envs with a world model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.protocols import VecEnv
from rlox.spaces.rows import ObservationRows
from torch import Tensor

from rlox_dreamer.losses import sample_mixed
from rlox_dreamer.networks import Networks
from rlox_dreamer.rssm import Latent
from rlox_dreamer.sequences import Acted

__all__ = ["Actor"]


class Actor:
    """Follows N envs with the model, and acts in them.

    Args:
        networks: model and policy.
        env: the envs.
        see: from observations (N, *shape) by leaf name to what the networks see of them.
        generator: source of states and actions in training.
    """

    def __init__(
        self,
        networks: Networks,
        env: VecEnv,
        see: Callable[[Any], Any],
        generator: torch.Generator,
    ) -> None:
        self._networks, self._env, self._see, self._generator = networks, env, see, generator
        self._latent = networks.rssm.initial(env.n_envs)
        self._actions = self._latent.deter.new_zeros(env.n_envs, networks.actions.size)

    @torch.no_grad()
    def act(self, obs: Any, episode_start: npt.NDArray[np.bool_]) -> Acted:
        """Return samples of states and actions at N observations, and remember them.

        Args:
            obs: (N, *shape) by leaf name, as the networks see them.
            episode_start: (N,), whether an episode begins with the observation.
        """
        starts = torch.from_numpy(episode_start).to(self._actions.device)
        self._latent, self._actions = self._step(
            obs, self._latent, self._actions, starts, self._generator
        )
        codec = self._networks.actions
        return Acted(
            self._latent.deter.cpu().numpy(),
            self._latent.stoch.argmax(-1).cpu().numpy(),
            self._actions.cpu().numpy(),
            codec.rows.to_env(codec.to_rows(self._actions).numpy()),
        )

    def _step(
        self,
        obs: Any,
        latent: Latent,
        actions: Tensor,
        starts: Tensor,
        generator: torch.Generator | None,
    ) -> tuple[Latent, Tensor]:
        """Return the states after N observations, and the actions to take there.

        Args:
            obs: (N, *shape) by leaf name.
            latent: of the steps before.
            actions: (N, A) taken there.
            starts: (N,) bool, whether an episode begins.
            generator: source of samples; ``None`` takes modes.
        """
        net = self._networks
        keep, shares = (~starts).float(), net.rssm.shares()
        embedded = net.rssm.embed_actions(actions * keep[:, None])
        deter = net.rssm.next_deter(latent.masked(keep), embedded, shares)
        projected = net.rssm.project(net.encoder(obs))
        logits = net.rssm.posterior_logits(deter, projected, shares)
        if generator is None:
            modes = logits.argmax(-1, keepdim=True)
            stoch = torch.zeros_like(logits).scatter_(-1, modes, 1.0)
        else:
            noise = torch.rand(logits.shape[:-1], generator=generator).to(logits.device)
            _, stoch = sample_mixed(logits, net.rssm.mix, noise)
        latent = Latent(deter.float(), stoch)
        parameters = net.policy(latent.features())
        if generator is None:
            return latent, net.policy.mode(parameters)
        draws = net.policy.noise((len(deter),), generator)
        return latent, net.policy.sample(parameters, draws.to(deter.device))

    @torch.no_grad()
    def predict(
        self,
        obs: Any,
        state: npt.ArrayLike | None,
        episode_start: npt.ArrayLike | None,
        generator: torch.Generator | None,
    ) -> tuple[Any, npt.NDArray[np.float32]]:
        """Return an action for one observation, or actions for a batch, and the state after.

        Args:
            obs: one observation or a batch (B, *shape), nested as the observation space is.
            state: (B, D + S C + A) that this method returned with the last actions: both parts of
                the model's state, and the action. ``None`` begins episodes.
            episode_start: bool or (B,) bools, whether an episode begins with the observation;
                ``None`` if none does.
            generator: source of samples; ``None`` takes the modes of state and policy.

        Raises:
            ValueError: an argument has another shape.
        """
        net, device = self._networks, self._actions.device
        batch, single = ObservationRows(self._env.observation_space).batch(obs)
        count = len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
        sizes = [net.rssm.deter, net.rssm.stoch * net.rssm.classes, net.actions.size]
        shape = (count, sum(sizes))
        memory = np.zeros(shape, np.float32) if state is None else np.array(state, np.float32)
        if memory.shape != shape:
            raise ValueError(f"state must have shape {shape}, got {memory.shape}")
        given = False if episode_start is None else np.asarray(episode_start, np.bool_)
        starts = np.broadcast_to(given, (count,)) | (state is None)
        deter, stoch, actions = torch.split(torch.from_numpy(memory).to(device), sizes, -1)
        latent, chosen = self._step(
            self._see(batch),
            Latent(deter, stoch.reshape(count, net.rssm.stoch, net.rssm.classes)),
            actions,
            torch.from_numpy(starts).to(device),
            generator,
        )
        rows = net.actions.rows
        taken = rows.to_env(net.actions.to_rows(chosen).numpy())
        after = torch.cat([latent.features(), chosen], -1).cpu().numpy()
        return rows.take(taken, 0) if single else taken, after

    def state_dict(self) -> dict[str, Any]:
        """Return the states of N episodes, and the last actions."""
        return {
            "deter": self._latent.deter.cpu().numpy(),
            "stoch": self._latent.stoch.cpu().numpy(),
            "actions": self._actions.cpu().numpy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them; other numbers of envs begin new episodes, which need no state."""
        if len(state["actions"]) != self._env.n_envs:
            return
        device = self._actions.device
        deter, stoch, actions = (
            torch.from_numpy(np.array(state[name], np.float32)).to(device)
            for name in ("deter", "stoch", "actions")
        )
        self._latent, self._actions = Latent(deter, stoch), actions
