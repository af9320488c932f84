"""The native learner backend leaves to torch what it would compute or learn otherwise."""

from functools import partial

import numpy as np
import pytest
import torch
from exportables import Env
from gymnasium import spaces
from rlox.errors import BackendError
from rlox.networks import DiscreteQNetwork, SquashedGaussianPolicy, TwinQNetwork
from rlox.networks.actor_critics import DiscretePolicy
from rlox.nn import MLP, EnsembleMLP
from rlox_offline.td3_bc import TD3BC
from rlox_offpolicy.dqn import DQN
from rlox_offpolicy.sac import SAC
from rlox_onpolicy.ppo import PPO
from torch import nn

SMALL = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1}


class OtherMLP(MLP):
    """A perceptron that may compute anything."""


class OtherLinear(nn.Linear):
    """A layer that may compute anything."""


class OtherSequential(nn.Sequential):
    """Layers that may be called in any way."""


class OtherEnsemble(EnsembleMLP):
    """Perceptrons that may compute anything."""


class OtherCritics(nn.Module):
    """Critics that have nothing of the default ones."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, obs, actions):
        values = self.layer(torch.cat((obs, actions), -1))
        return values.T


def reordered(policy):
    """Make the critic the first of the parameters."""
    actor = policy.actor
    del policy.actor
    policy.actor = actor


LAYERS = (nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

MODIFICATIONS = {
    "other layer": (
        lambda p: p.critic.layers.__setitem__(0, OtherLinear(4, 64)), "plain linear layers",
    ),
    "other actor": (
        lambda p: setattr(p, "actor", OtherMLP((4, 64, 64, 2), activation="tanh")),
        "plain linear layers with tanh",
    ),
    "other activation": (
        lambda p: setattr(p, "critic", MLP((4, 64, 64, 1))), "plain linear layers with tanh",
    ),
    "activated outputs": (
        lambda p: setattr(p, "critic", MLP((4, 64, 64, 1), activation="tanh", activates_last=True)),
        "plain linear layers with tanh",
    ),
    "several activations": (
        lambda p: setattr(p, "actor", nn.Sequential(*LAYERS, nn.ReLU(), nn.Linear(2, 2))),
        "plain linear layers with tanh or relu",
    ),
    "other sequence": (
        lambda p: setattr(p, "actor", OtherSequential(*LAYERS)), "plain linear layers with tanh",
    ),
    "other order": (reordered, "an actor, then a critic"),
    "shared layer": (
        lambda p: p.critic.layers.__setitem__(0, p.actor.layers[0]), "added, shared or missing",
    ),
    "no bias": (lambda p: setattr(p.actor.layers[0], "bias", None), "added, shared or missing"),
    "pre-hook": (
        lambda p: p.actor.register_forward_pre_hook(lambda *_: None), "hooks, which 'actor' has",
    ),
    "forward hook": (
        lambda p: p.critic.register_forward_hook(lambda *_: None), "hooks, which 'critic' has",
    ),
    "backward hook": (
        lambda p: p.register_full_backward_hook(lambda *_: None),
        "hooks, which the DiscretePolicy has",
    ),
    "gradient hook": (
        lambda p: p.actor.layers[0].weight.register_hook(lambda gradient: 0 * gradient),
        r"hooks, which 'actor\.layers\.0\.weight' has",
    ),
    "method": (
        lambda p: setattr(p, "distribution", p.distribution),
        "the DiscretePolicy has its own distribution",
    ),
    "method of a layer": (
        lambda p: setattr(p.actor, "forward", p.actor.forward), "'actor' has its own forward",
    ),
    "frozen": (
        lambda p: p.actor.layers[0].requires_grad_(False), r"'actor\.layers\.0\.weight' is frozen",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MODIFICATIONS)
def test_a_modified_policy_is_torchs(case):
    """What the parameters alone do not say is no part of the native computation."""
    modify, reason = MODIFICATIONS[case]
    policy = DiscretePolicy(4, 2)
    modify(policy)
    with PPO("CartPole-v1", policy=policy, **SMALL) as ppo:
        assert ppo.learner.backend == "torch"
        with pytest.raises(BackendError, match=reason):
            raise BackendError(ppo.learner.reason)
        ppo.train(16)
    with pytest.raises(BackendError, match=f"'native' cannot do this: .*{reason}"):
        PPO("CartPole-v1", policy=policy, backend="native", **SMALL)


def test_modified_networks_of_off_policy_algorithms_are_torchs():
    """They pass the same check."""
    policy = SquashedGaussianPolicy(3, 1)
    critic = TwinQNetwork(3, 1)
    policy.net.register_forward_hook(lambda module, inputs, outputs: None)
    with SAC("Pendulum-v1", policy=policy) as sac:
        assert "hooks, which 'net' has" in str(sac.learner)
    with SAC("Pendulum-v1", critic=OtherCritics()) as sac:
        assert "the default networks, not OtherCritics" in str(sac.learner)
    critic.net = OtherEnsemble(2, (4, 256, 256, 1))
    with SAC("Pendulum-v1", critic=critic) as sac:
        assert "the default networks, not OtherEnsemble" in str(sac.learner)
    network = DiscreteQNetwork(4, 2)
    network.net.layers[0].weight.register_hook(lambda gradient: 0 * gradient)
    with DQN("CartPole-v1", network=network) as dqn:
        assert "hooks, which 'net.layers.0.weight' has" in str(dqn.learner)


def wide(obs_dim=4, n_actions=2):
    """Return an env of large observations and many actions."""
    acted = spaces.Box(-1, 1, (1,)) if n_actions is None else spaces.Discrete(n_actions)
    return Env(spaces.Box(-1, 1, (obs_dim,), np.float32), acted)


FEW = {"hidden": 8, "buffer_size": 8, "learning_starts": 4, "batch_size": 2}


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (partial(PPO, lambda: wide(20_000), hidden=8, **SMALL), "obs_dim"),
        (partial(PPO, lambda: wide(n_actions=20_000), hidden=8, **SMALL), "actions"),
        (partial(DQN, lambda: wide(20_000), **FEW), "obs_dim"),
        (partial(SAC, lambda: wide(20_000, None), **FEW), "obs_dim"),
        (partial(TD3BC, obs_dim=20_000, act_dim=1, hidden=8), "obs_dim"),
    ],
    ids=["ppo, observations", "ppo, actions", "dqn", "sac", "td3_bc"],
)
def test_sizes_beyond_native_are_torchs(make, size):
    """Layers of more than 16,384 numbers are learnt by torch, with the reason."""
    reason = rf"{size} must lie in \[1, 16384\], got 20000"
    with pytest.raises(BackendError, match=f"'native' cannot do this: {reason}"):
        make(backend="native")
    with make(backend="auto") as algorithm:
        assert algorithm.learner.backend == "torch"
        assert f"not native: {size} must lie in" in algorithm.learner.reason


def test_sizes_up_to_the_limit_are_native():
    """The largest that Rust takes."""
    with PPO(lambda: wide(16_384), hidden=8, **SMALL) as ppo:
        assert ppo.learner.backend == "native"
        ppo.train(16)
        assert torch.isfinite(ppo.optimizer.parameters).all()
