"""The pictures of the home page and the gallery.

    python docs/pictures.py films [NAME ...]
    python docs/pictures.py charts

The first trains each policy of the gallery with its preset, evaluates it, films an episode and
notes all numbers in ``docs/gallery/films.json``; it takes seconds to minutes each. The second draws
the speeds of ``benchmarks/results`` and the learning curves of ``scores/evidence``, in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rlox
from rlox.config.presets import list_presets
from rlox_tools.analysis import bootstrap_iqm

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"
FILMS = GALLERY / "films.json"
RESULTS = ROOT / "benchmarks" / "results"
EVIDENCE = ROOT / "scores" / "evidence"

SEED = 0
EPISODES = 20
WIDTH = 240
"""Of a film, in pixels."""
COLOURS = 32
MAX_FRAMES = 130
"""Of a film; longer episodes are cut."""

OFF_POLICY = {"SAC": "Pendulum-v1", "TD3": "Pendulum-v1", "DQN": "CartPole-v1"}
"""Envs of ``benchmarks/off_policy_end_to_end.py``."""

OURS, THEIRS = "#d9480f", "#7d8590"
COLOUR = {"ppo": OURS, "sac": "#1971c2", "td3": "#2f9e44"}
STYLE = {
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "xtick.color",
         "ytick.color", "grid.color"), THEIRS,
    ),
    "savefig.transparent": True,
}  # fmt: skip
"""Of charts that can be read on white and on black."""


@dataclass(frozen=True)
class Film:
    """A policy of the gallery, trained with a preset."""

    name: str
    algorithm: str
    env: str
    every: int = 2
    """Env steps from one frame to the next."""
    preset: str = "tuned"
    camera: str | None = None
    """Of MuJoCo's model; ``None`` stays where it is."""
    episode: int = SEED
    """Seed of the filmed episode."""


GALLERY_FILMS = (
    Film("cartpole", "ppo", "CartPole-v1", 3),
    Film("acrobot", "ppo", "Acrobot-v1", 1),
    Film("pendulum", "sac", "Pendulum-v1"),
    Film("lunar-lander", "ppo", "LunarLander-v3", 3),
    Film("walker", "ppo", "Walker2d-v5", 6, camera="track"),
)


def frames(algorithm: Any, film: Film) -> Iterator[np.ndarray]:
    """Yield every so many frames (H, W, 3) of one episode of the policy."""
    import gymnasium

    camera = {} if film.camera is None else {"camera_name": film.camera}
    env = gymnasium.make(film.env, render_mode="rgb_array", **camera)
    obs, _ = env.reset(seed=film.episode)
    ended, step = False, 0
    while not ended and step < MAX_FRAMES * film.every:
        if step % film.every == 0:
            yield np.asarray(env.render())
        obs, _, terminated, truncated, _ = env.step(algorithm.predict(obs))
        ended, step = terminated or truncated, step + 1
    yield np.asarray(env.render())
    env.close()


def write_film(pictures: Iterator[np.ndarray], path: Path, *, milliseconds: int) -> None:
    """Write a small GIF that repeats."""
    from PIL import Image

    shrunk = []
    for picture in pictures:
        image = Image.fromarray(picture)
        size = (WIDTH, round(image.height * WIDTH / image.width))
        shrunk.append(image.resize(size, Image.Resampling.LANCZOS))
    palette = shrunk[len(shrunk) // 2].quantize(COLOURS, dither=Image.Dither.NONE)
    films = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in shrunk]
    films[0].save(path, save_all=True, append_images=films[1:], duration=milliseconds, loop=0,
                  optimize=True)  # fmt: skip


def make_film(film: Film) -> dict[str, Any]:
    """Train, evaluate and film one policy, and return its numbers."""
    [preset] = [p for p in list_presets(film.algorithm, film.env) if p.name == film.preset]
    algorithm = rlox.make(film.algorithm, env=film.env, preset=film.preset, seed=SEED)
    start = time.perf_counter()
    algorithm.train(total_timesteps=preset.steps)
    seconds = time.perf_counter() - start
    evaluation = algorithm.evaluate(n_episodes=EPISODES)
    write_film(frames(algorithm, film), GALLERY / f"{film.name}.gif", milliseconds=50)
    return {
        "algorithm": film.algorithm,
        "env": film.env,
        "preset": film.preset,
        "seed": SEED,
        "env_steps": preset.steps,
        "train_seconds": round(seconds, 1),
        "mean_return": round(float(evaluation.mean_return), 2),
        "episodes": EPISODES,
    }


def speeds() -> list[tuple[str, dict[str, float]]]:
    """Return how many times as fast rlox was, median and range, as committed results have it."""

    def read(path: str) -> Any:
        return json.loads((RESULTS / path).read_text(encoding="utf-8"))

    found = []
    rows = read("amd-epyc-26-2/ppo_end_to_end_8.json")["rows"]
    [ppo] = [row for row in rows if row["contender"] == "rlox, native learner"]
    found.append(("PPO, CartPole-v1: Stable-Baselines3", ppo["ratio_to_stable_baselines3"]))
    found.append(("PPO, CartPole-v1: sbx (JAX)", ppo["ratio_to_sbx"]))
    found += [
        (
            f"{row['algorithm']}, {OFF_POLICY[row['algorithm']]}: Stable-Baselines3",
            row["ratio_to_stable_baselines3"],
        )
        for row in read("amd-epyc-26-2/off_policy_end_to_end.json")["rows"]
        if row["contender"] == "rlox"
    ]
    found += [
        (f"{row['algorithm'].upper().replace('_', '+')}: d3rlpy", row["ratio_to_d3rlpy"])
        for row in read("amd-epyc-26-2/offline.json")["rows"]
    ]
    language = read("intel-xeon-6-167/llm.json")
    found += [
        (f"{name.upper()}: TRL", language[name]["wall"]["trl_over_rlox"])
        for name in ("grpo", "dpo")
    ]
    return found


def draw_speeds() -> None:
    """Draw how many times as fast rlox was as a peer."""
    import matplotlib.pyplot as plt

    rows = speeds()[::-1]
    medians = [ratio["median"] for _, ratio in rows]
    spread = [[r["median"] - r["min"] for _, r in rows], [r["max"] - r["median"] for _, r in rows]]
    figure, axis = plt.subplots(figsize=(4.4, 2.8))  # legible at half of a page's width
    names = [name for name, _ in rows]
    axis.barh(names, medians, xerr=spread, color=OURS, ecolor=THEIRS, height=0.65)
    for place, (_, ratio) in enumerate(rows):
        axis.text(ratio["max"] * 1.06, place, f"{ratio['median']:.1f}×", va="center", fontsize=8)
    axis.set(xscale="log", xlim=(0.9, 60))
    axis.set_xlabel("times as fast, on two CPU cores", fontsize=8)
    axis.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axis.axvline(1, color=THEIRS, linewidth=1)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(GALLERY / "speed.png", dpi=160)


def draw_learning() -> None:
    """Draw the evaluations of the evidence's cells on MuJoCo, one panel for each env."""
    import matplotlib.pyplot as plt

    cells = [json.loads(path.read_text("utf-8")) for path in sorted(EVIDENCE.glob("*-v5.json"))]
    figure, axes = plt.subplots(2, 2, figsize=(6.4, 4.6))
    for axis, robot in zip(axes.flat, ("HalfCheetah", "Hopper", "Walker2d", "Ant"), strict=True):
        for cell in cells:
            if cell["env"] == f"{robot}-v5":
                name, runs = cell["algorithm"], [each["curve"] for each in cell["runs"]]
                iqm = bootstrap_iqm([np.array([run["mean_return"] for run in runs])])
                steps, colour = np.array(runs[0]["env_steps"]) / 1000, COLOUR[name]
                label = f"{name.upper()} ({len(runs)})"
                axis.plot(steps, iqm.value, color=colour, label=label)
                axis.fill_between(steps, iqm.low, iqm.high, color=colour, alpha=0.2, linewidth=0)
        axis.set_title(f"{robot}-v5", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, frameon=False)
    axes[1, 0].set(xlabel="thousand env steps", ylabel="return")
    figure.tight_layout()
    figure.savefig(GALLERY / "learning.png", dpi=110)


def main() -> None:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["films", "charts"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    GALLERY.mkdir(exist_ok=True)
    if arguments.part == "charts":
        import matplotlib.pyplot as plt

        plt.rcParams.update(STYLE)
        draw_speeds()
        draw_learning()
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for film in GALLERY_FILMS:
        if arguments.names and film.name not in arguments.names:
            continue
        noted = json.loads(FILMS.read_text(encoding="utf-8")) if FILMS.is_file() else {}
        noted[film.name] = make_film(film)
        ordered = {f.name: noted[f.name] for f in GALLERY_FILMS if f.name in noted}
        FILMS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        print(film.name, noted[film.name], flush=True)


if __name__ == "__main__":
    main()
