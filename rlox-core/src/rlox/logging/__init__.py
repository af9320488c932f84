"""Loggers: metrics by env step to files, the console and services.

Steps come from the clock; the documentation's glossary lists the metric names.
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
