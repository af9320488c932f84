"""The native learner backend of offline algorithms against torch's, autograd on their steps."""

import numpy as np
import pytest
import torch
from rlox.errors import BackendError
from rlox_offline.cql import CQL
from rlox_offline.datasets import Dataset
from rlox_offline.iql import IQL
from rlox_offline.td3_bc import TD3BC

SETTINGS = {"seed": 3, "hidden": 80, "batch_size": 300}
"""Minibatches that are no multiple of a block of rows."""

CASES = {
    "td3_bc": (TD3BC, {}),
    "td3_bc, mostly cloning": (TD3BC, {"alpha": 0.4, "policy_delay": 1}),
    "td3_bc, no smoothing": (
        TD3BC, {"hidden": (64, 30), "critic_hidden": 70, "target_noise": 0.0},
    ),
    "cql": (CQL, {}),
    "cql, held at a value": (CQL, {"auto_alpha": True, "cql_target_value": 3.0}),
    "cql, cloning at first": (CQL, {"bc_steps": 4, "auto_entropy": False}),
    # with a seed whose rows keep off the kinks, as the last but one case has
    "cql, targets of the mode": (CQL, {"mode_targets": True, "seed": 4}),
    "cql, calibrated": (CQL, {"calibrated": True, "cql_alpha": 2.0, "critic_hidden": (60, 90)}),
    "cql, many actions": (CQL, {"n_random_actions": 85, "cql_alpha": 0.5, "batch_size": 30}),
    "cql, tanh": (CQL, {"activation": "tanh"}),
    "iql": (
        IQL,
        {"hidden": (80, 60, 20), "critic_hidden": (50, 90), "learning_rate": 1e-3,
         "actor_decay_steps": 50},
    ),
    "iql, weights at their bound": (
        IQL, {"temperature": 30.0, "max_weight": 2.0, "actor_decay_steps": 50, "seed": 5},
    ),
    "iql, tanh": (IQL, {"activation": "tanh"}),
    "iql, mean": (IQL, {"expectile": 0.5, "temperature": 0.0, "actor_decay_steps": 8}),
}  # fmt: skip
"""Every branch of the steps."""


def dataset():
    """Return transitions at random, some terminated, with actions in [-2, 2]."""
    rng, n = np.random.default_rng(0), 400
    last = np.arange(n) % 10 == 9
    obs, final_obs = rng.normal(3.0, 2.0, (2, n, 5)).astype(np.float32)
    columns = {
        "obs": obs,
        "next_obs": np.where(last[:, None], final_obs, np.roll(obs, -1, axis=0)),
        "actions": rng.uniform(-2, 2, (n, 3)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "terminated": last & (np.arange(n) // 10 % 2 == 0),
        "truncated": last & (np.arange(n) // 10 % 2 == 1),
    }
    return Dataset(columns, act_low=-2.0, act_high=2.0)


def make(case, backend):
    """Return an algorithm with a backend."""
    kind, options = CASES[case]
    return kind(dataset(), backend=backend, **{**SETTINGS, **options})


def learnt_by(algorithm):
    """Return every network's parameters, lagging ones included, and the optimisers' moments."""
    parts = algorithm.networks | {f"{name} moments": o for name, o in algorithm.optimizers.items()}
    return {
        f"{part}.{name}": torch.as_tensor(value).detach().clone()
        for part, module in parts.items()
        for name, value in module.state_dict().items()
    }


def largest_difference(ours, theirs):
    """Return that of parameters and moments, relative to each array's largest number."""
    mine, others = learnt_by(ours), learnt_by(theirs)
    assert mine.keys() == others.keys()
    return max(
        float((mine[name] - value).abs().max() / value.abs().max())
        for name, value in others.items()
    )


@pytest.mark.parametrize("case", CASES)
def test_a_training_is_the_one_that_torch_makes(case):
    """Ten gradient steps, whose minibatches and noise are the same."""
    native, torch_ = make(case, "native"), make(case, "torch")
    assert native.learner.backend == "native"
    metrics = [algorithm.train(10) for algorithm in (native, torch_)]
    for values in metrics:
        del values["gradient_steps_per_second"]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4)
    # Of CQL's 4,650 rows a step one now and then lies so near a unit's kink that rounding decides.
    tolerance = 1e-3 if case.startswith("cql") else 1e-5
    assert largest_difference(native, torch_) < tolerance


def test_a_deviation_out_of_bounds_has_no_gradient():
    """Of IQL's policy: both backends leave such a deviation as it is."""
    for backend in ("native", "torch"):
        iql = make("iql", backend)
        with torch.no_grad():
            iql.policy.log_std[:2] = torch.tensor([2.5, -6.0])
        iql.train(2)
        assert iql.policy.log_std[:2].tolist() == [2.5, -6.0]
        assert iql.policy.log_std[2] != 0.0


def test_native_leaves_a_deterministic_policy_of_iql_to_torch():
    """Its step in Rust is of the likelihood."""
    with pytest.raises(BackendError, match="learns the default networks, not DeterministicPolicy"):
        IQL(dataset(), stochastic=False, backend="native", **SETTINGS)
    assert IQL(dataset(), stochastic=False, **SETTINGS).learner.backend == "torch"


@pytest.mark.parametrize("case", ["td3_bc", "cql", "iql"])
def test_runs_are_exact_across_a_checkpoint_and_another_backend(case, tmp_path):
    """2N gradient steps are N, a checkpoint, and N more: to the bit, or but for rounding."""
    whole = make(case, "native")
    whole.train(20)
    half = make(case, "native")
    half.train(10)
    half.save(tmp_path / "half.safetensors")
    for backend, tolerance in (("native", 0.0), ("torch", 1e-4)):
        path = tmp_path / "half.safetensors"
        rest = CASES[case][0].from_checkpoint(path, dataset=dataset(), backend=backend)
        assert rest.learner.backend == backend
        rest.train(10)
        assert largest_difference(rest, whole) <= tolerance
