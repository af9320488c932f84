"""Arrays in the protocol's messages: Rust writes and reads the same as protobuf."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rlox_distributed._transport import StepCodec, StreamError
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.spaces import codec_of, leaves_of

DTYPES = ["?", "i1", "u2", "<i4", ">i4", "i8", "u8", "f2", "f4", ">f8", "g"]
shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
FIELDS = ("rewards", "terminated", "truncated", "life_lost", "lost")


class Plain:
    """A leaf's space of any dtype, without gymnasium's bounds."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = np.dtype(dtype), shape


plain = st.builds(Plain, st.sampled_from(DTYPES), shapes)
layouts = plain.map(lambda leaf: (False, {"": leaf})) | st.dictionaries(
    st.text(max_size=3), plain, min_size=1, max_size=3
).map(lambda leaves: (True, leaves))


def codec(observations, actions, n_envs):
    """Return a codec of drawn layouts."""
    given = [
        (nested, [(name, leaf.dtype, leaf.shape) for name, leaf in leaves.items()])
        for nested, leaves in (observations, actions)
    ]
    return StepCodec(given[0], given[1], n_envs)


def draw_value(data, layout, rows):
    """Draw the arrays of a layout, some of them not in C order."""
    nested, leaves = layout
    value = {}
    for name, leaf in leaves.items():
        size = rows * int(np.prod(leaf.shape, dtype=int)) * leaf.dtype.itemsize
        raw = data.draw(st.binary(min_size=size, max_size=size))
        if leaf.dtype.kind == "b":
            raw = bytes(byte & 1 for byte in raw)
        array = np.frombuffer(raw, leaf.dtype).reshape(rows, *leaf.shape)
        value[name] = np.asfortranarray(array) if data.draw(st.booleans()) else array
    return value if nested else value[""]


def sent(layout, value, rows=slice(None)):
    """Return the arrays of a value as sent by the protocol."""
    nested, leaves = layout
    return [
        (value[name] if nested else value)[rows].astype(leaf.dtype.newbyteorder("<")).tobytes()
        for name, leaf in leaves.items()
    ]


def require_alike(got, expected):
    """Require the same bits, dtypes and shapes, and writeable arrays."""
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        for name, array in expected.items():
            require_alike(got[name], array)
        return
    assert (got.dtype.str, got.shape) == (expected.dtype.str, expected.shape)
    assert got.tobytes() == expected.tobytes()
    assert got.flags.writeable


@given(data=st.data(), layout=layouts, first=st.integers(0, 2), more=st.integers(0, 2))
def test_requests_are_those_of_protobuf(data, layout, first, more):
    """For a worker's rows, in both directions."""
    n_envs = data.draw(st.integers(1, 3))
    rows = first + n_envs + more
    actions = draw_value(data, layout, rows)
    ours = codec(layout, layout, n_envs)
    sequence = data.draw(st.integers(1, 2**64 - 1))
    written = ours.encode_request(sequence, actions, first, rows)
    own = slice(first, first + n_envs)
    expected = pb.Request(sequence=sequence, step=pb.Step(actions=sent(layout, actions, own)))
    assert pb.Request.FromString(written) == expected
    number, got = ours.decode_request(expected.SerializeToString())
    assert number == sequence
    mine = {k: v[own] for k, v in actions.items()} if layout[0] else actions[own]
    require_alike(got, mine)


@given(data=st.data(), layout=layouts, n_envs=st.integers(1, 4), choices=st.integers(0, 3))
def test_answers_are_those_of_protobuf(data, layout, n_envs, choices):
    """With masks or without, for any ended or lost envs, in both directions."""
    flags = arrays.arrays(np.bool_, n_envs)
    obs, final_obs = (draw_value(data, layout, n_envs) for _ in range(2))
    step = {
        "obs": obs,
        "rewards": data.draw(arrays.arrays(np.float64, n_envs)),
        "terminated": data.draw(flags),
        "truncated": data.draw(flags),
        "final_obs": final_obs,
    }
    for name in FIELDS[3:]:
        if data.draw(st.booleans()):
            step[name] = data.draw(flags)
    masks = data.draw(arrays.arrays(np.bool_, (n_envs, choices))) if choices else None
    ended = (step["terminated"] | step["truncated"]).nonzero()[0]
    shown = pb.Observations(obs=sent(layout, obs), masks=b"" if masks is None else masks.tobytes())
    outcome = pb.Outcome(
        next=shown, ended=ended.tolist(),
        **{name: step[name].tobytes() for name in FIELDS if name in step},
    )  # fmt: skip
    if ended.size:
        outcome.final_obs.extend(sent(layout, final_obs, ended))
    ours = codec(layout, layout, n_envs)
    written = ours.encode_outcome(7, step, masks)
    assert pb.Reply.FromString(written) == pb.Reply(sequence=7, outcome=outcome)
    part = ours.decode_outcome(pb.Reply(sequence=7, outcome=outcome).SerializeToString(), 7)
    got, got_masks = part
    assert set(got) == set(step)
    for name in FIELDS:
        if name in step:
            require_alike(got[name], step[name])
    require_alike(got["obs"], obs)
    if ended.size:
        true = {name: array.copy() for name, array in (obs if layout[0] else {"": obs}).items()}
        for name, array in true.items():
            array[ended] = (final_obs[name] if layout[0] else final_obs)[ended]
        require_alike(got["final_obs"], true if layout[0] else true[""])
    else:
        assert got["final_obs"] is got["obs"]
    if masks is None:
        assert got_masks is None
    else:
        require_alike(got_masks, masks)
    assert ours.decode_outcome(written, 8) is None
    assert ours.decode_observations(written, 7) is None

    reply = pb.Reply(sequence=9, observations=shown)
    assert pb.Reply.FromString(ours.encode_observations(9, obs, masks)) == reply
    begun = ours.decode_observations(reply.SerializeToString(), 9)
    require_alike(begun[0]["obs"], obs)
    assert (begun[1] is None) == (masks is None)
    assert ours.decode_outcome(reply.SerializeToString(), 9) is None


noise = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 3), st.binary(max_size=3)), max_size=5
)


def changed(message, changes):
    """Return a message with some bytes changed, left out or put in."""
    text = bytearray(message)
    for place, size, put in changes:
        at = place % (len(text) + 1)
        text[at : at + size] = put
    return bytes(text)


def parsed(kind, message):
    """Return a message as protobuf reads it; ``None`` if it is invalid."""
    try:
        return kind.FromString(message)
    except DecodeError:
        return None


TWO = codec_of(spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2), 2)


def outcome_of_two(**changes):
    """Return a step of two envs with one observed number each; the first episode ended."""
    fields = {
        "next": pb.Observations(obs=[bytes(8)], masks=b"\0\1\1\1"), "rewards": bytes(16),
        "terminated": b"\1\0", "truncated": bytes(2), "ended": [0], "final_obs": [bytes(4)],
    }  # fmt: skip
    return pb.Outcome(**{**fields, **changes})


@given(changes=noise, more=st.binary(max_size=40))
def test_answers_that_were_tampered_with_are_read_as_protobuf_reads_them(changes, more):
    """Or refused, without other errors or results."""
    reply = pb.Reply(sequence=1, outcome=outcome_of_two()).SerializeToString()
    message = changed(reply, changes) + more
    try:
        part = TWO.decode_outcome(message, 1)
    except (StreamError, ValueError):
        return
    if part is None:
        return  # read by protobuf
    theirs = parsed(pb.Reply, message)
    assert (theirs.sequence, theirs.WhichOneof("answer")) == (1, "outcome")
    step, masks = part
    for name in FIELDS:
        given = step.get(name)
        assert (b"" if given is None else given.tobytes()) == getattr(theirs.outcome, name)
    assert [step["obs"].tobytes()] == theirs.outcome.next.obs
    assert (b"" if masks is None else masks.tobytes()) == theirs.outcome.next.masks
    ended = list(theirs.outcome.ended)
    if ended:
        rows = np.frombuffer(theirs.outcome.final_obs[0], np.float32)
        last = dict(zip(ended, rows, strict=True))
        for env, row in last.items():
            assert step["final_obs"][env].tobytes() == row.tobytes()


@given(changes=noise, more=st.binary(max_size=40))
def test_requests_that_were_tampered_with_are_read_as_protobuf_reads_them(changes, more):
    """Or refused."""
    request = pb.Request(sequence=3, step=pb.Step(actions=[bytes(16)])).SerializeToString()
    message = changed(request, changes) + more
    try:
        sequence, actions = TWO.decode_request(message)
    except (StreamError, ValueError):
        return
    theirs = parsed(pb.Request, message)
    if actions is None:
        assert theirs is None or theirs.sequence == sequence  # protobuf reads the rest
    else:
        assert (theirs.sequence, theirs.WhichOneof("call")) == (sequence, "step")
        assert [actions.tobytes()] == list(theirs.step.actions)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"terminated": b""}, "expected terminated as 2 flags of 0 or 1, got 0 bytes"),
        ({"truncated": b"\1\2"}, "got 2 bytes, a 2 among them"),
        ({"rewards": bytes(15)}, "expected 16 bytes of rewards, got 15"),
        ({"next": pb.Observations(obs=[bytes(7)])}, "expected 8 bytes of observations, got 7"),
        ({"next": pb.Observations(obs=[bytes(8)], masks=b"\1\1\1")}, "masks of 2 envs, got 3"),
        ({"next": pb.Observations(obs=[bytes(8)], masks=b"\1\1\1\3")}, "a 3 among them"),
        ({"ended": [2]}, "env 2 ended, but there are 2 envs"),
        ({"ended": [0, 1, 0]}, "expected at most 2 envs that ended, got 3"),
        ({"final_obs": []}, "expected 1 arrays of observations, got 0"),
    ],
)
def test_arrays_that_are_not_as_the_spaces_say_are_refused(changes, text):
    """The error names the sent arrays."""
    reply = pb.Reply(sequence=1, outcome=outcome_of_two(**changes))
    with pytest.raises(ValueError, match=text):
        TWO.decode_outcome(reply.SerializeToString(), 1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rewards": np.zeros(3)}, r"expected rewards of 2 rows .*, got an array of shape \[3\]"),
        ({"terminated": np.zeros((2, 2), bool)}, r"expected terminated of 2 rows"),
        ({"obs": np.zeros((3, 1), np.float32)}, r"expected observations of 2 rows of shape \[1\]"),
        ({"final_obs": np.zeros(1)}, r"expected observations of 2 rows"),
    ],
)
def test_arrays_that_envs_must_not_return_are_refused(changes, text):
    """Before they are sent."""
    step = {
        "obs": np.zeros((2, 1)), "rewards": [0, 1], "terminated": [0, 0], "truncated": [True, 0],
        "final_obs": np.ones((2, 1)),
    }  # fmt: skip
    part = TWO.decode_outcome(TWO.encode_outcome(1, step, None), 1)
    assert part[0]["final_obs"].tolist() == [[1], [0]], "of other dtypes and lists, too"
    with pytest.raises(ValueError, match=text):
        TWO.encode_outcome(1, {**step, **changes}, None)
    with pytest.raises(KeyError, match="rewards"):
        TWO.encode_outcome(1, {k: v for k, v in step.items() if k != "rewards"}, None)


def test_arrays_share_no_memory():
    """None is a view of a message's bytes or of another array."""
    part = TWO.decode_outcome(pb.Reply(outcome=outcome_of_two()).SerializeToString(), 0)
    step, masks = part
    for array in (*step.values(), masks):
        array[...] = 1
    step["obs"][...] = 0
    assert (step["final_obs"] == 1).all()


def test_rows_that_are_not_there_and_dtypes_of_no_numbers_are_refused():
    """By the sender, as there would be nothing to read."""
    actions = np.zeros(3, np.int64)
    for first, rows in ((2, 3), (0, 1), (2**64 - 1, 3)):
        with pytest.raises(ValueError, match=f"envs from {first}"):
            TWO.encode_request(1, actions, first, rows)
    with pytest.raises(
        TypeError, match="observations 'a' must have a numeric dtype to be sent, got object"
    ):
        StepCodec((True, [("a", np.dtype("O"), (1,))]), leaves_of(spaces.Discrete(2)), 1)
    with pytest.raises(OverflowError, match="observations of"):
        StepCodec((False, [("", np.dtype("f8"), (2**62, 2**62))]), (False, []), 1)
