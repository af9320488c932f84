"""CrossQ: batch renormalization against its paper, an update written out, and its errors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.errors import ConfigError, SpaceError
from rlox.nn.devices import standard_normal
from rlox_offpolicy.batch_renorm import BatchRenorm, RenormCritics, RenormMLP
from rlox_offpolicy.crossq import CrossQ
from torch import nn

SMALL: dict[str, Any] = {
    "hidden": 8, "critic_hidden": 12, "buffer_size": 200, "learning_starts": 8, "train_freq": 4,
    "gradient_steps": 2, "renorm_warm_up": 3, "batch_size": 16, "steps_per_iteration": 16,
    "env_backend": "gymnasium",
}  # fmt: skip


def make(env: Any = "Pendulum-v1", **options: Any) -> CrossQ:
    """Return a small CrossQ."""
    return CrossQ(env, **{"seed": 0, **SMALL, **options})


def test_before_the_warm_up_it_is_batch_normalization() -> None:
    """Outputs, gradients and running means equal torch's; variances are biased."""
    rng = torch.Generator().manual_seed(0)
    ours, theirs = BatchRenorm(5, momentum=0.9), nn.BatchNorm1d(5, eps=1e-3, momentum=0.1)
    for _ in range(4):
        x = torch.randn(32, 5, generator=rng) * 3 + 1
        inputs = [x.clone().requires_grad_() for _ in range(2)]
        outputs = [layer(i) for layer, i in zip((ours, theirs), inputs, strict=True)]
        torch.testing.assert_close(*outputs)
        for out in outputs:
            out.square().mul(x).sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    # torch's running variances are unbiased
    added = (theirs.running_var - 0.9**4) * 31 / 32
    torch.testing.assert_close(ours.variance, 0.9**4 + added)


def test_after_the_warm_up_it_is_batch_renormalization() -> None:
    """Ioffe's algorithm 1 in NumPy: corrections r and d are clipped and have no gradient."""
    layer = BatchRenorm(3, momentum=0.8, warm_up=0, eps=1e-3)
    with torch.no_grad():
        layer.mean.copy_(torch.tensor([0.0, 50.0, -0.2]))
        layer.variance.copy_(torch.tensor([1.0, 0.01, 900.0]))
        layer.scale.copy_(torch.tensor([1.0, 2.0, -1.0]))
        layer.shift.copy_(torch.tensor([0.0, 0.5, 1.0]))
    x = np.random.default_rng(1).normal(0.5, 2.0, (64, 3))
    running_mean, running = layer.mean.numpy().copy(), np.sqrt(layer.variance.numpy() + 1e-3)
    mean, deviation = x.mean(0), np.sqrt(x.var(0) + 1e-3)
    r = np.clip(deviation / running, 1 / 3, 3)
    d = np.clip((mean - running_mean) / running, -5, 5)
    assert 3.0 in r and 1 / 3 in r and -5.0 in d  # noqa: PT018  # all bounds are met
    expected = ((x - mean) / deviation * r + d) * [1.0, 2.0, -1.0] + [0.0, 0.5, 1.0]
    inputs = torch.tensor(x, dtype=torch.float32, requires_grad=True)
    got = layer(inputs)
    np.testing.assert_allclose(got.detach(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.mean, 0.8 * running_mean + 0.2 * mean, rtol=1e-5)
    np.testing.assert_allclose(
        layer.variance, 0.8 * (running**2 - 1e-3) + 0.2 * x.var(0), rtol=1e-4
    )
    # a shift of the whole batch changes only d, which has no gradient
    got.sum().backward()
    np.testing.assert_allclose(inputs.grad, 0.0, atol=1e-4)


def test_evaluation_takes_the_running_statistics() -> None:
    """Rows are independent, and nothing moves; as data, norms are folded into the layers."""
    net = RenormMLP(4, (8,), 3, warm_up=0)
    for _ in range(3):
        net(torch.randn(32, 4) * 2 + 1)
    net.eval()
    before = copy.deepcopy(net.state_dict())
    x = torch.randn(6, 4)
    together = net(x)
    torch.testing.assert_close(together, torch.cat([net(row[None]) for row in x]))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    first, _, second = net.layer_data()["layers"]
    hidden = np.maximum(x.numpy() @ first["weight"].T + first["bias"], 0)
    np.testing.assert_allclose(
        together.detach(), hidden @ second["weight"].T + second["bias"], rtol=1e-4, atol=1e-5
    )


def test_critics_have_statistics_of_their_own() -> None:
    """Each of the K members equals a critic of its own."""
    critics = RenormCritics(3, 2, 6, n_critics=2, warm_up=0)
    alone = RenormMLP(5, 6, 1, warm_up=0)
    with torch.no_grad():
        for i, layer in enumerate(alone.net.layers):
            layer.weight.copy_(critics.net.weights[i][1].T)
            layer.bias.copy_(critics.net.biases[i][1, 0])
    obs, actions = torch.randn(16, 3), torch.randn(16, 2)
    for _ in range(3):
        both, one = critics(obs, actions), alone(torch.cat((obs, actions), -1))
        torch.testing.assert_close(both[1], one[:, 0])


def test_a_step_of_the_critics_passes_both_halves_at_once() -> None:
    """Section 3.2 written out: one forward pass, its second half without gradient, Adam's β₁."""
    crossq = make(alpha=0.5)
    generator = torch.Generator().manual_seed(0)
    batch = TransitionBatch(
        obs=torch.randn(7, 3, generator=generator),
        actions=torch.rand(7, 1, generator=generator) * 2 - 1,
        rewards=torch.randn(7, generator=generator),
        next_obs=torch.randn(7, 3, generator=generator),
        discounts=torch.tensor([0.9, 0.0, 0.9, 0.81, 0.9, 0.9, 0.0]),
        weights=torch.rand(7, generator=generator),
    )
    critic, policy = copy.deepcopy(crossq.critic), copy.deepcopy(crossq.policy)
    policy.generator = torch.Generator()
    policy.generator.set_state(crossq.policy.generator.get_state())
    with torch.no_grad():
        mean, log_std = policy.net(batch.next_obs).chunk(2, -1)
        u = mean + log_std.clamp(-20, 2).exp() * standard_normal(mean, policy.generator)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        log_probs = (normal.log_prob(u) - torch.log(1 - u.tanh().square())).sum(-1)
    critic.train()
    values = critic(torch.cat((batch.obs, batch.next_obs)), torch.cat((batch.actions, u.tanh())))
    q, next_q = values[:, :7], values[:, 7:].detach()
    loss = torch.zeros(())
    for b in range(7):
        value = min(next_q[0, b], next_q[1, b]) - 0.5 * log_probs[b]
        y = batch.rewards[b] + batch.discounts[b] * value
        for k in range(2):
            loss = loss + batch.weights[b] * 0.5 * (q[k, b] - y) ** 2 / 7
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2, betas=(0.5, 0.999))
    loss.backward()
    optimizer.step()
    learnt = crossq.objective.learn_values(crossq.parts, batch, 1e-2)
    assert float(learnt.terms["q_loss"]) == pytest.approx(float(loss.detach()), rel=1e-4)
    assert not crossq.critic.training
    for ours, theirs in zip(crossq.critic.parameters(), critic.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)
    for name, value in critic.named_buffers():
        torch.testing.assert_close(crossq.critic.get_buffer(name), value)


def test_the_policy_learns_every_third_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step does not change the critics and their statistics."""
    crossq = make(learning_starts=4, train_freq=1, gradient_steps=1)
    steps: list[str] = []
    before = crossq.learner.step

    def step(name: str, batch: Any, learning_rate: float) -> Any:
        critic = copy.deepcopy(crossq.critic.state_dict())
        result = before(name, batch, learning_rate)
        same = all(torch.equal(critic[n], v) for n, v in crossq.critic.state_dict().items())
        assert same == (name == "learn_policy")
        steps.append(name.removeprefix("learn_"))
        return result

    monkeypatch.setattr(type(crossq.learner), "step", lambda _, *args: step(*args))
    crossq.train(16)
    learnt = "".join(name[0] for name in steps)
    assert learnt.startswith("vvvpvvvp") and "vvvv" not in learnt  # noqa: PT018
    entropy_wanted = crossq.objective.target_entropy
    assert entropy_wanted == -1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"env": "CartPole-v1"}, SpaceError, "CrossQ needs continuous actions, a Box"),
        ({"adam_beta1": 1.0}, ConfigError, "adam_beta1 must be below 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: Any, message: str) -> None:
    """The error names the value and the expected ones."""
    with pytest.raises(error, match=message):
        make(**options)
