"""Writes the Python code of the protocol; needs grpcio-tools.

Run ``python rlox-distributed/generate.py`` after a change of ``workers.proto``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "src" / "rlox_distributed" / "protocol"

if __name__ == "__main__":
    command = ["-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--pyi_out=.", "workers.proto"]
    subprocess.run([sys.executable, *command], cwd=FOLDER, check=True)  # noqa: S603
