"""Tests of ``rlox dashboard`` over HTTP, with the real server in a process of its own."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

EVIL = '<script>alert("x")</script>'


def make_run(folder: Path, rows: int = 3, **record: Any) -> Path:
    """Write a run folder with rows of training."""
    folder.mkdir(parents=True)
    values = {"algorithm": "ppo", "env": "CartPole-v1", "status": "running", "seed": 0}
    values |= {"total_timesteps": 100, "env_steps": 0, "step_unit": "env_steps", **record}
    (folder / "run.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "config.yaml").write_text("gamma: 0.9\n", encoding="utf-8")
    for step in range(1, rows + 1):
        append(folder, step, float(step))
    return folder


def append(folder: Path, step: int, value: float, kind: str = "train") -> None:
    """Append a row to the log."""
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, "step": step, "mean_reward": value}) + "\n")


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Requests to a dashboard."""

    def __init__(self, address: str, process: subprocess.Popen[str]) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port, self.prefix = parts.hostname, parts.port, parts.path
        self.process = process

    def request(
        self, path: str = "", method: str = "GET", raw: bool = False, **headers: str
    ) -> Answer:
        """Return the answer for a path below the secret, or as it is."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path if raw else self.prefix + path, headers=names)
        answer = connection.getresponse()
        found = Answer(answer.status, dict(answer.getheaders()), answer.read())
        connection.close()
        return found

    def json(self, path: str) -> Any:
        """Return the value of a path."""
        answer = self.request(path)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    def events(self, metric: str = "mean_reward") -> Iterator[tuple[str, Any]]:
        """Yield the events of a stream."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        connection.request("GET", f"{self.prefix}events?metric={metric}")
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        try:
            for line in answer:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    yield name, json.loads(text[6:])
        finally:
            connection.close()

    def until(
        self, wanted: Callable[[dict[str, dict[int, Any]]], bool], metric: str = "mean_reward"
    ) -> Any:
        """Return runs and curves as a page knows them, as soon as they are as wanted."""
        state: dict[str, dict[int, Any]] = {"runs": {}, "curves": {}}
        for name, data in self.events(metric):
            if name == "runs":
                state["runs"] |= {run["id"]: run for run in data}
            elif name == "gone":
                for number in data:
                    state["runs"].pop(number, None)
            else:
                assert data["metric"] == metric
                for curve in data["curves"]:
                    known = [] if curve["whole"] else state["curves"].get(curve["id"], [])
                    pairs = list(zip(curve["x"], curve["y"], strict=True))
                    state["curves"][curve["id"]] = known + pairs
            if wanted(state):
                return state
        raise AssertionError("the stream ended")


@pytest.fixture
def serve(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., Client]:
    """Return a function that starts a dashboard and returns a client of it."""

    def serve(*arguments: object) -> Client:
        process = start("dashboard", *arguments)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("dashboard: http://127.0.0.1:"), line
        return Client(line.split()[1], process)

    return serve


def test_page_and_its_parts_come_with_a_strict_policy(serve: Callable[..., Client]) -> None:
    """Everything is in the package; nothing may be loaded from or framed by anybody else."""
    make_run(Path("runs/a"))
    client = serve()
    page = client.request()
    assert page.status == 200
    assert b"//" not in page.body.replace(b"<!doctype", b"")  # no address of anybody
    for name in ("", "dashboard.js", "chart.js", "style.css", "icon.svg"):
        found = client.request(name)
        assert found.status == 200, name
        assert found.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
        assert "unsafe" not in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in found.headers
    assert client.request("nothing").status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://{host}"}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Host": "localhost:{port}"}, 200),
        ({"Host": "evil.example:{port}"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://{host}"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
    ],
)
def test_other_hosts_and_origins_are_refused(
    serve: Callable[..., Client], headers: dict[str, str], status: int
) -> None:
    """Even with the secret, for pages, events and data alike."""
    make_run(Path("runs/a"))
    client = serve()
    values = {"host": f"127.0.0.1:{client.port}", "port": client.port}
    given = {name: text.format(**values) for name, text in headers.items()}
    for path in ("", "compare?run=0"):
        answer = client.request(path, **given)
        assert answer.status == status
        assert status == 200 or not answer.body


def test_address_without_the_secret_has_nothing(serve: Callable[..., Client]) -> None:
    """Nor does one with a part of it; nothing can be changed at all."""
    make_run(Path("runs/a"))
    client = serve()
    secret = client.prefix.strip("/")
    assert len(secret) >= 32
    for path in ("/", f"/{secret[:-1]}/", f"/{secret}x/", "//", f"/{secret}", "/events"):
        assert client.request(path, raw=True).status == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert client.request(method=method).status == 405
    assert serve().prefix != client.prefix


def test_it_listens_on_this_machine_only(serve: Callable[..., Client]) -> None:
    """Another address of the machine has nobody who answers."""
    make_run(Path("runs/a"))
    client = serve()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", client.port), 2):  # noqa: PT011
        pass


def test_events_have_all_runs_and_follow_them(serve: Callable[..., Client]) -> None:
    """Rows that are appended, runs that begin, change their status, or are gone."""
    first = make_run(Path("runs/a"))
    make_run(
        Path("runs/b"), rows=1, status="finished", evaluation={"mean": 1, "std": 0, "n_episodes": 2}
    )
    client = serve()
    (make_run(Path("runs/other")) / "config.yaml").write_text("gamma: 0.5\n", encoding="utf-8")
    state = client.until(lambda s: len(s["runs"]) == 3 and len(s["curves"]) == 3)
    by_name = {run["name"]: run for run in state["runs"].values()}
    assert by_name["b"]["evaluation"] == [1.0, 0.0, 2]
    assert by_name["a"]["group"] == by_name["b"]["group"] != by_name["other"]["group"]
    number = by_name["a"]["id"]
    assert state["curves"][number] == [(1, 1.0), (2, 2.0), (3, 3.0)]

    appended: list[int] = []

    def follow(state: dict[str, dict[int, Any]]) -> bool:
        points = state["curves"].get(number, [])
        if len(points) >= 3 and not appended:
            append(first, 4, 4.0)
            make_run(Path("runs/c"), rows=2)
            appended.append(4)
        names = {run["name"] for run in state["runs"].values()}
        return len(points) == 4 and "c" in names

    state = client.until(follow)
    assert state["curves"][number][-1] == (4, 4.0)
    record = json.loads((first / "run.json").read_text(encoding="utf-8"))
    (first / "run.json").write_text(json.dumps({**record, "status": "finished"}), encoding="utf-8")
    client.until(lambda s: s["runs"].get(number, {}).get("status") == "finished")
    (first / "run.json").write_text("{", encoding="utf-8")
    state = client.until(lambda s: s["runs"].get(number, {}).get("status") == "damaged")
    assert "cannot be read" in state["runs"][number]["problem"]


def test_run_that_resumes_from_a_checkpoint_is_drawn_again(serve: Callable[..., Client]) -> None:
    """What its log was cut by is gone from the curve."""
    run = make_run(Path("runs/a"), rows=5)
    client = serve()
    cut: list[bool] = []

    def wanted(state: dict[str, dict[int, Any]]) -> bool:
        points = state["curves"].get(0, [])
        if len(points) == 5 and not cut:
            (run / "metrics.jsonl").write_text("", encoding="utf-8")
            append(run, 1, -1.0)
            cut.append(True)
        return points == [(1, -1.0)]

    client.until(wanted)


def test_evaluations_are_followed_by_their_metric(serve: Callable[..., Client]) -> None:
    """Those of a log that is too long to be read whole are found too."""
    run = make_run(Path("runs/a"), rows=0)
    lines = [json.dumps({"kind": "train", "step": i, "loss": i / 2}) for i in range(20_000)]
    lines.insert(1_000, json.dumps({"kind": "eval", "step": 999, "mean_reward": 5.0}))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    client = serve()
    client.until(lambda s: s["curves"].get(0) == [(999, 5.0)], "eval/mean_reward")
    state = client.until(lambda s: bool(s["curves"].get(0)), "loss")
    assert len(state["curves"][0]) <= 512
    assert state["curves"][0][-1] == (19_999, 9999.5)


def test_details_have_options_log_and_films(serve: Callable[..., Client]) -> None:
    """Films are sent in parts as players ask for them; nothing else of the folder is."""
    run = make_run(Path("runs/a"))
    append(run, 3, 8.0, "eval")
    (run / "videos").mkdir()
    (run / "videos" / "step-1.mp4").write_bytes(b"0123456789")
    Path("secret.mp4").write_bytes(b"secret")
    (run / "videos" / "link.mp4").symlink_to(Path("secret.mp4").absolute())
    (run / "linked").symlink_to(Path.cwd())
    Path("runs/a.log").write_text("what it printed\n", encoding="utf-8")
    client = serve()
    client.until(lambda s: bool(s["curves"]))
    details = client.json("runs/0")
    assert details["options"] == {"gamma": "0.9"}
    assert details["films"] == ["videos/step-1.mp4"]
    assert details["log"] == "what it printed\n"
    assert details["curves"]["eval/mean_reward"] == {"x": [3], "y": [8.0]}
    film = client.request("runs/0/films/videos/step-1.mp4")
    assert (film.status, film.headers["content-type"], film.body) == (
        200,
        "video/mp4",
        b"0123456789",
    )
    part = client.request("runs/0/films/videos/step-1.mp4", Range="bytes=2-4")
    assert (part.status, part.body) == (206, b"234")
    for path in (
        "runs/0/films/videos/link.mp4",
        "runs/0/films/linked/secret.mp4",
        "runs/0/films/run.json",
        "runs/0/films/../../secret.mp4",
        "runs/0/films/..%2f..%2fsecret.mp4",
        "runs/0/films//etc/passwd.mp4",
        "runs/0/films/%00.mp4",
        "runs/9",
        "runs/x",
    ):
        assert client.request(path).status == 404, path


def test_runs_are_compared(serve: Callable[..., Client]) -> None:
    """By the options in which they differ."""
    make_run(Path("runs/a"))
    (make_run(Path("runs/b")) / "config.yaml").write_text("gamma: 0.5\nseed: 1\n", encoding="utf-8")
    client = serve()
    client.until(lambda s: len(s["runs"]) == 2)
    found = client.json("compare?run=0&run=1&run=7&run=x")
    assert found == {"runs": ["a", "b"], "options": {"gamma": ["0.9", "0.5"]}}


def test_folder_may_be_empty_at_first(serve: Callable[..., Client]) -> None:
    """Runs are found as they begin."""
    Path("runs").mkdir()
    client = serve("runs", "--port", 0)
    began: list[bool] = []
    connection = client.request()
    assert connection.status == 200
    if not began:
        make_run(Path("runs/new"))
    state = client.until(lambda s: bool(s["curves"]))
    assert state["runs"][0]["name"] == "new"


def test_ctrl_c_ends_it_with_pages_open(serve: Callable[..., Client]) -> None:
    """Within seconds, though streams have no end."""
    make_run(Path("runs/a"))
    client = serve()
    stream = client.events()
    next(stream)
    client.process.send_signal(signal.SIGINT)
    client.process.wait(120)
    assert client.process.returncode in (0, 130, -signal.SIGINT)
    assert client.process.stderr is not None
    assert "Traceback" not in client.process.stderr.read()


def test_wrong_folders_and_ports_are_one_line(run: Callable[..., Any]) -> None:
    """Before anything listens."""
    result = run("dashboard")
    assert (result.code, result.err) == (2, "error: 'runs' is no folder; name a folder of runs\n")
    Path("runs").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("dashboard", "--port", taken.getsockname()[1])
    assert result.code == 2
    assert "cannot listen on 127.0.0.1:" in result.err
    assert "name another --port" in result.err
    assert run("dashboard", "--port", 70000).code == 2


def test_missing_library_names_the_extra(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy is a pip command."""
    monkeypatch.setitem(__import__("sys").modules, "starlette", None)
    Path("runs").mkdir()
    result = run("dashboard")
    assert result.code == 2
    assert 'pip install "rlox[dashboard]>=2.dev0"' in result.err


def test_texts_of_strangers_are_data(serve: Callable[..., Client]) -> None:
    """They come as JSON of a type that no browser takes for a page, on one line each."""
    run = make_run(
        Path("runs") / "<img src=x onerror=alert(1)>", env=EVIL, algorithm=EVIL, seed=EVIL
    )
    (run / "metrics.jsonl").write_text(
        json.dumps({"kind": "train", "step": 1, "mean_reward": 1.0, "a\n\nevent: gone": 2.0})
        + "\n",
        encoding="utf-8",
    )
    client = serve()
    state = client.until(lambda s: bool(s["curves"]))
    assert state["runs"][0]["env"] == EVIL
    assert state["runs"][0]["metrics"] == ["mean_reward", "a\n\nevent: gone"]
    answer = client.request("runs/0")
    assert answer.headers["content-type"] == "application/json"
