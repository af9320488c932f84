"""Default models run and differentiated by a backend without torch."""

from __future__ import annotations

import logging
from typing import Any

import torch
from gymnasium import spaces
from rlox.errors import BackendError
from rlox.learners.tasks import BoundedSurrogate, Perceptrons, PerceptronTask, choose_perceptrons
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.distributions import Categorical, Normal
from rlox_rl8.models import layers_of
from rlox_rl8.policies import Policy, RecurrentPolicy
from rlox_rl8.vec_envs import VecTensorEnv

DRAWS: dict[Any, Any] = {Categorical: Tensor.exponential_, Normal: Tensor.normal_}
"""In-place draws of noise in each distribution's ``sample``."""

STORED = {"logp": "log_probs", "rewards": "rewards", "terminated": "terminated",
          "truncated": "truncated", "final_values": "final_values"}  # fmt: skip
"""Entries of a storage, and the backend's names for them."""


class FastLane:
    """An algorithm's work done by a backend, as long as no part of it is replaced.

    Args:
        algorithm: its model and envs are supported by the backend.
        task: the task of its model and envs.
        backend: name of a learner backend, or ``"auto"``.

    Raises:
        BackendError: the backend cannot do the task.
    """

    def __init__(self, algorithm: Any, task: PerceptronTask, backend: str) -> None:
        self._algorithm, self._task = algorithm, task
        self._loss = algorithm.loss_and_terms
        found = choose_perceptrons(backend, task)
        self.perceptrons: Perceptrons = found[0]
        self.backend = f"{found[1]} ({found[2]})"
        self.needs_parts = task.memory is not None
        """Whether to pass minibatches in parts; without a memory the backend splits them itself."""
        self._noise: Tensor | None = None

    @classmethod
    def of(cls, algorithm: Any, backend: str) -> FastLane | None:
        """Return the lane of an algorithm; ``None`` if torch does its work.

        Args:
            algorithm: with its policy and env.
            backend: ``"torch"``, the name of a required backend, or ``"auto"``.

        Raises:
            BackendError: the named backend cannot do the work.
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

    def acts(self) -> bool:
        """Return whether :meth:`act` and :meth:`recall` equal the policy's own code."""
        policy = self._algorithm.policy
        replaced = {"sample", "init_states"} & vars(policy).keys()
        if policy.model is not self._task.model or replaced or policy.distribution_cls not in DRAWS:
            return False
        try:
            self.perceptrons.require_unchanged()
        except BackendError:
            return False
        return True

    def steps_envs(self) -> bool:
        """Return whether :meth:`collect` equals the loop over steps."""
        env = self._algorithm.env
        return (
            self._task.envs is not None
            and self.perceptrons.steps_envs
            and not {"step", "actions", "observe"} & vars(env).keys()
            and self.acts()
        )

    def learns(self) -> bool:
        """Return whether :meth:`differentiate` equals torch."""
        algorithm = self._algorithm
        return (
            algorithm.loss_and_terms is self._loss
            and not algorithm.hparams.enable_amp
            and "backward" not in vars(algorithm.flat)
            and self.acts()
        )

    def collect(self, deterministic: bool, resets: bool) -> None:
        """Fill the algorithm's storage from its first observations with one call.

        Random draws equal those of the loop over steps.

        Args:
            deterministic: act with the modes.
            resets: whether the horizon began with a reset.
        """
        algorithm, store = self._algorithm, self._algorithm._storage
        carried = store.get("reversed_discounted_returns", None)
        # reads flags that are overwritten below
        first = None if carried is None else algorithm.begun(0, resets)
        steps, n = store["rewards"].shape[0] - 1, store["rewards"].shape[1]
        rows = {name: store[key][:-1, :, 0].numpy() for key, name in STORED.items()}
        actions = store["actions"][:-1]
        rows["actions"] = (actions[..., 0] if self._task.discrete else actions).numpy()
        noise = None if deterministic else self._draw(steps, n)
        self.perceptrons.collect(noise, store["obs"].numpy(), rows)
        self._write_values(store)
        for t in range(steps):
            if first is not None:
                begun = algorithm.begun(t, resets) if t else first
                carried[t + 1] = algorithm.hparams.gamma * begun + store["rewards"][t]
            if algorithm.hooks is not None:
                algorithm.hooks.env_step(n)

    def act(self, t: int, deterministic: bool, last: bool) -> dict[str, Tensor]:
        """Return actions and logp (B) at step ``t`` without a memory.

        Args:
            t: step of the horizon; observations up to it are in the algorithm's storage.
            deterministic: act with the modes.
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
        """Return actions, logp and values (B), and the next states; only values at the ``last``.

        Args:
            obs: (B, D)
            states: (B) before them.
            deterministic: act with the modes.
            last: whether only values are needed.
        """
        flat = _flat_states(states).numpy()
        after = self.perceptrons.remember(obs.contiguous().numpy(), flat)
        found = {"values": torch.from_numpy(self.perceptrons.values(after))[:, None]}
        if not last:
            found |= self._choose(after, deterministic)
        hidden, cells = (x[:, None].contiguous() for x in torch.from_numpy(after).chunk(2, -1))
        kept = {"hidden_states": hidden, "cell_states": cells}
        return found, TensorDict(kept, batch_size=[len(obs)])

    def _choose(self, seen: Any, deterministic: bool) -> dict[str, Tensor]:
        n = len(seen)
        noise = None if deterministic else self._draw(1, n)
        chosen = zip(("actions", "logp"), self.perceptrons.act(seen, noise), strict=True)
        return {key: torch.from_numpy(x).view(n, -1) for key, x in chosen}

    def _write_values(self, store: TensorDict) -> None:
        values = self.perceptrons.values(store["obs"].flatten(0, 1).numpy())
        store["values"][:] = torch.from_numpy(values).view(store["values"].shape)

    def _draw(self, steps: int, n: int) -> Any:
        task = self._task
        width = task.actor[-1].out_features // (1 if task.discrete else 2)
        if self._noise is None or len(self._noise) != steps:
            self._noise = torch.empty(steps, n, width)
        draw = DRAWS[self._algorithm.policy.distribution_cls]
        for step in self._noise:  # one call per step, as in the distribution
            draw(step)
        return self._noise.numpy()

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
        means = self.perceptrons.differentiate(arrays, objective)
        terms = {
            "losses/entropy": means["entropy"] * bool(objective.ent_coef),  # torch skips it at 0
            "losses/policy": -means["policy_loss"],
            "losses/vf": means["value_loss"],
            "monitors/kl_div": means["approx_kl"],
        }
        terms["losses/total"] = (
            objective.vf_coef * terms["losses/vf"]
            - terms["losses/policy"]
            - objective.ent_coef * terms["losses/entropy"]
        )
        return {key: torch.tensor(value) for key, value in terms.items()}


def task_of(algorithm: Any) -> PerceptronTask:
    """Return the task of an algorithm with a default model.

    Raises:
        BackendError: the policy is not a default one, or is to be compiled or runs elsewhere.
    """
    policy, hparams = algorithm.policy, algorithm.hparams
    if type(policy) not in (Policy, RecurrentPolicy) or policy.distribution_cls not in DRAWS:
        raise BackendError("only policies of default distributions are known")
    layers = layers_of(policy.model)
    if layers is None:
        raise BackendError("only default models of one vector are known")
    if hparams.device_type != "cpu" or hparams.enable_amp or hparams.compile:
        raise BackendError("device, enable_amp and compile are torch's")
    discrete = policy.distribution_cls is Categorical
    actor, critic, activation, memory = layers
    logits = actor[-1].out_features
    if discrete and (algorithm.env.action_spec.shape[0] != 1 or logits != policy.action_spec.n):
        raise BackendError("it chooses one action of several, not several at once")
    envs = _native_envs(algorithm.env) if memory is None else None
    replaced = (
        policy.model, policy.sample, policy.distribution_cls, algorithm._forward,
        algorithm.loss_and_terms,
    )  # fmt: skip
    return PerceptronTask(policy.model, actor, critic, activation, discrete, envs, memory, replaced)


def _native_envs(env: Any) -> Any:
    """Return the wrapped vector env, if its arrays equal the tensors."""
    if type(env) is not VecTensorEnv:
        return None
    seen, acted = env.envs.observation_space, env.envs.action_space
    vector = isinstance(seen, spaces.Box) and seen.dtype == "float32" and len(seen.shape) == 1
    choices = isinstance(acted, spaces.Discrete) and acted.start == 0
    numbers = isinstance(acted, spaces.Box) and len(acted.shape) == 1
    return env.envs if vector and (choices or numbers) else None


def _flat_states(states: TensorDict) -> Tensor:
    """Return the states (n) of one layer in the backend's layout (n, 2 H)."""
    return torch.cat([states["hidden_states"], states["cell_states"]], -1)[:, 0]
