"""Default models run and differentiated by a backend without torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from rlox.errors import BackendError
from rlox.learners.tasks import (
    BoundedSurrogate,
    Perceptrons,
    PerceptronTask,
    choose_perceptrons,
)
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.tasks import DRAWS, task_of

__all__ = ["FastLane", "acting_lane"]

STORED = {"logp": "log_probs", "rewards": "rewards", "terminated": "terminated",
          "truncated": "truncated", "final_values": "final_values"}  # fmt: skip
"""Entries of a storage, and what the backend calls them."""

TERMS = {"losses/entropy": "entropy", "losses/vf": "value_loss", "monitors/kl_div": "approx_kl"}


class FastLane:
    """What a backend does of an algorithm's work, as long as nothing of it was replaced.

    Args:
        algorithm: whose model and envs are known to it.
        task: of the model and the envs.
        backend: name of a learner backend, or ``"auto"``.

    Raises:
        BackendError: the backend cannot do the task.
    """

    def __init__(self, algorithm: Any, task: PerceptronTask, backend: str) -> None:
        self._algorithm, self._task = algorithm, task
        self._loss = algorithm.loss_and_terms
        found = choose_perceptrons(backend, task)
        self._perceptrons: Perceptrons = found[0]
        self.backend = f"{found[1]} ({found[2]})"
        self._noise: Tensor | None = None

    @classmethod
    def of(cls, algorithm: Any, backend: str) -> FastLane | None:
        """Return the lane of an algorithm; ``None`` if torch does its work.

        Args:
            algorithm: with its policy and env.
            backend: ``"torch"``, a backend that must do it, or ``"auto"``.

        Raises:
            BackendError: the backend of this name cannot do it.
        """
        if backend == "torch":
            return None
        try:
            return cls(algorithm, task_of(algorithm), backend)
        except BackendError as error:
            if backend != "auto":
                raise
            logging.getLogger("rlox").info("torch runs the perceptrons (%s)", error)
            return None

    def _is_plain(self) -> bool:
        """Return whether the policy's own code would do what the backend does."""
        algorithm = self._algorithm
        if algorithm.policy.model is not self._task.model:
            return False
        if {"sample", "init_states"} & vars(algorithm.policy).keys():
            return False
        if algorithm.policy.distribution_cls not in DRAWS:
            return False
        try:
            self._perceptrons.require_unchanged()
        except BackendError:
            return False
        return True

    def steps_envs(self) -> bool:
        """Return whether :meth:`collect` does what the loop over steps would."""
        env = self._algorithm.env
        return (
            self._task.envs is not None
            and self._perceptrons.steps_envs
            and not {"step", "actions", "observe"} & vars(env).keys()
            and self._is_plain()
        )

    def acts(self) -> bool:
        """Return whether :meth:`act` and :meth:`recall` do what the policy would."""
        return self._is_plain()

    def holding(self) -> AbstractContextManager[None]:
        """Act with the parameters at the start of a block in all of it."""
        return self._perceptrons.holding()

    @property
    def needs_parts(self) -> bool:
        """Whether a minibatch should come in parts; rows without a memory go block by block."""
        return self._task.memory is not None

    def learns(self) -> bool:
        """Return whether :meth:`differentiate` does what torch would."""
        algorithm = self._algorithm
        return (
            algorithm.loss_and_terms is self._loss
            and not algorithm.hparams.enable_amp
            and "backward" not in vars(algorithm.flat)
            and self._is_plain()
        )

    def collect(self, deterministic: bool, resets: bool) -> None:
        """Fill the algorithm's storage, whose first observations are there, with one call.

        Its draws are those of the loop over steps.

        Args:
            deterministic: take the modes.
            resets: whether the horizon began with a reset.
        """
        algorithm, store = self._algorithm, self._algorithm._storage
        carried = store.get("reversed_discounted_returns", None)
        # by flags that are overwritten now
        first = None if carried is None else algorithm.begun(0, resets)
        self._fill(store, deterministic)
        for t in range(algorithm.hparams.horizon):
            if first is not None:
                begun = algorithm.begun(t, resets) if t else first
                carried[t + 1] = algorithm.hparams.gamma * begun + store["rewards"][t]
            if algorithm.on_env_step is not None:
                algorithm.on_env_step(algorithm.hparams.num_envs)

    def act(self, t: int, deterministic: bool, last: bool) -> dict[str, Tensor]:
        """Return actions and logp (B) at step ``t`` without a memory.

        Args:
            t: in the horizon, whose observations up to then are in the algorithm's storage.
            deterministic: take the modes.
            last: return values instead, after writing those of all steps.
        """
        store = self._algorithm._storage
        if not last:
            return self._choose(store["obs"][t].numpy(), deterministic)
        self._write_values(store)
        return {"values": store["values"][t]}

    def recall(
        self, obs: Tensor, states: TensorDict, deterministic: bool, last: bool
    ) -> tuple[dict[str, Tensor], TensorDict]:
        """Return actions, logp and values (B), only values at the ``last``, and states after.

        Args:
            obs: (B, D)
            states: (B) before them.
            deterministic: take the modes.
            last: whether only values are asked for.
        """
        flat = _flat_states(states).numpy()
        after = self._perceptrons.remember(obs.contiguous().numpy(), flat)
        found = {"values": torch.from_numpy(self._perceptrons.values(after))[:, None]}
        if not last:
            found |= self._choose(after, deterministic)
        hidden, cells = (x[:, None].contiguous() for x in torch.from_numpy(after).chunk(2, -1))
        kept = {"hidden_states": hidden, "cell_states": cells}
        return found, TensorDict(kept, batch_size=[len(obs)])

    def _choose(self, seen: Any, deterministic: bool) -> dict[str, Tensor]:
        n = len(seen)
        noise = None if deterministic else self._draw(1, n)
        chosen = zip(("actions", "logp"), self._perceptrons.act(seen, noise), strict=True)
        return {key: torch.from_numpy(x).view(n, -1) for key, x in chosen}

    def _fill(self, store: TensorDict, deterministic: bool) -> None:
        steps, n = store["rewards"].shape[0] - 1, store["rewards"].shape[1]
        rows = {name: store[key][:-1, :, 0].numpy() for key, name in STORED.items()}
        actions = store["actions"][:-1]
        rows["actions"] = (actions[..., 0] if self._task.discrete else actions).numpy()
        noise = None if deterministic else self._draw(steps, n)
        self._perceptrons.collect(noise, store["obs"].numpy(), rows)
        self._write_values(store)

    def _write_values(self, store: TensorDict) -> None:
        values = self._perceptrons.values(store["obs"].flatten(0, 1).numpy())
        store["values"][:] = torch.from_numpy(values).view(store["values"].shape)

    def _draw(self, steps: int, n: int) -> Any:
        task = self._task
        width = task.actor[-1].out_features // (1 if task.discrete else 2)
        if self._noise is None or len(self._noise) != steps:
            self._noise = torch.empty(steps, n, width)
        draw = DRAWS[self._algorithm.policy.distribution_cls]
        for step in self._noise:  # in as many calls as the distribution makes
            draw(step)
        return self._noise.numpy()

    def add_gradient(self, weight: float) -> None:
        """Add ``weight`` times the last gradient to the parameters' own."""
        self._perceptrons.add_gradient(weight)

    def differentiate(self, minibatch: TensorDict) -> dict[str, Any]:
        """Compute the gradient of a minibatch's mean loss, and return the mean terms.

        Args:
            minibatch: (R) samples, or (n, L) sequences.
        """
        hparams = self._algorithm.hparams
        objective = BoundedSurrogate(
            clip_eps=hparams.clip_param,
            vf_bound=hparams.vf_clip_param,
            vf_coef=hparams.vf_coeff,
            ent_coef=self._algorithm.entropy_scheduler.coeff,
            dual_clip=hparams.dual_clip_param,
        )
        rows = {
            "obs": minibatch["views", "obs"] if self._task.memory is None else minibatch["obs"],
            "actions": minibatch["actions"],
            "log_probs": minibatch["logp"][..., 0],
            "advantages": minibatch["advantages"][..., 0],
            "returns": minibatch["returns"][..., 0],
        }
        if self._task.discrete:
            rows["actions"] = rows["actions"][..., 0]
        if self._task.memory is not None:
            begins = minibatch.get("begins", None)
            if begins is None:  # envs that never end
                begins = torch.zeros_like(minibatch["logp"], dtype=torch.bool)
            rows["episode_starts"] = begins[..., 0]
            rows = {name: row.transpose(0, 1).flatten(0, 1) for name, row in rows.items()}
            rows["initial_state"] = _flat_states(self._algorithm.first_states(minibatch))
        arrays = {name: row.contiguous().numpy() for name, row in rows.items()}
        means = self._perceptrons.differentiate(arrays, objective)
        terms = {key: means[name] for key, name in TERMS.items()}
        terms["losses/entropy"] *= bool(objective.ent_coef)  # else nobody asks for it
        terms["losses/policy"] = -means["policy_loss"]
        terms["losses/total"] = (
            objective.vf_coef * means["value_loss"]
            + means["policy_loss"]
            - objective.ent_coef * terms["losses/entropy"]
        )
        return {key: torch.tensor(value) for key, value in terms.items()}


@contextmanager
def acting_lane(fast: FastLane | None, steady: bool) -> Iterator[FastLane | None]:
    """Enter a block that collects step by step, and return the lane that acts in it.

    Args:
        fast: an algorithm's, if it has one.
        steady: whether the policy's parameters cannot change in the block.

    Returns:
        ``None`` if the policy itself acts.
    """
    if fast is None or not fast.acts():
        yield None
        return
    with fast.holding() if steady else nullcontext():
        yield fast


def _flat_states(states: TensorDict) -> Tensor:
    """Return the states (n) of one layer as the backend's (n, 2 H)."""
    return torch.cat([states["hidden_states"], states["cell_states"]], -1)[:, 0]
