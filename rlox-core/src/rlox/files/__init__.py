"""Files: regular ones only, written whole or not at all, and no larger than the memory."""

from rlox.files.atomic import lock_file, remove_parts, sync_folder, target_of, write_atomically
from rlox.files.html_text import pairs_as_html
from rlox.files.memory import require_memory_for
from rlox.files.opening import (
    open_regular,
    read_text,
    require_plain_folder,
    require_working_directory,
)

__all__ = [
    "lock_file",
    "open_regular",
    "pairs_as_html",
    "read_text",
    "remove_parts",
    "require_memory_for",
    "require_plain_folder",
    "require_working_directory",
    "sync_folder",
    "target_of",
    "write_atomically",
]
