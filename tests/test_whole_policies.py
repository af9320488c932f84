"""A policy's file acts as the algorithm: with NumPy, and with nothing but onnxruntime.

By default one algorithm of each shape of loop does so; ``nox -s faults`` writes of all how many of
their actions are unequal.
"""

import numpy as np
import pytest
import rlox
import torch
from exportables import (
    ALL_ACTIONS,
    CHOICES,
    MODEL_SEES,
    NESTED,
    RL8_SEES,
    TORQUES,
    Env,
    one_at_least,
    unsettle,
)
from gymnasium import spaces
from rlox.errors import ExportError
from rlox.registry import config_class
from rlox.spaces import ActionRows
from rlox.spaces.rows import split
from rlox_offline.datasets import Dataset
from small_algorithms import ALGORITHMS, OFFLINE, ON_DATA, ON_ENVS, TEAMS, dataset

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("pettingzoo")
from errand_team import NESTED as TEAM_SEES  # noqa: E402
from errand_team import VECTOR as MEMBER_SEES  # noqa: E402
from errand_team import Errand  # noqa: E402

STEPS, ROWS = 1000, 10
FAR = spaces.Box(np.float32([-3, 10, -90]), np.float32([9, 11, 90]))
FORMS = {
    "plain": {},
    "normalised": {"normalize_observations": True},
    "stacked": {"frame_stack": 3},
    "nested": {},
    "masked": {},
    "recurrent": {"recurrent": "gru"},
    "all": {"normalize_observations": True, "frame_stack": 3, "recurrent": "lstm"},
}
DEFAULT = {
    "ppo": "all", "dqn": "nested", "sac": "plain", "iql": "plain", "mappo": "all",
    "qmix": "recurrent", "dreamer_v3": "normalised", "rl8_recurrent_ppo": "recurrent",
}  # fmt: skip
"""An algorithm of each shape of loop, with a form of its policy."""
REMEMBERING = ("dreamer_v3", "rl8_recurrent_ppo")
MASKED = ("ppo", "a2c", "impala", "appo", *TEAMS)
PLAIN = (*ON_DATA, "rl8_recurrent_ppo")
"""Those that see vectors alone."""


def takes(name, form):
    """Return whether an algorithm has a form of policy; of the others another file is tested."""
    if form == "masked":
        return name in MASKED
    if form == "nested":
        return name not in PLAIN
    if name in REMEMBERING and form in ("plain", "recurrent"):
        return form == "recurrent"  # by itself
    return FORMS[form].keys() <= config_class(name).model_fields.keys()


CASES = [
    pytest.param(name, form, marks=() if DEFAULT.get(name) == form else pytest.mark.slow)
    for name in ALGORITHMS
    for form in FORMS
    if name != "fqe" and takes(name, form)  # which acts with what it is given
]


def make(name, form):
    """Return a trained algorithm, what its policy observes, how it acts, and an agent's name."""
    nested, known = form in ("nested", "all"), config_class(name).model_fields
    options = {option: value for option, value in FORMS[form].items() if option in known}
    if name in ON_DATA:
        rng, columns = np.random.default_rng(5), {}
        columns["obs"] = np.stack([FAR.sample() for _ in range(200)])
        columns["actions"] = rng.uniform([-2, 0], [2, 5], (200, 2))
        columns |= {"rewards": rng.random(200), "terminated": np.arange(200) % 20 == 19}
        recorded = Dataset(columns, act_low=[-2, 0], act_high=[2, 5])
        return rlox.make(name, dataset=recorded, seed=1, **OFFLINE), FAR, None
    discrete, small = ON_ENVS[name]
    options |= small
    if "recurrent" in options:
        options |= {"batch_size": 16} if name in ("ppo", "mappo", "ippo") else {}
        options |= {"sequence_length": 4} if name in ("qmix", "vdn", "independent_q") else {}
    if name in TEAMS:
        observed = TEAM_SEES if nested else MEMBER_SEES
        env = lambda: Errand(observed, masks=form in ("masked", "all"))  # noqa: E731
        return rlox.make(name, env=env, seed=1, **options), observed, "scout_1"
    sees = {"dreamer_v3": MODEL_SEES, "rl8_ppo": RL8_SEES}.get(name, NESTED)
    observed = sees if nested else FAR
    many = nested and name in MASKED
    acted = ALL_ACTIONS if many else CHOICES if discrete else TORQUES
    for seed, space in enumerate((observed, acted)):
        space.seed(seed)
    return rlox.make(name, env=lambda: Env(observed, acted), seed=1, **options), observed, None


class Runtime:
    """Acts with onnxruntime alone on what an env shows, as a program without Python does."""

    def __init__(self, path):
        self.session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.given = {each.name: each for each in self.session.get_inputs()}
        self.state = None

    def act(self, obs, starts, masks):
        """Return actions by the name of their leaf."""
        leaves = obs if isinstance(obs, dict) else {"": obs}
        inputs = {f"obs.{name}" if name else "obs": leaf for name, leaf in leaves.items()}
        if "mask" in self.given:
            inputs["mask"] = (
                masks if masks is not None else np.ones((ROWS, self.given["mask"].shape[1]))
            )
        if "state" in self.given:
            zeros = np.zeros((ROWS, self.given["state"].shape[1]))
            inputs["state"] = (
                zeros if self.state is None else np.where(starts[:, None], 0, self.state)
            )
        types = {"tensor(float)": np.float32, "tensor(bool)": np.bool_, "tensor(int64)": np.int64}
        found = self.session.run(
            None,
            {
                name: np.asarray(inputs[name], types.get(each.type, np.uint8))
                for name, each in self.given.items()
            },
        )
        names = [each.name for each in self.session.get_outputs()]
        found = dict(zip(names, found, strict=True))
        self.state = found.pop("next_state", None)
        return {name.removeprefix("actions").lstrip("."): each for name, each in found.items()}


def by_name(space, value):
    """Return a batch by the names of its space's leaves."""
    leaves = split(space, value)
    return leaves if isinstance(leaves, dict) else {"": leaves}


def batch(samples):
    """Return samples by the names of their leaves as one batch."""
    leaves = {name: np.stack([each[name] for each in samples]) for name in samples[0]}
    return leaves.get("", leaves)


def unequal(found, expected):
    """Return how many rows differ, by more than 1e-5 if they are real numbers."""
    assert found.keys() == expected.keys()
    differ = np.zeros(ROWS, np.bool_)
    for name, theirs in expected.items():
        ours = found[name]
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
        near = np.isclose(ours, theirs, rtol=1e-5, atol=1e-5)
        differ |= ~near.reshape(ROWS, -1).all(1)
    return int(differ.sum())


@pytest.mark.parametrize(("name", "form"), CASES)
def test_files_act_as_the_algorithm(name, form, tmp_path, record_property):
    """In 1,000 steps of ten envs whose episodes begin anywhere."""
    algorithm, observed, agent = make(name, form)
    algorithm.train(64)
    observed.seed(2)
    samples = [by_name(observed, observed.sample()) for _ in range(100)]
    who, varied = {} if agent is None else {"agent_idx": 2}, False
    torch.manual_seed(3)
    while not varied:
        unsettle(algorithm, 0.1)
        chosen = algorithm.predict(batch(samples), **who)
        leaves = chosen.values() if isinstance(chosen, dict) else [chosen]
        varied = any(np.ptp(leaf, axis=0).any() for leaf in leaves)
    paths = [tmp_path / f"policy.{suffix}" for suffix in ("rlox", "onnx")]
    for path in paths:
        rlox.export(algorithm, path, agent=agent)
    loaded, runtime = [rlox.load_policy(path) for path in paths], Runtime(paths[1])
    acted, remembers = loaded[0].action_space, loaded[0].remembers
    sizes = [n for leaf in ActionRows(acted).leaves for n in leaf.sizes]
    rng, states, wrong = np.random.default_rng(3), [None] * 3, [0] * 3
    for _ in range(STEPS // ROWS):
        obs = batch([samples[number] for number in rng.integers(len(samples), size=ROWS)])
        starts, masks, options = rng.random(ROWS) < 0.05, None, {}
        if form in ("masked", "all") and sizes:
            masks = np.concatenate([one_at_least(rng.random((ROWS, n)) < 0.5) for n in sizes], 1)
            options = {"action_masks": masks}
        answers = []
        for number, policy in enumerate((algorithm, *loaded)):
            more = options | (who if number == 0 else {})
            if remembers:
                more |= {"state": states[number], "episode_start": starts}
            answer = policy.predict(obs, **more)
            if remembers:
                answer, states[number] = answer
            answers.append(by_name(acted, answer))
        expected, *found = answers
        found.append(runtime.act(obs, starts, masks))
        wrong = [w + unequal(each, expected) for w, each in zip(wrong, found, strict=True)]
    algorithm.close()
    record_property("actions", STEPS)
    for place, count in zip(("rlox", "onnx", "onnxruntime"), wrong, strict=True):
        record_property(f"unequal_{place}", count)
    assert max(wrong) <= 2, wrong  # where two choices are equal up to rounding


def test_what_has_no_policy_is_refused_by_name(tmp_path):
    """With the remedy: an evaluation exports what it evaluates, a language model its checkpoint."""
    fqe = rlox.make("fqe", dataset=dataset(), **ON_DATA["fqe"])
    with pytest.raises(ExportError, match="'fqe' has no policy of its own; export the one"):
        rlox.export(fqe, tmp_path / "policy.onnx")
    sft = object.__new__(rlox.registry.algorithm_class("sft"))
    with pytest.raises(ExportError, match=r"'sft' cannot be exported: .*; use its checkpoint"):
        rlox.export(sft, tmp_path / "policy.onnx")
