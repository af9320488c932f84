"""The number of threads: settings, the same bits, and forks."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import rlox_native

N_ENVS = 4096


@pytest.fixture(autouse=True)
def restored():
    """Restore the number of threads afterwards."""
    before = rlox_native.get_num_threads()
    yield
    rlox_native.set_num_threads(before)


def rollout(n_steps=5):
    """Return the observations and rewards of enough envs for several threads."""
    envs = rlox_native.VecEnv(N_ENVS, seed=3, env_id="Acrobot-v1")
    envs.reset_all()
    actions = np.random.default_rng(0).integers(0, 3, (n_steps, N_ENVS))
    steps = [envs.step_all(row) for row in actions]
    return [step[name] for step in steps for name in ("obs", "rewards", "final_obs")]


def equal(a, b):
    """Return whether all arrays are the same."""
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def n_pool_threads():
    """Return the number of this process's pool threads."""
    tasks = f"/proc/{os.getpid()}/task"
    names = []
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/comm", encoding="ascii") as file:
            names.append(file.read())
    return sum(name.startswith("rlox-") for name in names)


def test_envs_step_to_the_same_bits():
    """The number of threads changes no observation, and the pool has been used."""
    rlox_native.set_num_threads(1)
    expected = rollout()
    rlox_native.set_num_threads(3)
    assert equal(rollout(), expected)
    if sys.platform == "linux":
        assert n_pool_threads() >= 2


def vtrace():
    """Return the targets and advantages of a large rollout."""
    rng = np.random.default_rng(0)
    log_rhos, rewards, values = rng.normal(size=(3, 64, 1024)).astype(np.float32)
    ends = rng.random((64, 1024)) < 0.02
    last = values[0]
    return list(rlox_native.compute_vtrace(log_rhos, rewards, values, ends, last, 0.99))


def group_advantages():
    """Return the advantages of many groups, by each scale."""
    rewards = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    call = rlox_native.compute_batch_group_advantages
    return [call(rewards, 8, scale=scale) for scale in ("group", "batch", "none")]


def token_kl():
    """Return divergences of one long sequence and of many."""
    log_p, log_q = -np.random.default_rng(0).random((2, 100 * 1024))
    names = ("token_kl", "token_kl_schulman")
    totals = [getattr(rlox_native, f"compute_{name}")(log_p, log_q) for name in names]
    batches = [getattr(rlox_native, f"compute_batch_{name}")(log_p, log_q, 1024) for name in names]
    return [np.array(totals), *batches]


def draws(buffer):
    """Return all arrays of large draws from a buffer filled with random transitions."""
    rng, n = np.random.default_rng(0), 10_000
    obs, next_obs = rng.normal(size=(2, n, 32)).astype(np.float32)
    actions, rewards = rng.normal(size=(n, 4)).astype(np.float32), rng.normal(size=n)
    ends = rng.random((2, n)) < 0.02
    buffer.push_batch(obs, actions, rewards.astype(np.float32), *ends, next_obs)
    batches = [buffer.sample(20_000) for _ in range(2)]
    return [np.asarray(batch[key]) for batch in batches for key in sorted(batch)]


def uniform_draws():
    """Return draws of transitions of three steps."""
    return draws(rlox_native.ReplayBuffer(10_000, 32, 4, seed=1, n_step=3, gamma=0.9))


def prioritized_draws():
    """Return draws by priorities."""
    return draws(rlox_native.PrioritizedReplayBuffer(10_000, 32, 4, seed=1))


def hindsight_draws():
    """Return draws with goals."""
    goals = {"goal_dim": 3, "achieved_goal": 0, "desired_goal": 3}
    return draws(
        rlox_native.HerReplayBuffer(10_000, 32, 4, seed=1, distance_threshold=0.5, **goals)
    )


@pytest.mark.parametrize(
    "kernel",
    [vtrace, group_advantages, token_kl, uniform_draws, prioritized_draws, hindsight_draws],
)
def test_kernels_and_draws_give_the_same_bits(kernel):
    """Two and eight threads give the results of one."""
    rlox_native.set_num_threads(1)
    expected = kernel()
    for n in (2, 8):
        rlox_native.set_num_threads(n)
        assert equal(kernel(), expected)
        assert equal(kernel(), expected), "the first call uses one thread"


def child_rollout(connection):
    """Send whether a rollout in this forked process equals the parent's."""
    connection.send_bytes(b"".join(array.tobytes() for array in rollout()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_builds_a_pool_of_its_own():
    """After a fork the parent's threads do not exist, but the child still steps its envs."""
    rlox_native.set_num_threads(3)
    expected = b"".join(array.tobytes() for array in rollout())
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=child_rollout, args=(sender,))
    child.start()
    try:
        assert receiver.poll(120), "the child waits for threads that do not exist"
        assert receiver.recv_bytes() == expected
    finally:
        child.join(120)
        child.kill()
    assert child.exitcode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_thread_it_has_not():
    """A thread within a call holds the object forever; the error says so after 5 s."""
    env = rlox_native.VecEnv(4096)
    env.reset_all(0)
    actions, stopping = np.zeros(4096, np.int64), threading.Event()

    def work():
        while not stopping.is_set():
            env.step_all(actions)

    def child(connection):
        try:
            env.step_all(actions)
            connection.send("done")
        except RuntimeError as error:
            connection.send(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    context, answers = multiprocessing.get_context("fork"), []
    for _ in range(3):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(sender,), daemon=True)
        process.start()
        answers.append((receiver, process))
    stopping.set()
    thread.join()
    for receiver, process in answers:
        assert receiver.poll(30), "the child hangs"
        answer = receiver.recv()
        assert answer == "done" or "make another one" in answer
        process.join(30)


def test_threads_of_the_caller_share_the_pool():
    """Calls from several threads give the same results as successive calls."""
    rlox_native.set_num_threads(2)
    expected, results = rollout(), []
    callers = [threading.Thread(target=lambda: results.append(rollout())) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 4
    assert all(equal(result, expected) for result in results)


@pytest.mark.parametrize("n", [0, 1025, 2**70])
def test_impossible_numbers_are_refused(n):
    """And the setting stays."""
    rlox_native.set_num_threads(2)
    with pytest.raises((ValueError, OverflowError)):
        rlox_native.set_num_threads(n)
    assert rlox_native.get_num_threads() == 2


@pytest.mark.parametrize(("text", "printed"), [("3", "3"), ("auto", None)])
def test_the_environment_sets_the_number(text, printed):
    """``RLOX_NUM_THREADS`` applies from the import on."""
    code = "import rlox_native as rn; n = rn.get_num_threads(); rn.set_num_threads(None); "
    code += "print(n, rn.get_num_threads())"
    environment = {**os.environ, "RLOX_NUM_THREADS": text}
    got = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert got[0] == (printed or got[1])


def test_a_wrong_environment_is_reported():
    """The message has the variable, its allowed values and its value."""
    text = "many"
    process = subprocess.run(
        [sys.executable, "-c", "import rlox_native"],
        env={**os.environ, "RLOX_NUM_THREADS": text},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert f"RLOX_NUM_THREADS must be auto or a number in [1, 1024], got '{text}'" in process.stderr
