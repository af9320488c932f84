"""Deployment: trained policies as files that act without torch.

:func:`export` writes one, :func:`load_policy` reads one, and :class:`LoadedPolicy` acts. A file
``policy.rlox`` is computed with NumPy, a file ``policy.onnx`` by onnxruntime (rlox-tools).
:class:`LoadedTeam` acts for the agents of a team.
"""

from rlox.deployment.files import export, load_policy
from rlox.deployment.policy import Exportable, LoadedPolicy, PolicyData
from rlox.deployment.teams import LoadedTeam, TeamData

__all__ = [
    "Exportable",
    "LoadedPolicy",
    "LoadedTeam",
    "PolicyData",
    "TeamData",
    "export",
    "load_policy",
]
