"""Datasets: recorded transitions, read from and written to files and Minari."""

from rlox_offline.datasets.dataset import Dataset
from rlox_offline.datasets.storage import load_dataset, open_dataset, save_dataset

__all__ = ["Dataset", "load_dataset", "open_dataset", "save_dataset"]
