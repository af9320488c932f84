"""Datasets: recorded transitions, read from and written to files and Minari."""

from rlox_offline.datasets.dataset import Dataset, StreamedDataset
from rlox_offline.datasets.files import load_dataset, open_dataset, save_dataset, stream_dataset
from rlox_offline.datasets.recording import (
    KINDS,
    RandomPolicy,
    RecordingVecEnv,
    record,
    record_sets,
)

__all__ = [
    "KINDS",
    "Dataset",
    "RandomPolicy",
    "RecordingVecEnv",
    "StreamedDataset",
    "load_dataset",
    "open_dataset",
    "record",
    "record_sets",
    "save_dataset",
    "stream_dataset",
]
