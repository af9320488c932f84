"""A GPU learns what the CPU does, and a checkpoint goes on on either, for every algorithm."""

from collections.abc import Mapping

import numpy as np
import pytest
import rlox
import small_algorithms as small
import torch
from gymnasium import spaces
from rlox.nn.programs import Program
from rlox.ranks import RANKS, Ranks, leave_ranks
from rlox.registry import algorithm_class

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LANGUAGE = ("grpo", "online_dpo", "dpo", "sft")
NAMES = [
    *small.ALGORITHMS,
    *LANGUAGE,
    *(f"{name} of images" for name in ("ppo", "dqn", "dreamer_v3")),
]
DRAW_THERE = ("rl8_ppo", "rl8_recurrent_ppo")
"""Those whose actions are drawn on the device, by its own generator."""
CHOOSING = ("ppo", "a2c", "dqn", "discrete_sac", "sac", "td3", "ddpg", "crossq", "mappo", "ippo",
            "td3_bc", "iql", "cql", "dreamer_v3")  # fmt: skip
"""Those that could learn in Rust on the CPU; actors with Rust's policies draw other actions."""
CLOCKS = ("env_steps_per_second", "gradient_steps_per_second")


class Frames(small.Walk):
    """Random frames."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def look(self):
        """Return a frame."""
        return self.np_random.integers(0, 256, (36, 36, 1), dtype=np.uint8)


def llama(seed):
    """Return a small language model."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, eos_token_id=None, bos_token_id=None,
        pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config)


def arguments_of(name, device):
    """Return an algorithm, its parts on a device, and its options."""
    kind, _, images = name.partition(" ")
    if kind in LANGUAGE:
        return kind, *language(kind, device)
    place = {"device": device} | ({"backend": "torch"} if kind in CHOOSING else {})
    if kind in small.ON_DATA:
        options = dict(small.ON_DATA[kind])
        policy = {"policy": options.pop("policy")} if "policy" in options else {}
        return kind, {"dataset": small.dataset(), **policy}, {**options, **place}
    env = small.env_of(kind, Frames) if images else small.env_of(kind)
    more = {"depth": 2} if images and kind == "dreamer_v3" else {}
    return kind, {"env": env}, {**small.ON_ENVS[kind][1], **more, **place}


def language(kind, device):
    """Return models on a device and data, and options, of an algorithm of language models."""
    prompts = torch.arange(30).reshape(10, 3) % 20
    rows = [{"prompt": row, "chosen": row + 0, "rejected": row.flip(0)} for row in prompts]
    answers = [{"prompt": row, "completion": row.flip(0)} for row in prompts]
    parts = {"model": llama(0).to(device)}
    if kind != "sft":
        parts["ref_model"] = llama(1).to(device)
    options = {"learning_rate": 0.01}
    if kind in ("grpo", "online_dpo"):
        judge = {"reward_fn": sevens} if kind == "grpo" else {"preference_fn": firsts}
        return {**parts, **judge, "dataset": prompts}, {**options, "prompts_per_rollout": 4}
    return {**parts, "dataset": answers if kind == "sft" else rows}, {**options, "batch_size": 4}


def sevens(completions, prompts):
    """Reward each 7 of a completion."""
    return [float((row[prompts.shape[1] :] == 7).sum()) for row in completions]


def firsts(pairs):
    """Prefer the completion that was sampled first."""
    return [0] * len(pairs)


def make(name, device):
    """Return a new algorithm on a device."""
    kind, parts, options = arguments_of(name, device)
    return rlox.make(kind, seed=0, **parts, **options)


def restore(name, path, device):
    """Return an algorithm from a checkpoint, on a device that need not be the one before."""
    kind, parts, _ = arguments_of(name, device)
    if "env" in parts:
        parts["env_id"] = parts.pop("env")
    place = {} if kind in LANGUAGE else {"device": device}
    return algorithm_class(kind).from_checkpoint(path, **parts, **place)


def arrays(state, path=""):
    """Return the arrays of floats in a state by their paths."""
    if isinstance(state, Mapping):
        found = [arrays(part, f"{path}/{name}") for name, part in state.items()]
        return {name: array for part in found for name, array in part.items()}
    is_float = isinstance(state, np.ndarray) and state.dtype.kind == "f"
    return {path: state} if is_float else {}


def require_alike(found, expected):
    """Raise unless metrics and arrays are the same but for rounding."""
    (metrics, state), (expected_metrics, expected_state) = found, expected
    assert state.keys() == expected_state.keys()
    for part in {name.split("/")[1] for name in expected_state}:
        names = [name for name in expected_state if name.split("/")[1] == part]
        ours, others = (
            np.concatenate([s[n].ravel() for n in names]) for s in (state, expected_state)
        )
        apart, size = np.linalg.norm(ours - others), np.linalg.norm(others)
        assert apart <= 1e-2 * size + 1e-4, f"{part}: {apart} of {size}"
    assert metrics == pytest.approx(expected_metrics, rel=1e-2, abs=1e-3, nan_ok=True)


def train(algorithm, steps):
    """Return the metrics of a training, and the arrays of the algorithm after it."""
    metrics = algorithm.train(steps)
    return (
        {name: value for name, value in metrics.items() if name not in CLOCKS},
        arrays(algorithm.state_dict()),
    )


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *(pytest.param(name, "cuda", marks=GPU) for name in NAMES),
        *((name, "cpu") for name in ("ppo", "dpo")),  # what the tests themselves do
    ],
)
def test_devices_learn_alike_and_a_checkpoint_goes_on_on_each(name, device, tmp_path, monkeypatch):
    """Half a training on either, and the other half there and on the CPU, in the same episodes."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    steps, path = 4 if name in LANGUAGE else small.STEPS, tmp_path / "half.rlox"
    with make(name, "cpu") as plain, make(name, device) as fast:
        found, expected = train(fast, steps), train(plain, steps)
        fast.save(path)
    if name not in DRAW_THERE:
        require_alike(found, expected)
    ends = []
    for place in ("cpu", device, device):
        with restore(name, path, place) as rest:
            ends.append(train(rest, 2 * steps))
    require_alike(ends[2], ends[1])
    if name not in DRAW_THERE:
        require_alike(ends[1], ends[0])


RL8 = {"horizon": 16, "sgd_minibatch_size": 256}


@GPU
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {}),
        ("ppo", {"recurrent": "lstm"}),
        ("ppo", {"target_kl": 0.002}),
        ("rl8_ppo", RL8),
        ("rl8_recurrent_ppo", {**RL8, "seqs_per_state_reset": 4, "sgd_minibatch_size": 64}),
    ],
)
def test_programs_are_graphs(monkeypatch, name, options):
    """Replayed, they wait for nothing, and learn what the same functions learn without graphs."""
    call, trained, calls = Program.__call__, [], []

    def strictly(program):
        if not program.captures:  # a part of another
            return call(program)
        calls.append(program)
        strict = calls.count(program) > 2  # the first calls make what libraries keep
        torch.cuda.set_sync_debug_mode("error" if strict else "default")
        try:
            return call(program)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    for replaced in (strictly, lambda program: program._function()):
        monkeypatch.setattr(Program, "__call__", replaced)
        if name == "ppo":
            place = {"env": "CartPole-v1", "env_backend": "tensors"}
            options = {"n_steps": 16, "batch_size": 256, **options}
        else:
            place = {"env": "rlox_rl8.env:DiscreteDummyEnv"}
        algorithm = rlox.make(name, **place, n_envs=64, device="cuda", seed=0, **options)
        algorithm.train(6 * 64 * 16)
        policy = algorithm.policy if name == "ppo" else algorithm.agent.policy.model
        trained.append(torch.cat([p.detach().flatten() for p in policy.parameters()]).cpu())
    torch.testing.assert_close(*trained, rtol=1e-4, atol=1e-5)
    assert len(calls) == 12


@GPU
def test_nccl_adds_gradients_within_the_graph(tmp_path):
    """One rank, whose mean is its own gradient, learns what a training without ranks does."""
    trained = []
    for meet in (None, f"file://{tmp_path}/meet"):
        if meet is not None:
            both = "cpu:gloo,cuda:nccl"
            torch.distributed.init_process_group(both, init_method=meet, rank=0, world_size=1)
            RANKS.append(Ranks(torch.distributed))
        try:
            sizes = {"n_envs": 64, "n_steps": 16, "batch_size": 256, "env_backend": "tensors"}
            with rlox.make("ppo", env="CartPole-v1", device="cuda", seed=0, **sizes) as ppo:
                ppo.train(6 * 64 * 16)
                assert ppo.learner.learner._learn.captures
                trained.append(ppo.optimizer.parameters.detach().cpu())
        finally:
            leave_ranks()
    torch.testing.assert_close(*trained, rtol=1e-4, atol=1e-5)
