"""Exported policies act as the algorithms that they come from, without torch."""

from pathlib import Path

import numpy as np
import pytest
import rlox
from exportables import (
    ALL_ACTIONS,
    CASES,
    CHOICES,
    TORQUES,
    VECTOR,
    changed,
    make,
    one_at_least,
    require_same,
    stacked,
)
from rlox.cli.app import build_app
from rlox.deployment import Exportable
from rlox.deployment.files import PLACEHOLDER, seal
from rlox.errors import CheckpointError, ConfigError, ExportError, SpaceError
from rlox.spaces import ActionRows
from rlox_offline.datasets import Dataset
from torch import nn
from typer.testing import CliRunner

STEPS = 200
IN_ONNX = (
    "ppo-nested", "ppo-lstm", "ppo-gru", "ppo-image", "ppo-impala", "dqn-rainbow",
    "dqn-quantiles", "sac", "crossq", "dreamer_v3-torques", "dreamer_v3-images",
    "rl8_recurrent_ppo", "td3",
)  # fmt: skip
"""Cases with other layers than those before."""


@pytest.fixture(params=["rlox", "onnx"])
def suffix(request):
    """Both formats; the second needs the extra."""
    if request.param == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    return str(request.param)


def exported(algorithm, folder, suffix="rlox"):
    """Return the policy after a way through a file."""
    path = folder / f"policy.{suffix}"
    rlox.export(algorithm, path)
    return rlox.load_policy(path)


@pytest.mark.parametrize(
    ("case", "suffix"),
    [*((case, "rlox") for case in CASES), *((case, "onnx") for case in IN_ONNX)],
    indirect=["suffix"],
)
def test_actions_are_the_algorithms(case, suffix, tmp_path):
    """In 200 steps of 10 envs, with episodes that begin anywhere, and for one observation."""
    name, observed, acted, options = CASES[case]
    algorithm = make(name, observed, acted, **options)
    if options.get("normalize_observations"):
        algorithm.train(1)
    policy = exported(algorithm, tmp_path, suffix)
    stateful = {"recurrent", "frame_stack"} & set(options) or name in (
        "dreamer_v3",
        "rl8_recurrent_ppo",
    )
    observed.seed(2)
    rng, n_envs, state, own = np.random.default_rng(3), 10, None, None
    ties = 1  # torch's sums depend on how its arrays lie in memory
    for _ in range(STEPS // n_envs):
        obs = stacked([observed.sample() for _ in range(n_envs)])
        if stateful:
            memory = {"episode_start": rng.random(n_envs) < 0.1}
            expected, state = algorithm.predict(obs, state=state, **memory)
            found, own = policy.predict(obs, state=own, **memory)
        else:
            expected, found = algorithm.predict(obs), policy.predict(obs)
        ties -= require_same(found, expected, ties)
    obs = observed.sample()
    require_same(policy.predict(obs), algorithm.predict(obs))
    algorithm.close()


@pytest.mark.parametrize(
    ("acted", "recurrent"), [(CHOICES, "none"), (ALL_ACTIONS, "gru")], ids=["discrete", "nested"]
)
def test_masks_are_heeded(acted, recurrent, suffix, tmp_path):
    """As by the algorithm, for a batch of random masks."""
    algorithm = make("ppo", VECTOR, acted, recurrent=recurrent)
    policy = exported(algorithm, tmp_path, suffix)
    rng = np.random.default_rng(4)
    obs = rng.uniform(-1, 1, (STEPS, 3)).astype(np.float32)
    sizes = [n for leaf in ActionRows(acted).leaves for n in leaf.sizes]
    masks = np.concatenate([one_at_least(rng.random((STEPS, n)) < 0.5) for n in sizes], 1)
    require_same(
        policy.predict(obs, action_masks=masks), algorithm.predict(obs, action_masks=masks)
    )
    with pytest.raises(ValueError, match="forbids every choice"):
        policy.predict(obs, action_masks=np.zeros_like(masks))
    algorithm.close()


def recorded(discrete):
    """Return 200 random transitions, with observations that are far from standardised."""
    rng = np.random.default_rng(5)
    actions = rng.integers(4, size=200) if discrete else rng.uniform([-2, 0], [2, 5], (200, 2))
    ended = np.arange(200) % 20 == 19
    columns = {"obs": rng.normal(3, 2, (200, 3)), "actions": actions, "rewards": rng.random(200)}
    bounds = {} if discrete else {"act_low": [-2, 0], "act_high": [2, 5]}
    return Dataset({**columns, "terminated": ended}, **bounds)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bc", {}),
        ("bc", {"stochastic": True}),
        ("bc", {"continuous": False}),
        ("td3_bc", {}),
        ("awac", {}),
        ("iql", {}),
        ("cql", {}),
    ],
    ids=str,
)
def test_offline_policies(name, options, tmp_path):
    """With the dataset's normalisation and bounds."""
    dataset = recorded(not options.get("continuous", True))
    algorithm = rlox.make(name, dataset=dataset, seed=1, hidden=32, **options)
    algorithm.train(2)
    policy = exported(algorithm, tmp_path)
    obs = np.random.default_rng(6).normal(3, 2, (STEPS, 3)).astype(np.float32)
    require_same(policy.predict(obs), algorithm.predict(obs))
    require_same(policy.predict(obs[0]), algorithm.predict(obs[0]))


def test_every_algorithm_that_can_be_exported_is_tested_here():
    """Those that cannot are known by name, and say so."""
    tested = {case[0] for case in CASES.values()} | {"bc", "td3_bc", "awac", "iql", "cql"}
    classes = {name: rlox.registry.algorithm_class(name) for name in rlox.list_algorithms()}
    able = {name for name, kind in classes.items() if issubclass(kind, Exportable)}
    # hybrid_ppo has PPO's networks, FQE acts with the policy that it is given, and the policies of
    # teams have a file of tests of their own
    others = {"fqe", "hybrid_ppo", "independent_q", "qmix", "vdn"}
    assert able - tested == others & set(classes)
    without = set(classes) - able
    assert without == {"dpo", "grpo", "online_dpo", "sft"} & set(classes)


class OwnPolicy(nn.Module):
    """A policy without a description."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def deterministic(self, obs):
        return self.layer(obs).tanh()

    def forward(self, obs):
        return self.deterministic(obs)


class DescribedPolicy(OwnPolicy):
    """The same, with one."""

    def layer_data(self):
        from rlox.nn.layer_data import activation, chain, linear

        return chain(linear(self.layer), activation("tanh"))


class ChangedPolicy(DescribedPolicy):
    """Inherits a description of something else."""


def test_own_modules(suffix, tmp_path):
    """They describe themselves, or are built of torch's layers; others are refused by name."""
    layers = nn.Sequential(
        nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 8, bias=False), nn.GELU(), nn.Linear(8, 8),
        nn.ELU(), nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 2), nn.Sigmoid(),
    )  # fmt: skip
    obs = np.random.default_rng(7).normal(0, 3, (STEPS, 3)).astype(np.float32)
    for own in (DescribedPolicy(), layers):
        algorithm = make("td3", VECTOR, TORQUES, policy=own)
        policy = exported(algorithm, tmp_path, suffix)
        require_same(policy.predict(obs), algorithm.predict(obs))
    with pytest.raises(ExportError, match="OwnPolicy cannot be described"):
        exported(make("td3", VECTOR, TORQUES, policy=OwnPolicy()), tmp_path, suffix)
    with pytest.raises(ExportError, match="ChangedPolicy inherits layer_data"):
        exported(make("td3", VECTOR, TORQUES, policy=ChangedPolicy()), tmp_path, suffix)


def test_mistakes_are_errors(tmp_path):
    """One line each: another ending, no policy, masks that nobody heeds, sampled actions."""
    algorithm = make("dqn", VECTOR, CHOICES)
    with pytest.raises(ConfigError, match=r"must end in .rlox or .onnx, got 'policy.pt'"):
        rlox.export(algorithm, "policy.pt")
    with pytest.raises(ExportError, match="has no method policy_data"):
        rlox.export(object(), tmp_path / "policy.rlox")
    with pytest.raises(CheckpointError, match="cannot be read"):
        rlox.load_policy(tmp_path / "none.rlox")
    policy = exported(algorithm, tmp_path)
    assert "dqn" in repr(policy)
    with pytest.raises(SpaceError, match="'dqn' does not take"):
        policy.predict(np.zeros(3), action_masks=np.ones(4))
    with pytest.raises(ExportError, match="deterministic=False"):
        policy.predict(np.zeros(3), deterministic=False)
    with pytest.raises(ValueError, match=r"obs must have shape \(3,\)"):
        policy.predict(np.zeros(5))


HOSTILE = {
    "version": lambda h: h.update(format_version=99),
    "layer": lambda h: h["policy"]["network"].update(layer="__import__"),
    "depth": lambda h: h["policy"].update(network="deep"),
    "space": lambda h: h["policy"]["observation_space"].update(kind="os"),
    "size": lambda h: h["policy"].update(
        observation_space={"kind": "multi_binary", "shape": [10**12]}
    ),
    "frames": lambda h: h["policy"].update(preprocessing={"frame_stack": 10**12, "moments": {}}),
    "one_hot": lambda h: h["policy"].update(
        network={"layer": "one_hot", "first": 0, "size": 10**12}
    ),
    "actions": lambda h: h["policy"].update(
        action_space={"kind": "multi_binary", "shape": [7]}
    ),
    "tensor": lambda h: h["policy"].update(network={"$tensor": "nothing"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name, tmp_path):
    """Before anything large is made."""
    path = tmp_path / "policy.rlox"
    rlox.export(make("dqn", VECTOR, CHOICES), path)
    path.write_bytes(changed(path.read_bytes(), HOSTILE[name]))
    with pytest.raises(CheckpointError, match="policy"):
        rlox.load_policy(path)


def test_a_changed_weight_is_detected(suffix, tmp_path):
    """By the digest, which a file of other weights does not have."""
    path = tmp_path / f"policy.{suffix}"
    rlox.export(make("dqn", VECTOR, CHOICES), path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 397):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CheckpointError, match="its digest"):
            rlox.load_policy(path)
    for content in (b"", whole[:4], whole[: len(whole) // 2], b'{"a": 1}'):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="is damaged"):
            rlox.load_policy(path)


def test_the_command_writes_what_the_function_does(suffix, tmp_path):
    """From a checkpoint; the file acts as it does, also in rlox eval."""
    algorithm = rlox.make("ppo", env="CartPole-v1", seed=1, n_envs=2, n_steps=16, batch_size=32)
    algorithm.train(64)
    checkpoint, path = tmp_path / "final.safetensors", tmp_path / f"policy.{suffix}"
    algorithm.save(checkpoint)
    result = CliRunner().invoke(build_app(), ["export", str(checkpoint), str(path)])
    assert result.exit_code == 0, result.output
    assert "bytes" in result.output
    obs = np.random.default_rng(8).normal(size=(STEPS, 4)).astype(np.float32)
    require_same(rlox.load_policy(path).predict(obs), algorithm.predict(obs))
    words = ["--env", "CartPole-v1", "--episodes", "2", "--json"]
    found = [CliRunner().invoke(build_app(), ["eval", str(file), *words]).output.partition("mean")
             for file in (path, checkpoint)]  # fmt: skip
    assert found[0][1:] == found[1][1:] != ("", "")


def _externally(model):
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="weights.bin")


def _remembering(model):
    state = model.graph.input.add()
    state.CopyFrom(model.graph.input[0])
    state.name, state.type.tensor_type.shape.dim[1].dim_value = "state", 10**12


HOSTILE_GRAPHS = {
    "memory": _remembering,
    "external": _externally,
    "operator": lambda m: m.graph.node.add(op_type="ConstantOfShape", input=["x"], output=["y"]),
    "no outputs": lambda m: m.graph.ClearField("output"),
    "no base64": lambda m: setattr(m.metadata_props[0], "value", "a"),
    "not finite": lambda m: setattr(
        m.graph.initializer[0], "raw_data", b"\xff" * len(m.graph.initializer[0].raw_data)
    ),
}


@pytest.mark.parametrize("name", HOSTILE_GRAPHS)
def test_hostile_graphs_are_refused(name, tmp_path, monkeypatch):
    """Other files are not read, and nothing is computed that the exporter does not write."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    algorithm = make("td3", VECTOR, TORQUES)
    rlox.export(algorithm, "policy.onnx")
    Path("weights.bin").write_bytes(bytes(1 << 20))
    model = onnx.load("policy.onnx")
    HOSTILE_GRAPHS[name](model)
    [digest] = (each for each in model.metadata_props if each.key == "digest")
    digest.value = PLACEHOLDER
    Path("policy.onnx").write_bytes(seal(model.SerializeToString()))
    with pytest.raises(CheckpointError, match="damaged"):
        rlox.load_policy("policy.onnx")


def test_weights_that_are_not_finite_are_refused(tmp_path):
    """Such a policy would choose an action without saying so."""
    algorithm = make("td3", VECTOR, TORQUES)
    nn.init.constant_(next(algorithm.policy.parameters()), float("nan"))
    rlox.export(algorithm, tmp_path / "policy.rlox")
    with pytest.raises(CheckpointError, match="is not finite"):
        rlox.load_policy(tmp_path / "policy.rlox")
