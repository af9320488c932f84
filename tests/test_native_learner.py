"""The native learner backend against torch's, which is autograd on the objective's loss."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import partial
from typing import final

import gymnasium
import numpy as np
import pytest
import torch
from equal_updates import (
    TOLERANCE,
    in_sequence,
    learn_both,
    relative_error,
    require_equal_updates,
)
from gymnasium import spaces
from rlox.batches.rollout import estimate_advantages
from rlox.callbacks import Callback
from rlox.errors import BackendError
from rlox.losses import ClippedSurrogate, PolicyGradient
from rlox.networks.actor_critics import ContinuousPolicy, DiscretePolicy
from rlox.nn import Layers
from rlox.rollouts import RolloutAlgorithm
from rlox.spaces import map_leaves
from rlox.training.hooks import Hooks
from rlox_native.learner import OBJECTIVES
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.configs import PPOConfig
from rlox_onpolicy.ppo import PPO
from torch import nn

ENVS = {"CartPole-v1": (4, 2), "Pendulum-v1": (3, 1)}
"""Discrete and continuous: sizes of an observation and of the policy network's output."""

SMALL = {"n_envs": 4, "n_steps": 40, "batch_size": 48, "n_epochs": 3}
"""160 rows: the last minibatch of an epoch is short."""

CHOICES = spaces.Discrete(5, start=2)
MATRIX = spaces.Box(-1, 1, (2, 3), np.float32)
IMAGE = spaces.Box(0, 255, (40, 40, 3), np.uint8)
ACTED = [spaces.Discrete(3), spaces.MultiDiscrete([3, 2, 4]), spaces.Box(-1, 1, (2, 2))]
NESTED = spaces.Dict({"place": CHOICES, "matrix": MATRIX, "switches": spaces.MultiBinary(3)})
VECTORS = spaces.Dict(z=spaces.Box(-1, 1, (3,)), a=spaces.Box(0, 1, (2,), np.uint8))

VARIANTS = [
    {},
    {"vf_clip_eps": 0.2, "dual_clip": 2.0, "ent_coef": 0.02, "max_grad_norm": 0.05},
    {"normalize_advantages": False, "vf_coef": 1.5, "clip_eps": 0.05},
    {"hidden": (33, 20, 12), "batch_size": 160},
    {"hidden": Layers((33, 20), critic_hidden=(12, 40, 7), activation="relu")},
]


class Observed(gymnasium.Env):
    """Random observations of a space, and episodes of 15 steps."""

    def __init__(self, observed, acted):
        self.observation_space, self.action_space = observed, acted

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(np.sum(action)), self.steps == 15, False, {}


def policy_of(env, hidden=64):
    """Return the default policy of an env with seeded weights, larger than usual in the head."""
    generator = torch.Generator().manual_seed(1)
    kind = DiscretePolicy if env == "CartPole-v1" else ContinuousPolicy
    policy = kind(*ENVS[env], hidden, generator=generator)
    policy.generator = None
    with torch.no_grad():
        policy.actor.layers[-1].weight.mul_(50)
    return policy


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: ",".join(options) or "defaults")
def test_ppo_update_equals_torch(env, options):
    """Three epochs lead to the same parameters, moments, gradient, metrics and counters."""
    native, torch_ = learn_both(policy_of, PPO, env, **SMALL | options)
    assert torch_[0].clock.gradient_steps > 0
    require_equal_updates(native, torch_)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_a_sequential_of_known_layers_is_learnt_as_torch_does(activation):
    """Whether the policy's network or the values'."""

    def sequences(env):
        policy = policy_of(env, Layers((33, 20, 12), activation=activation.__name__.lower()))
        policy.actor = in_sequence(policy.actor, activation)
        if activation is nn.ReLU:
            policy.critic = in_sequence(policy.critic, activation)
        return policy

    require_equal_updates(*learn_both(sequences, PPO, "Pendulum-v1", **SMALL))


@pytest.mark.parametrize("batch_size", [4, 8])
def test_few_rows_are_learnt_as_torch_does(batch_size):
    """Lost envs leave five: the last minibatch has one, or the first has fewer than it should."""
    options = {"n_envs": 2, "n_steps": 5, "n_epochs": 3, "batch_size": batch_size, "lost": 1}
    native, torch_ = learn_both(policy_of, PPO, "CartPole-v1", **options)
    assert np.isfinite(list(torch_[1].values())).all()
    require_equal_updates(native, torch_)


@pytest.mark.parametrize("observed", [CHOICES, NESTED, VECTORS, MATRIX], ids=str)
@pytest.mark.parametrize("acted", ACTED, ids=str)
def test_features_that_are_not_learnt_equal_torchs(observed, acted):
    """Observations of these spaces are encoded once for a rollout, and actions drawn in Rust."""
    made = {
        backend: PPO(partial(Observed, observed, acted), backend=backend, seed=5, **SMALL)
        for backend in ("native", "torch", "auto")
    }
    native, torch_ = made["native"], made["torch"]
    assert made["auto"].learner.backend == "native"
    unroll = native.learner.collect(40, Hooks(native))
    taken = unroll.actions.flatten(0, 1)
    obs = map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), unroll.obs)
    expected, _ = torch_.policy.get_logprob_and_entropy(obs, taken)
    assert relative_error(unroll.log_probs.flatten(), expected.detach()) < TOLERANCE
    batch = estimate_advantages(unroll, native.policy, 0.9, 0.9)
    for algorithm in (native, torch_):
        algorithm.learner.update(batch, algorithm._objective(algorithm.schedules.at(0, 1)), 1e-3,
                                 Hooks(algorithm))  # fmt: skip
    assert relative_error(native.optimizer.parameters, torch_.optimizer.parameters) < TOLERANCE
    for algorithm in made.values():
        algorithm.close()


@pytest.mark.parametrize(
    ("observed", "acted", "reason"),
    [
        (IMAGE, spaces.Discrete(3), "share, such as those of a ConvolutionalEncoder"),
        (CHOICES, spaces.MultiBinary(3),
         "learns choices or numbers, not actions of MultiBinary(3)"),
    ],
)  # fmt: skip
def test_features_that_are_learnt_are_torchs(observed, acted, reason):
    """As are switches."""
    with PPO(partial(Observed, observed, acted), seed=5, **SMALL) as ppo:
        assert ppo.learner.backend == "torch"
        assert reason in ppo.learner.reason


@final
class Masked(Observed):
    """Several choices, some of whose actions are impossible, others in each step."""

    def reset(self, **options):
        obs, info = super().reset(**options)
        return obs, info | self.mask()

    def step(self, action):
        assert all(self.possible[range(3), action])
        *rest, info = super().step(action)
        return (*rest, info | self.mask())

    def mask(self):
        """Draw which actions are possible next."""
        self.possible = np.random.default_rng(self.steps).random((3, 4)) < 0.6
        self.possible[range(3), [self.steps % 3, self.steps % 2, self.steps % 4]] = True
        rows = zip(self.possible, self.action_space.nvec, strict=True)
        return {"action_mask": np.concatenate([row[:n] for row, n in rows])}


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_masks_of_several_choices_are_learnt_as_torch_does(recurrent):
    """In each choice; with a memory too."""
    env = partial(Masked, MATRIX, spaces.MultiDiscrete([3, 2, 4]))
    options = {**SMALL, "batch_size": 80, "ent_coef": 0.05, "recurrent": recurrent}
    made = [PPO(env, backend=name, seed=5, **options) for name in ("native", "torch")]
    batch = made[0].learner.collect(40, Hooks(made[0]))
    batch = estimate_advantages(batch, made[0].policy, 0.9, 0.9)
    assert not batch.action_masks.all()
    terms = [each.learner.update(batch, each._objective(each.schedules.at(0, 1)), 1e-3, Hooks(each))
             for each in made]  # fmt: skip
    require_equal_updates(*zip(made, terms, strict=True))
    for each in made:
        each.close()


def test_masked_actions_are_learnt_as_torch_does():
    """Masked actions have no probability, no entropy and no gradient."""
    options = {**SMALL, "masked": True, "ent_coef": 0.05}
    native, torch_ = learn_both(policy_of, PPO, "CartPole-v1", **options)
    require_equal_updates(native, torch_)
    (plain, _), _ = learn_both(policy_of, PPO, "CartPole-v1", **options | {"masked": False})
    assert relative_error(plain.optimizer.parameters, torch_[0].optimizer.parameters) > 1e-3


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("normalize", [False, True])
def test_a2c_update_equals_torch(env, normalize):
    """One step of RMSprop on the whole rollout."""
    options = {"n_envs": 4, "n_steps": 40, "normalize_advantages": normalize, "ent_coef": 0.01}
    require_equal_updates(*learn_both(policy_of, A2C, env, **options))


@pytest.mark.parametrize(("target_kl", "steps"), [(1e-6, 0), (0.028, 39)])
def test_target_kl_ends_the_epochs_where_torch_does(target_kl, steps):
    """So many steps, and the stream of orders where the torch backend leaves it."""
    options = {**SMALL, "n_epochs": 20, "target_kl": target_kl}
    (native, metrics), (torch_, expected) = learn_both(policy_of, PPO, "CartPole-v1", **options)
    assert native.clock.gradient_steps == torch_.clock.gradient_steps == steps
    assert metrics == pytest.approx(expected, rel=TOLERANCE)
    drawn = [a.streams.torch("minibatches").get_state() for a in (native, torch_)]
    assert torch.equal(*drawn)


class Watching(Callback):
    """Keeps the metrics of every gradient step, and the parameters after it."""

    def __init__(self):
        self.seen = []

    def on_train_batch(self, **kwargs):
        self.seen.append((kwargs["gradient_step"], kwargs["metrics"]["value_loss"]))


@pytest.mark.parametrize("target_kl", [None, 0.001])
def test_watching_every_step_changes_nothing(target_kl):
    """A callback on_train_batch is called after each step and the training keeps its bits."""
    watching = Watching()
    runs = [
        PPO("CartPole-v1", backend="native", callbacks=c, target_kl=target_kl, **SMALL)
        for c in ([], [watching])
    ]
    metrics = [run.train(320) for run in runs]
    assert torch.equal(runs[0].optimizer.parameters, runs[1].optimizer.parameters)
    assert [step for step, _ in watching.seen] == list(range(1, runs[1].clock.gradient_steps + 1))
    assert runs[0].clock.gradient_steps == runs[1].clock.gradient_steps
    assert metrics[0]["value_loss"] == pytest.approx(metrics[1]["value_loss"], rel=1e-12)


@pytest.mark.parametrize("backends", [("native", "torch"), ("torch", "native")])
def test_a_checkpoint_resumes_with_the_other_backend(backends, tmp_path):
    """After a switch the next update is the one that the first backend would have made."""
    before, after = backends
    run = PPO("CartPole-v1", backend=before, **SMALL)
    run.train(320)
    run.save(tmp_path / "run.safetensors")
    switched = PPO.from_checkpoint(tmp_path / "run.safetensors", backend=after)
    assert switched.learner.backend == after
    batch = run.collector.collect(run.policy, 40)
    objective = ClippedSurrogate(clip_eps=0.2, vf_coef=0.5, ent_coef=0.0)
    for algorithm in (run, switched):
        algorithm.learner.update(batch, objective, 1e-3, Hooks(algorithm))
    assert relative_error(switched.optimizer.parameters, run.optimizer.parameters) < TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_native_knows_every_field_of_its_objectives(objective):
    """A new field is computed in Rust too, or taken out of the table's type."""
    known, terms = OBJECTIVES[objective]
    assert {field.name for field in fields(objective)} == set(known)
    kind = {ClippedSurrogate: PPO, PolicyGradient: A2C}[objective]
    (algorithm, metrics), _ = learn_both(policy_of, kind, "CartPole-v1", n_envs=4, n_steps=40)
    assert tuple(metrics) == terms
    assert type(algorithm._objective(algorithm.schedules.at(0, 1))) is objective


def test_a_field_that_rust_does_not_know_is_torchs(monkeypatch):
    """The reason names the field."""
    known, terms = OBJECTIVES[ClippedSurrogate]
    monkeypatch.setitem(OBJECTIVES, ClippedSurrogate, (known[:-1], terms))
    learner = PPO("CartPole-v1").learner
    assert learner.backend == "torch"
    assert learner.reason == (
        f"not native: it does not know the field '{known[-1]}' of ClippedSurrogate"
    )


@dataclass(frozen=True)
class Penalized(ClippedSurrogate):
    """The clipped surrogate with one more number."""

    kl_coef: float = 0.0


def prior_kl(policy, minibatch):
    """Return a loss of a user's own."""
    return policy.actor(minibatch.obs).square().mean()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"objective": Penalized(0.2, 0.5, 0.0)},
         "it knows the objectives ClippedSurrogate and PolicyGradient, not Penalized"),
        ({"added_losses": {"policy": prior_kl}}, "it knows no added losses (policy.prior_kl)"),
    ],
)  # fmt: skip
def test_losses_of_ones_own_are_torchs(options, reason):
    """``auto`` falls back and says why; asked for by name it is an error."""
    learner = PPO("CartPole-v1", **options).learner
    assert (learner.backend, learner.reason) == ("torch", f"not native: {reason}")
    with pytest.raises(BackendError, match=re.escape(reason)):
        PPO("CartPole-v1", backend="native", **options)


@final
class Stranger(RolloutAlgorithm):
    """An algorithm of somebody else's, with PPO's objective and steps down it."""

    name = "stranger"
    config_class = PPOConfig
    objective_class = ClippedSurrogate
    arguments = ("env_id",)


def test_anyones_algorithm_with_a_known_objective_is_learnt_natively():
    """And with a subclass that has one more field in torch, which says so."""
    known, own = (
        Stranger("CartPole-v1", objective=objective, **SMALL)
        for objective in (None, Penalized(0.2, 0.5, 0.0))
    )
    assert str(known.learner) == "native (the fastest there is)"
    assert str(own.learner) == (
        "torch (not native: it knows the objectives ClippedSurrogate and PolicyGradient, not "
        "Penalized)"
    )
    for stranger in (known, own):
        before = stranger.optimizer.parameters.clone()
        stranger.train(320)
        assert stranger.clock.gradient_steps == 2 * 3 * 4
        assert not torch.equal(before, stranger.optimizer.parameters)


def test_native_runs_are_exact_across_a_checkpoint(tmp_path):
    """2N env steps are N, a checkpoint, and N more, to the bit."""
    options = {**SMALL, "learning_rate": 1e-3}
    whole = PPO("Pendulum-v1", backend="native", **options)
    whole.train(640)
    half = PPO("Pendulum-v1", backend="native", **options)
    half.train(320)
    half.save(tmp_path / "half.safetensors")
    rest = PPO.from_checkpoint(tmp_path / "half.safetensors")
    rest.train(320)
    assert torch.equal(whole.optimizer.parameters, rest.optimizer.parameters)
