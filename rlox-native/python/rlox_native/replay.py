"""Batches without next observations."""

from typing import Any


class PartialBatch(dict[str, Any]):
    """A batch of a buffer that lacks some next observations and therefore returns none."""

    def __missing__(self, key: str) -> Any:
        if key == "next_obs":
            raise KeyError(
                "the buffer holds transitions that were pushed without next_obs, so there is "
                "nothing to bootstrap from; push next_obs with every transition"
            )
        raise KeyError(key)
