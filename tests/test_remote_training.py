"""Training on envs of workers: options, the same bits as here, checkpoints, and refusals."""

import json
import threading

import numpy as np
import pytest
import rlox
import rlox.testing
from gymnasium import spaces
from rlox.batches.rollout import unroll_to_arrays
from rlox.callbacks import Callback
from rlox.envs.make import make_vec_env
from rlox.errors import ConfigError, EnvError, WorkerError
from rlox.training import checkpoint
from rlox_distributed.options import GrpcOptions
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.worker import EnvWorker
from rlox_testing.arrays import ODD_NUMBERS
from rlox_testing.probes import first_difference

REPLAY = {"buffer_size": 100, "learning_starts": 8, "batch_size": 4, "hidden": 8, "train_freq": 8}


@pytest.fixture(name="serve")
def fixture_serve():
    """Return a function that serves envs until the end of the test, and returns where."""
    workers = []

    def serve(env_id="CartPole-v1", n_envs=2, backend="auto", **env_kwargs):
        env = make_vec_env(env_id, n_envs=n_envs, backend=backend, env_kwargs=env_kwargs)
        worker = EnvWorker(env, env_id, "127.0.0.1:0", env_kwargs=env_kwargs)
        worker.start()
        workers.append(worker)
        return f"127.0.0.1:{worker.port}"

    yield serve
    for worker in workers:
        worker.stop(grace=0.1)


def test_the_backend_passes_the_conformance_suite(serve):
    """Over two workers of different size."""
    options = GrpcOptions(worker_addresses=[serve(n_envs=1), serve(n_envs=2)])
    assert rlox.testing.check_env_backend("grpc", "CartPole-v1", options=options) == {}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "hidden": 8}),
        ("impala", {"n_steps": 8, "hidden": 8, "n_actors": 1}),
        ("dqn", {**REPLAY, "steps_per_iteration": 16}),
        ("rl8_recurrent_ppo", {"horizon": 8}),
    ],
)
def test_algorithms_train_on_workers_by_options(serve, name, options, tmp_path):
    """Evaluations step the id here, and checkpoints hold it alone."""
    where = serve(n_envs=2)
    chosen = {"env_backend": "grpc", "worker_addresses": [where], "n_envs": 2, "seed": 1}
    path = tmp_path / "a.rlox"
    with rlox.make(name, env="CartPole-v1", **chosen, **options) as algorithm:
        algorithm.train(64)
        assert algorithm.clock.env_steps >= 64
        assert np.isfinite(algorithm.evaluate(n_episodes=1, max_steps=10_000).mean_return)
        algorithm.save(path)
    assert where.encode() not in path.read_bytes()
    config = checkpoint.read(path)["config"]
    assert "env_backend" not in config
    kind = type(algorithm)
    with kind.from_checkpoint(path) as here:
        here.train(1)
    with kind.from_checkpoint(path, env_backend="grpc", worker_addresses=[where]) as there:
        there.train(1)


def test_a_resumed_training_goes_on_with_the_workers_envs_exactly(serve, tmp_path):
    """Native ones, in another learner, as if nothing had happened; so do actors'."""
    where = [serve(n_envs=1), serve(n_envs=2)]
    for name, options in (
        ("a2c", {"n_envs": 3}),
        ("impala", {"n_envs": 1, "n_actors": 1, "worker_addresses": where[:1]}),
    ):
        chosen = {"env_backend": "grpc", "worker_addresses": where, **options}
        given = {"n_steps": 8, "hidden": 8, "seed": 1, "backend": "torch"} | chosen
        path, parameters = tmp_path / f"{name}.safetensors", []
        with rlox.make(name, env="CartPole-v1", **given) as straight:
            straight.train(96)
            straight.save(path)
            straight.train(192)
            parameters.append(straight.optimizers["policy"].parameters.clone())
        workers = {key: chosen[key] for key in ("env_backend", "worker_addresses")}
        with type(straight).from_checkpoint(path, **workers) as resumed:
            resumed.train(192)
            parameters.append(resumed.optimizers["policy"].parameters.clone())
        assert parameters[0].equal(parameters[1]), name


@pytest.mark.parametrize("kind", ["gymnasium's envs", "other workers"])
def test_without_a_state_that_fits_new_episodes_begin_and_it_is_logged(
    serve, tmp_path, caplog, kind
):
    """For want of one, or because it is that of other envs."""
    where = serve(backend="gymnasium" if kind == "gymnasium's envs" else "native")
    options = {"env_backend": "grpc", "worker_addresses": [where]}
    path = tmp_path / "a.safetensors"
    with rlox.make("a2c", env="CartPole-v1", n_envs=2, n_steps=8, **options) as a2c:
        a2c.train(32)
        a2c.save(path)
        saved = find(a2c.state_dict(), "env")
    assert (saved is None) == (kind == "gymnasium's envs")
    if kind == "other workers":
        options = {"env_backend": "grpc", "worker_addresses": [serve(n_envs=1), serve(n_envs=1)]}
    with caplog.at_level("INFO", "rlox"), type(a2c).from_checkpoint(path, **options) as resumed:
        resumed.train(64)
    assert "no state that fits these envs: new episodes begin" in caplog.text


def find(state, name):
    """Return the entry of a name, wherever it is in nested dicts."""
    if name in state:
        return state[name]
    inner = [find(each, name) for each in state.values() if isinstance(each, dict)]
    return next((each for each in inner if each is not None), None)


class Lives:
    """Two envs of games with two lives of three steps each."""

    n_envs = 2
    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self._count = 0

    def reset_all(self, seed=None):
        """Begin a game."""
        self._count = 0
        return np.zeros((2, 1), np.float32)

    def step_all(self, actions):
        """Go on; the third step loses a life, the sixth the game."""
        self._count += 1
        final = np.full((2, 1), self._count, np.float32)
        ended, lost = self._count % 3 == 0, self._count == 3
        self._count %= 6
        step = {"obs": np.full((2, 1), self._count, np.float32), "rewards": np.ones(2),
                "terminated": np.full(2, ended), "truncated": np.zeros(2, bool),
                "final_obs": final}  # fmt: skip
        return step | {"life_lost": np.ones(2, bool)} if lost else step

    def close(self):
        """Do nothing."""


def test_actors_count_episodes_by_game_where_lives_are_lost():
    """Learners take a lost life for an end; mean lengths are those of games of six steps."""
    worker = EnvWorker(Lives(), "Lives", "127.0.0.1:0")
    worker.start()
    env = RemoteEnvPool([f"127.0.0.1:{worker.port}"])
    kept = KeepsUnrolls()
    with rlox.make(
        "impala", env=[env], n_actors=1, n_envs=2, n_steps=8, hidden=8, callbacks=kept
    ) as impala:
        metrics = impala.train(48)
    assert (metrics["episodes"], metrics["mean_episode_length"]) == (8, 6)
    assert metrics["mean_reward"] == 6
    assert sum(unroll["terminated"].sum() for unroll in kept.unrolls) == 16
    assert sum(unroll["life_lost"].sum() for unroll in kept.unrolls) == 8
    env.close()
    worker.stop(grace=0.1)


@pytest.mark.parametrize(("space", "odd", "at"), ODD_NUMBERS)
def test_numbers_that_a_space_does_not_hold_are_not_sent(space, odd, at):
    """What is sent is in the space's dtype, so that the worker is who sees them."""
    shows = rlox.testing.ScriptedVecEnv(2, space, spaces.Discrete(2), odd=odd, at=at)
    worker = EnvWorker(shows, "Odd", "127.0.0.1:0")
    worker.start()
    env = RemoteEnvPool([f"127.0.0.1:{worker.port}"])

    def play():
        env.reset_all(0)
        env.step_all(np.zeros(2, np.int64))

    with pytest.raises(WorkerError) as caught:
        play()
    assert f"with {odd}, which {space} does not hold" in str(caught.value)
    env.close()
    worker.stop(grace=0.1)


class KeepsUnrolls(Callback):
    """Keeps the joined unroll of every update."""

    def __init__(self):
        self.unrolls = []

    def on_rollout_end(self, **kwargs):
        """Keep it."""
        self.unrolls.append(unroll_to_arrays(kwargs["batch"]))


def test_threads_processes_and_workers_give_the_same_batches(serve):
    """At lag 0 and one seed, bit for bit; the workers are divided among the actors."""
    options = {"n_actors": 2, "n_envs": 3, "n_steps": 16, "seed": 3, "hidden": 8}
    addresses = [serve(n_envs=count) for count in (1, 2, 3)]
    kinds = (
        {"actor_backend": "thread"},
        {"actor_backend": "thread", "worker_addresses": addresses},
        {"actor_backend": "process", "env_backend": "grpc", "worker_addresses": addresses},
    )
    batches = []
    for kind in kinds:
        kept = KeepsUnrolls()
        with rlox.make(
            "impala", env="CartPole-v1", backend="torch", callbacks=kept, **options, **kind
        ) as impala:
            for _ in range(4):
                impala.train(1)
        batches.append(kept.unrolls)
    assert len(batches[0]) == 4
    for other in batches[1:]:
        assert first_difference(batches[0], other) is None


class Behind(Lives):
    """Whose first step ends once the steps of others have been done.

    Args:
        others: as many steps as this is acquired for.
        steps: released at each step.
    """

    def __init__(self, others, steps):
        super().__init__()
        self._others, self._steps, self._waits = others, steps, True

    def step_all(self, actions):
        """Wait for two steps of the others, once."""
        for _ in range(2 * self._waits):
            assert self._others.acquire(timeout=60), "the others rest"
        self._waits = False
        self._steps.release()
        return super().step_all(actions)


def test_an_actor_acts_while_the_step_of_another_is_under_way():
    """In the fixed order: one's first step ends after two of the other, with an act between."""
    unused, counted = threading.Semaphore(2), threading.Semaphore(0)
    workers = [
        EnvWorker(Behind(others, steps), "Lives", "127.0.0.1:0")
        for others, steps in ((counted, unused), (unused, counted))
    ]
    for worker in workers:
        worker.start()
    pools = [RemoteEnvPool([f"127.0.0.1:{worker.port}"]) for worker in workers]
    options = {"n_actors": 2, "n_envs": 2, "n_steps": 4, "hidden": 8, "order": "fixed"}
    with rlox.make("impala", env=pools, **options) as impala:
        assert impala.train(16)["lag_max"] == 0
    for pool, worker in zip(pools, workers, strict=True):
        pool.close()
        worker.stop(grace=0.1)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"n_envs": 3}, EnvError, r"n_envs is 3, but the workers serve 2 envs \(127.*has 2\)"),
        ({"env_kwargs": {"sutton_barto_reward": True}}, EnvError, "has the env_kwargs '{}'"),
        ({"vectorization": "async"}, ConfigError, "is of gymnasium envs"),
        ({"token_file": "/nowhere/token"}, ConfigError, "the token file cannot be read"),
    ],
)
def test_workers_that_differ_are_refused(serve, options, kind, message):
    """With what both sides have, and the worker is free afterwards."""
    where = serve()
    given = {"env_backend": "grpc", "worker_addresses": [where], "n_envs": 2}
    for _ in range(2):
        with pytest.raises(kind, match=message):
            rlox.make("ppo", env="CartPole-v1", **{**given, **options})
    rlox.make("ppo", env="CartPole-v1", **given).close()


def test_arguments_of_the_env_agree(serve):
    """Those of the workers are those of the evaluations here."""
    where = serve("CartPole-v1", 2, sutton_barto_reward=True)
    with rlox.make(
        "impala", env="CartPole-v1", n_actors=1, n_steps=8, worker_addresses=where,
        env_kwargs={"sutton_barto_reward": True},
    ) as impala:  # fmt: skip
        impala.train(8)
        assert impala.evaluate(n_episodes=2).mean_return <= 0


def test_a_checkpoint_cannot_say_what_to_connect_to(tmp_path, monkeypatch):
    """Options of workers in a foreign file are left out: no token goes to a stranger."""
    with rlox.make("a2c", env="CartPole-v1", n_envs=2) as a2c:
        a2c.train(8)
        hostile = {"env_backend": "grpc", "worker_addresses": ["192.0.2.1:1"]}
        config = a2c.config.to_dict()
        monkeypatch.setattr(type(a2c.config), "to_dict", lambda _: config | hostile)
        monkeypatch.setattr(checkpoint, "local_options", lambda _, values: values)
        a2c.save(tmp_path / "hostile.rlox")
    monkeypatch.undo()
    assert checkpoint.read(tmp_path / "hostile.rlox")["config"]["env_backend"] == "grpc"
    with type(a2c).from_checkpoint(tmp_path / "hostile.rlox") as restored:
        assert restored.config.env_backend == "auto"


def test_a_run_is_resumed_on_its_workers(serve, tmp_path, monkeypatch, run):
    """They are in the run folder, not in its checkpoints."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    steps = []
    step = EnvWorker._step
    monkeypatch.setattr(
        EnvWorker, "_step", lambda self, *given: (steps.append(1), step(self, *given))[1]
    )
    where = serve()
    run(
        "train", "a2c", "--env", "CartPole-v1", "--n-envs=2", "--n-steps=8",
        "--env-backend=grpc", f"--worker-addresses={where}", "--total-timesteps=64",
        "--checkpoint-freq=32", "--run-dir=run", "--quiet",
    )  # fmt: skip
    assert len(steps) == 32
    first = min((folder / "checkpoints").iterdir(), key=checkpoint.steps_of)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "status": "interrupted"}))
    assert run("resume", first, "--quiet")[0] == 0
    assert len(steps) == 48
