"""Custom losses: added terms and whole objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rlox.errors import CheckpointError, ConfigError
from rlox.losses import ClippedSurrogate, PolicyGradient
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.ppo import PPO
from torch import Tensor

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "n_epochs": 2, "seed": 1}

MAKERS: dict[str, Callable[..., Any]] = {
    "ppo": lambda **options: PPO("CartPole-v1", **SMALL | options),
    "a2c": lambda **options: A2C("CartPole-v1", n_envs=2, n_steps=16, seed=1, **options),
}


def small_logits(policy: Any, minibatch: Any) -> Tensor:
    """Return a penalty of large outputs."""
    penalty: Tensor = policy.actor(minibatch.obs).square().mean()
    return penalty


def nothing(policy: Any, minibatch: Any) -> Tensor:
    """Return 0 with a gradient of 0."""
    return 0.0 * small_logits(policy, minibatch)


@dataclass(frozen=True)
class Regularized(ClippedSurrogate):
    """The clipped surrogate and a penalty."""

    penalty_coef: float = 0.1

    def loss(self, policy: Any, minibatch: Any) -> tuple[Tensor, Any]:
        """Add the penalty to the loss and report it."""
        loss, terms = super().loss(policy, minibatch)
        penalty = small_logits(policy, minibatch)
        return loss + self.penalty_coef * penalty, Reported(**vars(terms), penalty=penalty.detach())


@dataclass(frozen=True)
class Reported:
    """The terms of :class:`Regularized`."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor
    penalty: Tensor


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_added_loss_is_minimised_and_logged(make: Callable[..., Any]) -> None:
    """It moves the parameters, and its mean is a metric under the function's name."""
    plain, added = make(backend="torch"), make(added_losses=small_logits)
    plain.train(64)
    metrics = added.train(64)
    assert metrics["small_logits"] > 0
    assert not torch.equal(plain.optimizer.parameters, added.optimizer.parameters)


def test_an_unknown_part_is_refused() -> None:
    """The error names the parts."""
    with pytest.raises(ConfigError, match="names the part 'actor'; there are policy"):
        PPO("CartPole-v1", added_losses={"actor": small_logits})


def test_an_added_loss_called_like_a_metric_is_refused() -> None:
    """Its values would replace the metric's."""

    def value_loss(policy: Any, minibatch: Any) -> Tensor:
        return nothing(policy, minibatch)

    with pytest.raises(ConfigError, match="two metrics are called 'value_loss'; rename"):
        MAKERS["ppo"](added_losses={"policy": value_loss}).train(32)


def test_a_checkpoint_wants_its_added_losses(tmp_path: Path) -> None:
    """A missing or a new one is an error with the remedy; the same one resumes."""
    make = MAKERS["ppo"]
    path, losses = tmp_path / "run.safetensors", {"policy": small_logits}
    options = {"added_losses": losses, "learning_rate": 1e-3}
    whole, half = make(**options), make(**options)
    whole.train(128)
    half.train(64)
    half.save(path)
    with pytest.raises(CheckpointError, match=r"\['policy.small_logits'\], got none; pass the"):
        type(half).from_checkpoint(path)
    plain = tmp_path / "plain.safetensors"
    make().save(plain)
    with pytest.raises(CheckpointError, match=r"added losses none, got \['policy.small_logits'\]"):
        type(half).from_checkpoint(plain, added_losses=losses)
    pytest.importorskip("rlox_native", reason="only its envs can save their state")
    rest = type(half).from_checkpoint(path, added_losses=losses)
    rest.train(64)
    assert torch.equal(whole.optimizer.parameters, rest.optimizer.parameters)


def test_an_objective_of_ones_own_is_minimised_and_its_terms_are_logged() -> None:
    """Known terms become the algorithm's metrics, others additional ones."""
    objective = Regularized(clip_eps=0.2, vf_coef=0.5, ent_coef=0.0)
    ppo = MAKERS["ppo"](objective=objective)
    metrics = ppo.train(32)
    assert metrics["penalty"] > 0
    assert metrics["value_loss"] > 0
    plain = MAKERS["ppo"](backend="torch")
    plain.train(32)
    assert not torch.equal(plain.optimizer.parameters, ppo.optimizer.parameters)
    same = MAKERS["ppo"](objective=replace(objective, penalty_coef=0.0), backend="torch")
    same.train(32)
    assert torch.equal(plain.optimizer.parameters, same.optimizer.parameters)


def test_terms_that_an_objective_does_not_report_are_nan() -> None:
    """With A2C's loss PPO has no approximate KL."""
    metrics = MAKERS["ppo"](objective=PolicyGradient(0.5)).train(32)
    assert metrics["approx_kl"] != metrics["approx_kl"]
    assert metrics["value_loss"] > 0


def test_target_kl_needs_the_term() -> None:
    """The error names the missing term."""
    ppo = MAKERS["ppo"](objective=PolicyGradient(0.5), backend="torch", target_kl=0.1)
    with pytest.raises(ConfigError, match="reports approx_kl, got PolicyGradientTerms"):
        ppo.train(32)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"clip_eps": 0.1}, "clip_eps"),
        ({"config": {"vf_coef": 1.0}}, "vf_coef"),
        ({"schedules": {"ent_coef": lambda steps: 0.1}}, "ent_coef"),
    ],
)
def test_options_of_the_loss_are_refused_beside_an_objective(
    options: dict[str, Any], name: str
) -> None:
    """The options would be ignored."""
    with pytest.raises(ConfigError, match=f"{name} is a number of the algorithm's own objective"):
        MAKERS["ppo"](objective=Regularized(0.2, 0.5, 0.0), **options)
    with pytest.raises(TypeError, match="objective must have a method loss"):
        MAKERS["ppo"](objective="surrogate")


def test_a_checkpoint_wants_its_objective(tmp_path: Path) -> None:
    """The error gives the class's name and the remedy."""
    path, objective = tmp_path / "run.safetensors", Regularized(0.2, 0.5, 0.0)
    ppo = MAKERS["ppo"](objective=objective)
    ppo.train(32)
    ppo.save(path)
    with pytest.raises(
        CheckpointError,
        match="with the objective Regularized, got the algorithm's own objective; pass the same",
    ):
        PPO.from_checkpoint(path)
    assert PPO.from_checkpoint(path, objective=objective).train(32)["penalty"] > 0
