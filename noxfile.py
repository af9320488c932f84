"""Every check of the repository as nox sessions; ``nox -l`` lists them.

``nox`` runs what every change must pass, ``nox -s changed`` the part that concerns a change, and
``nox -t nightly`` what a release must pass too. The others take minutes to hours and are run by
name. Which distributions there are follows from the tree: a new one needs no line here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / ".ci"))

import repository  # noqa: E402  # beside this file, not installed

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True

COMPILED = ("rlox-native", "rlox-distributed")
NATIVE, TRANSPORT = (ROOT / name for name in COMPILED)
TOGETHER = repository.installed_by("all")
"""The distributions of ``rlox-core[all]``, tested in one environment."""

TESTS = [f"{name}/tests" for name in TOGETHER]
CORE_WITH_MORE = [
    f"rlox-core/tests/{name}"
    for name in ("torch", "logging", "callbacks", "test_her_replay.py", "test_reference_replay.py")
]
"""The tests of rlox-core that want torch, Rust or a logger's library."""

SHARED = ROOT / ".nox" / "together"
"""The environment that most sessions of the default run share."""

PARALLEL = ("-n", "2", "--dist", "worksteal", "--durations=30", "--durations-min=8")
ENV = {"PYTHONDONTWRITEBYTECODE": None}
"""The tests start many processes, which need the bytecode of the first."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""For two test processes on two cores: their threads would wait for each other."""

HOUSE_RULES = [
    f"tests/test_{name}.py" for name in ("architecture", "declared_dependencies", "docs")
]
SPHINX = "tests/test_sphinx.py"
CANDLE_PAGES = ("docs/how-to/collect-in-rust.md", "docs/reference/algorithms/hybrid_ppo.md")
RL8_BENCHMARKS = ["rl8_speed", "rl8_scale", "rl8_learning"]
RL8 = [
    "rl8==1.0.0", "mlflow-skinny>=2,<3", "pandas>=2,<3", "psutil>=5,<6",
    "cachetools<6", "importlib-metadata<9", "packaging<25", "protobuf<7", "pytz",
]  # fmt: skip
"""rl8 and what it imports, in releases that rlox-core[all] does not have: a folder of their own."""

BENCHMARKS = [
    "guards",
    "llm",
    "ppo_end_to_end",
    "ppo_scaling",
    "time_to_solve",
    "off_policy_end_to_end",
    "ppo_mujoco",
    "ppo_policies",
    "offline",
    "kernels",
    "replay",
    "checkpoint_segments",
    "start_up",
    "multi_agent_envs",
    "mappo_end_to_end",
    "remote_codec",
    "remote_envs",
    "simulators",
    "images",
    "threads",
    "hidden",
    *RL8_BENCHMARKS,
]


def sync(session: nox.Session, *arguments: str) -> None:
    """Install exactly what the lock file says for ``arguments`` into the session's environment."""
    session.env.update(ENV)
    session.run_install(
        "uv", "sync", "--locked", "--no-editable", "--no-default-groups", *arguments,
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
    )  # fmt: skip


def share(session: nox.Session, *plugins: str) -> None:
    """Use the environment that most sessions share: ``rlox-core[all]`` and all tools but candle's.

    Args:
        session: one without an environment of its own.
        plugins: folders of distributions to install as a third party's; the next session that
            shares the environment removes them.
    """
    groups = [f"--group={name}" for name in ("test", "benchmark", "docs", "types")]
    session.env.update({**ENV, **ONE_THREAD, "UV_PROJECT_ENVIRONMENT": str(SHARED)})
    session.env["VIRTUAL_ENV"] = str(SHARED)
    session.env["PATH"] = os.pathsep.join([str(SHARED / "bin"), os.environ["PATH"]])
    session.run_install(
        "uv", "sync", "--locked", "--no-editable", "--no-default-groups", *groups,
        "--no-install-package", "rlox-candle", external=True,
    )  # fmt: skip
    for plugin in plugins:
        session.run_install(
            "uv", "pip", "install", "--no-sources", "--no-deps", plugin, external=True
        )


def build(session: nox.Session, distributions: Sequence[str], *options: str) -> Path:
    """Build distributions as for users, in Rust's release profile; return the folder."""
    folder = Path(session.create_tmp()) / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    for name in distributions:
        session.run_install(
            "uv", "build", "--quiet", *options, "--package", name, "--out-dir", str(folder)
        )
    return folder


def run(session: nox.Session, command: str, *arguments: str, **env: str) -> None:
    """Run a command of the shared environment, with some environment variables."""
    session.run(str(SHARED / "bin" / command), *arguments, env=env, external=True)


def test_alone(session: nox.Session, distribution: str, *arguments: str) -> None:
    """Test one distribution with nothing installed but what it declares, properties thoroughly."""
    sync(session, "--package", distribution, "--group", "test", *arguments)
    with session.chdir(distribution):
        env = {"RLOX_PLUGINS_STRICT": "1", "RLOX_EXAMPLES": "100"}
        session.run("pytest", *session.posargs, env=env)


# --- what every change must pass: `nox` ---


@nox.session
def lint(session: nox.Session) -> None:
    """Lint, and check formatting and spelling."""
    sync(session, "--only-group", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    # what git knows, so that no build is read; tests misspell on purpose
    command = ["git", "ls-files", "*.md", "*.py", "*.pyi", "*.rs", "*.yaml", ":!:*tests/*"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    session.run("codespell", *files.stdout.splitlines(), log=False)


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Check the types strictly, and the stubs against the Rust module."""
    share(session)
    run(session, "python", "rlox-core/option_types.py")  # as installing may have had no reason to
    packages = [path for name in repository.distributions() for path in repository.packages(name)]
    others = ["_template/rlox-newfamily/src/rlox_newfamily", "tests/typing/script.py", "benchmarks"]
    run(session, "mypy", "--num-workers=2", *map(str, packages), *others)
    stubs = sorted([*NATIVE.glob("python/*/_*.pyi"), *TRANSPORT.glob("src/*/_*.pyi")])
    modules = [f"{stub.parent.name}.{stub.stem}" for stub in stubs]
    run(session, "python", "-m", "mypy.stubtest", "--mypy-config-file=.ci/stubtest.ini", *modules)


@nox.session(venv_backend="none")
def architecture(session: nox.Session) -> None:
    """Who may import whom and when, and that every public name is documented."""
    share(session)
    run(session, "pytest", *PARALLEL, *(session.posargs or HOUSE_RULES))


@nox.session
def core(session: nox.Session) -> None:
    """rlox-core alone: no torch, no Rust, no algorithms."""
    sync(session, "--package", "rlox-core", "--group", "test")
    with session.chdir("rlox-core"):
        session.run("pytest", *PARALLEL, *session.posargs,
                    env={**ONE_THREAD, "RLOX_PLUGINS_STRICT": "1"})  # fmt: skip


@nox.session(venv_backend="none")
def families(session: nox.Session) -> None:
    """The tests of all distributions together with torch, Rust and all loggers' libraries.

    Without those of rlox-core that ``core`` runs.
    """
    share(session)
    others = [path for path in TESTS if path != "rlox-core/tests"]
    tests = session.posargs or ["-m", "not slow", *CORE_WITH_MORE, *others]
    run(session, "pytest", *PARALLEL, *tests, RLOX_PLUGINS_STRICT="1")


@nox.session(venv_backend="none")
def integration(session: nox.Session) -> None:
    """What no distribution can test: plugins, Rust kernels against NumPy's, the peers' numbers."""
    share(session)
    elsewhere = ("tests/learning", SPHINX, *HOUSE_RULES)
    tests = ["tests", *(f"--ignore={path}" for path in elsewhere)]
    run(session, "pytest", *PARALLEL, *(session.posargs or ["-m", "not slow", *tests]))


@nox.session(default=False, tags=["nightly"])
def slow(session: nox.Session) -> None:
    """The tests that take minutes: ranks, kills, a family from the template, MuJoCo's episodes."""
    sync(session, "--group", "test", "--group", "benchmark")  # with the peers
    tests = ("tests", "--ignore=tests/learning", *TESTS)
    session.run("pytest", "-m", "slow", *(session.posargs or tests))


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Sphinx reads the documentation, its snippets run, and what it tells third parties to copy."""
    share(session, *(f"./{folder}" for folder in repository.EXAMPLES))
    readmes = (f"{folder}/README.md" for folder in (".", *TOGETHER, *repository.EXAMPLES))
    examples = (f"{folder}/tests" for folder in repository.EXAMPLES)
    paths = session.posargs or [SPHINX, "docs", *readmes, *examples]
    # a file at a time, as a page's snippets share names; Sphinx, which takes longest, first.
    # An example's error is shown by its own traceback; sybil cannot filter all of pytest's
    run(session, "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--tb=native",
        *paths, *(f"--ignore={page}" for page in CANDLE_PAGES))  # fmt: skip
    if not session.posargs:
        packages = [path.name for name in TOGETHER for path in repository.packages(name)]
        run(session, "pytest", "--doctest-modules", "--pyargs", *packages)


@nox.session(venv_backend="none")
def rust(session: nox.Session) -> None:
    """Format, lint, test and document the crates of rlox-native."""
    check_crates(session, NATIVE)


def check_crates(session: nox.Session, folder: Path, *profile: str) -> None:
    """Format, lint, test and document the crates of a folder."""
    options = ("--locked", "--workspace", *profile)
    with session.chdir(folder):
        session.run("cargo", "fmt", "--all", "--check", external=True)
        session.run("cargo", "clippy", "--all-targets", *options, "--", "-D", "warnings",
                    external=True)  # fmt: skip
        session.run("cargo", "doc", "--no-deps", *options, external=True,
                    env={"RUSTDOCFLAGS": "-D warnings"})  # fmt: skip
        # examples of a property as few as those of Python's, as they are not optimized
        session.run("cargo", "test", *options, external=True, env={"PROPTEST_CASES": "15"})


@nox.session(venv_backend="none", default=False, tags=["nightly"])
def transport(session: nox.Session) -> None:
    """Format, lint, test and document the crate of rlox-distributed."""
    # in the checkouts' profile, whose dependencies were built for the shared environment
    check_crates(session, TRANSPORT, "--profile", "checkout")


@nox.session(venv_backend="none", default=False)
def changed(session: nox.Session) -> None:
    """The part of the default run that files changed since ``main`` call for.

    ``-- origin/dev`` compares with another base. Changes that are not committed count too.
    """
    base = session.posargs[0] if session.posargs else "main"

    def lines(*command: str) -> list[str]:
        return str(session.run(*command, external=True, silent=True, log=False)).split("\n")

    start = lines("git", "merge-base", "HEAD", base)[0]
    paths = lines("git", "diff", "--name-only", start)
    paths += lines("git", "ls-files", "--others", "--exclude-standard")
    for name, arguments in repository.affected(filter(None, paths)).items():
        session.log(f"{name} {' '.join(arguments)}")
        session.notify(name, arguments)


# --- every night and before a release: `nox -t nightly` ---


@nox.session(venv_backend="none", default=False, tags=["nightly"])
def html(session: nox.Session) -> None:
    """Write the documentation's pages to ``docs/_build/html``."""
    share(session)
    run(session, "pytest", SPHINX, RLOX_DOCS_BUILDER="html")


@nox.session(venv_backend="none", default=False, tags=["nightly"])
def pyright(session: nox.Session) -> None:
    """Check with another type checker what users type."""
    share(session)
    run(session, "basedpyright", "--project", "tests/typing")  # pyright, with its Node


def _alone(distribution: str) -> None:
    """Define the session that tests one distribution alone."""

    def alone(session: nox.Session) -> None:
        test_alone(session, distribution)

    alone.__doc__ = f"{distribution} with nothing but what it declares."
    name = distribution.removeprefix("rlox-").replace("-", "_")
    nox.session(alone, name=name, default=False, tags=["nightly"])


for _distribution in repository.distributions():
    if _distribution not in {"rlox-core", "rlox-candle"}:  # which have sessions of their own
        _alone(_distribution)


@nox.session(default=False, tags=["nightly"])
def core_torch(session: nox.Session) -> None:
    """rlox-core with its torch parts, no Rust, no algorithms."""
    test_alone(session, "rlox-core", "--extra", "torch", "--extra", "tensorboard")


@nox.session(default=False, tags=["nightly"])
def loggers(session: nox.Session) -> None:
    """The callbacks and loggers of rlox-core that need a third party's library each."""
    extras = [f"--extra={name}" for name in ("tensorboard", "torch", "video", "wandb", "mlflow")]
    sync(session, "--package", "rlox-core", "--group", "test", "--group", "render", *extras)
    with session.chdir("rlox-core"):
        session.run("pytest", "tests/callbacks", "tests/logging", *session.posargs)


@nox.session(default=False, tags=["nightly"])
def envpool(session: nox.Session) -> None:
    """The envs of EnvPool, whose wheels are 700 MB."""
    sync(session, "--package", "rlox-simulators", "--group", "test", "--extra", "envpool")
    session.run("pytest", "rlox-simulators/tests/test_pools.py", *session.posargs)


@nox.session(default=False, tags=["nightly"])
def ray(session: nox.Session) -> None:
    """rlox-distributed on Ray, whose clusters take seconds to a minute to start."""
    sync(session, "--package", "rlox-distributed", "--group", "ray")
    with session.chdir("rlox-distributed"):
        tests = [f"tests/test_ray{part}.py" for part in ("", "_buffer", "_faults", "_sweeps")]
        session.run("pytest", *tests, *session.posargs)


@nox.session(default=False, tags=["nightly"])
def candle(session: nox.Session) -> None:
    """rlox-candle with what it collects for; the first build of candle takes minutes."""
    sync(session, "--group", "test", "--group", "docs", "--group", "types")
    session.run("python", "-m", "mypy.stubtest", "rlox_candle._candle")
    session.run("pytest", "--tb=native", *CANDLE_PAGES)
    session.run("pytest", "tests/test_architecture.py", *session.posargs)
    with session.chdir("rlox-candle"):
        session.run("cargo", "fmt", "--check", external=True)
        session.run(
            "cargo", "clippy", "--locked", "--all-targets", "--", "-D", "warnings", external=True
        )
        # in the release profile, whose dependencies the wheel was built with
        session.run("cargo", "test", "--locked", "--release", external=True)
        session.run("pytest", *session.posargs)


@nox.session(default=False, tags=["nightly"])
def native_env_template(session: nox.Session) -> None:
    """The template of an env in Rust, built and installed as a third party's distribution."""
    sync(session, "--package", "rlox-onpolicy", "--group", "test")
    folder = "examples/plugins/rlox-native-env-template"
    session.run_install("uv", "pip", "install", "--no-sources", "--no-deps", f"./{folder}")
    with session.chdir(folder):
        session.run("pytest", *session.posargs)


@nox.session(default=False, tags=["nightly"])
def wheels(session: nox.Session) -> None:
    """Check versions and licences, build all, and install by each line of the README.

    From the folder as from an index, with the third parties of the lock file, into an empty
    environment without Rust. On Linux the wheels are for any distribution since glibc 2.17, linked
    by Zig. Not rlox-candle, whose build takes minutes.
    """
    session.env.update(ENV)
    if sys.platform == "linux":
        session.install("ziglang")
        zig = Path(session.create_tmp()).resolve() / "zig"  # which maturin looks for
        python = Path(session.bin).resolve() / "python"
        zig.write_text(f'#!/bin/sh\nexec {python} -m ziglang "$@"\n', encoding="utf-8")
        zig.chmod(0o755)
        session.env["PATH"] = os.pathsep.join([session.bin, str(zig.parent), os.environ["PATH"]])
        session.env["MATURIN_PEP517_ARGS"] = "--zig --compatibility manylinux2014"
    for check in ("versions", "licences"):
        session.run("python", str(ROOT / ".ci" / "release.py"), check)
    folder = build(session, TOGETHER)
    built = [str(path) for path in folder.glob("*.whl")]
    if not any("-abi3-" in name for name in built):
        session.error(f"none is for CPython's stable ABI: {built}")
    if sys.platform == "linux" and any("-linux_" in name for name in built):
        session.error(f"one is for this machine's Linux alone: {built}")
    locked, env = folder / "constraints.txt", folder / "env"
    session.run_install(
        "uv", "export", "--quiet", "--locked", "--all-packages", "--all-extras",
        "--no-default-groups", "--no-emit-workspace", "--no-hashes", "--output-file", str(locked),
    )  # fmt: skip
    readme = (ROOT / "README.md").read_text("utf-8")
    quickstart = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    for wanted in dict.fromkeys(re.findall(r'`pip install "?(rlox-core[^"`]*)', readme)):
        began = time.monotonic()
        session.run_install("uv", "venv", "--quiet", "--clear", str(env))
        session.run_install(
            "uv", "pip", "install", "--quiet", "--python", str(env), "--find-links", str(folder),
            "--constraints", str(locked), wanted, env={"PATH": f"{env}/bin:/usr/bin:/bin"},
        )  # fmt: skip
        in_it = {"external": True, "env": {"RLOX_PLUGINS_STRICT": "1"}}
        session.run(str(env / "bin" / "rlox"), "doctor", silent=True, **in_it)
        if wanted in ("rlox-core[onpolicy]", "rlox-core[all]"):
            session.run(str(env / "bin" / "python"), "-c", quickstart[1], **in_it)
        session.log(f"{wanted}: {time.monotonic() - began:.0f} s")


@nox.session(default=False, tags=["nightly"])
def minimums(session: nox.Session) -> None:
    """The distributions together, with the lowest versions of what they declare."""
    session.env.update({**ENV, **ONE_THREAD})
    wanted = Path(session.create_tmp()) / "minimums.txt"
    requirements = [*repository.third_parties(TOGETHER), *repository.group("test")]
    wanted.write_text("\n".join(requirements), encoding="utf-8")
    session.run_install(
        "uv", "pip", "install", "--quiet", "--resolution", "lowest-direct", "-r", str(wanted)
    )
    ours = [f"./{name}" for name in TOGETHER]
    session.run_install("uv", "pip", "install", "--no-sources", "--no-deps", "--reinstall", *ours)
    session.run("pytest", *PARALLEL, *(session.posargs or TESTS))


@nox.session(venv_backend="none", default=False, tags=["nightly"])
def pythons(session: nox.Session) -> None:
    """The distributions together on the oldest and the newest Python that uv finds.

    ``uv python install 3.10 3.14`` brings those that are not there.
    """
    session.env.update({**ENV, **ONE_THREAD})
    found = {minor: path for minor in range(10, 20) if (path := interpreter(f"3.{minor}"))}
    oldest = int(repository.project(ROOT)["requires-python"].removeprefix(">=3."))
    if oldest not in found:
        session.warn(f"Python 3.{oldest} was not found, so the oldest is 3.{min(found)}")
    for minor in sorted({min(found), max(found)}):
        session.log(f"Python 3.{minor}: {found[minor]}")
        folder = ROOT / ".nox" / f"python-3-{minor}"
        session.run_install(
            "uv", "sync", "--locked", "--no-editable", "--no-default-groups", "--group", "test",
            "--python", found[minor], external=True, env={"UV_PROJECT_ENVIRONMENT": str(folder)},
        )  # fmt: skip
        session.run(str(folder / "bin/pytest"), *PARALLEL, *(session.posargs or TESTS),
                    external=True)  # fmt: skip


def interpreter(version: str) -> str | None:
    """Return the path of a Python that is installed, as uv or pyenv has it."""
    command = ["uv", "python", "find", "--no-project", "--no-python-downloads", version]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [found.stdout.strip()] if found.returncode == 0 else []
    candidates += sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))
    return next(iter(candidates), None)


# --- by name ---


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Start, use and drop collecting threads for ten minutes; memory and threads must not grow."""
    sync(session, "--package", "rlox-candle", "--group", "test")
    with session.chdir("rlox-candle"):
        session.run("pytest", "-m", "soak", "-s", "--timeout=0", *session.posargs)


@nox.session(venv_backend="none", default=False)
def thread_sanitizer(session: nox.Session) -> None:
    """Look for data races of the threads of rlox-native, rlox-distributed and rlox-candle.

    ``-- rlox-native`` looks at that alone: candle's instrumented build takes long. Needs Linux on
    x86-64 and a nightly toolchain with ``rust-src``, for a standard library that is instrumented
    too.
    """
    crates = {
        "rlox-native": ("-p", "rlox-kernels", "-p", "rlox-learner", "--lib", "--test", "threads"),
        "rlox-distributed": ("--test", "threads"),
        "rlox-candle": ("--tests",),
    }
    for folder in session.posargs or crates:
        with session.chdir(folder):
            session.run(
                "cargo", "+nightly", "test", "--locked", "-Zbuild-std",
                "--target", "x86_64-unknown-linux-gnu", *crates[folder],
                env={
                    "RUSTFLAGS": "-Zsanitizer=thread",
                    "CARGO_TARGET_DIR": "target/thread-sanitizer",
                    "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
                    "CARGO_PROFILE_DEV_DEBUG": "line-tables-only",
                    "PROPTEST_CASES": "4",
                    "TSAN_OPTIONS": f"suppressions={TRANSPORT}/tests/thread_sanitizer.supp",
                },
                external=True,
            )  # fmt: skip


@nox.session(venv_backend="none", default=False)
def fuzz(session: nox.Session) -> None:
    """Fuzz kernels, buffers, their file, datasets and envs for a minute each; ``-- 600`` for ten.

    Before that, thousands of checkpoints, run folders, datasets, configs and models that were
    damaged or edited. Needs a nightly toolchain and ``cargo install cargo-fuzz``.
    """
    seconds = session.posargs[0] if session.posargs else "60"
    share(session)
    run(session, "python", "tests/foreign_files.py", "2000")
    with session.chdir(NATIVE):
        for target in ("kernels", "replay", "streams", "cold_file", "offline", "vec_env"):
            folders = [f"fuzz/corpus/{target}", f"fuzz/seeds/{target}"]
            Path(folders[0]).mkdir(parents=True, exist_ok=True)
            session.run(
                "cargo", "+nightly", "fuzz", "run", target, *folders, "--",
                f"-max_total_time={seconds}", "-max_len=4096", external=True,
            )  # fmt: skip


@nox.session(venv_backend="none", default=False)
def parity(session: nox.Session) -> None:
    """Compare Rust's simple_spread with mpe2's: 200 seeds, 1 to 6 agents, both kinds of actions."""
    share(session)
    run(session, "pytest", *PARALLEL, "tests/test_native_teams.py", "-k", "equals_mpe2",
        *session.posargs, RLOX_PARITY_SEEDS="200")  # fmt: skip


@nox.session(venv_backend="none", default=False)
def faults(session: nox.Session) -> None:
    """Disturb env workers and ranks by 50 random schedules each, kill learners, fuzz decoders.

    Train all algorithms in envs that mask, hide, reorder, overwrite and misreport, too, and compare
    their policy files with them. The results go to ``scores/remote-faults.json``,
    ``scores/rank-faults.json`` and ``scores/env-faults.json``.
    """
    share(session)
    report = Path(session.create_tmp()) / "faults.xml"
    run(
        session, "pytest", "tests/test_known_envs.py", "tests/test_arrays_of_envs.py",
        "tests/test_whole_policies.py", "--timeout=0", f"--junit-xml={report}",
        "-o", "junit_family=xunit1", *session.posargs,
    )  # fmt: skip
    run(session, "python", ".ci/fault_report.py", str(report), "scores/env-faults.json")
    run(
        session, "pytest", "tests/test_remote_faults.py", "tests/test_remote_security.py",
        "--timeout=0", f"--junit-xml={report}", "-o", "junit_family=xunit1",  # has properties
        *session.posargs, RLOX_FAULT_SCHEDULES="50",
        RLOX_LEARNER_KILLS="20", RLOX_BAD_CONNECTIONS="10000", RLOX_FUZZ_SECONDS="600",
    )  # fmt: skip
    run(session, "python", ".ci/fault_report.py", str(report), "scores/remote-faults.json")
    run(
        session, "pytest", "tests/test_rank_faults.py", "--timeout=0", f"--junit-xml={report}",
        "-o", "junit_family=xunit1", *session.posargs, RLOX_FAULT_SCHEDULES="50",
    )  # fmt: skip
    run(session, "python", ".ci/fault_report.py", str(report), "scores/rank-faults.json")


@nox.session(default=False)
def ray_faults(session: nox.Session) -> None:
    """Disturb Ray's actors, nodes and store by 50 random schedules.

    The result goes to ``scores/ray-faults.json``.
    """
    sync(session, "--package", "rlox-distributed", "--group", "ray")
    report = Path(session.create_tmp()) / "faults.xml"
    session.run(
        "pytest", "rlox-distributed/tests/test_ray_faults.py", "--timeout=0",
        f"--junit-xml={report}", "-o", "junit_family=xunit1", *session.posargs,
        env={"RLOX_FAULT_SCHEDULES": "50"},
    )  # fmt: skip
    session.run("python", ".ci/fault_report.py", str(report), "scores/ray-faults.json")


@nox.session(default=False)
def learn(session: nox.Session) -> None:
    """Train to published scores, several seeds each; results go to ``scores/``."""
    sync(session, "--group", "learn", "--group", "benchmark")  # whose peers learn beside rlox
    session.run("pytest", "tests/learning", "-m", "learn", "-s", "--timeout=0", *session.posargs)


@nox.session(default=False)
def presets(session: nox.Session) -> None:
    """Train the presets of at most ten minutes again; below its tolerance is a failure.

    ``-- -k "sac and Hopper"`` trains those that pytest finds by name, however long they take.
    """
    sync(session, "--group", "learn")
    marker = "presets or long_presets" if session.posargs else "presets"
    session.run("pytest", "tests/learning/test_presets.py", "-m", marker, "-s", "--timeout=0",
                *session.posargs)  # fmt: skip


@nox.session(default=False)
def evidence(session: nox.Session) -> None:
    """Train the runs that ``docs/evidence.md`` lacks; ``-- ppo-Hopper-v5`` those of a row.

    Interrupted ones go on from their checkpoints in ``runs/evidence``.
    """
    sync(session, "--group", "learn")
    command = ("python", "benchmarks/evidence.py", "run", *session.posargs)
    session.run(*command, env=ONE_THREAD)


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Measure rlox and its peers side by side; ``-- replay offline`` runs those scripts alone.

    Results go to ``benchmarks/results``.
    """
    names = session.posargs or BENCHMARKS
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        session.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    # the wheel's own profile, not the checkout's
    without = [f"--no-install-package={name}" for name in COMPILED]
    sync(session, "--group", "benchmark", *without)
    wheels = build(session, COMPILED, "--wheel").glob("*.whl")
    session.run_install("uv", "pip", "install", "--no-deps", *map(str, wheels))
    folder = Path(session.create_tmp()) / "rl8"
    if set(names) & set(RL8_BENCHMARKS):
        session.run_install("uv", "pip", "install", "--no-deps", "--target", str(folder), *RL8)
    for name in names:
        beside = {"PYTHONPATH": str(folder)} if name in RL8_BENCHMARKS else {}
        session.run("python", f"benchmarks/{name}.py", env=beside)
