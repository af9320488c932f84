"""Custom policies: tried before any step, and refused if their outputs do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rlox.batches import step_rows
from rlox.errors import ConfigError
from rlox.losses import evaluate_actions
from rlox.networks.actor_critics import DiscretePolicy, RecurrentPolicy
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.impala import IMPALA
from rlox_onpolicy.ppo import PPO
from torch import Tensor, nn

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "env_backend": "gymnasium"}
PPO_SMALL: dict[str, Any] = {**SMALL, "batch_size": 16}
ALGORITHMS = [(PPO, PPO_SMALL), (A2C, SMALL)]


class Wrong(nn.Module):
    """A policy with one output of a wrong shape."""

    def __init__(self, method: str, output: int | None, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.policy = DiscretePolicy(4, 2, 8)
        self.wrong = method, output, shape

    def _call(self, method: str, *arguments: Any) -> Any:
        outputs = getattr(self.policy, method)(*arguments)
        wrong, index, shape = self.wrong
        if method != wrong:
            return outputs
        if index is None:
            return outputs.reshape(shape)
        return tuple(o.reshape(shape) if i == index else o for i, o in enumerate(outputs))

    def get_action_and_logprob(self, obs: Tensor) -> Any:
        return self._call("get_action_and_logprob", obs)

    def get_value(self, obs: Tensor) -> Any:
        return self._call("get_value", obs)

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> Any:
        return self._call("get_logprob_and_entropy", obs, actions)

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> Any:
        return self._call("evaluate_actions", obs, actions)

    def deterministic(self, obs: Tensor) -> Any:
        return self._call("deterministic", obs)


@pytest.mark.parametrize(
    ("method", "output", "expected"),
    [
        ("get_action_and_logprob", 0, r"\(3,\) and \(3,\) for 3 .*, got \(3, 1\) and \(3,\)"),
        ("get_action_and_logprob", 1, r"\(3,\) and \(3,\) for 3 .*, got \(3,\) and \(3, 1\)"),
        ("get_value", None, r"\(3,\) for 3 observations of Box.*, got \(3, 1\)"),
        ("get_logprob_and_entropy", 0, r"\(3,\) and \(3,\) .* 3 actions, got \(3, 1\) and"),
        ("get_logprob_and_entropy", 1, r"\(3,\) and \(3,\) .* 3 actions, got \(3,\) and \(3, 1\)"),
        ("evaluate_actions", 0, r"\(3,\) and \(3,\) and \(3,\) .* got \(3, 1\) and"),
        ("deterministic", None, r"\(3,\) for 3 observations of Box.*, got \(3, 1\)"),
    ],
)
def test_other_shapes_are_refused(method: str, output: int | None, expected: str) -> None:
    """The error names the method, the expected shapes and the returned ones."""
    with pytest.raises(ConfigError, match=rf"policy\.{method} must return {expected}"):
        A2C("CartPole-v1", policy=Wrong(method, output, (-1, 1)), **SMALL)


def test_a_policy_of_other_observations_is_refused() -> None:
    """The error quotes the policy's failure; a single tensor is not taken for a pair."""
    with pytest.raises(ConfigError, match=r"get_action_and_logprob fails on 3 obs.* cannot be mul"):
        PPO("CartPole-v1", policy=DiscretePolicy(3, 2), **PPO_SMALL)
    policy: Any = DiscretePolicy(4, 2)
    policy.get_action_and_logprob = policy.deterministic
    with pytest.raises(ConfigError, match=r"must return \(3,\) and \(3,\) .*, got \(3,\)$"):
        PPO("CartPole-v1", policy=policy, **PPO_SMALL)


class Forgets(RecurrentPolicy):
    """A policy with a memory, whose state or log-probabilities have a wrong shape."""

    wrong = "step"

    def step(self, obs: Any, state: Tensor, action_masks: Tensor | None = None) -> Any:
        distribution, values, after = super().step(obs, state, action_masks)
        return distribution, values, after[:1] if self.wrong == "step" else after

    def evaluate_actions(self, *arguments: Any, **options: Any) -> Any:
        log_probs, entropy, values = super().evaluate_actions(*arguments, **options)
        return log_probs[:, None], entropy, values


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("step", r"step must return .* and \(3, 8\) for 3 obs.* and \(1, 8\)"),
        ("evaluate_actions", r"evaluate_actions must return .*, got \(3, 1\) and \(3,\) and"),
    ],
)
def test_a_memory_is_tried_too(wrong: str, message: str) -> None:
    """One step of three envs, and its evaluation."""

    def make(observation_space: Any, action_space: Any) -> nn.Module:
        encoder = nn.Identity()
        encoder.output_size = 4  # type: ignore[assignment]
        policy = Forgets(encoder, action_space, "gru", memory_size=4)
        policy.wrong = wrong
        return policy

    with pytest.raises(ConfigError, match=rf"policy\.{message}"):
        PPO("CartPole-v1", policy=make, **PPO_SMALL)


class Drawing(Wrong):
    """A policy with its own random stream that also uses torch's, dropout and a counter."""

    calls: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__("none", None, ())
        self.own = torch.Generator().manual_seed(1)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("total", torch.zeros(4))

    def get_value(self, obs: Tensor) -> Any:
        self.calls += 1
        self.total = self.total + obs.sum(0)
        noise = torch.randn(len(obs), generator=self.own) + torch.randn(len(obs))
        return super().get_value(self.drop(self.norm(obs))) + noise


def test_trying_a_policy_disturbs_nothing() -> None:
    """Its random streams, torch's and its buffers stay; it acts in evaluation mode."""
    policy = Drawing()
    policy.drop.eval()
    total = policy.total
    before = policy.own.get_state(), torch.get_rng_state(), *(b.clone() for b in policy.buffers())
    PPO("CartPole-v1", policy=policy, **PPO_SMALL)
    after = policy.own.get_state(), torch.get_rng_state(), *policy.buffers()
    assert all(map(torch.equal, before, after))
    assert policy.total is total
    assert not policy.norm.training
    assert not policy.drop.training


class Normalised(Wrong):
    """A policy of normalised observations."""

    def __init__(self) -> None:
        super().__init__("none", None, ())
        self.norm, self.frozen = nn.BatchNorm1d(4), nn.BatchNorm1d(4)

    def _call(self, method: str, *arguments: Any) -> Any:
        obs, *others = arguments
        return super()._call(method, self.frozen(self.norm(obs)), *others)


@pytest.mark.parametrize(("algorithm", "options"), ALGORITHMS)
def test_a_policy_is_in_training_mode_in_updates_alone(
    algorithm: Any, options: dict[str, Any]
) -> None:
    """Batch normalisation accepts a single env, predictions repeat, frozen parts stay frozen."""
    policy = Normalised()
    policy.frozen.eval()
    modes = list[tuple[bool, bool]]()
    policy.norm.register_forward_hook(
        lambda *_: modes.append((torch.is_grad_enabled(), policy.norm.training))
    )
    options = {**options, "n_envs": 1, "n_steps": 32}
    with algorithm("CartPole-v1", policy=policy, **options) as made:
        made.train(64)
    assert {learns == trains for learns, trains in modes} == {True}
    assert {trains for _, trains in modes} == {False, True}
    assert not policy.norm.training
    assert torch.equal(policy.frozen.running_mean, torch.zeros(4))


@pytest.mark.parametrize("backend", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_actors_act_with_the_learners_buffers(backend: str) -> None:
    """Batch normalisation uses the current moments of the learner's policy."""
    options = {"n_actors": 1, "n_envs": 2, "n_steps": 16, "seed": 0, "actor_backend": backend}
    policy = Normalised()
    policy.register_buffer("scale", torch.ones(2, dtype=torch.bfloat16))
    with IMPALA("CartPole-v1", policy=policy, **options) as impala:
        impala.train(64)
        (actor,) = impala.actors._pool._actors
        unroll = actor.collect(impala.actors.weights(impala))
        with torch.no_grad():
            expected = evaluate_actions(impala.policy, step_rows(unroll))[0]
    assert not torch.equal(impala.policy.norm.running_mean, torch.zeros(4))
    torch.testing.assert_close(unroll.log_probs.flatten(), expected)


def test_masks_that_must_be_given_are() -> None:
    """The first reset is the earliest sign that the env gives masks."""
    seen: list[Any] = []

    class Masked(DiscretePolicy):
        def get_action_and_logprob(self, obs: Any, action_masks: Tensor) -> Any:  # type: ignore[override]
            seen.append(action_masks)
            return super().get_action_and_logprob(obs, action_masks)

    PPO("CartPole-v1", policy=Masked(4, 2), **PPO_SMALL)
    assert torch.equal(seen[0], torch.ones(3, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("algorithm", "options", "option"),
    [(PPO, PPO_SMALL, {"hidden": 5}), (A2C, SMALL, {"recurrent": "gru"})],
)
def test_options_of_the_default_networks_are_refused(
    algorithm: Any, options: dict[str, Any], option: dict[str, Any], tmp_path: Any
) -> None:
    """By keyword, in a config, or with a checkpoint; options saved in the checkpoint are fine."""
    ((name, value),) = option.items()
    message = rf"{name} is of the default networks, got {name}='?{value}'? and networks of your"
    made = {**options, **option}
    for arguments in (made, {"config": made}, {"config": algorithm.config_class(**made)}):
        with pytest.raises(ConfigError, match=message):
            algorithm("CartPole-v1", policy=DiscretePolicy(4, 2), **arguments)
    learner = algorithm("CartPole-v1", policy=DiscretePolicy(4, 2), **options)
    learner.config = algorithm.config_class(**made)  # as older versions saved it
    learner.save(tmp_path / "saved")
    restore = algorithm.from_checkpoint
    restored = restore(tmp_path / "saved", policy=DiscretePolicy(4, 2))
    assert getattr(restored.config, name) == value
    with pytest.raises(ConfigError, match=message):
        restore(tmp_path / "saved", policy=DiscretePolicy(4, 2), **option)
