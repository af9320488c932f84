"""Tests of :mod:`rlox.config`: options, files of them, and schedules."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError, model_validator
from rlox.config.model import (
    TORCH_THREADS,
    UNSET,
    Config,
    Widths,
    choice,
    coefficient,
    count,
    discount,
    flag,
    option,
    positive,
    probability,
    read_mapping,
    resolve_config,
    schedule,
    widths,
)
from rlox.config.schedules import Linear, Piecewise, Schedules, ScheduleValue, evaluate_schedule
from rlox.errors import ConfigError


class DemoConfig(Config):
    """One field of every kind."""

    schedule_bounds: ClassVar[dict[str, tuple[float, float]]] = {"learning_rate": (0.0, 1.0)}

    n_envs: int = count(8, unit="envs", help="number of envs", source="test")
    n_steps: int = count(16, unit="env steps", help="rollout length", source="test")
    gamma: float = discount(0.99, help="discount", source="test")
    epsilon: float = probability(0.1, help="exploration", source="test")
    vf_coef: float = coefficient(0.5, help="weight", source="test")
    max_norm: float | None = positive(None, help="bound", source="test")
    learning_rate: ScheduleValue = schedule(3e-4, help="step size", source="test")
    normalize: bool = flag(True, help="standardise", source="test")
    maybe: bool | None = option(None, help="three-valued", unit="on/off", source="test")
    mode: Literal["sync", "async"] = choice("sync", help="how", source="test")
    hidden: Widths = widths(64, source="test")
    device: str = option("cpu", help="where", unit="name", source="test", min_length=1)
    torch_threads: int | None = TORCH_THREADS

    @model_validator(mode="after")
    def _check_rollout(self):
        if self.n_envs * self.n_steps > 100_000:
            raise ValueError(f"n_envs {self.n_envs} and n_steps {self.n_steps} are too many")
        return self


class RequiredConfig(Config):
    """A field without a default."""

    size: int


SCHEDULE = (
    "a number, 'linear(start, end)', 'linear(start, end, until)' or a mapping whose kind is linear "
    "or piecewise"
)

REFUSALS = [
    ({"n_env": 4}, "unknown option 'n_env' for DemoConfig; did you mean 'n_envs'?"),
    ({"xyzzy": 1}, "unknown option 'xyzzy' for DemoConfig"),
    ({"n_envs": 0}, "n_envs: expected greater than or equal to 1, got 0"),
    ({"n_envs": True}, "n_envs: expected a number, not a truth value, got True"),
    ({"n_envs": 2.5},
     "n_envs: expected a valid integer, got a number with a fractional part, got 2.5"),
    ({"n_envs": "many"},
     "n_envs: expected a valid integer, unable to parse string as an integer, got 'many'"),
    ({"n_envs": None}, "n_envs: expected a valid integer, got None"),
    ({"n_envs": 1e30}, "n_envs: expected a smaller integer, got 1e+30"),
    ({"torch_threads": 10**6}, "torch_threads: expected less than or equal to 1024, got 1000000"),
    ({"gamma": 1.5}, "gamma: expected less than or equal to 1, got 1.5"),
    ({"gamma": float("nan")}, "gamma: expected a finite number, got nan"),
    ({"vf_coef": -1}, "vf_coef: expected greater than or equal to 0, got -1"),
    ({"max_norm": 0}, "max_norm: expected greater than 0, got 0"),
    ({"learning_rate": 2}, "learning_rate: expected values in [0.0, 1.0], got 2"),
    ({"learning_rate": "linear(1, 2)"},
     "learning_rate: expected values in [0.0, 1.0], got 'linear(1, 2)'"),
    ({"learning_rate": True}, "learning_rate: expected a number, not a truth value, got True"),
    ({"learning_rate": "fast"}, f"learning_rate: expected {SCHEDULE}, got 'fast'"),
    ({"learning_rate": {"kind": []}}, f"learning_rate: expected {SCHEDULE}, got {{'kind': []}}"),
    ({"learning_rate": {"kind": "linear", "start": 1}},
     "learning_rate: expected end to be given, got {'kind': 'linear', 'start': 1}"),
    ({"learning_rate": {"kind": "linear", "start": True, "end": 0}},
     "learning_rate: expected start to be a number, not a truth value, got "
     "{'kind': 'linear', 'start': True, 'end': 0}"),
    ({"learning_rate": {"kind": "piecewise", "points": [[5, 0.1]]}},
     "learning_rate: expected steps that start at 0 and increase, got "
     "{'kind': 'piecewise', 'points': [[5, 0.1]]}"),
    ({"normalize": "perhaps"},
     "normalize: expected a valid boolean, unable to interpret input, got 'perhaps'"),
    ({"mode": "snc"}, "mode: expected 'sync' or 'async', got 'snc'"),
    ({"hidden": (64, 0)},
     "hidden: expected one or more widths from 1 to 8192, such as 64 or 64,64, got (64, 0)"),
    ({"hidden": (64, True)},
     "hidden: expected a number, not a truth value, got (64, True)"),
    ({"hidden": []},
     "hidden: expected one or more widths from 1 to 8192, such as 64 or 64,64, got []"),
    ({"net_arch": [64]}, "unknown option 'net_arch' for DemoConfig; here it is hidden"),
    ({"device": ""}, "device: expected at least 1 character, got ''"),
    ({"n_envs": 10_000, "n_steps": 99}, "n_envs 10000 and n_steps 99 are too many"),
    ({"n_envs": 0, "gamma": 2.0, "foo": 1},
     "n_envs: expected greater than or equal to 1, got 0; "
     "gamma: expected less than or equal to 1, got 2.0; unknown option 'foo' for DemoConfig"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSALS, ids=[str(o) for o, _ in REFUSALS])
def test_wrong_option_is_refused_with_its_message(options, message):
    """Every kind of wrong value has one exact message."""
    with pytest.raises(ConfigError) as caught:
        DemoConfig(**options)
    assert str(caught.value) == message


def test_missing_option_is_named():
    """A field without a default must be given."""
    with pytest.raises(ConfigError, match=r"^option 'size' is missing$"):
        RequiredConfig()


def test_numbers_in_text_are_numbers():
    """YAML reads ``3e-4`` as text, which still means the number."""
    config = DemoConfig(gamma="9e-1", learning_rate="3e-4", n_envs="4")
    assert (config.gamma, config.learning_rate, config.n_envs) == (0.9, 3e-4, 4)
    several = (DemoConfig(hidden=given).hidden for given in ("32", "32,16", [32, 16], "32,"))
    assert [*several] == [32, (32, 16), (32, 16), (32,)]


def test_config_is_frozen():
    """Assignment to a field fails."""
    config = DemoConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.gamma = 0.5


def test_replace_returns_a_validated_copy():
    """Changes are checked as in the constructor, and the original stays."""
    config = DemoConfig(learning_rate="linear(1e-3, 0)")
    changed = config.replace(gamma=0.5)
    assert (config.gamma, changed.gamma) == (0.99, 0.5)
    assert changed.learning_rate == config.learning_rate
    with pytest.raises(ConfigError, match=r"^gamma: expected less"):
        config.replace(gamma=5)
    with pytest.raises(ConfigError, match=r"^unknown option 'gama'"):
        config.replace(gama=0.5)


def test_defaults_are_no_options_that_were_given():
    """What a config object leaves to its defaults is so in its copies."""
    config = DemoConfig(gamma=0.5)
    for copy in (config.replace(n_envs=3), resolve_config(DemoConfig, config, n_envs=3)):
        assert copy.model_fields_set == {"gamma", "n_envs"}


unit = st.floats(0.0, 1.0, allow_subnormal=False)
linear = st.builds(Linear, start=unit, end=unit, until=st.none() | st.integers(1, 10**9))


@st.composite
def piecewise(draw):
    """Draw a piecewise schedule with increasing env steps from 0."""
    steps = draw(st.sets(st.integers(1, 10**9), max_size=4))
    points = tuple((step, draw(unit)) for step in (0, *sorted(steps)))
    return Piecewise(points=points, interpolate=draw(st.booleans()))


configs = st.builds(
    DemoConfig,
    n_envs=st.integers(1, 100),
    n_steps=st.integers(1, 1000),
    gamma=unit,
    epsilon=st.sampled_from([3e-7, 1e-300, 1e-5, 0.0, 1.0]),
    vf_coef=st.floats(0.0, 1e308),
    max_norm=st.none() | st.floats(1e-300, 1e300),
    learning_rate=unit | linear | piecewise(),
    normalize=st.booleans(),
    maybe=st.none() | st.booleans(),
    mode=st.sampled_from(["sync", "async"]),
    device=st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1)
    | st.sampled_from(["null", "1e3", "yes", "{", "- a", "#", " "]),
)


@given(configs)
def test_file_round_trip(tmp_path_factory, config):
    """A config written as YAML or JSON is read back equal."""
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    config.dump(path)
    assert DemoConfig.load(path) == config
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_text(json.dumps(config.to_dict(), allow_nan=False), encoding="utf-8")
    assert DemoConfig.load(path) == config


@pytest.mark.parametrize("text", ["", "# nothing\n", "null\n"])
def test_empty_file_holds_no_options(tmp_path, text):
    """A file with nothing but comments gives the defaults."""
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    assert DemoConfig.load(path) == DemoConfig()


BOMB = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{name}: &{name} [{', '.join(9 * [f'*{last}'])}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""A text of some 500 bytes that stands for 10^9 values."""


def test_what_a_file_merges_are_options(tmp_path):
    """``<<`` takes the keys of another mapping, and keys beside it win."""
    path = tmp_path / "config.yaml"
    path.write_text("base: &base {gamma: 0.5, epsilon: 0.25}\nown:\n  <<: *base\n  gamma: 0.75\n")
    assert read_mapping(path)["own"] == {"gamma": 0.75, "epsilon": 0.25}


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_a_named_pipe_is_no_config(tmp_path):
    """Nobody writes to it, so reading would wait for ever."""
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="cannot be read: is not a regular file"):
        read_mapping(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    "value",
    [10**10_000, "x" * 10**6, list(range(10**5)), {"x": "y" * 10**6}],
    ids=["integer", "text", "list", "mapping"],
)
def test_an_error_is_short_however_large_the_value(value):
    """Its beginning is enough to find it by."""
    with pytest.raises(ConfigError) as caught:
        DemoConfig(epsilon=value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.yaml", "- 1\n", "must hold a mapping of option names, got list"),
        ("c.yaml", "1: 2\n", "must name its options by text, got 1"),
        ("c.yaml", "a: [", "is not valid: "),
        ("c.yaml", "!!python/object/apply:os.getcwd []", "is not valid: "),
        ("c.json", "{", "is not valid: "),
        ("c.json", "3", "must hold a mapping of option names, got int"),
        ("c.yaml", "a: {1: 2}\n", "must name its options by text, got 1"),
        ("c.yaml", "? [1, 2]\n: 3\n", "must name its options by text, got a sequence"),
        ("c.yaml", "a: 1\na: 2\n", "is not valid: 'a' is there twice"),
        ("c.yaml", "a: &a [*a]\n", "is not valid: more than 100,000 values, with"),
        ("c.yaml", BOMB, "is not valid: more than 100,000 values, with"),
        ("c.yaml", "a: " + 1500 * "[", "is not valid: it is nested too deeply"),
        ("c.json", 200_000 * "[", "is not valid: it is nested too deeply"),
    ],
)
def test_wrong_file_is_refused(tmp_path, name, text, message):
    """A file that is not a mapping is an error that names the file."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_mapping(path)
    assert str(caught.value).startswith(f"config file '{path}' {message}")


def test_file_that_is_no_text_is_refused(tmp_path):
    """Bytes that are no UTF-8 are a config error."""
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not valid"):
        DemoConfig.load(path)


def test_resolve_takes_object_mapping_and_path(tmp_path):
    """All forms of a base config give the same result, and overrides win."""
    base = DemoConfig(gamma=0.5, n_envs=3)
    path = tmp_path / "config.yaml"
    base.dump(path)
    for form in (base, base.to_dict(), path, str(path)):
        assert resolve_config(DemoConfig, form, n_envs=5) == base.replace(n_envs=5)
    assert resolve_config(DemoConfig, None, n_envs=UNSET) == DemoConfig()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (3, "got int"),
        (RequiredConfig(size=1), "got RequiredConfig"),
        ({1: 2}, "option names must be text, got [1]"),
    ],
)
def test_resolve_refuses_other_bases(config, message):
    """A base of another type is an error that says what would do."""
    with pytest.raises(ConfigError) as caught:
        resolve_config(DemoConfig, config)
    assert str(caught.value).endswith(message)


parse = TypeAdapter(ScheduleValue).validate_python


STEPS = Piecewise(points=((0, 1.0), (10, 0.5), (20, 0.0)))


@pytest.mark.parametrize(
    ("schedule", "total", "values"),
    [
        (Linear(start=1.0, end=0.0), 100, {0: 1.0, 25: 0.75, 100: 0.0, 200: 0.0}),
        (Linear(start=0.0, end=2.0, until=50), 1000, {0: 0.0, 25: 1.0, 50: 2.0, 999: 2.0}),
        (Linear(start=3.0, end=0.0), 0, {0: 3.0}),
        (STEPS, 0, {0: 1.0, 9: 1.0, 10: 0.5, 19: 0.5, 20: 0.0, 99: 0.0}),
        (Piecewise(points=((0, 1.0), (10, 0.0)), interpolate=True), 0,
         {0: 1.0, 5: 0.5, 10: 0.0, 11: 0.0}),
    ],
    ids=["to the end", "until", "no training", "steps", "joined"],
)  # fmt: skip
def test_schedules_have_their_values(schedule, total, values):
    """By env step, of a training of so many; what comes after the end is held."""
    assert {step: schedule(step, total) for step in values} == values


def test_a_line_to_the_end_of_a_training_needs_one():
    """Iterations of one's own would otherwise learn at the end's rate, often 0."""
    schedules = Schedules(Rates(rate=Linear(start=1.0, end=0.0)))
    with pytest.raises(ConfigError) as caught:
        schedules.require_ends()
    assert str(caught.value) == (
        "rate=linear(1.0, 0.0) goes on to the end of a training, and none runs; give it an end, "
        "linear(1.0, 0.0, STEPS), or call algorithm.clock.extend(STEPS)"
    )
    Schedules(Rates(rate=Linear(start=1.0, end=0.0, until=16))).require_ends()
    Schedules(Rates(), {"rate": lambda step: 0.5}).require_ends()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linear(1e-3, 0)", Linear(start=1e-3, end=0)),
        (" Linear( 1 ,0.5 , 200 ) ", Linear(start=1, end=0.5, until=200)),
        ("linear(1, 0, 1e6)", Linear(start=1, end=0, until=1_000_000)),
        ("3e-4", 3e-4),
        (1, 1.0),
        ({"kind": "linear", "start": "3e-4", "end": 0}, Linear(start=3e-4, end=0)),
        ({"kind": "piecewise", "points": [[0, 1]]}, Piecewise(points=((0, 1.0),))),
        (Linear(start=1, end=0), Linear(start=1, end=0)),
    ],
)
def test_parse(text, expected):
    """Text, numbers, mappings and schedules are understood."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("linear(1)", "a number, 'linear"),
        ("linear(1, 0, 0)", "until to be greater than 0"),
        ("linear(1, 0, 2.5)", "until to be a valid integer"),
        ("linear(nan, 0)", "start to be a finite number"),
        ("inf", "a finite number"),
        ({"kind": "cosine"}, "a number, 'linear"),
        ({"kind": "piecewise", "points": []}, "points"),
        ({"kind": "piecewise", "points": [[0, 1], [0, 2]]}, "start at 0 and increase"),
        ({"kind": "linear", "start": 1, "end": 0, "unti": 5}, "unti"),
        ([1, 2], "a number, 'linear"),
    ],
)
def test_wrong_schedule_is_refused(value, message):
    """Values that are not schedules are refused with one reason."""
    with pytest.raises(ValidationError, match=message):
        parse(value)


def test_evaluate_takes_numbers_schedules_and_callables():
    """A callable gets the env steps alone."""
    assert evaluate_schedule(0.5, 10, 100) == 0.5
    assert evaluate_schedule(Linear(start=1, end=0), 10, 100) == 0.9
    assert evaluate_schedule(lambda env_steps: env_steps * 2, 10, 100) == 20.0


class Rates(BaseModel):
    """A config with a bounded schedule."""

    schedule_bounds: ClassVar[dict[str, tuple[float, float]]] = {"rate": (0.0, 1.0)}
    rate: ScheduleValue = 0.5


@pytest.mark.parametrize("value", [-1.0, 7.0, math.nan])
def test_values_of_callables_are_within_the_fields_bounds(value):
    """They are known where they are asked for; the error has the env step."""
    schedules = Schedules(Rates(), {"rate": lambda step: value if step > 5 else 1.0})
    assert schedules.at(5, 10) == {"rate": schedules.value("rate", 5, 10)} == {"rate": 1.0}
    with pytest.raises(
        ConfigError, match=r"schedules\['rate'\] .* \[0.0, 1.0\], got .* after 6 steps"
    ):
        schedules.value("rate", 6, 10)


@pytest.mark.parametrize("value", ["x", None, [1.0, 2.0]])
def test_values_of_callables_are_numbers(value):
    """The error names the schedule, the value and the step."""
    schedules = Schedules(Rates(), {"rate": lambda step: value})
    with pytest.raises(ConfigError) as caught:
        schedules.value("rate", 6, 10)
    assert str(caught.value) == (
        f"schedules['rate'] must return a number, got {value!r} after 6 steps"
    )


@pytest.mark.parametrize("overrides", [[], "", 0])
def test_overrides_are_a_mapping(overrides):
    """Empty ones of another type are refused like others."""
    with pytest.raises(ConfigError, match=r"^schedules must be a mapping of names to callables, "):
        Schedules(Rates(), overrides)
