"""User-defined losses added to those of the off-policy algorithms."""

from __future__ import annotations

from typing import Any

import pytest
import rlox
import torch
from rlox.errors import BackendError

OPTIONS: dict[str, Any] = {
    "learning_starts": 20, "batch_size": 8, "steps_per_iteration": 40, "train_freq": 1,
    "gradient_steps": 1,
}  # fmt: skip

CASES = [
    ("sac", "Pendulum-v1", "critic"),
    ("crossq", "Pendulum-v1", "policy"),
    ("td3", "Pendulum-v1", "policy"),
    ("discrete_sac", "CartPole-v1", "critic"),
    ("dqn", "CartPole-v1", "network"),
]


def weight_decay(module: Any, batch: Any) -> torch.Tensor:
    """Return the mean square of the module's parameters."""
    assert len(batch.rewards) == 8
    return torch.cat([p.flatten() for p in module.parameters()]).square().mean()


def parameters(algorithm: Any, part: str) -> torch.Tensor:
    """Return a copy of a part's parameters."""
    return algorithm.optimizers[part].parameters.clone()


@pytest.mark.parametrize(("name", "env", "part"), CASES)
def test_an_added_loss_changes_what_its_part_learns_and_is_logged(
    name: str, env: str, part: str
) -> None:
    """It is logged under the function's name."""
    options = {**OPTIONS, "seed": 0} | ({"critic_hidden": 16} if name == "crossq" else {})
    plain = rlox.make(name, env=env, **options)
    plain.train(40)
    added = rlox.make(name, env=env, added_losses={part: weight_decay}, **options)
    metrics = added.train(40)
    assert metrics["weight_decay"] > 0
    assert "added" not in metrics
    assert not torch.equal(parameters(added, part), parameters(plain, part))
    assert added.learner.backend == "torch"


def test_only_torch_takes_added_losses() -> None:
    """Other backends refuse them by name, installed or not."""
    options = {"backend": "native", "added_losses": {"network": weight_decay}}
    with pytest.raises((BackendError, rlox.errors.UnknownNameError)):
        rlox.make("dqn", env="CartPole-v1", **options)
