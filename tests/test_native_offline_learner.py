"""The native learner backend of offline algorithms against torch's, autograd on their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rlox.errors import BackendError
from rlox.networks import DeterministicPolicy, GaussianPolicy, TwinQNetwork, ValueNetwork
from rlox.nn import flatten_parameters
from rlox_native import ContinuousLearner, ImplicitLearner
from rlox_offline.datasets import Dataset
from rlox_offline.iql import IQL
from rlox_offline.losses import (
    advantage_weights,
    critic_loss,
    expectile_loss,
    td3_bc_actor_loss,
)
from rlox_offline.td3_bc import TD3BC

SETTINGS: dict[str, Any] = {"seed": 3, "hidden": 40, "batch_size": 150}
"""Minibatches that are no multiple of a block of rows."""

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "td3_bc": (TD3BC, {}),
    "td3_bc, mostly cloning": (TD3BC, {"alpha": 0.4, "policy_delay": 1}),
    "td3_bc, no smoothing": (TD3BC, {"target_noise": 0.0}),
    "iql": (IQL, {"learning_rate": 1e-3, "actor_decay_steps": 50}),
    "iql, weights at their bound": (
        IQL,
        {"temperature": 30.0, "max_weight": 2.0, "actor_decay_steps": 50},
    ),
    "iql, mean": (IQL, {"expectile": 0.5, "temperature": 0.0, "actor_decay_steps": 8}),
}
"""Every branch of the steps."""

cases = pytest.mark.parametrize("case", CASES)


def dataset() -> Dataset:
    """Return transitions at random, some terminated, with actions in [-2, 2]."""
    rng, n = np.random.default_rng(0), 400
    last = np.arange(n) % 10 == 9
    columns = {
        "obs": rng.normal(3.0, 2.0, (n, 5)).astype(np.float32),
        "next_obs": rng.normal(3.0, 2.0, (n, 5)).astype(np.float32),
        "actions": rng.uniform(-2, 2, (n, 3)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "terminated": last & (np.arange(n) // 10 % 2 == 0),
        "truncated": last & (np.arange(n) // 10 % 2 == 1),
    }
    return Dataset(columns, act_low=-2.0, act_high=2.0)


def make(case: str, backend: str) -> Any:
    """Return an algorithm with a backend."""
    kind, options = CASES[case]
    return kind(dataset(), backend=backend, **SETTINGS, **options)


def parameters_of(algorithm: Any) -> dict[str, torch.Tensor]:
    """Return every network's parameters, lagging ones included."""
    return {
        f"{part}.{name}": value.detach().clone()
        for part, module in algorithm.networks.items()
        for name, value in module.state_dict().items()
    }


def largest_difference(ours: Any, theirs: Any) -> float:
    """Return that of the parameters, relative to each array's largest number."""
    mine, others = parameters_of(ours), parameters_of(theirs)
    assert mine.keys() == others.keys()
    return max(
        float((mine[name] - value).abs().max() / value.abs().max())
        for name, value in others.items()
    )


@cases
def test_a_training_is_the_one_that_torch_makes(case: str) -> None:
    """Ten gradient steps, whose minibatches and noise are the same."""
    native, torch_ = make(case, "native"), make(case, "torch")
    assert native.learner.backend == "native"
    metrics = [algorithm.train(10) for algorithm in (native, torch_)]
    for values in metrics:
        del values["gradient_steps_per_second"]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4)
    assert largest_difference(native, torch_) < 1e-5


def test_a_deviation_out_of_bounds_has_no_gradient() -> None:
    """Of IQL's policy: both backends leave such a deviation as it is."""
    for backend in ("native", "torch"):
        iql = make("iql", backend)
        with torch.no_grad():
            iql.policy.log_std[:2] = torch.tensor([2.5, -6.0])
        iql.train(2)
        assert iql.policy.log_std[:2].tolist() == [2.5, -6.0]
        assert iql.policy.log_std[2] != 0.0


DTYPES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]

dtypes = pytest.mark.parametrize(("dtype", "tolerance"), DTYPES, ids=["f32", "f64"])


def name_of(dtype: torch.dtype) -> str:
    """Return what learners call a dtype."""
    return str(dtype).removeprefix("torch.")


def normal(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return standard normal numbers, the same in either precision."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def adam_of(network: torch.nn.Module) -> dict[str, Any]:
    """Return a network's parameters and Adam before its first step, as learners take them."""
    parameters = flatten_parameters(network).detach().numpy()
    return {
        "parameters": parameters.copy(),
        "first_moments": np.zeros_like(parameters),
        "second_moments": np.zeros_like(parameters),
        "step": 0,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "max_grad_norm": None,
    }


def gradient_of(network: torch.nn.Module) -> Any:
    """Return autograd's gradient of all parameters."""
    return torch.cat([parameter.grad.flatten() for parameter in network.parameters()]).numpy()


def relative_error(ours: Any, reference: Any) -> float:
    """Return the largest difference, relative to the largest of the references."""
    return float(np.abs(ours - reference).max() / np.abs(reference).max())


@dtypes
def test_the_gradient_of_a_cloning_policy_equals_autograd(
    dtype: torch.dtype, tolerance: float
) -> None:
    """Of the policy's loss, whose scale depends on all rows of the minibatch."""
    generator = torch.Generator().manual_seed(1)
    policy = DeterministicPolicy(5, 3, 48, generator=generator).to(dtype)
    critics = TwinQNetwork(5, 3, 48, generator=generator).to(dtype)
    obs, actions = normal(generator, dtype, 101, 5), normal(generator, dtype, 101, 3).tanh()

    chosen = policy(obs)
    loss = td3_bc_actor_loss(critics(obs, chosen)[0], chosen, actions, 2.5)
    loss.backward()

    learner = ContinuousLearner(5, 3, [48, 48], 2, dtype=name_of(dtype))
    learnt = adam_of(policy)
    reported, _ = learner.step_policy(
        learnt,
        flatten_parameters(critics).detach().numpy(),
        obs.numpy(),
        None,
        learning_rate=1e-3,
        alpha=0.0,
        cloning=(actions.numpy(), 2.5),
    )
    assert reported == pytest.approx(loss.item(), rel=tolerance)
    assert relative_error(learner.gradients()[0], gradient_of(policy)) < tolerance

    with pytest.raises(ValueError, match="actions"):
        learner.step_policy(
            learnt, flatten_parameters(critics).detach().numpy(), obs.numpy(), None,
            learning_rate=1e-3, alpha=0.0, cloning=(actions[1:].numpy(), 2.5),
        )  # fmt: skip


@dtypes
def test_gradients_of_iql_equal_autograd(dtype: torch.dtype, tolerance: float) -> None:
    """Of the value, and, with the value that its step made, of policy and critics."""
    generator = torch.Generator().manual_seed(1)
    value = ValueNetwork(5, 48, generator=generator).to(dtype)
    policy = GaussianPolicy(5, 3, 48, generator=generator).to(dtype)
    critics = TwinQNetwork(5, 3, 48, generator=generator).to(dtype)
    target = TwinQNetwork(5, 3, 48, generator=generator).to(dtype)
    obs, next_obs = normal(generator, dtype, 101, 5), normal(generator, dtype, 101, 5)
    actions = normal(generator, dtype, 101, 3).tanh()
    rewards, discounts = normal(generator, dtype, 101), normal(generator, dtype, 101).abs()
    arrays = [adam_of(network) for network in (value, policy, critics)]

    with torch.no_grad():
        target_q = target(obs, actions).amin(0)
    value_loss = expectile_loss(target_q - value(obs), 0.8)
    value_loss.backward()
    gradients = [gradient_of(value)]
    torch.optim.Adam(value.parameters(), lr=1e-3).step()
    with torch.no_grad():
        weights = advantage_weights(target_q - value(obs), 3.0, 0.8)
        targets = rewards + discounts * value(next_obs)
    policy_loss = -(weights * policy.log_prob(obs, actions)).mean()
    q_values = critics(obs, actions)
    q_loss = critic_loss(q_values, targets)
    for network, loss in ((policy, policy_loss), (critics, q_loss)):
        loss.backward()
        gradients.append(gradient_of(network))

    learner = ImplicitLearner(
        5,
        3,
        [48, 48],
        2,
        log_std_bounds=policy.log_std_bounds,
        dtype=name_of(dtype),
    )
    batch = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs,
             "discounts": discounts}  # fmt: skip
    terms = learner.step(
        *arrays,
        flatten_parameters(target).detach().numpy(),
        {**{name: tensor.numpy() for name, tensor in batch.items()}, "weights": None},
        learning_rate=1e-3,
        policy_learning_rate=3e-3,
        expectile=0.8,
        temperature=3.0,
        max_weight=0.8,
    )
    expected = (value_loss, q_loss, policy_loss, q_values.mean(), weights.mean())
    assert terms == pytest.approx([float(term.detach()) for term in expected], rel=tolerance)
    for ours, reference in zip(learner.gradients(), gradients, strict=True):
        assert relative_error(ours, reference) < tolerance
    assert weights.min() < weights.max() == pytest.approx(0.8)


@cases
def test_runs_are_exact_across_a_checkpoint_and_another_backend(case: str, tmp_path: Any) -> None:
    """2N gradient steps are N, a checkpoint, and N more: to the bit, or but for rounding."""
    whole = make(case, "native")
    whole.train(20)
    half = make(case, "native")
    half.train(10)
    half.save(tmp_path / "half.safetensors")
    for backend, tolerance in (("native", 0.0), ("torch", 1e-4)):
        path = tmp_path / "half.safetensors"
        rest = CASES[case][0].from_checkpoint(path, dataset=dataset(), backend=backend)
        assert rest.learner.backend == backend
        rest.train(10)
        assert largest_difference(rest, whole) <= tolerance


@cases
def test_native_refuses_what_it_cannot_do(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by name, the reason is an error; auto goes on with torch."""
    monkeypatch.setattr("rlox_native.replay_learner.LEARNERS", {"dqn": None})
    name = CASES[case][0].name
    with pytest.raises(BackendError, match=f"it knows dqn, not '{name}'"):
        make(case, "native")
    assert make(case, "auto").learner.backend == "torch"
