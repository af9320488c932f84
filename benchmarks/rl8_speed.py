"""``collect`` and ``step`` of PPO on batched envs: rlox and rl8 1.0, in one process and in turn.

Both have the same env, the same options and their own default networks on one thread; processor
time is compared. Peak memory and the import are measured in processes of their own. rl8 may be in
another environment than rlox: put a folder that has it on ``PYTHONPATH``. ``cartpole`` is the env
of ``examples/rl8_cartpole.py``, and ``compiled`` the same with its step compiled by torch, as in
rl8's examples.

On a GPU, wall-clock time is compared, and rlox also runs with the option ``compile``, which
replays a CUDA graph for each step and each minibatch.

    python benchmarks/rl8_speed.py [--rounds 5] [--envs 64 1024 8192] [--peak-envs 64 1024 8192]
        [--env dummy cartpole compiled] [--device cuda]
"""

from __future__ import annotations

import argparse
import importlib
import os
import warnings
from typing import Any

import torch
from clocks import clock_of, gpu_of
from measure import machine, ratio_summary, run_process, summary, write
from rl8_learning import example

CONTENDERS = {"rlox": "rlox.rl8", "rl8": "rl8"}
COMPILED = "rlox, compiled"
KINDS = ("AlgorithmConfig", "RecurrentAlgorithmConfig")
NETWORKS: dict[str, dict[str, dict[str, Any]]] = {
    "AlgorithmConfig": {"default": {}, "64x64": {"hiddens": (64, 64)}},
    "RecurrentAlgorithmConfig": {"default": {}, "64": {"hidden_size": 64}},
}
"""Options of the default models, by kind and name in the rows."""
ENVS = ("dummy", "cartpole", "compiled")


def make(
    contender: str, kind: str, network: str, num_envs: int, env: str = "dummy", device: str = "cpu"
) -> Any:
    """Return an algorithm on an env with discrete actions."""
    library = CONTENDERS[contender.partition(",")[0]]
    module = importlib.import_module(library)
    envs = importlib.import_module(f"{library}.env")
    more = {"compile": True} if contender == COMPILED else {}
    config = getattr(module, kind)(
        num_envs=num_envs, device=device, model_config=NETWORKS[kind][network], **more
    )
    return config.build(envs.DiscreteDummyEnv if env == "dummy" else cart_pole(env == "compiled"))


def cart_pole(is_compiled: bool) -> Any:
    """Return the example's class of envs; with a compiled step a new class each time."""
    found = example("cartpole").CartPole
    bounds = {"max_num_envs": 1_000_000, "max_horizon": 128}  # as rl8's own class has
    own = {"step": torch.compile(found.step)} if is_compiled else {}
    return type("CartPole", (found,), {**bounds, **own})


def compare(
    kind: str, network: str, num_envs: int, env: str, rounds: int, device: str
) -> dict[str, Any]:
    """Return milliseconds of each, and rl8's over rlox's within rounds."""
    names = [*CONTENDERS, COMPILED] if device == "cuda" else list(CONTENDERS)
    made = {name: make(name, kind, network, num_envs, env, device) for name in names}
    now = clock_of(device)
    seconds: dict[tuple[str, str], list[float]] = {
        (name, call): [] for name in made for call in ("collect", "step", "both")
    }
    for i in range(rounds + 1):
        for name, algorithm in made.items():
            for call in ("collect", "step"):
                started = now()
                getattr(algorithm, call)()
                if i:  # the first round warms up
                    seconds[name, call].append(now() - started)
    for name in made:
        calls = zip(seconds[name, "collect"], seconds[name, "step"], strict=True)
        seconds[name, "both"] = [sum(pair) for pair in calls]
    row: dict[str, Any] = {"kind": kind, "network": network, "num_envs": num_envs, "env": env}
    for call in ("collect", "step", "both"):
        row[call] = {
            **{f"{name}_ms": summary([1e3 * x for x in seconds[name, call]]) for name in names},
            "ratio": ratio_summary(seconds["rl8", call], seconds["rlox", call]),
        }
        if COMPILED in names:
            row[call]["ratio, compiled"] = ratio_summary(
                seconds["rl8", call], seconds[COMPILED, call]
            )
        medians = ", ".join(f"{name} {row[call][f'{name}_ms']['median']:.1f} ms" for name in names)
        ratio = row[call]["ratio"]
        print(
            f"{kind:24s} {network:8s} {num_envs:5d} {env:8s} {call:8s} {medians}: "
            f"{ratio['median']:5.2f}x ({ratio['min']:.2f}-{ratio['max']:.2f})",
            flush=True,
        )
    return row


PEAK = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
import importlib
from measure import peak_mib
from rl8_speed import CONTENDERS, make
importlib.import_module(CONTENDERS[{contender!r}])
before = peak_mib()
algorithm = make({contender!r}, {kind!r}, "default", {num_envs})
algorithm.collect()
algorithm.step()
print(peak_mib(), before)
"""


def peaks(kind: str, num_envs: int, rounds: int) -> dict[str, Any]:
    """Return the peak MiB of a process of each, and the MiB after importing."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in CONTENDERS:
            values = {
                "folder": os.path.dirname(os.path.abspath(__file__)),
                "contender": name,
                "kind": kind,
                "num_envs": num_envs,
            }
            peak, imports = map(float, run_process(PEAK.format(**values))[2].split())
            found.setdefault(name, []).append(peak)
            found.setdefault(f"{name}, imports", []).append(imports)
    row: dict[str, Any] = {"kind": kind, "num_envs": num_envs}
    row |= {name: summary(values) for name, values in found.items()}
    row["share_of_rl8"] = ratio_summary(found["rlox"], found["rl8"])
    print(f"{kind:24s} {num_envs:5d} peak {row['rlox']['median']:.0f} MiB, "
          f"rl8 {row['rl8']['median']:.0f} MiB", flush=True)  # fmt: skip
    return row


def imports(rounds: int) -> dict[str, Any]:
    """Return processor milliseconds of importing the algorithms and their shared dependencies."""
    codes = {
        "rlox": "from rlox.rl8 import AlgorithmConfig",
        "rl8": "import warnings; warnings.simplefilter('ignore'); from rl8 import AlgorithmConfig",
        "torch": "import torch",
        "torch, tensordict and torchrl": "import torch, tensordict, torchrl.data",
    }
    found: dict[str, list[float]] = {name: [] for name in codes}
    for i in range(rounds + 1):
        for name, code in codes.items():
            used = 1e3 * run_process(code)[1]
            if i:  # the first of each fills the file cache
                found[name].append(used)
    row = {name: summary(values) for name, values in found.items()}
    print({name: round(figures["median"]) for name, figures in row.items()}, flush=True)
    return {**row, "share_of_rl8": ratio_summary(found["rlox"], found["rl8"])}


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/rl8_speed.json`` after each row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--envs", type=int, nargs="*", default=[64, 1024, 8192])
    parser.add_argument("--peak-envs", type=int, nargs="*", default=[64, 1024, 8192])
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--env", nargs="*", choices=ENVS, default=ENVS[:1])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--networks", nargs="*", help="names of the rows; all by default")
    parser.add_argument("--processes", type=int, default=3, help="rounds of memory and import")
    parser.add_argument("--name", default="rl8_speed", help="name of the results file")
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    where = machine(["rlox-core", "rlox-rl8", "torch", "tensordict", "torchrl"])
    result: dict[str, Any] = {
        "rounds": given.rounds,
        "machine": {**where, **gpu_of(given.device)},
        "threads": 1,
        "rows": [],
    }
    rows = [
        (kind, network, num_envs, env)
        for num_envs in given.envs
        for env in given.env
        for kind in given.kinds
        for network in NETWORKS[kind]
        if not given.networks or network in given.networks
    ]
    kept = (lambda: None) if given.dry_run else (lambda: write(given.name, result))
    for row in rows:
        result["rows"].append(compare(*row, given.rounds, given.device))
        kept()
    if given.processes:
        result["import_ms_of_processor"] = imports(given.processes)
        result["peak_mib"] = []
        for num_envs in given.peak_envs:
            for kind in given.kinds:
                result["peak_mib"].append(peaks(kind, num_envs, 1))
                kept()
    print(kept())


if __name__ == "__main__":
    main()
