"""Exception classes of rlox, each also a builtin exception."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

MISFITS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""Errors that a hostile config, state or network may raise."""


class RloxError(Exception):
    """Base class of all rlox errors."""


class ConfigError(RloxError, ValueError):
    """A config holds an unknown option or a value out of range."""


class MemoryLimitError(RloxError, MemoryError):
    """A request needs more memory than is available."""


class UnknownNameError(RloxError, LookupError):
    """A name is not registered."""


class MissingDependencyError(RloxError, ImportError):
    """A distribution that provides the requested name is not installed."""


class PluginConflictError(RloxError, RuntimeError):
    """Two distributions claim the same name."""


class PluginError(RloxError, RuntimeError):
    """A plugin's registration is broken, or it failed to load and loading is strict."""


class PluginWarning(UserWarning):
    """A plugin failed to load; everything else works."""


class SpaceError(RloxError, ValueError):
    """An algorithm cannot handle an env's observation or action space."""


class EnvError(RloxError, ValueError):
    """An env cannot be built, or broke its contract while stepping."""


class ExportError(RloxError, TypeError):
    """A policy holds something that a policy file cannot describe."""


class WorkerError(RloxError, RuntimeError):
    """A worker process failed."""


class WorkerLostError(WorkerError):
    """A worker process died or did not answer in time, and is no longer replaced."""


class DatasetError(RloxError, ValueError):
    """A dataset cannot be read, or an algorithm cannot learn from it."""


class BackendError(RloxError, ValueError):
    """A learner backend cannot do the requested task."""


class CheckpointError(RloxError, ValueError):
    """A checkpoint cannot be read or does not fit the object that it is loaded into."""


class RunError(RloxError, ValueError):
    """A run folder lacks something that is needed from it."""


class DivergenceError(RloxError, ArithmeticError):
    """A training diverged: its parameters are no longer finite."""


class LoggerError(RloxError, RuntimeError):
    """A service for metrics refuses them, or a file of metrics is damaged."""


_LAYERS = ("hidden", "critic_hidden", "activation", "layer_norm", "conv", "gain", "shared")
_NO_ENV = "the env is not an option: pass env=…, or --env, next to the config"
_NO_POLICY = "networks follow from the spaces and options: leave it out, as in PPO('CartPole-v1')"
_NO_ALGORITHM = "name it without a flag, as in rlox train ppo --env CartPole-v1"
_STEPS = "the length is the argument of train(), or of a new rlox train --total-timesteps"
_BEST = "it is EvalCallback(best_model_path=...); with --eval-freq runs keep the best"

FOREIGN: dict[str, tuple[str, ...] | str] = {
    **dict.fromkeys(("env", "env_id"), _NO_ENV),
    **dict.fromkeys(("MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy"), _NO_POLICY),
    **dict.fromkeys(("algo", "algorithm"), _NO_ALGORITHM),
    **dict.fromkeys(("activation_fn", "hidden_dim", "hidden_size", "hidden_sizes", "layers",
                     "net_arch", "policy_kwargs"), _LAYERS),
    **dict.fromkeys(("exploration_fraction", "exploration_initial_eps", "exploration_final_eps"),
                    ("epsilon",)),
    **dict.fromkeys(("timesteps", "total_steps", "total_timesteps"), _STEPS),
    "learn": "it is train(total_timesteps)",
    "load": "it is from_checkpoint(path)",
    "best_model_save_path": _BEST,
    "verbose": "metrics are shown by logger='console' of rlox.make, or --logger console",
    "tensorboard_log": "it is logger='tensorboard' of rlox.make, or --logger tensorboard",
    "clip_range": ("clip_eps",),
    "clip_range_vf": ("vf_clip_eps",),
    "num_generations": ("group_size",),
    "beta": ("kl_coef",),
    "max_completion_length": ("max_new_tokens",),
    "per_device_train_batch_size": ("batch_size", "prompts_per_rollout"),
    "reward_funcs": "it is reward_fn=, or --reward",
    "train_dataset": "it is dataset=, or --dataset",
}  # fmt: skip
"""Other libraries' words, and rlox's options for them or words for an error."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known names, or an empty string.

    For a word of :data:`FOREIGN` it is rlox's counterpart.

    Args:
        name: the user's text.
        known: every valid name; flags such as ``--n-envs`` if ``name`` is one.
    """
    known = list(known)
    plain = {_plain(candidate): candidate for candidate in known}
    meant = FOREIGN.get(_plain(name), ())
    if isinstance(meant, str):
        return f"; {meant}"
    if ours := [plain[each] for each in meant if each in plain]:
        return f"; here it is {', '.join(ours)}"
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if not matches:
        return ""
    return "; did you mean " + " or ".join(f"'{by_lower[match]}'" for match in matches) + "?"


def _plain(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def requirement(extra: str) -> str:
    """Return the argument of ``pip install`` for an extra of rlox."""
    return f"rlox-core[{extra}]"


def name_clash() -> str:
    """Return the problem and the remedy if another project's ``rlox`` is installed too.

    Both projects install a package ``rlox``, and the files of the one installed last replace the
    other's.

    Returns:
        The text, empty if no other is installed.
    """
    from importlib import metadata  # slow to import, and rarely needed

    try:
        version = metadata.version("rlox")
    except metadata.PackageNotFoundError:
        return ""
    return (
        f"the distribution 'rlox' {version} of another project is installed, and writes the "
        "package 'rlox' as rlox-core does; run: pip uninstall rlox && "
        "pip install --force-reinstall --no-deps rlox-core"
    )


def missing_extra(what: str, extra: str) -> MissingDependencyError:
    """Return the error for a name whose distribution is not installed.

    Args:
        what: the name the user asked for.
        extra: the extra of rlox-core that provides it.
    """
    return MissingDependencyError(
        f"{what} needs a distribution that is not installed; run: pip install "
        f'"{requirement(extra)}"'
    )


def unusable(what: str, module: str, error: ImportError) -> MissingDependencyError:
    """Return the error for a name whose distribution is installed but fails to import.

    Args:
        what: the name the user asked for.
        module: the module to import.
        error: the reason, for example a source tree without its compiled part.
    """
    distribution = module.replace("_", "-")
    return MissingDependencyError(
        f"{what} needs {distribution}, which is there but cannot be imported: {error}; run: "
        f"pip install --force-reinstall --no-deps {distribution} (in a source tree "
        f"./{distribution})"
    )


def import_extra(module: str, what: str, extra: str) -> Any:
    """Import a third-party module that an extra installs.

    Args:
        module: its name.
        what: the name the user asked for.
        extra: the extra of rlox-core that provides it.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(what, extra) from error
