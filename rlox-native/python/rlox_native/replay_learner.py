"""The learner backend ``native`` of off-policy algorithms: gradient steps in one Rust call each.

It does what the steps in dqn.py, sac.py and td3.py do, to the same parameters up to rounding. Noise
comes from the streams that torch would draw it from, and parameters and moments stay in torch's
tensors, so that a training may change its backend at any checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from rlox.errors import BackendError
from rlox.networks import (
    DeterministicPolicy,
    DiscreteQNetwork,
    DuelingQNetwork,
    SquashedGaussianPolicy,
    TwinQNetwork,
)
from rlox.nn import ReluMLP, flatten_parameters
from torch import nn

from rlox_native._native import ContinuousLearner, QLearner
from rlox_native.optimizers import DTYPES, Adam

if TYPE_CHECKING:
    from rlox.batch import TransitionBatch
    from rlox.replay_learners import ReplayTask

__all__ = ["ALGORITHMS", "NativeActorCriticLearner", "NativeQLearner", "make_replay_learner"]

ALGORITHMS = ("dqn", "sac", "td3", "ddpg")
"""Whose steps there are in Rust."""


def make_replay_learner(task: ReplayTask) -> NativeQLearner | NativeActorCriticLearner:
    """Return what takes the task's gradient steps in Rust.

    Raises:
        BackendError: it is not DQN, SAC, TD3 or DDPG of default networks on the CPU with Adam.
    """
    if task.algorithm not in ALGORITHMS:
        raise BackendError(f"it knows {', '.join(ALGORITHMS)}, not '{task.algorithm}'")
    if task.agent.device.type != "cpu":
        raise BackendError(f"it computes on the CPU, the device is '{task.agent.device}'")
    if task.algorithm == "dqn":
        return NativeQLearner(task)
    return NativeActorCriticLearner(task)


class NativeQLearner:
    """Takes the gradient steps of DQN.

    Args:
        task: what is to be learnt.

    Raises:
        BackendError: the network is not a default one.
    """

    def __init__(self, task: ReplayTask) -> None:
        config: Any = task.config
        self._task = task
        n_actions = int(task.agent.env.action_space.n)  # type: ignore[attr-defined]
        self._learner = _q_learner(task.parts["network"], n_actions)
        self._adam = Adam(task.parts["optimizer"], self._learner.n_parameters)
        self._target = flatten_parameters(task.parts["target"]).numpy()
        self._options = {"double": config.double_dqn, "huber": config.loss == "huber"}

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> Any:
        """Do the step ``values``; see ``rlox.replay_learners.ReplayLearner``."""
        loss, value, errors = self._learner.step(
            self._adam.arguments(),
            self._target,
            _arrays(batch),
            learning_rate=learning_rate,
            **self._options,
        )
        self._adam.count()
        self._task.agent.set_priorities(torch.from_numpy(errors))
        return self._task.steps[name].terms(q_loss=torch.tensor(loss), q_value=torch.tensor(value))

    def gradients(self) -> npt.NDArray[Any]:
        """Return the clipped gradient of the last step, (P,) like the parameters."""
        return self._learner.gradients()


class NativeActorCriticLearner:
    """Takes the gradient steps of SAC, TD3 and DDPG.

    Args:
        task: what is to be learnt.

    Raises:
        BackendError: the networks are not the default ones.
    """

    def __init__(self, task: ReplayTask) -> None:
        parts = task.parts
        self._task = task
        policy = DeterministicPolicy if "policy_target" in parts else SquashedGaussianPolicy
        self._learner, self._act_dim = _actor_critic_learner(parts, policy)
        self._policy = Adam(parts["policy_optimizer"], self._learner.n_policy_parameters)
        self._critic = Adam(parts["critic_optimizer"], self._learner.n_critic_parameters)
        if policy is SquashedGaussianPolicy:
            self._alpha = Adam(parts["alpha_optimizer"], 1)
            self._lagging = {"critic": flatten_parameters(parts["target"])}
            self._steps = {"all": self._learn_softly}
        else:
            self._lagging = {
                "critic": flatten_parameters(parts["critic_target"]),
                "policy": flatten_parameters(parts["policy_target"]),
            }
            self._steps = {"values": self._learn_values, "policy": self._learn_policy}

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> Any:
        """Do one of the algorithm's steps; see ``rlox.replay_learners.ReplayLearner``."""
        terms = self._steps[name](batch, learning_rate)
        return self._task.steps[name].terms(
            **{term: torch.as_tensor(value) for term, value in terms.items()}
        )

    def gradients(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the gradients of the last steps of policy and critics, like their parameters."""
        return self._learner.gradients()

    def _learn_softly(self, batch: TransitionBatch, learning_rate: float) -> dict[str, Any]:
        """Take the steps of SAC: critics, policy, temperature, target."""
        config: Any = self._task.config
        parts, policy = self._task.parts, self._policy.parameters
        temperature = parts["temperature"].value()
        alpha = temperature.item()
        noise = self._draw(batch, parts["policy"].generator).numpy()
        terms = self._step_values(batch, policy, noise, learning_rate, alpha=alpha, scale=0.5)
        noise = self._draw(batch, parts["policy"].generator).numpy()
        policy_loss, entropy = self._step_policy(batch, noise, learning_rate, alpha)
        if config.auto_entropy:
            # J_α is log α (H - H̄)
            slope = entropy - self._task.constants["target_entropy"]
            self._alpha.step_down(temperature.new_tensor([slope]), learning_rate)
        self._follow("critic", parts["critic_optimizer"].parameters)
        return {**terms, "policy_loss": policy_loss, "entropy": entropy, "alpha": temperature}

    def _learn_values(self, batch: TransitionBatch, learning_rate: float) -> dict[str, Any]:
        """Take TD3's step of the critics."""
        constants, noise = self._task.constants, None
        if constants["target_noise"] > 0:
            drawn = self._draw(batch, self._task.streams["target noise"])
            clip = constants["noise_clip"]
            noise = drawn.mul_(constants["target_noise"]).clamp_(-clip, clip).numpy()
        policy = self._lagging["policy"].numpy()
        return self._step_values(batch, policy, noise, learning_rate, alpha=0.0, scale=1.0)

    def _learn_policy(self, batch: TransitionBatch, learning_rate: float) -> dict[str, Any]:
        """Take TD3's step of the policy, and move the lagging networks."""
        policy_loss, _ = self._step_policy(batch, None, learning_rate, 0.0)
        for name in ("policy", "critic"):
            self._follow(name, self._task.parts[f"{name}_optimizer"].parameters)
        return {"policy_loss": policy_loss}

    def _step_values(
        self,
        batch: TransitionBatch,
        policy: Any,
        noise: Any,
        learning_rate: float,
        **options: float,
    ) -> dict[str, Any]:
        loss, value, errors = self._learner.step_values(
            self._critic.arguments(),
            self._lagging["critic"].numpy(),
            policy,
            _arrays(batch),
            noise,
            learning_rate=learning_rate,
            **options,
        )
        self._critic.count()
        self._task.agent.set_priorities(torch.from_numpy(errors))
        return {"q_loss": loss, "q_value": value}

    def _step_policy(
        self, batch: TransitionBatch, noise: Any, learning_rate: float, alpha: float
    ) -> tuple[float, float]:
        terms = self._learner.step_policy(
            self._policy.arguments(),
            self._critic.parameters,
            batch.obs.numpy(),
            noise,
            learning_rate=learning_rate,
            alpha=alpha,
        )
        self._policy.count()
        return terms

    def _draw(self, batch: TransitionBatch, generator: torch.Generator | None) -> torch.Tensor:
        """Return standard normal noise (B, act_dim), as the torch code draws it."""
        shape, dtype = (len(batch.rewards), self._act_dim), self._lagging["critic"].dtype
        return torch.randn(shape, generator=generator, dtype=dtype)

    def _follow(self, name: str, parameters: torch.Tensor) -> None:
        """Move a lagging network, as ``rlox.networks.polyak_update`` does."""
        config: Any = self._task.config
        self._lagging[name].lerp_(parameters, config.tau)


def _arrays(batch: TransitionBatch) -> dict[str, Any]:
    """Return a batch as the Rust learners take it."""
    return {
        "obs": batch.obs.numpy(),
        "actions": batch.actions.numpy(),
        "rewards": batch.rewards.numpy(),
        "next_obs": batch.next_obs.numpy(),
        "discounts": batch.discounts.numpy(),
        "weights": batch.weights.numpy() if batch.weights.dim() else None,
    }


def _q_learner(network: nn.Module, n_actions: int) -> QLearner:
    if getattr(network, "n_atoms", None) is not None:
        raise BackendError("it learns values, not the distributions of returns")
    if type(network) is DuelingQNetwork:
        sizes = [_sizes(part) for part in (network.shared, network.value, network.advantage)]
        hidden = sizes[0][-1]
        expected = [sizes[0], [hidden, hidden, 1], [hidden, hidden, n_actions]]
    elif type(network) is DiscreteQNetwork:
        sizes = [_sizes(network.net)]
        expected = [[*sizes[0][:-1], n_actions]]
    else:
        raise BackendError(f"it learns the default networks, not a {type(network).__name__}")
    if sizes != expected:
        raise BackendError(f"it learns networks of layers {expected}, not {sizes}")
    dueling, widths = len(sizes) > 1, sizes[0]
    return QLearner(
        widths[0],
        widths[1:] if dueling else widths[1:-1],
        n_actions,
        dueling=dueling,
        dtype=_dtype(network),
    )


def _actor_critic_learner(parts: Any, kind: type[nn.Module]) -> tuple[ContinuousLearner, int]:
    policy, critic = parts["policy"], parts["critic"]
    for network, expected in ((policy, kind), (critic, TwinQNetwork)):
        if type(network) is not expected:
            name = type(network).__name__
            raise BackendError(f"it learns the default networks, not a {name}")
    obs_dim, *hidden, outputs = _sizes(policy.net)
    squashed = kind is SquashedGaussianPolicy
    act_dim = outputs // 2 if squashed else outputs
    sizes = [weight.shape[1] for weight in critic.net.weights] + [1]
    if sizes != [obs_dim + act_dim, *hidden, 1]:
        raise BackendError(
            f"it learns policies and critics of the same widths, not {[obs_dim, *hidden]} "
            f"and {sizes[:-1]}"
        )
    if _dtype(policy) != _dtype(critic):
        raise BackendError(f"the policy is {_dtype(policy)} and the critics are {_dtype(critic)}")
    learner = ContinuousLearner(
        obs_dim,
        act_dim,
        hidden,
        critic.net.n_members,
        log_std_bounds=policy.log_std_bounds if squashed else None,
        dtype=_dtype(policy),
    )
    return learner, act_dim


def _sizes(mlp: Any) -> list[int]:
    """Return the sizes of a perceptron's layers, inputs first."""
    if type(mlp) is not ReluMLP or any(type(layer) is not nn.Linear for layer in mlp.layers):
        raise BackendError("it learns perceptrons of plain linear layers with ReLU")
    shapes: Any = [layer.weight.shape for layer in mlp.layers]
    return [shapes[0][1], *(n_out for n_out, _ in shapes)]


def _dtype(network: nn.Module) -> str:
    dtype = next(network.parameters()).dtype
    if dtype not in DTYPES:
        raise BackendError(f"it computes in float32 and float64, not {dtype}")
    return DTYPES[dtype]
