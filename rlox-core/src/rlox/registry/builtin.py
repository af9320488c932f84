"""Core's own plugin: backends, buffers, callbacks, loggers and commands."""

from __future__ import annotations

from collections.abc import Iterable

from rlox.registry.specs import (
    ActorBackendSpec,
    BufferSpec,
    CallbackSpec,
    EnvBackendSpec,
    LearnerBackendSpec,
    LoggerSpec,
    hookimpl,
)


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register gymnasium, which tries every id, and our envs of tensors."""
    yield EnvBackendSpec(
        name="gymnasium",
        summary="Any registered gymnasium env, stepped in this process or in worker processes.",
        factory="rlox.envs.gymnasium:GymVecEnv",
        priority=0,
    )
    yield EnvBackendSpec(
        name="tensors",
        summary="Classic control in torch, on the learner's device; used only if named.",
        factory="rlox.envs.tensors:make_vec_env",
        env_ids=("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "Pendulum-v1"),
        priority=-1,
    )


@hookimpl
def rlox_buffers() -> Iterable[BufferSpec]:
    """Register the replay buffers of :mod:`rlox.replay.buffers`."""
    yield BufferSpec(
        "her",
        "Draws all alike, most with goals that their episodes reached later.",
        "rlox.replay.buffers:her_buffer",
        "rlox.replay.buffers:HindsightOptions",
        goals=True,
    )
    yield BufferSpec(
        "mmap",
        "Draws all alike; keeps the older transitions in a file (rlox-native).",
        "rlox.replay.buffers:mmap_buffer",
        "rlox.replay.buffers:MmapOptions",
        in_memory=False,
    )
    yield BufferSpec(
        "prioritized",
        "Draws in proportion to the last absolute TD errors.",
        "rlox.replay.buffers:prioritized_buffer",
        "rlox.replay.buffers:PrioritizedOptions",
    )
    yield BufferSpec(
        "sequence",
        "Draws sequences of rows, new ones first; for world models.",
        "rlox.replay.buffers:sequence_buffer",
        sequences=True,
    )
    yield BufferSpec("uniform", "Draws all alike.", "rlox.replay.buffers:uniform_buffer")


@hookimpl
def rlox_learner_backends() -> Iterable[LearnerBackendSpec]:
    """Register torch, which can do every task, compiled on request."""
    yield LearnerBackendSpec(
        name="torch",
        summary="The algorithm's own loss and autograd, for any policy on any device.",
        factory="rlox.learners.compiled:make_torch_learner",
        priority=0,
    )
    yield LearnerBackendSpec(
        name="torch-compile",
        summary="The same, compiled by torch; CUDA graphs on a GPU.",
        factory="rlox.learners.compiled:make_compiled_learner",
        priority=-1,
    )


@hookimpl
def rlox_actor_backends() -> Iterable[ActorBackendSpec]:
    """Register actors in threads of this process and in separate processes."""
    yield ActorBackendSpec(
        name="thread",
        summary="Actors in threads of this process.",
        factory="rlox.rollouts.actors.process:LocalActor",
    )
    yield ActorBackendSpec(
        name="process",
        summary="Actors in processes of their own; arrays go through shared memory.",
        factory="rlox.rollouts.actors.process:ProcessActor",
    )


@hookimpl
def rlox_loggers() -> Iterable[LoggerSpec]:
    """Register the loggers of :mod:`rlox.logging`."""
    yield LoggerSpec(
        "console",
        "A line of metrics on standard output.",
        "rlox.logging.files:console_logger",
    )
    yield LoggerSpec(
        "json", "The lines of jsonl on standard output.", "rlox.logging.files:PrintedJsonLogger"
    )
    yield LoggerSpec("jsonl", "One JSON object a line, metrics.jsonl.", "rlox.logging:JsonlLogger")
    yield LoggerSpec(
        "csv", "A table of the training metrics, metrics.csv.", "rlox.logging:CsvLogger"
    )
    yield LoggerSpec("tensorboard", "TensorBoard event files.", "rlox.logging:TensorBoardLogger")
    yield LoggerSpec("wandb", "A run of Weights & Biases.", "rlox.logging.trackers:wandb_logger")
    yield LoggerSpec("mlflow", "A run of MLflow.", "rlox.logging.trackers:mlflow_logger")


@hookimpl
def rlox_callbacks() -> Iterable[CallbackSpec]:
    """Register the callbacks of :mod:`rlox.callbacks`."""
    yield CallbackSpec(
        "checkpoint",
        "Saves a checkpoint every N env steps.",
        "rlox.callbacks.checkpoint:checkpoint_callback",
        in_folder=True,
    )
    yield CallbackSpec(
        "early-stopping",
        "Stops when the mean return of finished episodes no longer improves.",
        "rlox.callbacks:EarlyStoppingCallback",
    )
    yield CallbackSpec("eval", "Evaluates every N env steps.", "rlox.callbacks:EvalCallback")
    yield CallbackSpec(
        "progress",
        "A progress bar with env steps/s, return and ETA.",
        "rlox.callbacks:ProgressCallback",
    )
    yield CallbackSpec(
        "timing", "Prints where a training's time went.", "rlox.callbacks:TimingCallback"
    )
