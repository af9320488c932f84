"""The crate rlox-policy acts as rlox.load_policy does, with the example that users run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rlox
from errand_team import Errand
from exportables import ALL_ACTIONS, CASES, VECTOR, make, one_at_least, stacked
from rlox.spaces import ActionRows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed"),
]
NATIVE = Path(__file__).parents[1] / "rlox-native"


@pytest.fixture(scope="module")
def act() -> str:
    """Return the path of the example, which is compiled where nobody has done so."""
    command = ["cargo", "build", "--release", "--locked", "--message-format", "json"]
    done = subprocess.run(
        [*command, "-p", "rlox-policy", "--example", "act"],
        cwd=NATIVE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return str(next(path for path in built if path))


def plain(value: Any) -> Any:
    """Return nested arrays as JSON has them."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return np.asarray(value).tolist()


def acted(act: str, path: Path, requests: list[dict[str, Any]]) -> list[Any]:
    """Return what the example answers."""
    lines = "\n".join(json.dumps(plain_request(each)) for each in requests)
    done = subprocess.run(
        [act, str(path)], input=lines, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def plain_request(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as JSON has it."""
    return {key: value if key == "agent" else plain(value) for key, value in request.items()}


def require_same(theirs: Any, ours: Any) -> None:
    """Require equal actions: exactly if they are discrete, to 1e-6 of their size if not."""
    if isinstance(ours, Mapping):
        assert list(ours) == list(theirs)
        for key in ours:
            require_same(theirs[key], ours[key])
    elif isinstance(ours, np.ndarray) and ours.dtype.kind == "f":
        np.testing.assert_allclose(np.array(theirs), ours, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(np.array(theirs), ours)


@pytest.mark.parametrize("case", CASES)
def test_actions_are_those_of_numpy(case: str, act: str, tmp_path: Path) -> None:
    """In 400 steps of 4 envs, with episodes that begin anywhere."""
    name, observed, acted_in, options = CASES[case]
    algorithm = make(name, observed, acted_in, **options)
    if options.get("normalize_observations"):
        algorithm.train(1)
    path = tmp_path / "policy.rlox"
    rlox.export(algorithm, path)
    algorithm.close()
    policy = rlox.load_policy(path)
    observed.seed(2)
    rng, state, requests, expected = np.random.default_rng(3), None, [], []
    for _ in range(100):
        obs = stacked([observed.sample() for _ in range(4)])
        starts = rng.random(4) < 0.1
        actions, state = policy.predict(obs, state=state, episode_start=starts)
        requests.append({"obs": obs, "episode_start": starts})
        expected.append(actions)
    found = acted(act, path, requests)
    assert len(found) == len(expected)
    for theirs, ours in zip(found, expected, strict=True):
        require_same(theirs, ours)


def test_masks_are_heeded(act: str, tmp_path: Path) -> None:
    """Of all kinds of choices."""
    path = tmp_path / "policy.rlox"
    rlox.export(make("ppo", VECTOR, ALL_ACTIONS), path)
    rng = np.random.default_rng(4)
    sizes = [n for leaf in ActionRows(ALL_ACTIONS).leaves for n in leaf.sizes]
    masks = np.concatenate([one_at_least(rng.random((300, n)) < 0.5) for n in sizes], 1)
    obs = rng.uniform(-1, 1, (300, 3)).astype(np.float32)
    (found,) = acted(act, path, [{"obs": obs, "action_masks": masks}])
    policy = rlox.load_policy(path)
    require_same(found, policy.predict(obs, action_masks=masks))
    assert plain(policy.predict(obs)) != found


@pytest.mark.parametrize("options", [{}, {"recurrent": "gru", "frame_stack": 2}], ids=str)
def test_agents_of_a_team(options: dict[str, Any], act: str, tmp_path: Path) -> None:
    """Each with a memory of its own."""
    algorithm = rlox.make("mappo", env=Errand, seed=1, n_envs=2, **options)
    path = tmp_path / "team.rlox"
    rlox.export(algorithm, path)
    algorithm.close()
    team = rlox.load_policy(path)
    states: dict[str, Any] = dict.fromkeys(team.agents)
    requests, expected = [], []
    for _ in range(60):
        for agent, policy in team.agents.items():
            obs = stacked([policy.observation_space.sample() for _ in range(2)])
            actions, states[agent] = policy.predict(obs, state=states[agent])
            requests.append({"agent": agent, "obs": obs})
            expected.append(actions)
    for theirs, ours in zip(acted(act, path, requests), expected, strict=True):
        require_same(theirs, ours)


def test_mistakes_are_one_line(act: str, tmp_path: Path) -> None:
    """A damaged file, and an observation of another shape."""
    path = tmp_path / "policy.rlox"
    rlox.export(make("dqn", VECTOR, CASES["dqn"][2]), path)
    wrong = json.dumps({"obs": [[0.0, 1.0]]})
    done = subprocess.run(
        [act, str(path)], input=wrong, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "must be nested lists of numbers" in done.stderr
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    done = subprocess.run([act, str(path)], input="", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "its digest is missing or does not fit" in done.stderr
    assert "panicked" not in done.stderr
