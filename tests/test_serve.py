"""``rlox serve`` answers as ``predict`` does: the real server in a process of its own."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import rlox
from gymnasium import spaces
from rlox import cli

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

NESTED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 3), np.uint8),
        "place": spaces.Discrete(4, start=2),
        "pair": spaces.Tuple((spaces.Box(-1, 1, (3,), np.float32), spaces.MultiBinary(2))),
    }
)
ACTIONS = spaces.Dict(
    {"choice": spaces.Discrete(3), "torques": spaces.Box(-2, 2, (2,), np.float32)}
)


class Env(gymnasium.Env):
    """Random observations of a nested space."""

    observation_space, action_space = NESTED, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return self.observation_space.sample(), 1.0, False, True, {}


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    value: Any


class Client:
    """Requests to a server."""

    def __init__(self, line: str, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.port = int(line.split("127.0.0.1:")[1].split()[0])

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Return the answer, its JSON as a value."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, names)
        found = connection.getresponse()
        text = found.read()
        connection.close()
        return Answer(found.status, json.loads(text) if text[:1] in (b"{", b"[") else text)

    def predict(self, obs: Any, **keys: Any) -> Answer:
        """Return the answer for observations as they are in Python."""
        body = json.dumps({"obs": plain(obs), **keys}).encode()
        return self.send("POST", "/predict", body, Content_Type="application/json")

    def actions(self, obs: Any, **keys: Any) -> Any:
        """Return the actions for observations."""
        answer = self.predict(obs, **keys)
        assert answer.status == 200, answer
        return answer.value["actions"]

    def health(self) -> Any:
        """Return what the server reports."""
        answer = self.send("GET", "/health")
        assert answer.status == 200
        return answer.value


def plain(value: Any) -> Any:
    """Return an observation as values of JSON."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Return a function that exports a policy, serves it, and returns a client."""
    processes: list[subprocess.Popen[str]] = []

    def serve(algorithm: Any, *arguments: object) -> Client:
        path = tmp_path / "policy.rlox"
        rlox.export(algorithm, path)
        command = [sys.executable, "-c", "from rlox.cli import main; main()", "serve", str(path)]
        process = subprocess.Popen(
            [*command, "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "serving" in line, process.communicate()
        return Client(line, process)

    yield serve
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def recurrent() -> Iterator[Any]:
    """Return a policy with memory and stacked frames, untrained."""
    options = {"recurrent": "lstm", "frame_stack": 2, "normalize_observations": True}
    with rlox.make("ppo", env="CartPole-v1", n_envs=2, n_steps=64, seed=0, **options) as ppo:
        ppo.train(128)
        yield ppo


@pytest.fixture(scope="module")
def nested() -> Iterator[Any]:
    """Return a policy of nested spaces, untrained."""
    with rlox.make("ppo", env=Env, n_envs=2, n_steps=64, seed=0) as ppo:
        yield ppo


@pytest.fixture
def policy(tmp_path: Path, recurrent: Any) -> Any:
    """Return the recurrent policy as a file makes it."""
    rlox.export(recurrent, tmp_path / "here.rlox")
    return rlox.load_policy(tmp_path / "here.rlox")


def test_sessions_play_episodes_as_predict_does(
    serve: Callable[..., Client], recurrent: Any, policy: Any
) -> None:
    """Memory and frames of each are its own, and begin where an episode does."""
    client = serve(recurrent)
    rng = np.random.default_rng(0)
    states: dict[str, Any] = {"a": None, "b": None}
    for step in range(12):
        for name in states:
            obs = rng.normal(size=4).astype(np.float32)
            start = step in (0, 5)
            action, states[name] = policy.predict(obs, state=None if start else states[name])
            given = {"session": name, **({"episode_start": True} if start else {})}
            assert client.actions(obs, **given) == action
    obs = rng.normal(size=(3, 4)).astype(np.float32)
    assert client.actions(obs) == policy.predict(obs).tolist()  # an episode each
    assert client.health()["sessions"] == 2
    assert client.send("DELETE", "/sessions/a").status == 204
    assert client.send("DELETE", "/sessions/a").status == 404
    unknown = client.predict(obs[0], session="a")
    assert unknown.status == 404
    assert "begin with episode_start: true" in unknown.value["error"]


def test_a_session_of_several_episodes_begins_them_one_by_one(
    serve: Callable[..., Client], recurrent: Any, policy: Any
) -> None:
    """As a client with a vector env needs."""
    client = serve(recurrent)
    rng = np.random.default_rng(1)
    state = None
    for starts in ([True, True, True], [False, True, False], [False, False, False]):
        obs = rng.normal(size=(3, 4)).astype(np.float32)
        actions, state = policy.predict(obs, state=state, episode_start=starts)
        assert client.actions(obs, session="v", episode_start=starts) == actions.tolist()
    wrong = client.predict(obs[:2], session="v")
    assert (wrong.status, wrong.value["error"]) == (
        422,
        "session 'v' has 3 episodes, got 2 observations",
    )


def test_requests_that_come_together_are_computed_together(
    serve: Callable[..., Client], recurrent: Any, policy: Any
) -> None:
    """Each gets its own actions, with and without a session; a faulty one fails alone."""
    client = serve(recurrent)
    rng = np.random.default_rng(2)
    batches = [rng.normal(size=(64 + i, 4)).astype(np.float32) for i in range(60)]

    def ask(i: int) -> bool:
        if i % 10 == 0:
            return client.predict([[1.0, 2.0]]).status == 422
        keys = {"session": f"s{i}", "episode_start": True} if i % 2 else {}
        return bool(client.actions(batches[i], **keys) == policy.predict(batches[i]).tolist())

    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(ask, range(60)))
    health = client.health()
    assert health["requests"] == 54
    assert health["batches"] < 54


def test_nested_spaces_are_nested_in_json(serve: Callable[..., Client], nested: Any) -> None:
    """Observations and actions alike, one or a batch."""
    client = serve(nested)
    NESTED.seed(3)
    described = client.send("GET", "/policy").value
    assert described["observation_space"].startswith("Dict('image': Box(0, 255, (2, 3), uint8)")
    assert described["remembers"] is False
    for _ in range(5):
        obs = NESTED.sample()
        action, expected = client.actions(obs), nested.predict(obs)
        assert action["choice"] == expected["choice"]
        np.testing.assert_allclose(action["torques"], expected["torques"], rtol=1e-5, atol=1e-5)
    many = [NESTED.sample() for _ in range(3)]
    batch = {
        "image": np.stack([o["image"] for o in many]),
        "place": np.stack([o["place"] for o in many]),
        "pair": tuple(np.stack([o["pair"][i] for o in many]) for i in range(2)),
    }
    actions = client.actions(batch)
    assert actions["choice"] == nested.predict(batch)["choice"].tolist()
    for change, error in (
        ({"place": 6}, "obs.place must hold whole numbers of the space Discrete(4, start=2)"),
        ({"place": 2.5}, "obs.place must hold whole numbers"),
        ({"image": [[256, 0, 0], [0, 0, 0]]}, "obs.image must hold whole numbers"),
        ({"image": "x"}, 'obs.image must hold numbers, got "x"'),
        ({"pair": [[0, 0, 0]]}, "obs.pair must be a list of 2 parts"),
        ({"pair": [[0, 0, 1e99], [0, 1]]}, "obs.pair.0 must hold finite float32 numbers"),
        ({"more": 1}, "obs must be an object with image, pair, place"),
    ):
        answer = client.predict({**plain(many[0]), **change})
        assert answer.status == 422, change
        assert error in answer.value["error"]


def test_masked_actions_are_never_taken(serve: Callable[..., Client], tmp_path: Path) -> None:
    """In one batch with requests that mask nothing."""
    with rlox.make("ppo", env="CartPole-v1", n_envs=1, n_steps=8) as ppo:
        client = serve(ppo)
        obs = np.zeros(4, np.float32)
        assert client.actions(obs, action_masks=[True, False]) == 0
        assert client.actions(obs, action_masks=[False, True]) == 1
        assert client.actions(obs) == ppo.predict(obs)
        assert client.predict(obs, action_masks=[False, False]).status == 422


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        (b"{", {}, 400, "Expecting property name"),
        (b"[1]", {}, 400, "a request must be a JSON object, got list"),
        (b'{"obs": [NaN, 0, 0, 0]}', {}, 400, "expected finite numbers, got NaN"),
        (b"[" * 100_000, {}, 400, "nested too deeply"),
        (b"\xff", {}, 400, "codec can't decode"),
        (b"{}", {}, 422, "the key 'obs' is missing"),
        (b'{"obs": [0,0,0,0], "state": 1}', {}, 422, "unknown key 'state'"),
        (b'{"obs": [0,0,0]}', {}, 422, "(4,)"),
        (b'{"obs": [[0],[0,1]]}', {}, 422, "inhomogeneous"),
        (b'{"obs": [1e999,0,0,0]}', {}, 422, "finite"),
        (b'{"obs": [0,0,0,0], "action_masks": [true]}', {}, 422, "mask"),
        (b'{"obs": [0,0,0,0], "session": 5}', {}, 422, "session must be a text"),
        (b'{"obs": [0,0,0,0], "session": "s", "episode_start": 1}', {}, 422, "episode_start must"),
        (b'{"obs": [0,0,0,0]}', {"Content_Type": "text/plain"}, 415, "application/json"),
        (b'{"obs": [0,0,0,0]}', {"Origin": "http://evil.example"}, 403, "web pages"),
        (
            b'{"obs": [' + b"[0,0,0,0]," * 9 + b"[0,0,0,0]]}",
            {},
            413,
            "at most 8 observations, got 10",
        ),
        (b" " * 2001, {}, 413, "at most 2,000 bytes"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(
    hostile: Client, body: bytes, headers: dict[str, str], status: int, error: str
) -> None:
    """And the next request is answered."""
    if body.startswith(b"[" * 9):
        body = body[:1999]
        status, error = 400, ""
    answer = hostile.send(
        "POST", "/predict", body, **{"Content_Type": "application/json", **headers}
    )
    assert answer.status == status, answer
    assert error in answer.value["error"]
    assert hostile.actions(np.zeros(4)) in (0, 1)


@pytest.fixture
def hostile(serve: Callable[..., Client], recurrent: Any) -> Client:
    """Return a client of a server with small limits."""
    return serve(recurrent, "--max-bytes", 2000, "--max-rows", 8, "--sessions", 8)


def test_sessions_have_bounded_memory(hostile: Client) -> None:
    """Those that were not used for longest are forgotten, and say so."""
    obs = np.zeros(4)
    for i in range(30):
        hostile.actions(obs, session=f"s{i}", episode_start=True)
        hostile.actions(obs, session="kept", episode_start=i == 0)
    assert hostile.health()["sessions"] == 8
    assert hostile.predict(obs, session="s5").status == 404
    assert hostile.predict(obs, session="s29").status == 200
    hostile.actions(np.zeros((7, 4)), session="many", episode_start=True)
    assert hostile.health()["sessions"] == 2
    assert hostile.predict(obs, session="x" * 129, episode_start=True).status == 422


def test_token_is_asked_for(serve: Callable[..., Client], nested: Any, tmp_path: Path) -> None:
    """Of everything but whether the server is well."""
    file = tmp_path / "token"
    file.write_text("a-secret-of-some-length\n", encoding="utf-8")
    client = serve(nested, "--token-file", file)
    assert client.health()["status"] == "ok"
    assert client.send("GET", "/policy").status == 401
    assert client.send("GET", "/policy", Authorization="Bearer a-secret-of-some").status == 401
    allowed = client.send("GET", "/policy", Authorization="Bearer a-secret-of-some-length")
    assert allowed.status == 200


def test_ctrl_c_ends_it(serve: Callable[..., Client], nested: Any) -> None:
    """Without a traceback."""
    client = serve(nested)
    client.health()
    client.process.send_signal(signal.SIGINT)
    client.process.wait(120)
    assert client.process.returncode in (0, 130, -signal.SIGINT)
    assert client.process.stderr is not None
    assert client.process.stderr.read() == ""


def test_wrong_options_are_one_line(
    nested: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything listens."""
    path = tmp_path / "policy.rlox"
    rlox.export(nested, path)
    (tmp_path / "short").write_text("short", encoding="utf-8")
    for arguments, message in (
        ((path, "--host", "0.0.0.0"), "on 0.0.0.0 other machines reach the policy"),
        ((path, "--token-file", tmp_path / "short"), "must hold at least 16 printable ASCII"),
        ((path, "--token-file", tmp_path / "none"), "cannot be read"),
        ((path, "--sessions", "5"), "sessions 5 must be at least max_rows 1024"),
        ((tmp_path / "none.rlox",), "cannot be read"),
    ):
        monkeypatch.setattr(sys, "argv", ["rlox", "serve", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        err = capsys.readouterr().err
        assert ended.value.code == 2
        assert message in err
        assert err.count("\n") == 1
