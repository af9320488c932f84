"""Loggers: metrics by env step to files, the console and services.

Steps are the clock's; metric names are in the documentation's glossary.
"""

from rlox.logging.base import LoggerCallback, LoggerList, Metrics, Table
from rlox.logging.files import ConsoleLogger, CsvLogger, JsonlLogger
from rlox.logging.trackers import MLflowLogger, TensorBoardLogger, WandbLogger

__all__ = [
    "ConsoleLogger",
    "CsvLogger",
    "JsonlLogger",
    "LoggerCallback",
    "LoggerList",
    "MLflowLogger",
    "Metrics",
    "Table",
    "TensorBoardLogger",
    "WandbLogger",
]
