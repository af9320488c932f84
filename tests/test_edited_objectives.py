"""Rust computes only the code that it was written for: edits of any kind are learnt in torch."""

import json
import shutil
import subprocess
import sys
from functools import partial, wraps
from importlib import import_module
from pathlib import Path

import pytest
import rlox
import rlox.losses
import torch
from rlox.errors import BackendError
from rlox.learners.transitions import Parts, ReplayTask, choose_replay_learner
from rlox.losses import ClippedSurrogate
from rlox.networks import DiscreteQNetwork
from rlox.nn import FlatOptimizer
from rlox_offpolicy.dqn import QLearning
from small_algorithms import dataset

digests = pytest.importorskip("rlox_native.digests")

ROLLOUTS = {"n_envs": 2, "n_steps": 16}
REPLAY = {
    "learning_starts": 32, "batch_size": 16, "hidden": 16, "steps_per_iteration": 40,
    "train_freq": 4, "gradient_steps": 1,
}  # fmt: skip
OFFLINE = {"hidden": 16, "batch_size": 16}
REASON = "is not the code that Rust computes"


def trained(name, **options):
    """Return an algorithm after a few gradient steps."""
    if name in ("ppo", "a2c"):
        made = rlox.make(name, env="CartPole-v1", **ROLLOUTS, **options)
        made.train(32)
    elif name in ("iql", "cql", "td3_bc"):
        cls = getattr(import_module("rlox.algorithms"), {"td3_bc": "TD3BC"}.get(name, name.upper()))
        made = cls(dataset(), **OFFLINE, **options)
        made.train(2)
    else:
        env = "CartPole-v1" if name == "dqn" else "Pendulum-v1"
        made = rlox.make(name, env=env, **REPLAY, **options)
        made.train(40)
    return made


def counting(calls, function):
    """Return a function that does the same and counts; with the other's name, as wrappers have."""

    @wraps(function)
    def replaced(*args, **kwargs):
        calls.append(1)
        return function(*args, **kwargs)

    return replaced


EDITS = [
    ("ppo", "rlox.losses:ppo_loss"),
    ("ppo", "rlox.rollouts.algorithm:minimize_over_epochs"),
    ("ppo", "rlox.nn.distributions:Categorical.sample"),
    ("ppo", "rlox.nn.mlp:MLP.forward"),
    ("ppo", "rlox.nn.optimizers:FlatOptimizer.apply"),
    ("ppo", "rlox.rollouts.collector:RolloutCollector.unroll"),
    ("ppo", "rlox.spaces.rows:ActionRows.to_env"),
    ("a2c", "rlox.losses:PolicyGradient.loss"),
    ("sac", "rlox_offpolicy.sac:SoftActorCritic.learn"),
    ("sac", "rlox.networks.policies:SquashedGaussianPolicy.get_action_and_logprob"),
    ("td3", "rlox_offpolicy.td3:TwinDelayed.learn_policy"),
    ("dqn", "rlox_offpolicy.dqn:QLearning.learn"),
    ("iql", "rlox_offline.iql:ImplicitQ.learn"),
    ("cql", "rlox_offline.cql:ConservativeQ.penalty"),
    ("td3_bc", "rlox_offline.losses:bc_loss"),
]


@pytest.mark.parametrize(("name", "place"), EDITS, ids=[f"{a}-{b}" for a, b in EDITS])
def test_a_replaced_function_is_called(name, place, monkeypatch):
    """In torch, which says why; asking for Rust is an error."""
    module, path = place.split(":")
    *classes, last = path.split(".")
    owner = import_module(module)
    for each in classes:
        owner = getattr(owner, each)
    calls = []
    monkeypatch.setattr(owner, last, counting(calls, getattr(owner, last)))
    learner = trained(name).learner
    assert calls
    assert learner.backend == "torch"
    assert learner.reason.startswith("not native: ")
    assert learner.reason.endswith(f"{last} {REASON}")
    with pytest.raises(BackendError, match=rf"{last} {REASON}"):
        trained(name, backend="native")


def test_numbers_beside_the_functions_count(monkeypatch):
    """A module's constant is a part of what reads it."""
    monkeypatch.setattr("rlox.losses.KL_TOLERANCE", 2.0)
    assert rlox.make("ppo", env="CartPole-v1").learner.reason.endswith(f"KL_TOLERANCE {REASON}")


def test_a_known_function_in_anothers_place_is_found(monkeypatch):
    """Rust knows both, but computes the other one there."""
    from rlox.nn.mlp import MLP, EnsembleMLP

    monkeypatch.setattr(MLP, "forward", EnsembleMLP.forward)
    assert REASON in rlox.make("ppo", env="CartPole-v1").learner.reason


def test_edited_advantages_are_estimated(monkeypatch):
    """The reference of Rust's kernel, where that is no longer its code."""
    from rlox.kernels import reference

    calls = []
    edited = counting(calls, reference.compute_gae_time_major)
    monkeypatch.setattr(reference, "compute_gae_time_major", edited)
    trained("ppo")
    assert calls


def test_a_subclass_and_an_attribute_of_one_object_are_found():
    """Whatever they compute, Rust does not."""

    class Mine(ClippedSurrogate):
        def loss(self, policy, minibatch):
            return super().loss(policy, minibatch)

    numbers = {"clip_eps": 0.2, "vf_coef": 0.5, "ent_coef": 0.0}
    assert "not Mine" in trained("ppo", objective=Mine(**numbers)).learner.reason
    calls = []
    objective = ClippedSurrogate(**numbers)
    object.__setattr__(objective, "loss", counting(calls, objective.loss))
    assert REASON in trained("ppo", objective=objective).learner.reason
    assert calls

    from rlox_offpolicy.sac import SAC, SoftActorCritic

    class Changed(SoftActorCritic):
        def learn(self, *arguments):
            calls.clear()
            return super().learn(*arguments)

    class Changing(SAC):
        def make_objective(self, size):
            return Changed(**vars(super().make_objective(size)))

    changed = Changing("Pendulum-v1", **REPLAY)
    changed.train(40)
    assert "knows SoftActorCritic, not its subclass Changed" in changed.learner.reason
    assert not calls


def strange(learn):
    """Return what learns a stranger's task with rlox's objective, but for its step."""
    network, target = DiscreteQNetwork(4, 2, 8), DiscreteQNetwork(4, 2, 8)
    optimizer = FlatOptimizer(network, partial(torch.optim.Adam))
    networks = {"network": network, "network_target": target}
    parts = Parts(
        networks, {"network": optimizer}, torch.device("cpu"), lambda _: torch.Generator()
    )
    objective = QLearning()
    object.__setattr__(objective, "learn", learn)
    return choose_replay_learner("native", ReplayTask(objective, parts))


def test_a_strangers_own_step_is_not_replaced():
    """The objective alone does not say what the step computes."""

    def learn(parts, batch, learning_rate):
        raise NotImplementedError

    with pytest.raises(BackendError, match=rf"learn {REASON}"):
        strange(learn)
    with pytest.raises(BackendError, match=rf"learn {REASON}"):
        strange(partial(learn))
    with pytest.raises(BackendError, match=r"the source of .* is missing and cannot be compared"):
        strange(eval("lambda parts, batch, learning_rate: None"))


PROGRAM = """
import sys
import rlox
from rlox.registry.table import get_registry
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    for module in [name for name in sys.modules if name.startswith("rlox_offpolicy")]:
        del sys.modules[module]
    get_registry.cache_clear()
    for name, env in (("sac", "Pendulum-v1"), ("dqn", "CartPole-v1")):
        print(rlox.make(name, env=env).learner)
"""
FILE_EDITS = [
    ("sac.py", "0.5 * (batch", "0.7 * (batch", ("sac.SoftActorCritic.learn", None)),
    ("targets.py", "rewards, discounts", "discounts, rewards",
     ("sac.td_targets", "dqn.td_targets")),
    ("dqn.py", "1, keepdim=True", "1, keepdim=1", (None, "dqn.QLearning.learn")),
    ("sac.py", "polyak_update(parts.critic, parts.critic_target, ",
     "polyak_update(  # moves\n\n  parts.critic,\n parts.critic_target, ", (None, None)),
    ("targets.py", '"""Return y = r', '"""It is r', (None, None)),
]  # fmt: skip
"""File of a copy, what becomes what in it, and the functions that are then learnt in torch."""


def test_edited_files_of_a_copy_are_learnt(tmp_path):
    """But comments, docstrings, blank lines and broken lines change nothing."""
    package = Path(import_module("rlox_offpolicy").__file__ or "").parent
    folders = [str(tmp_path / str(number)) for number in range(len(FILE_EDITS))]
    for folder, (file, before, after, _) in zip(folders, FILE_EDITS, strict=True):
        shutil.copytree(package, f"{folder}/{package.name}")
        edited = Path(folder, package.name, file)
        text = edited.read_text("utf-8")
        assert before in text
        edited.write_text(text.replace(before, after), "utf-8")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True, check=True
    )
    functions = [name for *_, names in FILE_EDITS for name in names]
    for line, function in zip(run.stdout.splitlines(), functions, strict=True):
        reason = "native (the fastest there is)"
        if function is not None:
            reason = f"torch (not native: rlox_offpolicy.{function} {REASON})"
        assert line == reason


def test_the_table_is_what_the_script_writes():
    """Run ``python -m rlox_native.digests`` if a change of the code was followed in Rust."""
    assert json.loads(digests.FILE.read_text("utf-8")) == digests.current_digests()
