"""Actions of a trained policy, and episodes in which it acts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.config.model import UNSET, require_integer
from rlox.errors import ConfigError
from rlox.evaluation import EvaluationResult
from rlox.spaces import ObservationRows
from tensordict import TensorDict

from rlox_rl8.ends import begin_episodes
from rlox_rl8.vec_envs import VecTensorEnv

__all__ = ["evaluate", "predict"]


def evaluate(
    agent: Any, env_cls: Any, *, n_episodes: int, deterministic: bool, seed: int
) -> EvaluationResult:
    """Run ``n_episodes`` envs from one reset to the next, or one horizon if there is no next.

    Args:
        agent: whose policy acts.
        env_cls: of the envs.
        n_episodes: envs, of which each is one episode.
        deterministic: act with the mode.
        seed: of the env's and the policy's draws.
    """
    n = require_integer("n_episodes", n_episodes, at_least=1)
    hparams = agent.hparams
    steps = hparams.horizon * max(1, hparams.horizons_per_env_reset)
    returns = torch.zeros(n)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        env = env_cls(n, steps, device=hparams.device)
        obs = [env.reset(config=None).clone()]  # an env may go on writing into what it returned
        window = 1 + max(
            (v.shift for v in getattr(agent.policy.model, "view_requirements", {}).values()),
            default=0,
        )
        states = None
        for t in range(steps):
            batch = TensorDict({"obs": torch.stack(obs[-window:], 1)}, [n, len(obs[-window:])])
            if hasattr(agent, "_states"):
                every = hparams.seq_len * hparams.seqs_per_state_reset
                if every > 0 and t % every == 0:
                    states = None
                seen = agent.policy.latest(batch)
                out, states = agent.policy.sample(seen, states, deterministic=deterministic)
            else:
                out = agent.policy.sample(batch, deterministic=deterministic)
            stepped = env.step(out["actions"])
            obs = [*obs[-window:], stepped["obs"].clone()]
            returns += stepped["rewards"].reshape(n).cpu()
    return EvaluationResult(returns.double().numpy(), np.full(n, steps, np.int64))


def predict(
    agent: Any,
    obs: Any,
    deterministic: bool,
    streams: Any,
    *,
    state: Any = UNSET,
    episode_start: npt.ArrayLike | None = None,
) -> Any:
    """Return actions for observations, without a history of them.

    Args:
        agent: whose policy acts.
        obs: one observation or a batch, nested as the observation space of an env of gymnasium is.
        deterministic: act with the mode.
        streams: of the run.
        state: of a recurrent policy, what was returned with the last actions; ``None`` begins
            episodes. If it is left out, each observation is an episode's first.
        episode_start: bool or (B,) bools, whether an episode begins with the observation; ``None``:
            none does.

    Returns:
        The action or actions; with ``state``, a pair of them and the next state.

    Raises:
        ConfigError: the observations of a class of envs are several tensors.
    """
    spec = agent.env.observation_spec
    if isinstance(agent.env, VecTensorEnv):
        rows, lone = ObservationRows(agent.env.envs.observation_space).batch(obs)
        x = agent.env.observe(rows)
    elif hasattr(spec, "keys"):
        raise ConfigError("predict takes plain observations; call policy.sample for nested ones")
    else:
        x = torch.as_tensor(np.asarray(obs), dtype=spec.dtype, device=agent.hparams.device)
        lone = x.dim() == len(spec.shape)
        x = x[None] if lone else x
    batch = TensorDict({"obs": x[:, None]}, [len(x), 1])
    policy = agent.policy
    before: Any = ()
    if state is not UNSET and state is not None:
        if len(state) != len(x):
            raise ValueError(f"state must be of {len(x)} observations, got one of {len(state)}")
        starts = np.broadcast_to(
            np.asarray(False if episode_start is None else episode_start, bool), len(x)
        )
        before = (begin_episodes(policy, state, torch.tensor(starts, device=x.device)),)
    with streams.as_global("predict"):
        out = policy.sample(batch, *before, deterministic=deterministic)
    found, following = out if isinstance(out, tuple) else (out, None)
    actions = found["actions"].cpu().numpy()
    if isinstance(agent.env, VecTensorEnv):
        actions = agent.env.actions(actions)
    if lone:
        actions = int(actions[0]) if actions.ndim == 1 else actions[0]
    return actions if state is UNSET else (actions, following)
