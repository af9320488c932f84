"""Fuzzing of checkpoints, policies, datasets, configs, models and run folders, by seed.

``python tests/foreign_files.py 2000`` makes so many files of every kind and prints what became of
them: refused with an error of rlox, loaded, or a fault, with the seed and number that repeat it.
A file with bytes changed may load only if what is loaded is what was saved. One whose values were
changed by an author who knows the format may load if they are possible values.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import rlox
import rlox.deployment
import safetensors
import safetensors.numpy
import yaml
from rlox.cli.runs.options import RunOptions
from rlox.cli.runs.run import resume_in_folder, train_in_folder
from rlox.errors import RloxError
from rlox.registry import config_class
from rlox.training import checkpoint
from rlox_offline.datasets import Dataset, load_dataset, save_dataset
from rlox_offline.datasets.files import FORMATS
from rlox_tools.analysis import read_run
from rlox_tools.deployment.stable_baselines3 import from_stable_baselines3

EDGES = (0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
VALUES = (
    *EDGES, 1e308, -0.5, float("nan"), float("inf"), None, True, "", "x" * 1000, [], {}, [[[]]],
    {"$tensor": "none"}, {"$tensor": 3}, [0] * 1000, "../../etc/passwd", "os:system",
)  # fmt: skip
SNIPPETS = (
    "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\n"
    "c: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\n"
    "hidden: [*d, *d, *d, *d, *d, *d, *d, *d]\n",
    "hidden: " + "[" * 5_000 + "\n",
    "? [1, 2]\n: 3\n",
    "3: 4\n",
    "<<: {n_envs: 2}\n",
    "n_envs: !!python/object/apply:os.system [exit]\n",
    "seed: 1_000_000_000_000_000_000_000_000\n",
    "hidden: " + "9" * 5_000 + "\n",
)


@dataclass
class Count:
    """What became of the files of one kind."""

    tried: int = 0
    refused: int = 0
    loaded: int = 0
    faults: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)


def damage(rng, contents):
    """Return contents with bits flipped, bytes overwritten, moved, inserted or cut off."""
    changed = bytearray(contents)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(changed))
        kind = rng.randrange(6)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            block = rng.randbytes(rng.choice((1, 4, 64)))
            changed[at : at + len(block)] = block
        elif kind == 2:
            changed[at : at + 8] = struct.pack("<q", rng.choice(EDGES))
        elif kind == 3:
            there = rng.randrange(len(changed))
            changed[at : at + 16] = changed[there : there + 16]
        elif kind == 4:
            del changed[at : at + rng.choice((1, 16, len(changed) - at - 1))]
        else:
            changed[at:at] = rng.randbytes(rng.choice((1, 16, 1000)))
        if not changed:
            break
    return bytes(changed)


def edit(rng, tree):
    """Return a copy of a tree of JSON with one value replaced."""
    tree = json.loads(json.dumps(tree))
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        inner = node[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.1:
            break
        node = inner
    if rng.random() < 0.1 and isinstance(node, dict):
        del node[key]
    else:
        node[key] = rng.choice(VALUES)
    return tree


def attempt(count, name, path, load):
    """Load one file and count what became of it."""
    count.tried += 1
    begun = time.process_time()
    try:
        right = load(path)
    except RloxError:
        count.refused += 1
    except Exception as error:  # of which there should be none
        count.faults.append(f"{name}: {type(error).__name__}: {error}"[:300])
    else:
        if right:
            count.loaded += 1
        else:
            count.faults.append(f"{name}: changed contents were loaded")
    if time.process_time() - begun > 1:
        count.slow.append(name)


def checkpoints(folder, n, seed):
    """Try half with damaged bytes, half with an edited manifest and its own digest."""
    honest, path, count = folder / "honest.rlox", folder / "tried.rlox", Count()
    with rlox.make("ppo", env="CartPole-v1", n_envs=2, n_steps=8, hidden=4, seed=0) as ppo:
        ppo.train(16)
        ppo.save(honest)
        acting = ppo.predict(np.ones((3, 4), np.float32))
    contents = honest.read_bytes()
    with safetensors.safe_open(honest, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        manifest = json.loads(file.metadata()["rlox"])
    same = checkpoint.read(honest)["config"]

    def restored(path):
        algorithm = rlox.algorithms.PPO.from_checkpoint(path)
        algorithm.close()
        return algorithm

    def as_saved(path):
        algorithm = restored(path)
        equal = checkpoint.read(path)["config"] == same
        return equal and bool((algorithm.predict(np.ones((3, 4), np.float32)) == acting).all())

    for i in range(n):
        rng = random.Random(f"{seed} {i}")
        if i % 2:
            path.write_bytes(damage(rng, contents))
            attempt(count, f"checkpoint {i}", path, as_saved)
        else:
            text = json.dumps(edit(rng, manifest))
            metadata = {"rlox": text, "digest": checkpoint.digest_of(text, tensors)}
            path.write_bytes(safetensors.numpy.save(tensors, metadata=metadata))
            attempt(count, f"checkpoint {i}", path, lambda path: restored(path) is not None)
    return count


def policies(folder, n, seed):
    """Try damaged bytes; a policy that is loaded acts as the one that was exported."""
    honest, path, count = folder / "honest.rlox", folder / "tried.rlox", Count()
    observations = np.ones((3, 4), np.float32)
    with rlox.make("ppo", env="CartPole-v1", n_envs=2, n_steps=8, hidden=4, seed=0) as ppo:
        rlox.deployment.export(ppo, honest)
    contents = honest.read_bytes()
    acting = rlox.load_policy(honest).predict(observations)

    def as_saved(path):
        return bool((rlox.load_policy(path).predict(observations) == acting).all())

    for i in range(n):
        path.write_bytes(damage(random.Random(f"{seed} {i}"), contents))
        attempt(count, f"policy {i}", path, as_saved)
    return count


def datasets(folder, n, seed, suffix):
    """Try damaged bytes; what is loaded must be what was saved."""
    draws, rows = np.random.default_rng(seed), 100
    columns = {
        "obs": draws.normal(size=(rows, 3)),
        "next_obs": draws.normal(size=(rows, 3)),
        "actions": draws.uniform(-1, 1, (rows, 2)),
        "rewards": draws.normal(size=rows),
        "terminated": np.arange(rows) % 20 == 19,
    }
    dataset = Dataset(columns, act_low=-1.0, act_high=1.0, env_id="Some-v0")
    honest, path, count = folder / f"honest{suffix}", folder / f"tried{suffix}", Count()
    save_dataset(dataset, honest)
    contents = honest.read_bytes()

    def as_saved(path):
        loaded = load_dataset(path)
        return loaded.metadata() == dataset.metadata() and all(
            np.array_equal(column, loaded.columns[name]) for name, column in dataset.columns.items()
        )

    for i in range(n):
        path.write_bytes(damage(random.Random(f"{seed} {i}"), contents))
        attempt(count, f"{suffix} {i}", path, as_saved)
    return count


def configs(folder, n, seed):
    """Try damaged bytes, edited values and hostile YAML."""
    path, count = folder / "tried.yaml", Count()
    config = config_class("ppo")(seed=0)
    text, values = config.to_yaml(), json.loads(json.dumps(config.to_dict()))
    for i in range(n):
        rng = random.Random(f"{seed} {i}")
        if i % 3 == 0:
            path.write_bytes(damage(rng, text.encode()))
        elif i % 3 == 1:
            path.write_text(json.dumps(edit(rng, values)), encoding="utf-8")
        else:
            lines = text.splitlines(keepends=True)
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(SNIPPETS))
            path.write_text("".join(lines), encoding="utf-8")
        attempt(count, f"config {i}", path, lambda path: type(config).load(path) is not None)
    return count


def models(folder, n, seed):
    """Try damaged bytes of a model of Stable-Baselines3, whose members have check sums."""
    import stable_baselines3

    honest, path, count = folder / "honest.zip", folder / "tried.zip", Count()
    observations = np.ones((3, 4), np.float32)
    stable_baselines3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8).save(honest)
    contents = honest.read_bytes()
    acting = from_stable_baselines3(honest, "CartPole-v1").predict(observations)

    def as_saved(path):
        policy = from_stable_baselines3(path, "CartPole-v1")
        return bool((policy.predict(observations) == acting).all())

    for i in range(n):
        path.write_bytes(damage(random.Random(f"{seed} {i}"), contents))
        attempt(count, f"model {i}", path, as_saved)
    return count


def hurt(rng, run, victim):
    """Damage, edit or remove one file of a run folder, or put something else in its place."""
    file = rng.choice(sorted(path for path in run.rglob("*") if path.is_file()))
    kind = rng.randrange(6)
    if kind == 0 and file.suffix in (".json", ".yaml"):
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        edited = edit(rng, tree)
        if "options" in edited and isinstance(edited["options"], dict):
            edited["options"]["eval_episodes"] = tree["options"]["eval_episodes"]  # asks for time
        file.write_text(json.dumps(edited), encoding="utf-8")
        return
    contents = file.read_bytes()
    file.unlink()
    if kind == 1:
        file.symlink_to(victim)
    elif kind == 2:
        os.mkfifo(file)
    elif kind == 3:
        file.mkdir()
    elif kind == 4:
        shutil.rmtree(file.parent) if file.parent != run else None
    else:
        file.write_bytes(damage(rng, contents or b"?"))


def run_folders(folder, n, seed):
    """Try to resume runs of which one file is not what it was; nothing outside is touched."""
    honest, path, victim = folder / "honest", folder / "tried", folder / "honest.txt"
    count, silence = Count(), io.StringIO()
    options = RunOptions("CartPole-v1", 64, run_dir=honest, eval_episodes=1, quiet=True,
                         checkpoint_freq="32")  # fmt: skip
    config = config_class("ppo")(n_envs=2, n_steps=8, batch_size=16, hidden=4, seed=0)
    train_in_folder("ppo", config, options, log=silence)
    record = json.loads((honest / "run.json").read_text(encoding="utf-8")) | {"status": "running"}
    (honest / "run.json").write_text(json.dumps(record), encoding="utf-8")
    for name in ("final", "step-64"):
        (honest / f"checkpoints/{name}.safetensors").unlink()
    victim.write_text("untouched", encoding="utf-8")
    outside = sorted(folder.iterdir())

    def resumed(path):
        try:
            with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
                read_run(path)
                resume_in_folder(path, env=None, quiet=True, log=silence)
            return json.loads((path / "run.json").read_text("utf-8"))["status"] == "finished"
        finally:
            assert victim.read_text(encoding="utf-8") == "untouched"
            assert sorted(set(folder.iterdir()) - {path}) == outside

    for i in range(n):
        shutil.copytree(honest, path)
        hurt(random.Random(f"{seed} {i}"), path, victim)
        attempt(count, f"run folder {i}", path, resumed)
        shutil.rmtree(path)
    return count


def every_kind(n, seed):
    """Try n of each kind, n datasets over all formats, and n / 4 configs and models."""
    suffixes = sorted(set(FORMATS) - {".hdf5", ".feather"})  # the same by another name
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        with contextlib.chdir(folder) if sys.version_info >= (3, 11) else contextlib.nullcontext():
            counts = {"checkpoint": checkpoints(folder, n, seed)}
            counts["policy"] = policies(folder, n, seed)
            for suffix in suffixes:
                each = -(-n // len(suffixes))
                counts[f"dataset `{suffix}`"] = datasets(folder, each, seed, suffix)
            counts["config"] = configs(folder, -(-n // 4), seed)
            counts["model of Stable-Baselines3"] = models(folder, -(-n // 4), seed)
            counts["run folder"] = run_folders(folder, n, seed)
            left = {path.stem for path in folder.iterdir()} - {"honest", "tried"}
    assert not left, f"files were made: {left}"
    return counts


def main():
    """Print the table, and what took over a second; the exit status is 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int, nargs="?", default=200, help="files of a kind")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = every_kind(given.n, given.seed)
    print("| kind | tried | refused | loaded right | raw errors | over 1 s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for kind, count in counts.items():
        cells = (count.tried, count.refused, count.loaded, len(count.faults), len(count.slow))
        print(f"| {kind} | {' | '.join(map(str, cells))} |")
    faults = [line for count in counts.values() for line in count.faults]
    print(*faults, *(line for count in counts.values() for line in count.slow), sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
