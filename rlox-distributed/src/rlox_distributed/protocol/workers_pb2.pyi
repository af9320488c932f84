from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ("sequence", "hello", "reset", "step", "save", "load")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    hello: Hello
    reset: Reset
    step: Step
    save: Save
    load: Load
    def __init__(self, sequence: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., reset: _Optional[_Union[Reset, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ..., load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("sequence", "welcome", "observations", "outcome", "failure", "saved", "loaded")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    welcome: Welcome
    observations: Observations
    outcome: Outcome
    failure: Failure
    saved: Saved
    loaded: Loaded
    def __init__(self, sequence: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., observations: _Optional[_Union[Observations, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., loaded: _Optional[_Union[Loaded, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "library_version", "learner", "env_id", "env_kwargs")
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
    def __init__(self, protocol_version: _Optional[int] = ..., library_version: _Optional[str] = ..., learner: _Optional[str] = ..., env_id: _Optional[str] = ..., env_kwargs: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "library_version", "session", "env_id", "n_envs", "observation_space", "action_space", "done", "has_state")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    N_ENVS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_SPACE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    HAS_STATE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    library_version: str
    session: str
    env_id: str
    n_envs: int
    observation_space: str
    action_space: str
    done: int
    has_state: bool
    def __init__(self, protocol_version: _Optional[int] = ..., library_version: _Optional[str] = ..., session: _Optional[str] = ..., env_id: _Optional[str] = ..., n_envs: _Optional[int] = ..., observation_space: _Optional[str] = ..., action_space: _Optional[str] = ..., done: _Optional[int] = ..., has_state: _Optional[bool] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("seeds",)
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, seeds: _Optional[_Iterable[int]] = ...) -> None: ...

class Observations(_message.Message):
    __slots__ = ("obs", "masks")
    OBS_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    obs: _containers.RepeatedScalarFieldContainer[bytes]
    masks: bytes
    def __init__(self, obs: _Optional[_Iterable[bytes]] = ..., masks: _Optional[bytes] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, actions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("next", "rewards", "terminated", "truncated", "ended", "final_obs", "life_lost", "lost")
    NEXT_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FINAL_OBS_FIELD_NUMBER: _ClassVar[int]
    LIFE_LOST_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    next: Observations
    rewards: bytes
    terminated: bytes
    truncated: bytes
    ended: _containers.RepeatedScalarFieldContainer[int]
    final_obs: _containers.RepeatedScalarFieldContainer[bytes]
    life_lost: bytes
    lost: bytes
    def __init__(self, next: _Optional[_Union[Observations, _Mapping]] = ..., rewards: _Optional[bytes] = ..., terminated: _Optional[bytes] = ..., truncated: _Optional[bytes] = ..., ended: _Optional[_Iterable[int]] = ..., final_obs: _Optional[_Iterable[bytes]] = ..., life_lost: _Optional[bytes] = ..., lost: _Optional[bytes] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("size", "data")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    size: int
    data: bytes
    def __init__(self, size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("size", "offset", "data")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    size: int
    offset: int
    data: bytes
    def __init__(self, size: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Loaded(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EnvState(_message.Message):
    __slots__ = ("arrays",)
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("name", "dtype", "shape", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "traceback")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    traceback: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ...) -> None: ...
