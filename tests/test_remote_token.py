"""The token of workers: in no log, error, checkpoint or ``repr``."""

import traceback

import numpy as np
import pytest
import rlox
from rlox.envs.make import make_vec_env
from rlox.errors import EnvError, WorkerError
from rlox_distributed.options import GrpcOptions
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.security import Credentials
from rlox_distributed.worker import EnvWorker

TOKEN, OTHER = "sentinel-of-the-token-5f2c", "sentinel-of-another-91ab"  # made up


def test_no_error_has_the_token(monkeypatch, caplog):
    """An env raises at the worker, and a learner is refused; tracebacks are looked at too."""
    monkeypatch.setenv("RLOX_WORKER_TOKEN", TOKEN)
    env = make_vec_env("CartPole-v1", n_envs=2, backend="gymnasium")
    monkeypatch.setattr(env, "step_all", lambda _: 1 / 0)
    worker = EnvWorker(env, "CartPole-v1", "127.0.0.1:0")
    worker.start()
    address = f"127.0.0.1:{worker.port}"
    monkeypatch.setenv("RLOX_WORKER_TOKEN", OTHER)
    with pytest.raises(EnvError, match="the token is wrong or missing") as refused:
        RemoteEnvPool([address]).connect()
    monkeypatch.setenv("RLOX_WORKER_TOKEN", TOKEN)
    pool = RemoteEnvPool([address], timeout=120.0)
    pool.reset_all(0)
    with pytest.raises(WorkerError, match="raised ZeroDivisionError") as raised:
        pool.step_all(np.array([1, 0]))
    shown = repr(pool) + repr(vars(pool)) + repr([vars(link) for link in pool._links])
    pool.close()
    worker.stop(grace=0.1)
    errors = [*traceback.format_exception(refused.value), *traceback.format_exception(raised.value)]
    text = "".join(errors) + shown + caplog.text
    assert "ZeroDivisionError" in text
    assert TOKEN not in text
    assert OTHER not in text


def test_no_object_shows_the_token(tmp_path):
    """Neither credentials and options, nor a worker, nor a config that names the file."""
    secret = tmp_path / "secret"
    secret.write_text(TOKEN, "utf-8")
    credentials = Credentials(token_file=secret)
    worker = EnvWorker(
        make_vec_env("CartPole-v1", n_envs=2), "CartPole-v1", "127.0.0.1:0", credentials
    )
    worker.start()
    options = {
        "env_backend": "grpc", "worker_addresses": [f"127.0.0.1:{worker.port}"],
        "token_file": str(secret), "n_envs": 2,
    }  # fmt: skip
    path = tmp_path / "a.safetensors"
    with rlox.make("a2c", env="CartPole-v1", **options) as a2c:
        a2c.train(16)
        a2c.save(path)
        config = a2c.config
        shown = [
            repr(config), str(config.to_dict()), repr(a2c), repr(a2c.state_dict()),
            repr(credentials), repr(worker),
            repr(GrpcOptions(worker_addresses=options["worker_addresses"], token_file=str(secret))),
        ]  # fmt: skip
    worker.stop(grace=0.1)
    assert str(secret) in shown[0], "where the token is may be seen"
    assert TOKEN not in "".join(shown)
    assert TOKEN.encode() not in path.read_bytes()
