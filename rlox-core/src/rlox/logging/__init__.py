"""Where metrics go. Steps are env steps; metric names are in the documentation's glossary."""

from rlox.logging.base import LoggerCallback, LoggerList, Metrics
from rlox.logging.console import ConsoleLogger
from rlox.logging.csv import CsvLogger
from rlox.logging.jsonl import JsonlLogger
from rlox.logging.tensorboard import TensorBoardLogger

__all__ = [
    "ConsoleLogger",
    "CsvLogger",
    "JsonlLogger",
    "LoggerCallback",
    "LoggerList",
    "Metrics",
    "TensorBoardLogger",
]
