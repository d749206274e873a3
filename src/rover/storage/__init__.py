"""Files that are written atomically and verified when they are read; nothing is ever unpickled."""

from rover.storage.files import RunLock, check_writable, replace_file
from rover.storage.json_files import JsonLines, flatten, read_json, write_json
from rover.storage.sealed import copied_tensors, read_sealed, restore_tensors, write_sealed

__all__ = [
    "JsonLines",
    "RunLock",
    "check_writable",
    "copied_tensors",
    "flatten",
    "read_json",
    "read_sealed",
    "replace_file",
    "restore_tensors",
    "write_json",
    "write_sealed",
]
