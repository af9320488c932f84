"""Policies with an LSTM in the native learner backend against torch's."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from equal_updates import TOLERANCE, learn_both, relative_error, require_equal_updates
from gymnasium import spaces
from rlox.batches.rollout import estimate_advantages
from rlox.errors import BackendError
from rlox.learners.rollouts import TorchLearner
from rlox.losses import evaluate_actions
from rlox.networks import RecurrentPolicy
from rlox.nn import Layers
from rlox.nn.encoders import VectorEncoder
from rlox.training.hooks import Hooks
from rlox_native import ActorCriticLearner
from rlox_onpolicy.ppo import PPO
from torch import nn

ENVS = ["CartPole-v1", "Pendulum-v1"]
"""Discrete and continuous."""

SMALL = {"n_envs": 5, "n_steps": 30, "batch_size": 60, "n_epochs": 3}
"""Two sequences a minibatch; the last of an epoch has one."""

VARIANTS = [
    {},
    {"vf_clip_eps": 0.2, "dual_clip": 2.0, "ent_coef": 0.02, "max_grad_norm": 0.05},
    {"memory_size": 5, "hidden": (33,), "n_steps": 150, "batch_size": 450},
    {"memory_size": 1, "normalize_advantages": False},
    {"hidden": Layers((24, 17), critic_hidden=(40,), activation="relu")},
]


def policy_of(env, memory_size=32, hidden=(24,)):
    """Return the default policy of an env with seeded weights, larger than usual in the head."""
    generator = torch.Generator().manual_seed(1)
    made = gymnasium.make(env)
    encoder, sizes = VectorEncoder(made.observation_space), {"memory_size": memory_size}
    policy = RecurrentPolicy(
        encoder, made.action_space, "lstm", **sizes, hidden=hidden, generator=generator
    )
    policy.generator = None
    with torch.no_grad():
        policy.actor.layers[-1].weight.mul_(50)
        for name, parameter in policy.named_parameters():
            if "bias" in name:  # which begin as 0
                parameter.normal_(std=0.3, generator=generator)
    return policy


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: ",".join(options) or "defaults")
def test_ppo_update_equals_torch(env, options):
    """Three epochs lead to the same parameters, moments, gradient, terms and counters."""
    native, torch_ = learn_both(policy_of, PPO, env, **SMALL | options)
    assert torch_[0].clock.gradient_steps > 3
    require_equal_updates(native, torch_)


def test_masked_actions_are_learnt_as_torch_does():
    """And not as if all had been possible."""
    options = {**SMALL, "ent_coef": 0.05}
    native, torch_ = learn_both(policy_of, PPO, "CartPole-v1", masked=True, **options)
    require_equal_updates(native, torch_)
    (plain, _), _ = learn_both(policy_of, PPO, "CartPole-v1", **options)
    assert relative_error(plain.optimizer.parameters, torch_[0].optimizer.parameters) > 1e-3


@pytest.mark.parametrize(("target_kl", "least"), [(1e-6, 0), (0.018, 1)])
def test_target_kl_ends_the_epochs_where_torch_does(target_kl, least):
    """After as many steps, with the stream of orders where the torch backend leaves it."""
    options = {**SMALL, "n_epochs": 20, "target_kl": target_kl}
    (native, _), (torch_, _) = learn_both(policy_of, PPO, "CartPole-v1", **options)
    assert least <= native.clock.gradient_steps == torch_.clock.gradient_steps < 60
    drawn = [a.streams.torch("minibatches").get_state() for a in (native, torch_)]
    assert torch.equal(*drawn)


class Cut(gymnasium.Env):
    """Random observations, and episodes that end after 7 steps or are cut after 4."""

    def __init__(self, acted, masked=False):
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space, self.masked, self.episodes = acted, masked, 0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self.observation_space.sample(), self.info()

    def step(self, action):
        self.steps += 1
        cut = self.episodes % 2 == 0 and self.steps == 4
        return self.observation_space.sample(), 1.0, self.steps == 7, cut, self.info()

    def info(self):
        """Return which actions are possible: the last one never is."""
        return {"action_mask": np.array([1, 1, 0], np.int8)} if self.masked else {}


@pytest.mark.parametrize("seq_len", [None, 6])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("acted", [spaces.Discrete(3), spaces.Box(-1, 1, (2, 2))], ids=str)
def test_rollouts_and_updates_of_envs_equal_torchs(acted, masked, seq_len):
    """What is drawn in Rust has torch's probabilities and values, from rollout to rollout."""
    if masked and not isinstance(acted, spaces.Discrete):
        return
    made = {
        backend: PPO(
            partial(Cut, acted, masked),
            backend=backend,
            seed=5,
            recurrent="lstm",
            seq_len=seq_len,
            **SMALL,
        )
        for backend in ("auto", "torch")
    }
    native, torch_ = made["auto"], made["torch"]
    assert str(native.learner) == "native (the fastest there is)"
    for _ in range(2):
        unroll = native.learner.collect(30, Hooks(native))
        assert unroll.truncated.any()
        batch = estimate_advantages(unroll, native.policy, 0.9, 0.9)
        assert batch.n_steps == (seq_len or 30)
        with torch.no_grad():
            log_probs, _, values = evaluate_actions(torch_.policy, batch)
        assert relative_error(batch.log_probs, log_probs) < TOLERANCE
        assert relative_error(batch.values, values) < TOLERANCE
        for algorithm in made.values():
            objective = algorithm._objective(algorithm.schedules.at(0, 1))
            algorithm.learner.update(batch, objective, 1e-3, Hooks(algorithm))
        assert relative_error(native.optimizer.parameters, torch_.optimizer.parameters) < TOLERANCE
    if masked:
        assert not (unroll.actions == 2).any()
    assert len(set(unroll.actions.flatten().tolist())) > 1
    for algorithm in made.values():
        algorithm.close()


def test_values_of_cut_episodes_remember_them():
    """They are those that the policy's own code finds on the same way."""
    runs = [
        PPO(partial(Cut, spaces.Discrete(1)), backend=backend, seed=5, recurrent="lstm", **SMALL)
        for backend in ("native", "torch")
    ]  # one action, so that both go the same way
    ours, theirs = (run.learner.collect(30, Hooks(run)) for run in runs)
    assert isinstance(runs[1].learner.learner, TorchLearner)
    assert torch.equal(ours.obs, theirs.obs)
    assert (theirs.final_values != 0).any()
    assert relative_error(ours.final_values, theirs.final_values) < TOLERANCE
    assert relative_error(ours.values, theirs.values) < TOLERANCE
    assert relative_error(ours.initial_state + 1, theirs.initial_state + 1) < 1e-6


def no_biases(policy):
    """Put another LSTM in the critic's place."""
    policy.critic_memory.layer = nn.LSTM(4, 32, bias=False)


def others_weights(policy):
    """Let both networks remember the same."""
    policy.critic_memory = policy.actor_memory


def hooked(policy):
    """Watch the actor's LSTM."""
    policy.actor_memory.layer.register_forward_hook(lambda *_: None)


def own_step(policy):
    """Replace how the policy acts."""
    policy.step = policy.step


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (no_biases, "LSTM\\(4, 32\\), not LSTM\\(4, 32, bias=False\\)"),
        (others_weights, "policies of two memories and two networks, and nothing else"),
        (hooked, "knows nothing of hooks, which 'actor_memory.layer' has"),
        (own_step, "has its own step"),
    ],
)
def test_other_policies_are_torchs(change, reason):
    """Asked for by name, the reason is an error."""
    policy = policy_of("CartPole-v1")
    change(policy)
    with pytest.raises(BackendError, match=reason):
        PPO("CartPole-v1", policy=policy, backend="native", **SMALL)


def test_learners_say_what_does_not_fit():
    """Sizes, and states that are missing or of no memory."""
    learner = ActorCriticLearner(3, [8], n_actions=2, memory_size=5)
    assert learner.state_size == 20
    assert learner.n_parameters == 2 * (20 * (3 + 5) + 40) + 2 * (5 * 8 + 8) + 9 * 3
    parameters = np.zeros(learner.n_parameters, np.float32)
    rows = {
        name: np.zeros(6, np.float32) for name in ("log_probs", "values", "advantages", "returns")
    }
    update = partial(
        learner.update, parameters, parameters.copy(), np.zeros((6, 3), np.float32),
        actions=np.zeros(6, np.int64), order=[[0, 1]], batch_size=2, learning_rate=0.1,
        max_grad_norm=None, vf_coef=1.0, ent_coef=0.0, normalize_advantages=False, alpha=0.9,
        **rows,
    )  # fmt: skip
    state, starts = np.zeros((2, 20), np.float32), np.zeros(6, bool)
    update(initial_state=state, episode_starts=starts)
    for given in ({}, {"initial_state": state}):
        with pytest.raises(TypeError, match="give both"):
            update(**given)
    with pytest.raises(ValueError, match=r"initial_state must have shape \(2, 20\)"):
        update(initial_state=state[:, :5], episode_starts=starts)
    with pytest.raises(ValueError, match="episode_starts must have length 4 like steps of each"):
        update(initial_state=np.zeros((4, 20), np.float32), episode_starts=starts)
    with pytest.raises(ValueError, match="state must have shape"):
        learner.remember(parameters, np.zeros((2, 3), np.float32), state[:1])
    with pytest.raises(ValueError, match="give either critic_dim or memory_size"):
        ActorCriticLearner(3, [8], n_actions=2, memory_size=5, critic_dim=4)
    with pytest.raises(ValueError, match="memory_size"):
        ActorCriticLearner(3, [8], n_actions=2, memory_size=0)
