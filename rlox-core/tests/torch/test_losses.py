"""Tests of :mod:`rlox.losses` against the paper's equations in NumPy, gradients included."""

import numpy as np
import pytest
import torch
from rlox.losses import PPOLoss, ppo_loss
from rlox.networks.actor_critics import DiscretePolicy

OPTIONS = [
    {"vf_clip_eps": None, "dual_clip": None},
    {"vf_clip_eps": 0.3, "dual_clip": None},
    {"vf_clip_eps": None, "dual_clip": 1.5},
    {"vf_clip_eps": 0.3, "dual_clip": 3.0},
]
COEFFICIENTS = {"clip_eps": 0.2, "vf_coef": 0.7, "ent_coef": 0.03}


def example(size=200, seed=0):
    """Return float64 inputs that reach every branch: ratios from e^-2 to e^2."""
    rng = np.random.default_rng(seed)
    old = rng.uniform(-3, -0.1, size)
    values = rng.normal(0, 1, size)
    return {
        "log_probs": old + rng.uniform(-2, 2, size),
        "entropy": rng.uniform(0, 1, size),
        "values": values,
        "old_log_probs": old,
        "old_values": values + rng.normal(0, 0.5, size),
        "advantages": rng.normal(0, 2, size),
        "returns": rng.normal(0, 1, size),
    }


def reference(x, vf_clip_eps, dual_clip):
    """Compute the loss step by step from the paper, and its gradients in closed form."""
    eps, size = COEFFICIENTS["clip_eps"], len(x["returns"])
    loss = 0.0
    gradients = {name: np.zeros(size) for name in ("log_probs", "values", "entropy")}
    for i in range(size):
        ratio = np.exp(x["log_probs"][i] - x["old_log_probs"][i])
        advantage = x["advantages"][i]
        surrogate = ratio * advantage
        clipped = min(max(ratio, 1 - eps), 1 + eps) * advantage
        objective, slope = (surrogate, surrogate) if surrogate <= clipped else (clipped, 0.0)
        if dual_clip is not None and advantage < 0 and objective < dual_clip * advantage:
            objective, slope = dual_clip * advantage, 0.0
        value, target = x["values"][i], x["returns"][i]
        error, value_slope = (value - target) ** 2, 2 * (value - target)
        if vf_clip_eps is not None:
            moved = value - x["old_values"][i]
            held = x["old_values"][i] + min(max(moved, -vf_clip_eps), vf_clip_eps)
            if (held - target) ** 2 > error:
                error = (held - target) ** 2
                value_slope = 2 * (held - target) if abs(moved) < vf_clip_eps else 0.0
        loss += -objective + COEFFICIENTS["vf_coef"] * error
        loss -= COEFFICIENTS["ent_coef"] * x["entropy"][i]
        gradients["log_probs"][i] = -slope / size
        gradients["values"][i] = COEFFICIENTS["vf_coef"] * value_slope / size
        gradients["entropy"][i] = -COEFFICIENTS["ent_coef"] / size
    return loss / size, gradients


def tensors(x):
    """Return the inputs as tensors, those that are learnt with gradients."""
    learnt = ("log_probs", "values", "entropy")
    return {k: torch.tensor(v, requires_grad=k in learnt) for k, v in x.items()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradients_equal_the_paper(options, seed):
    """Value and gradients agree to float64 rounding."""
    x = example(seed=seed)
    inputs = tensors(x)
    loss, _ = ppo_loss(**inputs, **COEFFICIENTS, **options)
    loss.backward()
    expected, gradients = reference(x, **options)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    for name, gradient in gradients.items():
        grad = inputs[name].grad
        np.testing.assert_allclose(grad.numpy(), gradient, rtol=1e-10, atol=1e-15)


def one(ratio, advantage, **options):
    """Return the policy loss of one step and its gradient with respect to log π."""
    log_prob = torch.tensor([np.log(ratio)], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, dtype=torch.float64)
    loss, _ = ppo_loss(
        log_prob, zero, zero, zero, zero, zero + advantage, zero,
        clip_eps=0.2, vf_coef=0.0, ent_coef=0.0, **options,
    )  # fmt: skip
    loss.backward()
    return loss.item(), log_prob.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual_clip", "loss", "gradient"),
    [
        (1.1, 2.0, None, -2.2, -2.2),  # inside the range: -r A
        (1.5, 2.0, None, -2.4, 0.0),  # a good action has gained enough: -1.2 A
        (0.5, 2.0, None, -1.0, -1.0),  # a good action has lost: still pushed up
        (1.5, -2.0, None, 3.0, 3.0),  # a bad action has gained: pushed down
        (0.5, -2.0, None, 1.6, 0.0),  # a bad action has lost enough: 0.8 * 2
        (5.0, -2.0, 3.0, 6.0, 0.0),  # far off: held at dual_clip * A
        (2.0, -2.0, 3.0, 4.0, 4.0),  # below the dual clip: as before
        (5.0, 2.0, 3.0, -2.4, 0.0),  # good actions have no dual clip
    ],
)
def test_golden_cases(ratio, advantage, dual_clip, loss, gradient):
    """Each branch of figure 1 of the paper, and the dual clip's, by hand."""
    got = one(ratio, advantage, dual_clip=dual_clip)
    assert got == (pytest.approx(loss), pytest.approx(gradient))


def test_terms_are_watched_quantities_without_gradient():
    """KL, clip fraction and the parts of the loss are what their names say."""
    x = example()
    loss, terms = ppo_loss(**tensors(x), **COEFFICIENTS)
    log_ratio = x["log_probs"] - x["old_log_probs"]
    assert float(terms.approx_kl) == pytest.approx(np.mean(np.exp(log_ratio) - 1 - log_ratio))
    assert float(terms.clip_fraction) == pytest.approx(np.mean(abs(np.exp(log_ratio) - 1) > 0.2))
    assert float(terms.value_loss) == pytest.approx(np.mean((x["values"] - x["returns"]) ** 2))
    assert float(terms.entropy) == pytest.approx(np.mean(x["entropy"]))
    parts = terms.policy_loss + 0.7 * terms.value_loss - 0.03 * terms.entropy
    assert loss.item() == pytest.approx(float(parts))
    assert not any(term.requires_grad for term in vars(terms).values())


def test_class_is_the_function_of_a_policy():
    """``PPOLoss`` evaluates the policy and calls the function."""
    policy = DiscretePolicy(3, 4, 8, generator=torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    obs = torch.tensor(rng.normal(size=(16, 3)), dtype=torch.float32)
    actions, old_log_probs = policy.get_action_and_logprob(obs)
    advantages, returns, old_values = torch.tensor(rng.normal(size=(3, 16)), dtype=torch.float32)
    options = {"vf_clip_eps": 0.2, "dual_clip": 2.0}
    loss, terms = PPOLoss(0.1, 0.4, 0.02, **options)(
        policy, obs, actions, old_log_probs.detach(), advantages, returns, old_values
    )
    log_probs, entropy = policy.get_logprob_and_entropy(obs, actions)
    expected, expected_terms = ppo_loss(
        log_probs, entropy, policy.get_value(obs), old_log_probs.detach(), old_values, advantages,
        returns, clip_eps=0.1, vf_coef=0.4, ent_coef=0.02, **options,
    )  # fmt: skip
    assert torch.equal(loss, expected)
    assert terms == vars(expected_terms)


def test_value_clip_lets_every_gradient_within_its_range_through():
    """Rounding of old + (V - old) does not pass for a clip, which would zero the gradient."""
    x = {name: torch.tensor(array, dtype=torch.float32) for name, array in example(5000).items()}
    x["old_values"] = 7.3 * x["values"]
    x["values"].requires_grad_()
    loss, _ = ppo_loss(**x, clip_eps=0.2, vf_coef=0.5, ent_coef=0.0, vf_clip_eps=1e3)
    (gradient,) = torch.autograd.grad(loss, x["values"])
    expected = (x["values"] - x["returns"]).detach() / 5000
    torch.testing.assert_close(gradient, expected)
