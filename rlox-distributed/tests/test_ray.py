"""Ray backends: threads' batches bit for bit, restarts, errors, and no leftovers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import rlox
import rlox.testing
from rlox.errors import WorkerError, WorkerLostError
from rlox_testing.probes import first_difference

pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytest.importorskip("rlox_onpolicy")

SMALL = {"n_actors": 2, "n_envs": 2, "n_steps": 8, "hidden": 8, "seed": 1}
KINDS = ("raylet", "gcs_server")


def ray_processes():
    """Return Ray's daemons on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = path.read_text(encoding="utf-8").strip()
        except OSError:  # it has ended meanwhile
            continue
        if name in KINDS:
            found.append(f"{path.parent.name} {name}")
    return found


def test_workers_are_not_built_by_uv():
    """A process under ``uv run`` starts Ray's workers like any other."""
    code = "from rlox_distributed.ray_cluster import import_ray as i; "
    code += "print(i()._private.ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV)"
    env = {key: value for key, value in os.environ.items() if "UV_RUN" not in key}
    printed = subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
    assert printed.split() == ["False"]


@pytest.mark.usefixtures("cluster")
def test_the_actor_backend_conforms():
    """Unrolls equal those of a local actor bit for bit."""
    assert rlox.testing.check_actor_backend("ray") == {}


@pytest.mark.usefixtures("cluster")
def test_the_env_backend_conforms():
    """Seeds and resets are those of one process; the state is not exposed."""
    left_out = rlox.testing.check_env_backend("ray", "CartPole-v1", n_envs=2, n_steps=60)
    assert set(left_out) == {"check_env_state"}


@pytest.mark.usefixtures("cluster")
def test_ray_trains_as_threads_do(tmp_path):
    """Bit for bit, with transferred moments, and through a checkpoint continued by threads."""
    options = {**SMALL, "normalize_observations": True, "queue_size": 2}
    path, states = tmp_path / "saved.rlox", []
    for backend in ("thread", "ray"):
        with rlox.make("impala", env="Pendulum-v1", actor_backend=backend, **options) as algorithm:
            algorithm.train(32 * 3)
            if backend == "ray":
                algorithm.save(path)
            algorithm.train(32 * 2)
            states.append(algorithm.state_dict())
            kind = type(algorithm)
    assert first_difference(states[0], states[1]) is None
    with kind.from_checkpoint(path, actor_backend="thread") as algorithm:
        algorithm.train(32 * 2)
        assert first_difference(states[0], algorithm.state_dict()) is None


class Breaks(gymnasium.Env):
    """An env that fails in its tenth step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        """Return zeros."""
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        """Count, and fail at ten."""
        self.steps += 1
        if self.steps == 10:
            raise ZeroDivisionError("the wheel came off")
        return np.zeros(2, np.float32), 1.0, False, False, {}


@pytest.mark.usefixtures("cluster")
def test_an_error_in_an_actor_arrives_with_its_traceback():
    """With its own class; the cause names the actor and has the env's source line."""
    options = {**SMALL, "n_actors": 1, "actor_backend": "ray"}
    with rlox.make("impala", env=Breaks, **options) as impala:
        with pytest.raises(ZeroDivisionError, match="the wheel came off") as caught:
            impala.train(1_000)
        assert isinstance(caught.value.__cause__, WorkerError)
        assert "in actor 0" in str(caught.value.__cause__)
        assert "in step" in str(caught.value.__cause__)


@pytest.mark.usefixtures("cluster")
def test_a_killed_actor_begins_again(caplog):
    """Training continues; the restart is counted and logged, and no step is counted twice."""
    options = {**SMALL, "n_actors": 1, "actor_backend": "ray"}
    with rlox.make("impala", env="CartPole-v1", **options) as impala:
        impala.train(1)
        os.kill(impala.actors._pool._actors[0].pid, signal.SIGKILL)
        assert impala.train(32)["restarts"] == 1.0
        assert impala.clock.env_steps == 16 + 32
    assert "actor 0 begins again: actor 0 has died on Ray" in caplog.text


@pytest.mark.usefixtures("cluster")
def test_a_stopped_actor_is_given_up_after_its_deadline():
    """A process without answers or signs of progress is an error that names it."""
    options = {**SMALL, "n_actors": 1, "actor_backend": "ray", "max_restarts": 0}
    with rlox.make("impala", env="CartPole-v1", worker_timeout=20.0, **options) as impala:
        impala.train(32)
        pid = impala.actors._pool._actors[0].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(WorkerLostError, match="actor 0 has not answered in 20 s"):
                impala.train(32)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("cluster")
def test_a_killed_env_is_an_error_or_lost():
    """Without restarts an error names it; with them its rows are lost."""
    from rlox.config.composition import Selection
    from rlox.envs import make_vec_env
    from rlox_distributed.options import RayEnvOptions

    for restarts in (0, 1):
        selected = Selection("ray", RayEnvOptions(ray_restarts=restarts))
        env = make_vec_env("CartPole-v1", n_envs=2, backend=selected)
        env.reset_all(0)
        os.kill(env.pids[1], signal.SIGKILL)
        if restarts:
            assert env.step_all(np.zeros(2, np.int64))["lost"].tolist() == [False, True]
        else:
            with pytest.raises(WorkerLostError, match="the process of env 1 has died on Ray"):
                env.step_all(np.zeros(2, np.int64))
        env.close()


def test_a_cluster_of_its_own_ends_with_the_training(tmp_path):
    """Started automatically, logged, and gone when Ctrl-C ends the process."""
    script = tmp_path / "train.py"
    script.write_text(
        "import logging, signal, sys, rlox\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's '&' ignores it\n"
        "logging.basicConfig(level=logging.INFO, stream=sys.stdout)\n"
        "impala = rlox.make('impala', env='CartPole-v1', seed=0, n_actors=1, n_envs=2,\n"
        "                   actor_backend='ray', n_steps=8, queue_size=2)\n"
        "impala.train(16)\n"
        "import ray\n"
        "print('session', ray._private.worker._global_node.get_session_dir_path(), flush=True)\n"
        "print('pid', impala.actors._pool._actors[0].pid, flush=True)\n"
        "impala.train(1_000_000_000)\n",
        encoding="utf-8",
    )
    before = set(ray_processes())
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    with (tmp_path / "errors").open("w+", encoding="utf-8") as errors:
        training = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
        )  # fmt: skip
        try:
            lines = []
            for line in training.stdout:
                lines.append(line)
                if line.startswith("pid"):
                    break
            training.send_signal(signal.SIGINT)
            training.stdout.read()
            training.wait(120)
        finally:
            training.kill()
        errors.seek(0)
        text = errors.read()
    assert "KeyboardInterrupt" in text
    assert any("a Ray cluster was started on this machine" in line for line in lines)
    pid = int(lines[-1].split()[1])
    assert not Path(f"/proc/{pid}").exists()
    assert set(ray_processes()) <= before
