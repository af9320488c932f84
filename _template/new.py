"""A new distribution with one algorithm, from the folder beside this file.

    python _template/new.py rlox-newfamily --algorithm new_algorithm [--learns-from replay]

It trains and passes its tests; change it file by file. One that learns from a replay buffer has the
code of the example plugin ``rlox-soft-q``, one that learns from a dataset that of ``dataset`` next
to this file; they share the rest. It also writes the page of the reference, and a line each where
distributions and algorithms are listed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "_template"
EXAMPLES = {
    "rollouts": None,
    "replay": ROOT / "examples/plugins/rlox-soft-q",
    "dataset": TEMPLATE / "dataset",
}
"""Folder whose modules replace the template's, by source of experience."""

USAGE = """\
import rlox

algorithm = rlox.make("new_algorithm", env="CartPole-v1", seed=0)
algorithm.train(4_096)
"""
USAGE_OF_DATASET = """\
import rlox
from rlox_offline.datasets import record

dataset = record(None, "Pendulum-v1", 1_000, seed=0)
algorithm = rlox.make("new_algorithm", dataset=dataset, env="Pendulum-v1", seed=0)
algorithm.train(100)
"""
COMMAND = """\
```console
$ rlox train new_algorithm --env CartPole-v1 --total-timesteps 40000
```

"""
DATASET = {
    USAGE: USAGE_OF_DATASET,
    COMMAND: "",
    '("env",)': '("dataset",)',
    "rlox-core[torch]": "rlox-core[offline]",
    "Policy gradient with a learned value function.": "Imitation of actions by their rewards.",
    "http://incompleteideas.net/book/the-book-2nd.html": "https://doi.org/10.1145/1273496.1273590",
}
"""What the files that all shapes share say instead where a dataset is learnt from."""


def names(distribution: str, algorithm: str, class_name: str, version: str) -> dict[str, str]:
    """Return what stands for each placeholder."""
    return {
        "newfamily": distribution.removeprefix("rlox-"),
        "new_algorithm": algorithm,
        "NewAlgorithm": class_name,
        "0.0.0": version,
        "rlox_soft_q": f"rlox_{distribution.removeprefix('rlox-')}",
        "soft_q": algorithm,
        "SoftQ": class_name,
    }


def render(text: str, filled: dict[str, str]) -> str:
    """Return ``text`` with the placeholders filled, in one pass."""
    return re.sub("|".join(map(re.escape, filled)), lambda found: filled[found[0]], text)


def insert(path: Path, before: str, line: str) -> None:
    """Write a line above the first one that matches a pattern, both whole."""
    text = path.read_text(encoding="utf-8")
    found = re.search(before, text, re.MULTILINE)
    if found is None:
        sys.exit(f"{path} has no line like {before!r}; add by hand: {line}")
    path.write_text(f"{text[: found.start()]}{line}\n{text[found.start() :]}", encoding="utf-8")


def copy(source: Path, pattern: str, filled: dict[str, str], root: Path) -> None:
    """Write the files of a folder that match a pattern, names and texts filled."""
    for path in sorted(source.rglob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            target = root / render(f"rlox-newfamily/{path.relative_to(source)}", filled)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(render(path.read_text(encoding="utf-8"), filled), encoding="utf-8")


def write_family(filled: dict[str, str], example: Path | None, root: Path) -> None:
    """Write the distribution's folder, and list it in the pyprojects, README and news.

    Args:
        filled: see :func:`names`.
        example: see :data:`EXAMPLES`.
        root: of the repository.
    """
    family, class_name, version = (filled[k] for k in ("newfamily", "NewAlgorithm", "0.0.0"))
    copy(TEMPLATE / "rlox-newfamily", "*", filled, root)
    if example is not None:
        copy(example, "*.py", filled, root)
    folder = root / f"rlox-{family}"
    (folder / "LICENSE").write_bytes((root / "LICENSE").read_bytes())
    source = f"rlox-{family} = {{ workspace = true }}"
    insert(root / "pyproject.toml", r"^\n\[dependency-groups\]", source)
    core = root / "rlox-core/pyproject.toml"
    pinned = f'"rlox-{family}=={version}", "rlox-native=={version}"'
    insert(core, r"^hdf5 = ", f"{family} = [{pinned}]")
    text = core.read_text(encoding="utf-8")
    text = text.replace('all = ["rlox-core[', f'all = ["rlox-core[{family},')
    core.write_text(text, encoding="utf-8")
    row = f"| [`rlox-{family}`](rlox-{family}/README.md) | `rlox_{family}` | {class_name} |"
    insert(root / "README.md", r"^\n`rlox-core\[onpolicy\]` brings", row)
    fragment = root / f"changes/+rlox-{family}.algorithms.md"
    fragment.write_text(f"**{family}**: {class_name}.\n", encoding="utf-8")


def write_algorithm(filled: dict[str, str], root: Path) -> None:
    """Write the page of the reference, the row of the table of algorithms, and the facades.

    Args:
        filled: see :func:`names`.
        root: of the repository.
    """
    name, class_name, family = (filled[k] for k in ("new_algorithm", "NewAlgorithm", "newfamily"))
    module = (root / f"rlox-{family}/src/rlox_{family}/{name}.py").read_text(encoding="utf-8")
    about, _, steps = (ast.get_docstring(ast.parse(module)) or "").partition("\n\n")
    page = (TEMPLATE / "new_algorithm.md").read_text(encoding="utf-8")
    page = render(page, {"ABOUT": about, "STEPS": steps, **filled})
    (root / f"docs/reference/algorithms/{name}.md").write_text(page, encoding="utf-8")
    table = root / "rlox-core/src/rlox/registry/families.py"
    rows = re.findall(r'^    AlgorithmRow\("(\w+)".*\n', table.read_text("utf-8"), re.MULTILINE)
    following = next((f'    AlgorithmRow\\("{row}"' for row in rows if row > name), r"\)$")
    row = f'    AlgorithmRow("{name}", "{class_name}", "{family}", trainer=False),'
    insert(table, f"^{following}", row)
    env = {**os.environ, "PYTHONPATH": str(root / "rlox-core/src")}
    subprocess.run([sys.executable, "rlox-core/facades.py"], cwd=root, env=env, check=True)


def main(arguments: list[str], root: Path = ROOT) -> None:
    """Write the distribution that the command line asks for, or exit with what is wrong.

    Args:
        arguments: of the command line.
        root: of the repository.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("distribution", help="such as rlox-newfamily")
    parser.add_argument("--algorithm", required=True, help="registered name, such as my_algorithm")
    parser.add_argument("--learns-from", choices=EXAMPLES, default="rollouts")
    parser.add_argument("--class-name", help="of the algorithm; MyAlgorithm by default")
    given = parser.parse_args(arguments)
    if not re.fullmatch(r"rlox-[a-z][a-z0-9]*", given.distribution):
        parser.error(
            f"distribution must be rlox- and one lower-case word, got {given.distribution}"
        )
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", given.algorithm):
        parser.error(f"algorithm must be lower-case words joined by _, got {given.algorithm}")
    for path in (given.distribution, f"docs/reference/algorithms/{given.algorithm}.md"):
        if (root / path).exists():
            parser.error(f"{path} exists already; choose another name")
    class_name = given.class_name or given.algorithm.title().replace("_", "")
    core = (root / "rlox-core/pyproject.toml").read_text("utf-8")
    found = re.search(r'^version = "(.+)"', core, re.M)
    assert found is not None, "rlox-core has a version"
    filled = names(given.distribution, given.algorithm, class_name, found[1])
    if given.learns_from == "dataset":
        filled = {**{old: render(new, filled) for old, new in DATASET.items()}, **filled}
    write_family(filled, EXAMPLES[given.learns_from], root)
    write_algorithm(filled, root)
    print(f"{given.distribution} is written; now `uv lock`, and `uvx nox -s changed`")


if __name__ == "__main__":
    main(sys.argv[1:])
