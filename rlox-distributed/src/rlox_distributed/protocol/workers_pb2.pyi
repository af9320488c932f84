from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ("hello", "reset", "sequence", "step")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    hello: Hello
    reset: Reset
    step: Step
    def __init__(
        self,
        sequence: int | None = ...,
        hello: Hello | _Mapping | None = ...,
        reset: Reset | _Mapping | None = ...,
        step: Step | _Mapping | None = ...,
    ) -> None: ...

class Reply(_message.Message):
    __slots__ = ("failure", "observations", "outcome", "sequence", "welcome")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    welcome: Welcome
    observations: Observations
    outcome: Outcome
    failure: Failure
    def __init__(
        self,
        sequence: int | None = ...,
        welcome: Welcome | _Mapping | None = ...,
        observations: Observations | _Mapping | None = ...,
        outcome: Outcome | _Mapping | None = ...,
        failure: Failure | _Mapping | None = ...,
    ) -> None: ...

class Hello(_message.Message):
    __slots__ = ("env_id", "env_kwargs", "learner", "library_version", "protocol_version")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_KWARGS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    library_version: str
    learner: str
    env_id: str
    env_kwargs: str
    def __init__(
        self,
        protocol_version: int | None = ...,
        library_version: str | None = ...,
        learner: str | None = ...,
        env_id: str | None = ...,
        env_kwargs: str | None = ...,
    ) -> None: ...

class Welcome(_message.Message):
    __slots__ = (
        "action_space",
        "done",
        "env_id",
        "library_version",
        "n_envs",
        "observation_space",
        "protocol_version",
        "session",
    )
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    N_ENVS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_SPACE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    library_version: str
    session: str
    env_id: str
    n_envs: int
    observation_space: str
    action_space: str
    done: int
    def __init__(
        self,
        protocol_version: int | None = ...,
        library_version: str | None = ...,
        session: str | None = ...,
        env_id: str | None = ...,
        n_envs: int | None = ...,
        observation_space: str | None = ...,
        action_space: str | None = ...,
        done: int | None = ...,
    ) -> None: ...

class Reset(_message.Message):
    __slots__ = ("seeds",)
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, seeds: _Iterable[int] | None = ...) -> None: ...

class Observations(_message.Message):
    __slots__ = ("masks", "obs")
    OBS_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    obs: _containers.RepeatedScalarFieldContainer[bytes]
    masks: bytes
    def __init__(self, obs: _Iterable[bytes] | None = ..., masks: bytes | None = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, actions: _Iterable[bytes] | None = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("ended", "final_obs", "next", "rewards", "terminated", "truncated")
    NEXT_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FINAL_OBS_FIELD_NUMBER: _ClassVar[int]
    next: Observations
    rewards: bytes
    terminated: bytes
    truncated: bytes
    ended: _containers.RepeatedScalarFieldContainer[int]
    final_obs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(
        self,
        next: Observations | _Mapping | None = ...,
        rewards: bytes | None = ...,
        terminated: bytes | None = ...,
        truncated: bytes | None = ...,
        ended: _Iterable[int] | None = ...,
        final_obs: _Iterable[bytes] | None = ...,
    ) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "traceback")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    traceback: str
    def __init__(
        self, kind: str | None = ..., message: str | None = ..., traceback: str | None = ...
    ) -> None: ...
