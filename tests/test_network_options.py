"""The options of the default networks: in every loop, in files, on the command line, in Rust."""

import gymnasium
import numpy as np
import pytest
import rlox
import torch
import yaml
from rlox.cli.app import build_app
from rlox.errors import BackendError, ConfigError
from rlox.networks import TwinQNetwork
from rlox.nn import MLP, EnsembleMLP
from small_algorithms import ALGORITHMS, ON_DATA, TEAMS, Walk, build, dataset, env_of
from torch import nn
from typer.testing import CliRunner

OTHERS = ("dreamer_v3", "rl8_ppo", "rl8_recurrent_ppo", "fqe", "qmix")
"""Without the options, without a policy, or, as QMIX, with VDN's and a mixing network's own."""
NAMES = [name for name in ALGORITHMS if name not in OTHERS]
WITHOUT_CRITIC = ("bc", "dqn", "independent_q", "vdn")


def perceptrons(algorithm):
    """Return all of an algorithm's."""
    held = [*vars(algorithm).values(), *vars(getattr(algorithm, "parts", object)).values()]
    held += [each for part in held if type(part) is dict for each in part.values()]
    modules = [m for each in held if isinstance(each, nn.Module) for m in each.modules()]
    return [m for m in modules if isinstance(m, (MLP, EnsembleMLP))]


def hidden_of(mlp):
    """Return the weights of hidden layers, (members, n_in, n_out)."""
    if isinstance(mlp, EnsembleMLP):
        return [*mlp.weights][:-1]
    return [layer.weight.T[None] for layer in mlp.layers][: mlp.n_hidden]


@pytest.mark.parametrize("name", NAMES)
def test_networks_are_as_asked_for_and_act_alike_from_files(name, tmp_path):
    """Their shapes; they learn; a checkpoint, a policy file and ONNX act as the algorithm does."""
    pytest.importorskip("onnxruntime")
    options = {"hidden": (12, 9, 8), "activation": "silu", "layer_norm": name != "crossq",
               "gain": 1.4}  # fmt: skip
    if name not in WITHOUT_CRITIC:
        options["critic_hidden"] = (10, 7)
    algorithm = build(name, **options)
    widths = {options["hidden"], options.get("critic_hidden", options["hidden"])}
    assert {tuple(w.shape[2] for w in hidden_of(m)) for m in perceptrons(algorithm)} == widths
    like = {(m.activation, m.layer_norm) for m in perceptrons(algorithm)}
    assert like == {("silu", name != "crossq")}
    weights = [weight for m in perceptrons(algorithm) for weight in hidden_of(m)]
    scales = [torch.linalg.svdvals(weight).flatten() for weight in weights]
    np.testing.assert_allclose(torch.cat(scales).detach(), 1.4, rtol=1e-5)
    algorithm.train(64)
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    expected = algorithm.predict(obs)
    for suffix in ("rlox", "onnx"):
        path = tmp_path / f"policy.{suffix}"
        rlox.export(algorithm, path, agent="left" if name in TEAMS else None)
        acted = rlox.load_policy(path).predict(obs)
        np.testing.assert_allclose(acted, expected, rtol=1e-4, atol=1e-5)
    algorithm.save(tmp_path / "saved.safetensors")
    data = {"dataset": dataset()} if name in ON_DATA else {"env_id": env_of(name)}
    with type(algorithm).from_checkpoint(tmp_path / "saved.safetensors", **data) as restored:
        np.testing.assert_array_equal(restored.predict(obs), expected)


@pytest.mark.parametrize("name", ["ppo", "sac", "dqn", "iql", "mappo"])
def test_what_rust_does_not_learn_is_torchs(name):
    """Which says why; asking for Rust is an error."""
    for options, reason in (
        ({"layer_norm": True}, "without layer_norm"),
        ({"activation": "elu"}, "plain linear layers with"),
    ):
        with build(name, **options) as algorithm:
            assert algorithm.learner.backend == "torch"
            assert reason in algorithm.learner.reason
        with pytest.raises(BackendError, match=reason):
            build(name, backend="native", **options)


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_policy_and_values_share_layers(name, tmp_path):
    """Only the last layers are of their own; all learn, and a file acts as the algorithm does."""
    with build(name, shared=True, hidden=(12, 9)) as algorithm:
        widths = [[w.shape[2] for w in hidden_of(m)] for m in perceptrons(algorithm)]
        assert widths == [[12, 9], [], []]
        before = [p.clone() for p in algorithm.policy.parameters()]
        algorithm.train(64)
        after = algorithm.policy.parameters()
        assert not any(torch.equal(*pair) for pair in zip(before, after, strict=True))
        rlox.export(algorithm, tmp_path / "policy.rlox")
        obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
        acted = rlox.load_policy(tmp_path / "policy.rlox").predict(obs)
        np.testing.assert_allclose(acted, algorithm.predict(obs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
@pytest.mark.parametrize("name", ["ppo", "impala", "mappo"])
def test_deviation_of_actions_begins_as_asked_for(name, recurrent):
    """In each kind of policy whose deviation does not depend on the observation."""
    env = env_of(name, lambda _: Walk(False))
    with rlox.make(name, env=env, n_envs=2, recurrent=recurrent, log_std=-1.5) as made:
        for policy in made.policies.values() if name == "mappo" else [made.policy]:
            state = policy.state_dict()
            assert [state[key].tolist() for key in state if "log_std" in key] == [[-1.5]]


def test_rust_learns_critics_of_their_own_and_other_activations():
    """The numbers are compared in the tests of its learners."""
    with build("ppo", activation="relu", critic_hidden=(5, 6, 7)) as ppo:
        assert ppo.learner.backend == "native"
    with build("iql", critic_hidden=(5,), gain=1.4, activation="tanh") as iql:
        assert iql.learner.backend == "native"


def test_the_command_line_has_them(tmp_path):
    """As flags; the config of the run says what was asked for."""
    asked = ["--hidden", "16", "--critic-hidden", "32,24,", "--activation", "relu", "--layer-norm",
             "--gain", "1.4"]  # fmt: skip
    command = ["train", "ppo", "--env", "CartPole-v1", "--total-timesteps", "1024", *asked]
    done = CliRunner().invoke(build_app(), [*command, "--run-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert found["critic_hidden"] == [32, 24]
    assert (found["activation"], found["layer_norm"], found["gain"]) == ("relu", True, 1.4)


def test_wrong_options_are_refused():
    """With the options that there are, under whatever name others have them."""
    with pytest.raises(ConfigError, match="activation: expected 'elu', 'gelu'"):
        build("ppo", activation="swish")
    with pytest.raises(ConfigError, match="critic_hidden: expected one or more widths"):
        build("sac", critic_hidden=[])
    with pytest.raises(ConfigError, match="here it is hidden, critic_hidden, activation"):
        build("td3", activation_fn="relu")
    with pytest.raises(ConfigError, match="activation must be tanh, got relu"):
        rlox.make("hybrid_ppo", env="CartPole-v1", activation="relu")
    with pytest.raises(ConfigError, match="layer_norm must be False"):
        build("crossq", layer_norm=True)
    with pytest.raises(ConfigError, match="activation is of the default networks"):
        rlox.make("dqn", env="CartPole-v1", network=nn.Linear(4, 2), activation="tanh")
    with pytest.raises(ConfigError, match="critic_hidden must be None with shared=True"):
        build("ppo", shared=True, critic_hidden=9)
    with pytest.raises(ConfigError, match="dueling streams need"):
        build("dqn", dueling=True, hidden=(8,))
    with pytest.raises(ConfigError, match="gain must be None"):
        build("dqn", noisy=True, gain=1.4)
    assert TwinQNetwork(3, 1, 8).net.activation == "relu"


def test_a_sequential_of_known_layers_is_exported(tmp_path):
    """With the normalisation too; its actions are those of torch."""
    layers = [nn.Linear(3, 8), nn.LayerNorm(8), nn.ELU(), nn.Linear(8, 1), nn.Tanh()]
    algorithm = build("td3", policy=nn.Sequential(*layers))
    rlox.export(algorithm, tmp_path / "policy.rlox")
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    acted = rlox.load_policy(tmp_path / "policy.rlox").predict(obs)
    np.testing.assert_allclose(acted, algorithm.predict(obs), rtol=1e-4, atol=1e-5)


class Aimed(gymnasium.Env):
    """Shows whether to act, and to the critic how long the episode still lasts."""

    observation_space = gymnasium.spaces.Dict(
        {"sign": gymnasium.spaces.Box(-1, 1, (2,)), "left": gymnasium.spaces.Box(0, 9, (1,))}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Begin."""
        super().reset(seed=seed)
        self.left = 9
        return self.look(), {}

    def look(self):
        """Return the observation."""
        self.sign = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"sign": self.sign, "left": np.array([self.left], np.float32)}

    def step(self, action):
        """Be paid for the sign's first number."""
        paid = float((self.sign[0] > 0) == action)
        self.left -= 1
        return self.look(), paid, self.left == 0, False, {}


def test_a_critic_may_see_more(tmp_path):
    """Its keys change values and never actions, in torch, in files, and in ONNX's inputs."""
    onnx = pytest.importorskip("onnxruntime")
    options = {"n_envs": 2, "n_steps": 16, "seed": 0, "critic_obs": ("left",)}
    ppo = rlox.make("ppo", env=Aimed, batch_size=16, hidden=16, **options)
    assert ppo.learner.backend == "torch"
    ppo.train(64)
    sign = torch.rand(4, 2)
    near, far = ({"sign": sign, "left": torch.full((4, 1), left)} for left in (1.0, 9.0))
    policy = ppo.policy
    assert torch.equal(policy.deterministic(near), policy.deterministic(far))
    assert torch.equal(*(policy.distribution(policy.encode(x)).logits for x in (near, far)))
    assert not torch.equal(policy.get_value(near), policy.get_value(far))
    rlox.export(ppo, tmp_path / "policy.onnx")
    arrays = {key: value.numpy() for key, value in near.items()}
    expected = ppo.predict(arrays)
    assert np.array_equal(rlox.load_policy(tmp_path / "policy.onnx").predict(arrays), expected)
    names = [each.name for each in onnx.InferenceSession(tmp_path / "policy.onnx").get_inputs()]
    assert "obs.sign" in names
    assert "obs.left" not in names
    for wrong in (("right",), ("left", "sign")):
        with pytest.raises(ConfigError, match="critic_obs must name some, not all, keys"):
            rlox.make("a2c", env=Aimed, critic_obs=wrong)
    with pytest.raises(ConfigError, match="without memory or shared layers"):
        rlox.make("ppo", env=Aimed, recurrent="lstm", **options)
