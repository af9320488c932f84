"""Limits for the kernels: plain loops compiled by numba."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np


@numba.njit(fastmath=False)  # type: ignore[untyped-decorator]
def gae(
    rewards: Any, values: Any, ends: Any, last: Any, gamma: float, lam: float, adv: Any, ret: Any
) -> None:
    """Write advantages and returns (T, N) row by row in single precision."""
    n_steps, n_envs = rewards.shape
    one_gamma, trace = np.float32(gamma), np.float32(gamma * lam)
    for env in range(n_envs):
        adv[n_steps - 1, env] = np.float32(0)
    for t in range(n_steps - 1, -1, -1):
        for env in range(n_envs):
            goes_on = np.float32(0) if ends[t, env] else np.float32(1)
            following = last[env] if t == n_steps - 1 else values[t + 1, env]
            carried = np.float32(0) if t == n_steps - 1 else adv[t + 1, env]
            delta = rewards[t, env] + one_gamma * following * goes_on - values[t, env]
            adv[t, env] = delta + trace * goes_on * carried
            ret[t, env] = adv[t, env] + values[t, env]


@numba.njit  # type: ignore[untyped-decorator]
def cartpole(
    state: Any, elapsed: Any, actions: Any,
    obs: Any, rewards: Any, terminated: Any, truncated: Any, final_obs: Any,
) -> None:  # fmt: skip
    """Step CartPole-v1 (Barto, Sutton, Anderson 1983) for all envs, resetting those that end."""
    for i in range(len(actions)):
        x, x_dot, theta, theta_dot = state[i]
        force = 10.0 if actions[i] == 1 else -10.0
        sin, cos = math.sin(theta), math.cos(theta)
        temp = (force + 0.05 * theta_dot * theta_dot * sin) / 1.1
        theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        x_acc = temp - 0.05 * theta_acc * cos / 1.1
        state[i, 0], state[i, 1] = x + 0.02 * x_dot, x_dot + 0.02 * x_acc
        state[i, 2], state[i, 3] = theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc
        elapsed[i] += 1
        rewards[i] = 1.0
        terminated[i] = abs(state[i, 0]) > 2.4 or abs(state[i, 2]) > 0.20943951
        truncated[i] = elapsed[i] >= 500
        for j in range(4):
            final_obs[i, j] = state[i, j]
        if terminated[i] or truncated[i]:
            elapsed[i] = 0
            for j in range(4):
                state[i, j] = np.random.uniform(-0.05, 0.05)  # noqa: NPY002  # numba's own stream
        for j in range(4):
            obs[i, j] = state[i, j]


@numba.njit  # type: ignore[untyped-decorator]
def pendulum(
    state: Any, elapsed: Any, actions: Any,
    obs: Any, rewards: Any, terminated: Any, truncated: Any, final_obs: Any,
) -> None:  # fmt: skip
    """Step Pendulum-v1 for all envs, resetting those that end."""
    for i in range(len(actions)):
        theta, theta_dot = state[i]
        torque = min(max(actions[i, 0], -2.0), 2.0)
        angle = (theta + math.pi) % (2 * math.pi) - math.pi
        rewards[i] = -(angle**2 + 0.1 * theta_dot**2 + 0.001 * torque**2)
        theta_dot = theta_dot + (15.0 * math.sin(theta) + 3.0 * torque) * 0.05
        theta_dot = min(max(theta_dot, -8.0), 8.0)
        state[i, 0], state[i, 1] = theta + theta_dot * 0.05, theta_dot
        elapsed[i] += 1
        terminated[i] = False
        truncated[i] = elapsed[i] >= 200
        final_obs[i, 0], final_obs[i, 1] = math.cos(state[i, 0]), math.sin(state[i, 0])
        final_obs[i, 2] = state[i, 1]
        if truncated[i]:
            elapsed[i] = 0
            state[i, 0] = np.random.uniform(-math.pi, math.pi)  # noqa: NPY002
            state[i, 1] = np.random.uniform(-1.0, 1.0)  # noqa: NPY002
            obs[i, 0], obs[i, 1] = math.cos(state[i, 0]), math.sin(state[i, 0])
            obs[i, 2] = state[i, 1]
        else:
            for j in range(3):
                obs[i, j] = final_obs[i, j]
