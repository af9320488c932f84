"""Videos of the policy during training."""

from rlox_tools.video.callback import VideoCallback

__all__ = ["VideoCallback"]
