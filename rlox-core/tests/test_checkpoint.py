"""Tests of :mod:`rlox.training.checkpoint`: exact, atomic, and harmless whatever the file holds."""

import contextlib
import itertools
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import CheckpointError
from rlox.training.checkpoint import digest_of, read
from rlox.training.segments import pack, require_like, unpack

NUMPY_1 = np.__version__.startswith("1.")

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip


def trained(counting, **options):
    """Return an algorithm that has done two iterations."""
    algorithm = counting.CountingAlgorithm("CartPole-v1", **options)
    algorithm.train(16)
    return algorithm


@pytest.fixture(scope="module")
def saved(counting, tmp_path_factory):
    """Return a checkpoint that no test changes."""
    path = tmp_path_factory.mktemp("saved") / "c.rlox"
    trained(counting).save(path)
    return path


def write(path, manifest, tensors=None):
    """Write a file with a manifest of one's own, and the digest that goes with it."""
    text, tensors = manifest if isinstance(manifest, str) else json.dumps(manifest), tensors or {}
    metadata = {"rlox": text, "digest": digest_of(text, tensors)}
    path.write_bytes(safetensors.numpy.save(tensors, metadata=metadata))
    return path


def manifest_of(path):
    """Return a file's manifest as written and its tensors."""
    with safetensors.safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["rlox"]), tensors


def test_another_seed_goes_on_with_other_draws(counting, tmp_path):
    """They are that seed's own, and exact from there on; the same seed changes nothing."""
    trained(counting, seed=3).save(tmp_path / "c.rlox")

    def go_on(**options):
        algorithm = counting.CountingAlgorithm.from_checkpoint(tmp_path / "c.rlox", **options)
        algorithm.train(16)
        return algorithm

    reseeded, other = go_on(seed=7), trained(counting, seed=7)
    assert go_on(seed=3).draws.tolist() == go_on().draws.tolist() != reseeded.draws.tolist()
    assert reseeded.draws[2:].tolist() == other.draws.tolist()
    assert reseeded.config.seed == reseeded.streams.seed == 7
    reseeded.save(tmp_path / "c.rlox")
    other.train(16)
    assert go_on().draws[2:].tolist() == other.draws.tolist()


def test_env_without_an_id_must_be_passed(counting, tmp_path):
    """A callable is in no file."""
    algorithm = counting.CountingAlgorithm(lambda: None)
    algorithm.save(tmp_path / "c.rlox")
    with pytest.raises(CheckpointError, match="was trained on an env that no id alone makes; pass"):
        counting.CountingAlgorithm.from_checkpoint(tmp_path / "c.rlox")
    restored = counting.CountingAlgorithm.from_checkpoint(tmp_path / "c.rlox", "CartPole-v1")
    assert restored.env_source == "CartPole-v1"


def fail(*_, **__):
    """Raise what a full disk raises."""
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("culprit", ["os.fsync", "pathlib.Path.replace"])
def test_failed_write_leaves_the_old_file(counting, tmp_path, monkeypatch, culprit):
    """A failure at any point keeps the old checkpoint whole and leaves nothing else."""
    path = tmp_path / "c.rlox"
    algorithm = trained(counting)
    algorithm.save(path)
    before = path.read_bytes()
    algorithm.train(8)
    with monkeypatch.context() as patch:
        patch.setattr(culprit, fail)
        with pytest.raises(OSError, match="No space left") as caught:
            algorithm.save(path)
        assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.rlox"]
    algorithm.save(path)
    assert counting.CountingAlgorithm.from_checkpoint(path).clock.env_steps == 24


def test_link_stays_and_its_file_is_written(counting, tmp_path):
    """A link to the newest checkpoint leads to the new one, in whatever folder that lies."""
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "c.rlox", tmp_path / "latest.rlox"
    link.symlink_to(target)
    for _ in range(2):
        trained(counting).save(link)
        assert link.is_symlink()
        assert read(target)["name"] == "counting"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["c.rlox", "elsewhere", "latest.rlox"]


def test_unpackable_state_leaves_the_old_file(counting, tmp_path, monkeypatch):
    """A state that cannot be written is an error before the disk is touched."""
    path = tmp_path / "c.rlox"
    algorithm = trained(counting)
    algorithm.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(type(algorithm), "state_dict", lambda self: {"f": print})
    with pytest.raises(TypeError, match=r"^state at 'algorithm\.f' must be an array or a plain"):
        algorithm.save(path)
    assert path.read_bytes() == before


def round_trip(state):
    """Pack, write as bytes, read back and unpack."""
    tensors = {}
    text = json.dumps(pack(state, "", tensors))
    return unpack(json.loads(text), safetensors.numpy.load(safetensors.numpy.save(tensors)))


def assert_same(a, b):
    """Compare nested states exactly, arrays with dtype and shape."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    else:
        assert a == b or (a != a and b != b)


def test_array_round_trip():
    """Every real dtype and every shape come back as they were."""
    for dtype, shape in itertools.product(DTYPES, [(), (0,), (3,), (2, 0, 3), (2, 3)]):
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        assert_same(round_trip({"a": array})["a"], array)
        assert_same(round_trip({"a": array.T})["a"], np.asarray(array.T, order="C"))


arrays = st.builds(
    lambda dtype, shape: np.random.default_rng(0).integers(0, 2, shape).astype(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | arrays
)
keys = st.sampled_from(["a", "b", "a.b", "0", "a.0", ""]) | st.text("ab.#0", max_size=4)
states = st.dictionaries(
    keys,
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_size=4,
)


@given(states)
def test_nested_state_round_trip(state):
    """Whatever the nesting and the keys, also those that look like paths."""
    assert_same(round_trip(state), state)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {0: 1}}, "the keys of the state at 'a' must be text, not '$tensor'"),
        ({"a": {"$tensor": "b"}}, "the keys of the state at 'a' must be text, not '$tensor'"),
        ({"a": np.array([None])}, "state at 'a' must be of a real dtype, got object"),
        ({"a": np.array(["x"])}, "state at 'a' must be of a real dtype, got <U1"),
        ({"a": [1, np.zeros(1, complex)]},
         "state at 'a.1' must be of a real dtype, got complex128"),
        ({"a": {1, 2}}, "state at 'a' must be an array or a plain value, got <class 'set'>"),
        ({"a": b"x"}, "state at 'a' must be an array or a plain value, got <class 'bytes'>"),
    ],
)  # fmt: skip
def test_state_that_would_not_come_back_is_refused(state, message):
    """What cannot be read back as it was is not written."""
    with pytest.raises(TypeError) as caught:
        pack(state, "", {})
    assert str(caught.value) == message


def test_truncated_file_is_refused(counting, saved, tmp_path):
    """Wherever a file ends too early, it is damaged."""
    cut, data = tmp_path / "cut.rlox", saved.read_bytes()
    for length in [*range(0, len(data), 256), len(data) - 1]:
        cut.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="is damaged or not an rlox checkpoint"):
            counting.CountingAlgorithm.from_checkpoint(cut)


def test_every_changed_byte_is_reported(counting, saved, tmp_path):
    """Wherever a byte changes, also among the numbers, the file is damaged."""
    path, data = tmp_path / "c.rlox", saved.read_bytes()
    for position in [*range(0, len(data), 41), len(data) - 1]:
        changed = bytearray(data)
        changed[position] ^= 0x15
        path.write_bytes(changed)
        with pytest.raises(CheckpointError):
            counting.CountingAlgorithm.from_checkpoint(path)


def test_changed_file_without_its_digest_is_a_checkpoint_error(counting, saved, tmp_path):
    """Where its author made the digest too, a wrong byte raises that error or none."""
    changed = tmp_path / "changed.rlox"
    manifest, tensors = manifest_of(saved)
    text = bytearray(json.dumps(manifest).encode())
    for position in range(0, len(text), 11):
        damaged = bytearray(text)
        damaged[position] ^= 0x15
        write(changed, damaged.decode(errors="replace"), tensors)
        with contextlib.suppress(CheckpointError):
            counting.CountingAlgorithm.from_checkpoint(changed)


class Bomb:
    """Shouts when unpickled."""

    def __reduce__(self):
        """Return a call for the unpickler to make."""
        return (print, ("unpickled",))


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "null", '"x"', "{}", "[" * 100_000, '{"a":' * 100_000,
        '{"format_version": 3}', '{"format_version": 3, "state": {"$tensor": "absent"}}',
        '{"format_version": 3, "state": {"$tensor": []}}', '{"format_version": ' + "9" * 5000 + "}",
        '{"format_version": "1", "state": {}}', '{"format_version": true, "state": {}}',
        '{"format_version": NaN, "state": {}}', '{"format_version": 0, "state": {}}',
    ],
    ids=lambda text: text[:40] or "empty",
)  # fmt: skip
def test_hostile_manifest_is_refused(tmp_path, text):
    """Wrong types, missing parts, deep nesting and long numbers are all damage."""
    with pytest.raises(CheckpointError):
        read(write(tmp_path / "c.rlox", text))


@pytest.mark.parametrize(
    ("version", "message"),
    [(10**30, r"10+, this rlox reads 3; upg"), (1, "1, this rlox reads 3; train")],
    ids=["newer", "older"],
)
def test_other_formats_are_refused(tmp_path, version, message):
    """A newer one asks for an upgrade; no older one ever left the house."""
    path = write(tmp_path / "c.rlox", {"format_version": version, "state": {}})
    with pytest.raises(CheckpointError, match=f"has format version {message}"):
        read(path)


@pytest.mark.parametrize("version", [1, 3])
def test_the_digest_is_checked_whatever_the_version_says(tmp_path, version):
    """An older version is no way around it."""
    path = tmp_path / "c.rlox"
    metadata = {"rlox": json.dumps({"format_version": version, "state": {}}), "digest": "0"}
    path.write_bytes(safetensors.numpy.save({}, metadata=metadata))
    with pytest.raises(CheckpointError):
        read(path)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        *(("env_steps", steps) for steps in (2**60, True, 1.5, "3", None)),
        *((name, -1) for name in ("env_steps", "gradient_steps", "iterations", "target_env_steps")),
    ],
)
def test_a_count_that_no_training_reaches_is_refused(counting, saved, tmp_path, name, steps):
    """By its name and its value."""
    manifest, tensors = manifest_of(saved)
    manifest["state"]["clock"][name] = steps
    path = write(tmp_path / "c.rlox", manifest, tensors)
    with pytest.raises(CheckpointError, match=f"{name} must be an integer in"):
        counting.CountingAlgorithm.from_checkpoint(path)


def test_what_a_checkpoint_does_not_fit_is_closed(counting, saved, monkeypatch):
    """Its envs' processes and its buffer's file do not wait for the garbage collector."""
    closed = []

    def refuse(self, state):
        raise ValueError("it is of another size")

    monkeypatch.setattr(counting.CountingAlgorithm, "load_state_dict", refuse)
    monkeypatch.setattr(counting.CountingAlgorithm, "close", lambda self: closed.append(self.name))
    with pytest.raises(CheckpointError, match="does not fit"):
        counting.CountingAlgorithm.from_checkpoint(saved)
    assert closed == [counting.CountingAlgorithm.name]


def test_an_array_of_another_dtype_is_refused(counting, saved, tmp_path):
    """And not converted."""
    manifest, tensors = manifest_of(saved)
    tensors["algorithm.draws"] = tensors["algorithm.draws"].astype(np.float32)
    path = write(tmp_path / "c.rlox", manifest, tensors)
    with pytest.raises(CheckpointError, match=r"'algorithm\.draws' is of dtype float"):
        counting.CountingAlgorithm.from_checkpoint(path)


def test_a_sparse_file_larger_than_the_memory_is_refused_unread(tmp_path):
    """It takes no room on the disk, and would take all of the memory."""
    path = tmp_path / "c.rlox"
    size = 1 << 42
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    try:
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)
    except OSError:
        pytest.skip("the file system has no files of 4 TiB")
    with pytest.raises(CheckpointError, match=r"it would take at least 4\.0 TiB, and .* available"):
        read(path)


def test_checkpoint_cannot_ask_for_more_envs_than_it_records(
    counting, saved, tmp_path, monkeypatch
):
    """A small file that asks for a machine's whole memory is refused before anything is built."""
    path = tmp_path / "c.rlox"
    manifest, tensors = manifest_of(saved)
    write(path, {**manifest, "config": {**manifest["config"], "n_envs": 10_000}}, tensors)
    monkeypatch.setattr(counting.CountingAlgorithm, "__init__", fail)
    with pytest.raises(CheckpointError) as caught:
        counting.CountingAlgorithm.from_checkpoint(path)
    assert str(caught.value) == (
        f"checkpoint '{path}' has n_envs = 10000 but holds 2 numbers, fewer than that takes; "
        "it is not loaded"
    )


def test_other_algorithm_is_refused(counting, saved, tmp_path):
    """The error names both."""
    manifest, tensors = manifest_of(saved)
    path = write(tmp_path / "c.rlox", {**manifest, "name": "sac"}, tensors)
    with pytest.raises(CheckpointError, match="holds the algorithm 'sac', not 'counting'"):
        counting.CountingAlgorithm.from_checkpoint(path)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("name",), None),
        (("config",), []),
        (("config",), {"__class__": "os.system"}),
        (("env_id",), 3),
        (("env_id",), "no_such_module_anywhere:Env-v0"),
        (("state",), []),
        (("state", "clock"), {"env_steps": 1}),
        (("state", "clock"), {"env_steps": float("inf")}),
        (("state", "clock"), []),
        (("state", "clock", "env_steps"), {}),
        (("state", "streams"), None),
        (("state", "streams", "seed"), float("inf")),
        (("state", "streams", "numpy"), [1]),
        (("state", "streams", "numpy", "draws"), {"bit_generator": "os.system"}),
        pytest.param(("state", "streams", "numpy", "draws", "state"), {"state": -1, "inc": 0},
         marks=pytest.mark.skipif(NUMPY_1, reason="NumPy 1 takes -1 for the largest number")),
        (("state", "streams", "numpy", "draws", "state"), {"state": 1e300, "inc": "x"}),
        (("state", "algorithm"), None),
        (("state", "algorithm", "draws"), {"a": 1}),
        (("state", "algorithm", "draws"), "text"),
    ],
)  # fmt: skip
def test_hostile_content_is_a_checkpoint_error(counting, saved, tmp_path, keys, value):
    """A wrong value anywhere in a well-formed file raises that error and no other."""
    manifest, tensors = manifest_of(saved)
    target = manifest
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    path = write(tmp_path / "c.rlox", manifest, tensors)
    with pytest.raises(CheckpointError):
        counting.CountingAlgorithm.from_checkpoint(path)


AUDIT = """
import sys
sys.path.insert(0, {folder!r})
import importlib.metadata, json, gymnasium, numpy, safetensors.numpy, rlox.training.checkpoint
import counting_algorithm
gymnasium.make("CartPole-v1")
try:
    numpy.random.PCG64().state = 3
except Exception:
    pass
seen = []

def audit(event, arguments):
    if event in ("pickle.find_class", "os.system", "subprocess.Popen", "compile", "exec"):
        seen.append((event, str(arguments[0])[:80]))
    if event == "import":
        seen.append((event, arguments[0]))

sys.addaudithook(audit)
for path in sys.argv[1:]:
    try:
        counting_algorithm.CountingAlgorithm.from_checkpoint(path)
    except rlox.errors.CheckpointError:
        pass
print(json.dumps(seen))
"""


def test_loading_runs_no_code_from_the_file(saved, tmp_path):
    """Under an audit hook, a load unpickles, evaluates and imports nothing that a file names."""
    manifest, tensors = manifest_of(saved)
    evil = tmp_path / "evil_module.py"
    evil.write_text("raise SystemExit('imported')", encoding="utf-8")
    hostile = [saved]
    for number, change in enumerate(
        [
            {"env_id": "evil_module:Env-v0"},
            {"name": "evil_module:Class"},
            {"config": {"n_envs": "__import__('evil_module')", "seed": "evil_module"}},
            {"state": {**manifest["state"], "algorithm": {"draws": "evil_module:f"}}},
        ]
    ):
        hostile.append(write(tmp_path / f"{number}.rlox", {**manifest, **change}, tensors))
    bomb = tmp_path / "bomb.rlox"
    bomb.write_bytes(pickle.dumps(Bomb()))
    code = AUDIT.format(folder=str(Path(__file__).parent))
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, [*hostile, bomb])],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    seen = json.loads(result.stdout)
    assert not [entry for entry in seen if entry[0] != "import"]
    assert not [name for _, name in seen if "evil" in name]


def test_numbers_of_a_policy_of_ones_own_are_its_business():
    """What is infinite from the beginning may be so, and a parameter have any name."""
    fresh = {"mask": np.array([0.0, -np.inf]), "variance": np.ones(2), "step": np.zeros(1)}
    require_like({**fresh, "variance": -np.ones(2), "step": -np.ones(1)}, fresh)
    for name in fresh:
        with pytest.raises(CheckpointError, match="is not finite"):
            require_like({**fresh, name: np.full_like(fresh[name], np.nan)}, fresh)
    with pytest.raises(CheckpointError, match="must lie in"):
        require_like({"mean": np.ones(2), "variance": -np.ones(2)}, {})
