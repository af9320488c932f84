"""Batches without next observations."""

from typing import Any


class PartialBatch(dict[str, Any]):
    """A batch of a buffer that does not know all of its next observations, and so gives none."""

    def __missing__(self, key: str) -> Any:
        if key == "next_obs":
            raise KeyError(
                "the buffer holds transitions that were pushed without next_obs, so there is "
                "nothing to bootstrap from; push next_obs with every transition"
            )
        raise KeyError(key)
