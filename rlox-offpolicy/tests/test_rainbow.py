"""DQN's further options: distributions of returns, noisy networks, and all of them together."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import rlox
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.config.model import UNSET
from rlox.errors import ConfigError
from rlox.nn import MLP, NoisyLinear
from rlox.testing import check_algorithm
from rlox_offpolicy.configs import DQNConfig
from rlox_offpolicy.dqn import DQN
from torch import nn

SMALL: dict[str, Any] = {
    "hidden": 8, "buffer_size": 200, "learning_starts": 8, "train_freq": 4, "gradient_steps": 2,
    "batch_size": 16, "steps_per_iteration": 16, "env_backend": "gymnasium",
}  # fmt: skip
C51: dict[str, Any] = {"distributional": "c51", "v_min": 0, "v_max": 20, "n_atoms": 11}
QR: dict[str, Any] = {"distributional": "qr-dqn", "n_quantiles": 5}
RAINBOW: dict[str, Any] = {
    **C51, "noisy": True, "double_dqn": True, "dueling": True, "n_step": 3, "buffer": "prioritized",
}  # fmt: skip


def make(**options: Any) -> DQN:
    """Return a small DQN."""
    return DQN("CartPole-v1", **{"seed": 0, **SMALL, **options})


def batch(size: int = 6) -> TransitionBatch:
    """Return random transitions of CartPole's shapes, with weights."""
    generator = torch.Generator().manual_seed(0)
    return TransitionBatch(
        obs=torch.randn(size, 4, generator=generator),
        actions=torch.randint(2, (size, 1), generator=generator),
        rewards=torch.randn(size, generator=generator),
        next_obs=torch.randn(size, 4, generator=generator),
        discounts=torch.tensor([0.9, 0.0, 0.9, 0.81, 0.9, 0.0])[:size],
        weights=torch.rand(size, generator=generator),
    )


def test_passes_the_conformance_suite() -> None:
    """Every check of rlox.testing, including exact resuming with noise and distributions."""
    arguments = {**SMALL, "save_replay_buffer": True, **RAINBOW, "n_envs": 3}
    assert check_algorithm("dqn", env="CartPole-v1", **arguments) == {}


@pytest.mark.parametrize(
    ("distribution", "noisy", "double", "dueling"),
    [
        ({}, False, True, True), ({}, True, False, False), (C51, False, False, False),
        (C51, True, True, True), (QR, False, True, False), (QR, True, False, True),
    ],
)  # fmt: skip
def test_every_combination_learns(
    distribution: dict[str, Any], noisy: bool, double: bool, dueling: bool
) -> None:
    """All parameters move, including the noise's deviations; metrics are finite."""
    buffer = "prioritized" if dueling else "uniform"
    dqn = make(**distribution, noisy=noisy, double_dqn=double, dueling=dueling, buffer=buffer)
    before = copy.deepcopy(dict(dqn.network.named_parameters()))
    metrics = dqn.train(32)
    assert np.isfinite([metrics["q_loss"], metrics["q_value"]]).all()
    for name, parameter in dqn.network.named_parameters():
        assert not torch.equal(parameter, before[name]), name
    assert any(name.endswith("weight_std") for name in before) is noisy


@pytest.mark.parametrize("double", [False, True])
def test_an_update_of_c51_equals_the_paper_written_out(double: bool) -> None:
    """Cross-entropy against algorithm 1's projection, atom by atom, and Adam by torch."""
    dqn = make(**C51, double_dqn=double, buffer="prioritized", max_grad_norm=None)
    with torch.no_grad():
        for parameter in dqn.network_target.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.3)
    network, target, given = copy.deepcopy(dqn.network), dqn.network_target, batch()
    support = [2.0 * i for i in range(11)]
    loss = torch.zeros(())
    for b in range(6):
        with torch.no_grad():
            chooser = network if double else target
            probs = chooser(given.next_obs[b : b + 1])[0].softmax(-1)
            best = int((probs @ torch.tensor(support)).argmax())
            judged = target(given.next_obs[b : b + 1])[0, best].softmax(-1)
            goal = torch.zeros(11)
            for p, z in zip(judged, support, strict=True):
                moved = min(max(float(given.rewards[b] + given.discounts[b] * z), 0.0), 20.0)
                place = moved / 2
                lower = min(int(place), 9)
                goal[lower] += p * (lower + 1 - place)
                goal[lower + 1] += p * (place - lower)
        logits = network(given.obs[b : b + 1])[0, given.actions[b, 0]]
        loss = loss - given.weights[b] * (goal * logits.log_softmax(-1)).sum() / 6
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    dqn.objective.learn(dqn.parts, given, 1e-2)
    torch.testing.assert_close(dqn.network.state_dict(), network.state_dict(), atol=2e-6, rtol=1e-4)


def test_priorities_are_the_distributional_losses() -> None:
    """C51: the KL divergence; QR-DQN: the quantile Huber loss, never negative."""
    for options in (C51, QR):
        dqn = make(**options, buffer="prioritized", learning_starts=17)
        dqn.train(16)
        drawn = dqn.replay.draw()
        learnt = dqn.objective.learn(dqn.parts, drawn, 0.0)
        errors: Any = learnt.errors
        assert errors.shape == (16,)
        assert (errors >= -1e-6).all()
        assert float((drawn.weights * errors).mean()) == pytest.approx(
            float(learnt.terms["q_loss"])
        )


def test_values_are_means_of_the_distributions() -> None:
    """Σ p z for atoms, the mean for quantiles."""
    c51, qr = make(**C51).objective, make(**QR).objective
    certain = torch.full((1, 11), -40.0)
    certain[0, 3] = 40.0
    assert float(c51.values(certain)) == pytest.approx(6.0)
    assert float(qr.values(torch.tensor([[1.0, 2.0, 3.0, 4.0, 10.0]]))) == 4.0


def test_networks_have_noise_of_their_own() -> None:
    """Target, chooser and learner each draw their noise; within a gradient step all differ."""
    dqn = make(noisy=True, double_dqn=True)
    seen = []
    layer = dqn.network.net.layers[0]
    target = dqn.network_target.net.layers[0]
    for module, of in ((dqn.network, layer), (dqn.network_target, target)):
        module.register_forward_pre_hook(lambda *_, of=of: seen.append(of.noise_in.clone()))
    dqn.objective.learn(dqn.parts, batch(), 1e-3)
    assert len(seen) == 3
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(seen, 2))


def test_noise_explores_and_predictions_have_none() -> None:
    """ε is 0; actions vary with the noise; deterministic predictions do not, and draw none."""
    dqn = make(noisy=True, noisy_std=20.0, learning_starts=0, train_freq=1000)
    assert dqn.train(8)["epsilon"] == 0.0
    obs = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    tensor = torch.from_numpy(obs)
    acted = [dqn._act(tensor) for _ in range(4)]
    assert any(not np.array_equal(acted[0], other) for other in acted[1:])
    assert np.array_equal(dqn.predict(obs), dqn.predict(obs))
    drawn = [dqn.predict(obs, deterministic=False) for _ in range(4)]
    assert any(not np.array_equal(drawn[0], other) for other in drawn[1:])


def test_a_networks_own_noisy_layers_are_drawn() -> None:
    """Any module with NoisyLinear works; one without is refused."""
    network = MLP((4, 8, 2), noisy_std=0.5)
    dqn = make(noisy=True, network=network, hidden=UNSET)
    dqn.train(32)
    assert isinstance(network.layers[0], NoisyLinear)
    assert network.layers[0].noise_in.any()
    with pytest.raises(ConfigError, match=r"noisy=True needs a network with layers rlox\.nn"):
        make(noisy=True, network=nn.Linear(4, 2), hidden=UNSET)


@pytest.mark.parametrize(
    ("config", "epsilon"),
    [
        (DQNConfig(), "linear(1.0, 0.04, 8000)"),
        (DQNConfig(noisy=True), "0.0"),
        (DQNConfig(**DQNConfig().to_dict()).replace(noisy=True), "0.0"),
        (DQNConfig(noisy=True).replace(noisy=False), "linear(1.0, 0.04, 8000)"),
        (rlox.make("dqn", env="CartPole-v1", config=DQNConfig(), noisy=True).config, "0.0"),
    ],
)
def test_epsilon_is_zero_beside_noise_unless_it_is_given(config: DQNConfig, epsilon: str) -> None:
    """For any source of the config; saving and loading keeps it equal."""
    assert str(config.scheduled().epsilon) == epsilon
    assert DQNConfig(**config.to_dict()) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distributional": "c51"}, "needs v_min < v_max, .* got v_min=None and v_max=None"),
        ({"v_max": 10}, "v_max needs distributional='c51', got distributional='none'"),
        ({**QR, "n_atoms": 21}, "n_atoms needs distributional='c51', got .*'qr-dqn'"),
        ({**C51, "n_quantiles": 7}, "n_quantiles needs distributional='qr-dqn', got .*'c51'"),
        ({**QR, "loss": "mse"}, "loss='mse' is of TD errors, .* distributional='none'"),
        ({"noisy_std": 0.1}, "noisy_std needs noisy=True, got noisy=False"),
        (
            {**C51, "hidden": UNSET, "network": nn.Linear(4, 2)},
            r"network must return \(3, 2, 11\) .* got \(3, 2\)",
        ),
    ],
)
def test_impossible_combinations_are_refused(options: dict[str, Any], message: str) -> None:
    """The error names the values, their requirement and the remedy."""
    with pytest.raises(ConfigError, match=message):
        make(**options)
