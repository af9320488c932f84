"""Default models and distributions of every spec, and windows of recurrent models."""

import pytest
import torch
from agents import small
from rlox_rl8 import _specs as specs
from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.distributions import Bernoulli, BoundedBeta, Distribution
from rlox_rl8.env import Env
from rlox_rl8.models import DefaultDiscreteRecurrentModel, Model
from rlox_rl8.views import ViewRequirement
from tensordict import TensorDict

LOW, HIGH = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 5.0])

OBSERVATIONS = {
    "vector": specs.Unbounded(torch.Size([3])),
    "bounded": specs.Bounded(-LOW.abs() - 1, HIGH),
    "matrix": specs.Unbounded(torch.Size([2, 3])),
    "choices": specs.Categorical(4, shape=torch.Size([2])),
    "unequal choices": specs.MultiCategorical([2, 5]),
    "switches": specs.Binary(3),
    "image": specs.Unbounded(torch.Size([36, 36, 3]), dtype=torch.uint8),
    "nested": specs.Composite(
        place=specs.Unbounded(torch.Size([2])), kinds=specs.Categorical(3, torch.Size([1]))
    ),
}
ACTIONS = {
    "choices": specs.Categorical(3, shape=torch.Size([2])),
    "unequal choices": specs.MultiCategorical([2, 3]),
    "switches": specs.Binary(2),
    "numbers": specs.Unbounded(torch.Size([2])),
    "bounded numbers": specs.Bounded(LOW, HIGH),
}


def env_of(observations, actions):
    """Return a class of envs with random observations and a reward for the first column."""

    class Anything(Env):
        def __init__(self, num_envs, /, horizon=None, *, device="cpu"):
            super().__init__(num_envs, horizon, device=device)
            self.observation_spec, self.action_spec = observations, actions

        def reset(self, *, config=None):
            return observations.expand(self.num_envs, *observations.shape).rand()

        def step(self, action):
            rewards = action[:, :1].float()
            return TensorDict({"obs": self.reset(), "rewards": rewards}, [self.num_envs])

    return Anything


@pytest.mark.parametrize(
    ("kind", "observations", "actions"),
    [
        *[(AlgorithmConfig, name, "choices") for name in OBSERVATIONS],
        *[(RecurrentAlgorithmConfig, name, "choices") for name in ("image", "nested")],
        *[(RecurrentAlgorithmConfig, "vector", name) for name in ACTIONS if name != "choices"],
    ],
)
def test_every_spec_has_a_model_that_learns(kind, observations, actions):
    """The first divergence is 0, parameters move, and actions fit their spec."""
    torch.manual_seed(0)
    env = env_of(OBSERVATIONS[observations], ACTIONS[actions])
    algorithm = small(kind, env, num_envs=8, horizon=4, num_sgd_iters=1)
    before = [p.detach().clone() for p in algorithm.policy.model.parameters()]
    algorithm.collect()
    spec = ACTIONS[actions]
    taken = algorithm.buffer["actions"][:, :-1].reshape(-1, *spec.shape)
    assert spec.expand(len(taken), *spec.shape).is_in(taken)
    assert len(taken.unique(dim=0)) > 1
    stats = algorithm.step()
    assert abs(stats["monitors/kl_div"]) < 1e-6
    pairs = zip(before, algorithm.policy.model.parameters(), strict=True)
    assert all(not torch.equal(old, new) for old, new in pairs)


@pytest.mark.parametrize("actions", ["switches", "bounded numbers"])
def test_what_is_rewarded_is_learnt(actions):
    """The first column grows to its upper end, if it has one."""
    torch.manual_seed(0)
    env = env_of(OBSERVATIONS["vector"], ACTIONS[actions])
    rate = {"lr": 1e-2}
    algorithm = small(AlgorithmConfig, env, num_envs=64, optimizer_config=rate)
    algorithm.collect()
    for _ in range(30):
        algorithm.step()
        last = algorithm.collect()["rewards/mean"]
    assert last > 0.8


def test_distributions_equal_torchs():
    """Log-probabilities and entropies of binary actions and of bounded numbers."""
    torch.manual_seed(1)

    class Given(torch.nn.Module):
        action_spec = ACTIONS["bounded numbers"]

    logits = torch.randn(5, 2)
    switches = Bernoulli(TensorDict({"logits": logits}, [5]))
    taken = switches.sample()
    reference = torch.distributions.Bernoulli(logits=logits)
    expected = reference.log_prob(taken.float()).sum(-1, keepdim=True)
    torch.testing.assert_close(switches.logp(taken), expected)
    torch.testing.assert_close(switches.entropy(), reference.entropy().sum(-1, keepdim=True))
    alpha, beta = 1 + torch.rand(5, 2), 1 + torch.rand(5, 2)
    bounded = BoundedBeta(TensorDict({"alpha": alpha, "beta": beta}, [5]), Given())
    affine = torch.distributions.AffineTransform(LOW, HIGH - LOW)
    scaled = torch.distributions.TransformedDistribution(
        torch.distributions.Beta(alpha, beta), [affine]
    )
    numbers = bounded.sample()
    assert ((numbers >= LOW) & (numbers <= HIGH)).all()
    expected = scaled.log_prob(numbers).sum(-1, keepdim=True)
    torch.testing.assert_close(bounded.logp(numbers), expected, rtol=1e-4, atol=1e-4)
    entropy = -scaled.log_prob(scaled.sample((20_000,))).sum(-1).mean(0)
    torch.testing.assert_close(bounded.entropy()[:, 0], entropy, rtol=0.05, atol=0.05)


def test_specs_without_a_model_are_refused():
    """Integers that are neither categories nor images, and actions of two dimensions."""
    integers = specs.Unbounded(torch.Size([2, 2, 2]), dtype=torch.int32)
    with pytest.raises(TypeError, match="do not take these observations"):
        Model.default_model_cls(integers, ACTIONS["choices"])
    with pytest.raises(TypeError, match="of one dimension"):
        Model.default_model_cls(OBSERVATIONS["vector"], specs.Unbounded(torch.Size([2, 2])))
    with pytest.raises(TypeError, match="default distribution"):
        Distribution.default_dist_cls(specs.Composite(a=ACTIONS["choices"]))


class Windows(DefaultDiscreteRecurrentModel):
    """Sees the last three observations."""

    def __init__(self, observation_spec, action_spec, /, **config):
        super().__init__(specs.Unbounded(torch.Size([3])), action_spec, hidden_size=8)
        self.view_requirements = {"obs": ViewRequirement(shift=2)}
        self.seen = []

    def forward(self, batch, states, /):
        self.seen.append(batch["obs"].detach().clone())
        inputs = batch["obs", "inputs"].flatten(-2)
        return super().forward(TensorDict({"obs": inputs}, batch.batch_size), states)


class Counting(Env):
    """Observations 0, 1, 2, ... since the reset."""

    def __init__(self, num_envs, /, horizon=None, *, device="cpu"):
        super().__init__(num_envs, horizon, device=device)
        self.observation_spec = specs.Unbounded(torch.Size([1]))
        self.action_spec = specs.Categorical(2, shape=torch.Size([1]))
        self.at = torch.zeros(num_envs, 1)

    def reset(self, *, config=None):
        self.at = torch.zeros(self.num_envs, 1)
        return self.at

    def step(self, action):
        self.at = self.at + 1
        return TensorDict({"obs": self.at, "rewards": action.float()}, [self.num_envs])


def test_recurrent_models_see_windows():
    """A sequence's first window reaches into the previous sequence, and the ratio begins at 1."""
    torch.manual_seed(0)
    algorithm = small(
        RecurrentAlgorithmConfig, Counting, model_cls=Windows, model_config=None, num_envs=2,
        horizon=6, seq_len=3, num_sgd_iters=1, shuffle_minibatches=False,
    )  # fmt: skip
    model = algorithm.policy.model
    algorithm.collect()
    acted = [part["inputs"].flatten().tolist() for part in (seen[:1] for seen in model.seen[-7:])]
    windows = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert acted == windows
    model.seen.clear()
    stats = algorithm.step()
    learnt = model.seen[0]["inputs"][..., 0]
    assert learnt.shape == (4, 3, 3)
    assert learnt[:2].flatten(0, 1).tolist() == windows[:6]
    assert model.seen[0]["padding_mask"][0, 0].tolist() == [True, True, False]
    assert not model.seen[0]["padding_mask"][1].any()
    assert abs(stats["monitors/kl_div"]) < 1e-6
