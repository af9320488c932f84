"""Options of the registered replay buffers' own."""

from __future__ import annotations

from typing import Literal

from rlox.config.model import Config, choice, count, option, probability

__all__ = ["HindsightOptions", "MmapOptions", "PrioritizedOptions"]

ANDRYCHOWICZ = "Andrychowicz et al. 2017"
SCHAUL = "Schaul et al. 2016"


class PrioritizedOptions(Config):
    """Options of the buffer ``prioritized``."""

    priority_alpha: float = probability(
        0.6, help="exponent α of the priorities", source=f"{SCHAUL}, table 3"
    )


class HindsightOptions(Config):
    """Options of the buffer ``her``."""

    n_sampled_goal: int = count(
        4, unit="transitions", source=f"{ANDRYCHOWICZ}, sec. 4.5",
        help="transitions that get another goal, for each that keeps its own",
    )  # fmt: skip
    goal_selection_strategy: Literal["future", "final", "episode"] = choice(
        "future", help="which goal that its episode reached a transition gets",
        source=f"{ANDRYCHOWICZ}, sec. 4.5",
    )  # fmt: skip


class MmapOptions(Config):
    """Options of the buffer ``mmap``."""

    hot_capacity: int = count(
        100_000, unit="transitions", help="transitions that lie in memory", source="rlox"
    )
    buffer_folder: str | None = option(
        None, help="where the file is; None: the folder of temporary files", unit="path",
        source="rlox",
    )  # fmt: skip
