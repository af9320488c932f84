"""``rlox doctor``: versions, backends, devices, threads and missing extras on one screen."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from rlox.cli.output import print_pairs
from rlox.errors import RloxError, name_clash, requirement
from rlox.registry.table import Registration, Registry, load_plugins, resolve


def doctor_command() -> None:
    """Show versions, backends, devices, threads and missing parts, to paste into an issue."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = f"{usable} of {os.cpu_count()} cores"
    print_pairs({"platform": platform.platform(), "processor": f"{processor()}, {cores}"}, width=12)
    from rlox.training.checkpoint import installed_versions  # slow, as it imports gymnasium

    problems = [clash] if (clash := name_clash()) else []
    registry = _load(problems)
    torch, native = (_imported(name, problems) for name in ("torch", "rlox_native"))
    threads = [f"{m.__name__} {m.get_num_threads()}" for m in (native, torch) if m is not None]
    threads.append(f"OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'unset')}")
    missing = _missing_extras()
    print_pairs(
        {
            "versions": ", ".join(f"{name} {each}" for name, each in installed_versions().items()),
            "env backends": ", ".join(map(_usability, registry.by_priority("rlox_env_backends"))),
            "learners": ", ".join(map(_usability, registry.by_priority("rlox_learner_backends"))),
            "devices": _devices(torch),
            "threads": ", ".join(threads),
            **{f"problem {i}": problem for i, problem in enumerate(problems, start=1)},
            "missing": "" if missing else "nothing",
            **{f"  {extra}": remedy for extra, remedy in missing.items()},
        },
        width=12,
    )


def _load(problems: list[str]) -> Registry:
    """Return the registry of the plugins, and append their problems."""
    registry = Registry([])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            registry = Registry(load_plugins())
        except RloxError as error:
            problems.append(str(error))
    problems += [*(str(each.message) for each in caught), *registry.conflicts()]
    return registry


def _imported(name: str, problems: list[str]) -> Any:
    """Return a module, or ``None`` if it is missing or broken; the latter is a problem."""
    try:
        return importlib.import_module(name) if importlib.util.find_spec(name) else None
    except Exception as error:
        problems.append(f"{name} cannot be imported: {type(error).__name__}: {error}")
        return None


def processor() -> str:
    """Return the processor's name, family and model, because clouds hide the end of the name."""
    info = Path("/proc/cpuinfo")  # for systems where platform.processor() is empty
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if not {"model name", "cpu family", "model"} <= cpu.keys():
        return cpu.get("model name", platform.processor())
    return f"{cpu['model name']}, family {cpu['cpu family']}, model {cpu['model']}"


def _usability(backend: Registration) -> str:
    """Return a backend's name, with the reason if it cannot be used."""
    probe = getattr(backend.spec, "unavailable", None)
    try:
        resolve(backend.spec.factory)
        reason = resolve(probe)() if probe else ""
    except ModuleNotFoundError as error:
        reason = f"{error.name} is missing"
    except Exception as error:  # users look for a plugin's error here
        reason = f"{type(error).__name__}: {error}"
    return f"{backend.spec.name} (not usable: {reason})" if reason else backend.spec.name


def _devices(torch: Any) -> str:
    if torch is None:
        return "none without torch"
    cuda = (f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count()))
    return ", ".join(["cpu", *cuda, *["mps"] * torch.backends.mps.is_available()])


def _missing_extras() -> dict[str, str]:
    """Return the command that installs each extra of rlox-core that lacks a distribution."""
    return {
        extra: f'pip install "{requirement(extra)}"  ({", ".join(names)})'
        for extra in metadata.metadata("rlox-core").get_all("Provides-Extra") or []
        if extra != "all" and (names := _lacking("rlox-core", extra))
    }


def _lacking(distribution: str, extra: str) -> list[str]:
    """Return missing distributions of an extra, including the requirements of rlox's own."""
    found = []
    for text in metadata.requires(distribution) or ():
        needed = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", text)
        if needed is None or not re.search(rf"""extra == ["']{extra}["']""", text):
            continue
        name, more = needed[1], (needed[2] or "").split(",")
        try:
            metadata.version(name)
            found += [e for m in more if name.startswith("rlox-") for e in _lacking(name, m)]
        except metadata.PackageNotFoundError:
            found.append(name)
    return found
