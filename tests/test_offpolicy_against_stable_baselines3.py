"""Whole updates of the off-policy algorithms against Stable-Baselines3's, from the same weights.

Both get the same batches; afterwards every parameter has moved by the same amount, to 1e-5 of how
far it moved.
"""

import pytest
import torch
from rlox.batches.transitions import TransitionBatch
from rlox_offpolicy.ddpg import DDPG
from rlox_offpolicy.dqn import DQN
from rlox_offpolicy.sac import SAC
from rlox_offpolicy.td3 import TD3
from torch import nn

stable_baselines3 = pytest.importorskip("stable_baselines3")

BATCH, GAMMA, RATE = 64, 0.97, 1e-3
OURS = {"gamma": GAMMA, "env_backend": "gymnasium", "buffer_size": 2000}
THEIRS = {"gamma": GAMMA, "learning_rate": RATE, "device": "cpu", "seed": 0}


def batches(count, obs_dim, n_actions, act_dim=1):
    """Return random batches; with ``n_actions`` the actions are discrete."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    def actions():
        if n_actions is None:
            return normal(BATCH, act_dim).tanh()
        return torch.randint(n_actions, (BATCH, 1), generator=generator)

    return [
        TransitionBatch(
            obs=normal(BATCH, obs_dim),
            actions=actions(),
            rewards=3 * normal(BATCH),
            next_obs=normal(BATCH, obs_dim),
            discounts=GAMMA * (torch.rand(BATCH, generator=generator) < 0.8).float(),
            weights=torch.ones(()),
        )
        for _ in range(count)
    ]


def train_theirs(model, given):
    """Let Stable-Baselines3 take one gradient step on each batch."""
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    queue = [
        ReplayBufferSamples(
            observations=x.obs,
            actions=x.actions,
            next_observations=x.next_obs,
            dones=(x.discounts == 0).float().unsqueeze(-1),
            rewards=x.rewards.unsqueeze(-1),
        )
        for x in given
    ]
    model.replay_buffer.sample = lambda *_, **__: queue.pop(0)
    model.set_logger(configure(None, []))
    model.train(gradient_steps=len(given), batch_size=BATCH)
    assert not queue


def copied(pairs):
    """Copy theirs into ours and return the values."""
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.copy_(theirs)
    return [ours.clone() for ours, _ in pairs]


def assert_moved_alike(pairs, before):
    """Every parameter moved, and both moved alike."""
    for (ours, theirs), start in zip(pairs, before, strict=True):
        moved = torch.linalg.vector_norm(theirs - start)
        assert moved > 0
        assert torch.linalg.vector_norm(ours - theirs) <= 1e-5 * torch.linalg.vector_norm(theirs)
        assert torch.linalg.vector_norm(ours - theirs) <= 1e-3 * moved


def move(targets):
    """Move parameters of target networks away from those that learn."""
    with torch.no_grad():
        for target in targets:
            target.add_(0.1 * torch.randn(target.shape))


def linear_pairs(ours, theirs):
    """Return the parameters of our perceptron and theirs that correspond."""
    linears = [layer for layer in theirs if isinstance(layer, nn.Linear)]
    pairs = zip(ours.layers, linears, strict=True)
    return [(getattr(a, n), getattr(b, n)) for a, b in pairs for n in ("weight", "bias")]


def test_dqn_updates_agree():
    """Targets, Huber loss, clipped gradient, Adam: three steps, without double Q-learning."""
    theirs = stable_baselines3.DQN("MlpPolicy", "CartPole-v1", **THEIRS)
    ours = DQN("CartPole-v1", hidden=64, learning_rate=RATE, **OURS)
    pairs = linear_pairs(ours.network.net, theirs.q_net.q_net)
    before = copied(pairs)
    move(theirs.q_net_target.parameters())
    copied(linear_pairs(ours.network_target.net, theirs.q_net_target.q_net))
    given = batches(3, 4, 2)
    train_theirs(theirs, given)
    for batch in given:
        ours.objective.learn(ours.parts, batch, RATE)
    assert_moved_alike(pairs, before)


def test_qr_dqn_updates_agree():
    """Quantile targets and loss with sb3-contrib's QRDQN: three steps.

    Its last layer gives all actions of a quantile together, ours all quantiles of an action.
    """
    contrib = pytest.importorskip("sb3_contrib")
    n_quantiles, n_actions = 11, 2
    theirs = contrib.QRDQN(
        "MlpPolicy", "CartPole-v1", policy_kwargs={"n_quantiles": n_quantiles}, **THEIRS
    )
    eps = theirs.policy.optimizer.param_groups[0]["eps"]
    ours = DQN(
        "CartPole-v1", hidden=64, learning_rate=RATE, distributional="qr-dqn", adam_eps=eps,
        n_quantiles=n_quantiles, max_grad_norm=None, **OURS,
    )  # fmt: skip

    def by_quantile(layer, name):
        parameter = getattr(layer, name).detach()
        return parameter.view(n_actions, n_quantiles, -1).transpose(0, 1)

    def pairs(network, theirs):
        hidden, last = linear_pairs(network, theirs)[:-2], network.layers[-1]
        head = [layer for layer in theirs if isinstance(layer, nn.Linear)][-1]
        return hidden + [
            (by_quantile(last, name), getattr(head, name).view(n_quantiles, n_actions, -1))
            for name in ("weight", "bias")
        ]

    learning = pairs(ours.network.net, theirs.quantile_net.quantile_net)
    before = copied(learning)
    move(theirs.quantile_net_target.parameters())
    copied(pairs(ours.network_target.net, theirs.quantile_net_target.quantile_net))
    given = batches(3, 4, n_actions)
    train_theirs(theirs, given)
    for batch in given:
        ours.objective.learn(ours.parts, batch, RATE)
    assert_moved_alike(learning, before)


def critic_pairs(ours, theirs):
    """Return the parameters of our critics, member by member, and theirs."""
    pairs = []
    for k, q_net in enumerate(theirs.q_networks):
        linears = [layer for layer in q_net if isinstance(layer, nn.Linear)]
        for weights, biases, linear in zip(ours.net.weights, ours.net.biases, linears, strict=True):
            pairs += [(weights.detach()[k].T, linear.weight), (biases.detach()[k, 0], linear.bias)]
    return pairs


def squashed_pairs(ours, theirs):
    """Return the parameters of our Gaussian policy, whose last layer has both heads, and theirs."""
    *hidden, last = ours.net.layers
    linears = [layer for layer in theirs.latent_pi if isinstance(layer, nn.Linear)]
    pairs = [
        (getattr(a, n), getattr(b, n))
        for a, b in zip(hidden, linears, strict=True)
        for n in ("weight", "bias")
    ]
    act_dim = theirs.mu.out_features
    for rows, head in ((slice(None, act_dim), theirs.mu), (slice(act_dim, None), theirs.log_std)):
        pairs += [(last.weight.detach()[rows], head.weight), (last.bias.detach()[rows], head.bias)]
    return pairs


@pytest.mark.parametrize("auto_entropy", [True, False])
def test_sac_updates_agree(auto_entropy, monkeypatch):
    """Soft targets, critics, policy, temperature and lagging critics: three steps.

    Stable-Baselines3 adds 1e-6 within the logarithm of the log-probability, which is taken out.
    """
    theirs = stable_baselines3.SAC(
        "MlpPolicy", "Pendulum-v1", ent_coef="auto" if auto_entropy else 0.2, **THEIRS
    )
    theirs.actor.action_dist.epsilon = 0.0
    ours = SAC(
        "Pendulum-v1", alpha=1.0 if auto_entropy else 0.2, auto_entropy=auto_entropy,
        learning_rate=RATE, **OURS,
    )  # fmt: skip
    pairs = squashed_pairs(ours.policy, theirs.actor) + critic_pairs(ours.critic, theirs.critic)
    targets = critic_pairs(ours.critic_target, theirs.critic_target)
    if auto_entropy:
        pairs.append((ours.alpha.log_alpha.detach().reshape(1), theirs.log_ent_coef))
    move(theirs.critic_target.parameters())
    before, before_targets = copied(pairs), copied(targets)
    given = batches(3, 3, None)
    noise = torch.randn(6, BATCH, 1)
    # they act on s before they act on s', we the other way round
    queue = [noise[i] for i in range(6)]
    monkeypatch.setattr(
        "torch.distributions.normal._standard_normal", lambda *_, **__: queue.pop(0)
    )
    train_theirs(theirs, given)
    queue = [noise[i] for i in (1, 0, 3, 2, 5, 4)]
    monkeypatch.setattr(torch, "randn", lambda *_, **__: queue.pop(0))
    for batch in given:
        ours.objective.learn(ours.parts, batch, RATE)
    monkeypatch.undo()
    assert_moved_alike(pairs, before)
    assert_moved_alike(targets, before_targets)


@pytest.mark.parametrize("algorithm", [TD3, DDPG])
def test_td3_and_ddpg_updates_agree(algorithm):
    """Smoothed targets, critics, delayed policy and lagging networks: four steps."""
    name = algorithm.__name__
    theirs = getattr(stable_baselines3, name)(
        "MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [256, 256]}, **THEIRS
    )
    ours = algorithm("Pendulum-v1", learning_rate=RATE, **OURS)
    pairs = linear_pairs(ours.policy.net, theirs.actor.mu)
    pairs += critic_pairs(ours.critic, theirs.critic)
    targets = linear_pairs(ours.policy_target.net, theirs.actor_target.mu)
    targets += critic_pairs(ours.critic_target, theirs.critic_target)
    move(target for _, target in targets)
    before, before_targets = copied(pairs), copied(targets)
    given = batches(4, 3, None)
    torch.manual_seed(5)
    train_theirs(theirs, given)
    ours.parts.stream("target noise").manual_seed(5)
    for step, batch in enumerate(given, start=1):
        for name in ours.objective.due(step):
            getattr(ours.objective, name)(ours.parts, batch, RATE)
    assert_moved_alike(pairs, before)
    assert_moved_alike(targets, before_targets)
