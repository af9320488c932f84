"""The collector: content of batches, waits, and the end of its thread."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from rlox.kernels.reference import compute_gae_time_major
from rlox_candle import CandleCollector
from rlox_native import VecEnv, native_env_ids

ENVS = native_env_ids()


@pytest.fixture
def make():
    """Return a function that makes collectors and stops them at the end."""
    made = []

    def build(env_id="CartPole-v1", n_envs=3, **options):
        made.append(CandleCollector(env_id, n_envs, **{"n_steps": 16, "seed": 0} | options))
        return made[-1]

    yield build
    for collector in made:
        collector.stop()


def threads():
    """Return the number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


def no_more_threads_than(before):
    """Return whether the count falls to this within seconds: the pool's thread ends by itself."""
    deadline = time.monotonic() + 120
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads() <= before


@pytest.mark.parametrize("env_id", ENVS)
def test_every_native_env_is_stepped_as_the_vector_env_steps_it(make, env_id):
    """Replaying its actions gives its observations, rewards and ends, bit for bit."""
    n_envs, n_steps = 3, 300
    batch = make(env_id, n_envs, n_steps=n_steps).recv()
    assert (batch["n_envs"], batch["n_steps"]) == (n_envs, n_steps)
    env = VecEnv(n_envs, seed=0, env_id=env_id)
    space, obs = env.action_space, env.reset_all()
    for t in range(n_steps):
        np.testing.assert_array_equal(batch["observations"][t], obs)
        actions = batch["actions"][t]
        step = env.step_all(
            np.clip(actions, space.low, space.high) if actions.ndim > 1 else actions
        )
        obs = step["obs"]
        np.testing.assert_array_equal(batch["rewards"][t], step["rewards"].astype(np.float32))
        np.testing.assert_array_equal(batch["terminated"][t], step["terminated"])
        np.testing.assert_array_equal(batch["truncated"][t], step["truncated"])
    np.testing.assert_array_equal(batch["dones"], batch["terminated"] | batch["truncated"])
    assert batch["dones"].any() or env_id in ("Acrobot-v1", "MountainCarContinuous-v0")


def test_advantages_are_those_of_the_reference(make):
    """GAE with bootstrapping at the truncated ends of Pendulum's episodes."""
    # a value function equal to its output bias: all other weights are 0
    first = make("Pendulum-v1", hidden=4, n_steps=250, capacity=0)
    weights = np.zeros_like(first.get_weights())
    weights[-1] = 7.0
    first.sync_weights(weights)
    batch = first.recv()
    assert (batch["values"] == 7).all()
    assert batch["truncated"].any()
    sevens = np.full_like(batch["values"], 7)
    advantages, returns = compute_gae_time_major(
        batch["rewards"], batch["values"], batch["terminated"], batch["truncated"], sevens,
        sevens[0], 0.99, 0.95,
    )  # fmt: skip
    np.testing.assert_allclose(batch["advantages"], advantages, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(batch["returns"], returns, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_timing_does_not_decide_which_weights_act(make, capacity):
    """Rollout k has the newest weights at the time that k - capacity was received."""
    collector = make(capacity=capacity, n_steps=4)
    versions = []
    for k in range(6):
        versions.append(collector.recv()["weights_version"])
        if k % 2:
            time.sleep(0.01)  # slow and fast consumers see the same
        assert collector.sync_weights(collector.get_weights() * 0.9) == k + 1
    assert versions == [max(k - capacity, 0) for k in range(6)]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_the_same_seed_gives_the_same_batches(make, env_id):
    """Another seed gives others; initial weights depend on the seed too."""
    one, same, other = make(env_id), make(env_id), make(env_id, seed=1)
    for _ in range(3):
        a, b, c = one.recv(), same.recv(), other.recv()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
        assert not np.array_equal(a["observations"], c["observations"])
    assert not np.array_equal(one.get_weights(), other.get_weights())


def test_a_slow_consumer_is_waited_for(make):
    """At most ``capacity`` rollouts are made ahead; then the envs stand still."""
    collector = make(capacity=2)
    before = None
    for _ in range(2_400):
        state = collector.state()["rng"].tolist()
        if state == before:
            break
        before = state
        time.sleep(0.05)
    else:
        pytest.fail("the thread continues although no rollout is taken")
    episodes = [collector.recv()["observations"] for _ in range(4)]
    assert all(np.isfinite(episode).all() for episode in episodes)


@pytest.mark.parametrize("capacity", [0, 1])
def test_a_state_goes_on_exactly(make, capacity):
    """Another collector with the same state and weights gives the batches of the first."""
    one, other = make(capacity=0), make(capacity=0, seed=9)
    for _ in range(2):
        one.recv()
    other.set_state(one.state())
    other.sync_weights(one.get_weights())
    a, b = one.recv(), other.recv()
    for key in set(a) - {"weights_version"}:
        np.testing.assert_array_equal(a[key], b[key])


def test_stopping_ends_the_thread():
    """Also during a long rollout; stopping twice is fine; receiving is then an error."""
    before = threads()
    collector = CandleCollector("CartPole-v1", 64, n_steps=10_000_000 // 64, seed=0)
    collector.stop()
    collector.stop()
    assert no_more_threads_than(before)
    with pytest.raises(RuntimeError, match="the collector has been stopped; make a new one"):
        collector.recv()


def test_dropping_it_ends_the_thread():
    """Without a call, while it works."""
    before = threads()
    collectors = [CandleCollector("CartPole-v1", 64, n_steps=100_000, seed=s) for s in range(3)]
    del collectors
    gc.collect()
    assert no_more_threads_than(before)


def test_stopping_wakes_who_waits(make):
    """A wait in another thread ends with an error instead of hanging."""
    collector = make(n_envs=64, n_steps=10_000_000 // 64)
    caught = []

    def wait():
        try:
            collector.recv()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    collector.stop()
    thread.join(120)
    assert not thread.is_alive()
    assert "stopped" in str(caught[0])


def test_waiting_leaves_the_lock_to_others(make):
    """Python continues in other threads while one waits."""
    collector = make(n_envs=64, n_steps=10_000_000 // 64)

    def wait():
        with pytest.raises(RuntimeError, match="stopped"):
            collector.recv()

    thread = threading.Thread(target=wait)
    thread.start()
    turns = 0
    while thread.is_alive() and turns < 300_000:  # far less than the rollout takes
        turns += 1
    collector.stop()
    thread.join()
    assert turns == 300_000


def test_a_signal_interrupts_the_wait():
    """Ctrl-C ends a wait for a rollout that takes minutes."""
    code = (
        # a process started in the background may ignore the signal
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import rlox_candle as r; c = r.CandleCollector('CartPole-v1', 64, n_steps=1_000_000)\n"
        "try: print('waiting', flush=True); c.recv()\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        try:
            output, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (output, process.returncode) == ("interrupted\n", 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "cartpole-v1"}, "unknown env id 'cartpole-v1', did you mean 'CartPole-v1'"),
        ({"n_envs": 0}, "n_envs must be at least 1, got 0"),
        ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"obs_dim": 3}, "obs_dim of CartPole-v1 is 4, got 3; leave it out or pass 4"),
        ({"n_actions": 3}, "n_actions of CartPole-v1 is 2, got 3; leave it out or pass 2"),
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\], got 1.5"),
        ({"weights": np.zeros(3, np.float32)}, "weights must have length 9155 like"),
    ],
)
def test_wrong_options_are_refused(make, options, message):
    """Before any thread is started."""
    before = threads()
    with pytest.raises(ValueError, match=message):
        make(**options)
    assert no_more_threads_than(before)


def test_wrong_weights_change_nothing(make):
    """Their number, type and finiteness are checked."""
    collector = make()
    weights = collector.get_weights()
    with pytest.raises(ValueError, match="weights must have length 9155 like"):
        collector.sync_weights(weights[1:].copy())
    wrong = weights.copy()
    wrong[2] = np.nan
    with pytest.raises(ValueError, match=r"weights must be finite, got .* at index 2"):
        collector.sync_weights(wrong)
    with pytest.raises(TypeError, match="weights must be a float32 array of one dimension, got"):
        collector.sync_weights(weights.astype(np.float64))
    assert collector.weights_version == 0
    np.testing.assert_array_equal(collector.get_weights(), weights)


@pytest.mark.parametrize(
    ("observations", "actions", "error", "message"),
    [
        (np.zeros((2, 3), np.float32), np.zeros(2, np.int64), ValueError, "observations must have"),
        (np.zeros((2, 4), np.float32), np.zeros(3, np.int64), ValueError, "actions must have"),
        (np.zeros((1, 4), np.float32), np.array([2]), ValueError, r"actions\[0\] must lie in"),
        (np.zeros((1, 4), np.float32), np.zeros(1), TypeError, None),
        (np.zeros((1, 4)), np.array([0]), TypeError, None),
    ],
)
def test_steps_that_cannot_be_evaluated_are_refused(make, observations, actions, error, message):
    """Wrong shapes and types, and nonexistent actions."""
    with pytest.raises(error, match=message):
        make().evaluate(observations, actions)


def test_what_is_no_state_is_refused(make):
    """The error names parts that are missing, of another type or of other envs."""
    collector = make(capacity=0)
    collector.recv()
    state = collector.state()
    with pytest.raises(ValueError, match="state must have the key 'rng'"):
        collector.set_state({key: value for key, value in state.items() if key != "rng"})
    with pytest.raises(ValueError, match=r"state\['elapsed'\] must be an array of dtype uint32"):
        collector.set_state(state | {"elapsed": state["elapsed"].astype(np.int64)})
    with pytest.raises(ValueError, match="obs must have length 12 like the envs"):
        collector.set_state(state | {"obs": state["obs"][:4].copy()})
    with pytest.raises(ValueError, match="physics"):
        collector.set_state(state | {"physics": state["physics"][:4].copy()})
    np.testing.assert_equal(collector.state(), state)


@pytest.mark.parametrize(
    ("asked", "value"), [("capacity", 2**62), ("n_steps", 2**62), ("hidden", 2**40)]
)
def test_what_has_no_room_is_refused_before_the_thread_begins(make, asked, value):
    """Rollouts ahead would fill the memory until the system kills the process."""
    before = threads()
    with pytest.raises(MemoryError, match=f"{asked} = .*{value}.*: it would take .* are available"):
        make(**{asked: value})
    assert threads() == before


FORKED = """
import os
from rlox_candle import CandleCollector
collector = CandleCollector("CartPole-v1", 2, n_steps=4, seed=0)
collector.recv()
child = os.fork()
if child == 0:
    calls = [
        collector.recv, collector.get_weights, collector.state,
        lambda: collector.weights_version,
    ]
    raised = []
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            raised.append("made in another process" in str(error))
    collector.stop()
    os._exit(0 if raised == [True] * len(calls) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
collector.recv()
collector.stop()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_collector_of_another_process_raises_at_once():
    """A fork has none of the threads, and would wait for one of them forever."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=300)
