"""Every check of the repository, one session each; ``nox -l`` lists them.

The sessions of the default run are fast enough for every change; ``fuzz``, ``learn`` and
``benchmarks`` take minutes to hours and are run by name.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
NATIVE = ROOT / "rlox-native"
FAMILIES = ["rlox-onpolicy", "rlox-offpolicy", "rlox-offline"]
BENCHMARKS = [
    "ppo_end_to_end",
    "ppo_scaling",
    "time_to_solve",
    "off_policy_end_to_end",
    "offline",
    "kernels",
    "replay",
    "start_up",
]
PUBLIC_PACKAGES = [
    "rlox-core/src/rlox",
    "rlox-offline/src/rlox_offline",
    "rlox-onpolicy/src/rlox_onpolicy",
    "rlox-offpolicy/src/rlox_offpolicy",
    "rlox-native/python/rlox_native",
    "rlox-candle/python/rlox_candle",
]


def sync(session: nox.Session, *arguments: str) -> None:
    """Install exactly what the lock file says for ``arguments`` into the session's environment."""
    session.run_install(
        "uv", "sync", "--locked", "--no-editable", "--no-default-groups", *arguments,
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
    )  # fmt: skip


def test_distribution(session: nox.Session, distribution: str, *arguments: str) -> None:
    """Test one distribution with nothing installed but what it declares."""
    sync(session, "--package", distribution, "--group", "test", *arguments)
    with session.chdir(distribution):
        session.run("pytest", *session.posargs, env={"RLOX_PLUGINS_STRICT": "1"})


@nox.session
def core(session: nox.Session) -> None:
    """rlox-core alone: no torch, no Rust, no algorithms."""
    test_distribution(session, "rlox-core")


@nox.session
def core_torch(session: nox.Session) -> None:
    """rlox-core with its torch parts and plots, no Rust, no algorithms."""
    test_distribution(session, "rlox-core", "--extra", "torch", "--extra", "tensorboard",
                      "--extra", "plot")  # fmt: skip


@nox.session
def loggers(session: nox.Session) -> None:
    """The callbacks and loggers of rlox-core that need a third party's library each."""
    extras = [f"--extra={name}" for name in ("tensorboard", "torch", "video", "wandb", "mlflow")]
    sync(session, "--package", "rlox-core", "--group", "test", "--group", "render", *extras)
    with session.chdir("rlox-core"):
        session.run("pytest", "tests/callbacks", "tests/logging", *session.posargs)


@nox.session
def native(session: nox.Session) -> None:
    """rlox-native alone."""
    test_distribution(session, "rlox-native")


@nox.session
def candle(session: nox.Session) -> None:
    """rlox-candle with what it collects for; the first build of candle takes minutes."""
    sync(session, "--extra", "candle", "--group", "test")
    session.run("pytest", "tests/test_architecture.py", *session.posargs)
    with session.chdir("rlox-candle"):
        session.run("pytest", *session.posargs)
        session.run("cargo", "fmt", "--check", external=True)
        session.run(
            "cargo", "clippy", "--locked", "--all-targets", "--", "-D", "warnings", external=True
        )
        # in the release profile, whose dependencies the wheel was built with
        session.run("cargo", "test", "--locked", "--release", external=True)


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Start, use and drop collecting threads for ten minutes; memory and threads must not grow."""
    sync(session, "--extra", "candle", "--group", "test")
    with session.chdir("rlox-candle"):
        session.run("pytest", "-m", "soak", "-s", "--timeout=0", *session.posargs)


@nox.session(venv_backend="none", default=False)
def thread_sanitizer(session: nox.Session) -> None:
    """Look for data races of rlox-candle's thread; candle's instrumented build takes long.

    Needs Linux on x86-64 and a nightly toolchain with ``rust-src``, for a standard library that
    is instrumented too.
    """
    with session.chdir("rlox-candle"):
        session.run(
            "cargo", "+nightly", "test", "--locked", "-Zbuild-std",
            "--target", "x86_64-unknown-linux-gnu", "--tests", *session.posargs,
            env={
                "RUSTFLAGS": "-Zsanitizer=thread",
                "CARGO_TARGET_DIR": "target/thread-sanitizer",
                "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
                "CARGO_PROFILE_DEV_DEBUG": "line-tables-only",
            },
            external=True,
        )  # fmt: skip


@nox.session
def onpolicy(session: nox.Session) -> None:
    """rlox-onpolicy with core and torch, no Rust."""
    test_distribution(session, "rlox-onpolicy")


@nox.session
def offline(session: nox.Session) -> None:
    """rlox-offline with core, torch and the libraries of all file formats, no Rust."""
    test_distribution(session, "rlox-offline")


@nox.session
def offpolicy(session: nox.Session) -> None:
    """rlox-offpolicy with core and torch, no Rust."""
    test_distribution(session, "rlox-offpolicy")


@nox.session
def example_plugin(session: nox.Session) -> None:
    """The example of a third party's distribution, against core alone."""
    sync(session, "--package", "rlox-core", "--extra", "torch", "--group", "test")
    folder = "examples/plugins/rlox-reinforce"
    session.run_install("uv", "pip", "install", "--no-sources", "--no-deps", f"./{folder}")
    with session.chdir(folder):
        session.run("pytest", *session.posargs)


@nox.session
def native_env_template(session: nox.Session) -> None:
    """The template of an env in Rust, built and installed as a third party's distribution."""
    sync(session, "--package", "rlox-onpolicy", "--group", "test")
    folder = "examples/plugins/rlox-native-env-template"
    session.run_install("uv", "pip", "install", "--no-sources", "--no-deps", f"./{folder}")
    with session.chdir(folder):
        session.run("pytest", *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build source distributions, wheels from them, and train with those wheels alone.

    Not rlox-candle, whose build takes minutes.
    """
    folder = Path(session.create_tmp()) / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    for distribution in ("rlox", "rlox-core", "rlox-native", *FAMILIES):
        session.run_install(
            "uv", "build", "--quiet", "--package", distribution, "--out-dir", str(folder)
        )
    built = [str(path) for path in folder.glob("*.whl")]
    if not any("-abi3-" in name for name in built):
        session.error(f"none is for CPython's stable ABI: {built}")
    sync(session, "--extra", "all", "--no-install-workspace")
    session.run_install("uv", "pip", "install", "--no-deps", "--reinstall", *built)
    with session.chdir(folder):
        session.run(
            "rlox", "train", "ppo", "--env", "CartPole-v1", "--total-timesteps", "2048",
            env={"RLOX_PLUGINS_STRICT": "1"},
        )  # fmt: skip


@nox.session
def architecture(session: nox.Session) -> None:
    """Who may import whom and when, and that every public name is documented."""
    sync(session, "--group", "test")
    session.run("pytest", "tests/test_architecture.py", "tests/test_docs.py", *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """All distributions together: plugins, Rust kernels against NumPy's, the peers' numbers."""
    sync(session, "--group", "test", "--group", "benchmark")
    elsewhere = ("learning", "test_architecture.py", "test_docs.py")
    session.run(
        "pytest", "tests", *(f"--ignore=tests/{name}" for name in elsewhere),
        "rlox-offline/tests/test_streamed.py", *session.posargs,
    )  # fmt: skip


@nox.session
def snippets(session: nox.Session) -> None:
    """Run every documented snippet, and the docstrings' examples."""
    sync(session, "--group", "test", "--group", "docs")
    example = "examples/plugins/rlox-reinforce"
    session.run_install("uv", "pip", "install", "--no-sources", "--no-deps", example)
    folders = (".", "rlox-core", "rlox-native", *FAMILIES, example)
    pages = [f"{folder}/README.md" for folder in folders]
    # an example's error is shown by its own traceback; sybil cannot filter all of pytest's
    session.run("pytest", "--tb=native", "docs", *pages, *session.posargs)
    packages = ("rlox", "rlox_offline", "rlox_onpolicy", "rlox_offpolicy")
    session.run("pytest", "--doctest-modules", "--pyargs", *packages)


@nox.session
def lint(session: nox.Session) -> None:
    """Lint and check the formatting."""
    sync(session, "--only-group", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types strictly, and that the Rust module's stubs tell the truth."""
    sync(session, "--group", "types")
    session.run("mypy", *PUBLIC_PACKAGES)
    for module in ("rlox_native._native", "rlox_candle._candle"):
        session.run("python", "-m", "mypy.stubtest", module)


@nox.session(venv_backend="none", default=False)
def fuzz(session: nox.Session) -> None:
    """Fuzz kernels, buffers, their file, datasets and envs for a minute each; ``-- 600`` for ten.

    Needs a nightly toolchain and ``cargo install cargo-fuzz``.
    """
    seconds = session.posargs[0] if session.posargs else "60"
    with session.chdir(NATIVE):
        for target in ("kernels", "replay", "cold_file", "offline", "vec_env"):
            folders = [f"fuzz/corpus/{target}", f"fuzz/seeds/{target}"]
            Path(folders[0]).mkdir(parents=True, exist_ok=True)
            session.run(
                "cargo", "+nightly", "fuzz", "run", target, *folders, "--",
                f"-max_total_time={seconds}", "-max_len=4096", external=True,
            )  # fmt: skip


@nox.session(venv_backend="none")
def rust(session: nox.Session) -> None:
    """Format, lint, test and document the crates."""
    with session.chdir(NATIVE):
        session.run("cargo", "fmt", "--all", "--check", external=True)
        session.run(
            "cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings",
            external=True,
        )  # fmt: skip
        # nextest where it is installed; cargo's own runner runs the same tests
        runner = ["nextest", "run"] if session.run(
            "cargo", "nextest", "--version", external=True, silent=True, success_codes=[0, 101]
        ).startswith("cargo-nextest") else ["test", "--all-targets"]  # fmt: skip
        session.run("cargo", *runner, "--locked", "--workspace", external=True)
        session.run("cargo", "test", "--locked", "--workspace", "--doc", external=True)
        session.run(
            "cargo", "doc", "--locked", "--workspace", "--no-deps", external=True,
            env={**os.environ, "RUSTDOCFLAGS": "-D warnings"},
        )  # fmt: skip


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    sync(session, "--group", "docs")
    session.run(
        "sphinx-build", "-W", "--keep-going", "-q", "docs", "docs/_build/html",
        env={"RLOX_PLUGINS_STRICT": "1"},
    )  # fmt: skip


@nox.session(default=False)
def learn(session: nox.Session) -> None:
    """Train to published scores, several seeds each; results go to ``scores/``."""
    sync(session, "--group", "learn")
    session.run("pytest", "tests/learning", "-m", "learn", "-s", "--timeout=0", *session.posargs)


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Measure rlox and its peers side by side; ``-- replay offline`` runs those scripts alone.

    Results go to ``benchmarks/results``.
    """
    names = session.posargs or BENCHMARKS
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        session.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    sync(session, "--group", "benchmark")
    for name in names:
        session.run("python", f"benchmarks/{name}.py")
