"""``rlox worker``."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated

import typer


def make_command() -> typer.Typer:
    """Return the command."""
    app = typer.Typer(add_completion=False)
    app.command()(worker)
    return app


def worker(
    env: Annotated[str, typer.Option(help="id of the env")],
    n_envs: Annotated[int, typer.Option(min=1, help="copies stepped together")] = 1,
    bind: Annotated[str, typer.Option(help="host:port; port 0 takes a free one")] = "127.0.0.1:0",
    env_backend: Annotated[str, typer.Option(help="env backend")] = "auto",
    env_kwargs: Annotated[str, typer.Option(help="arguments of the env, as JSON")] = "{}",
    tls_cert: Annotated[Path | None, typer.Option(help="certificate of this worker")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its private key")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="learners must show a certificate signed by this one")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="file with the token; else the variable RLOX_WORKER_TOKEN")
    ] = None,
) -> None:
    """Serve envs to a learner; SIGTERM ends it after the step under way."""
    from rlox.envs.make import make_vec_env
    from rlox.errors import ConfigError

    from rlox_distributed.security import Credentials
    from rlox_distributed.worker import EnvWorker

    try:
        arguments = dict(json.loads(env_kwargs))
    except (TypeError, ValueError):
        raise ConfigError(f"env_kwargs must be a JSON object, got {env_kwargs!r}") from None
    made = make_vec_env(env, n_envs=n_envs, backend=env_backend, env_kwargs=arguments)
    credentials = Credentials(token_file, tls_ca, tls_cert, tls_key)
    served = EnvWorker(made, env, bind, credentials, arguments)

    def drain(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, drain)
    served.start()
    host = bind.rpartition(":")[0]
    typer.echo(f"serving {n_envs} of {env} on {host}:{served.port}")
    try:
        served.wait()
    except KeyboardInterrupt:
        served.stop()
