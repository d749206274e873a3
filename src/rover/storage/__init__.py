"""Files that are written atomically and verified when they are read; nothing is ever unpickled."""

from rover.storage.arrays import Arrays, read_arrays, write_arrays
from rover.storage.checkpoints import Checkpoints
from rover.storage.header import SCHEMA_VERSION
from rover.storage.json_files import read_json, write_json
from rover.storage.json_lines import JsonLines, JsonLinesContent, Truncation
from rover.storage.rng_state import (
    generator_state,
    restore_generator,
    restore_torch_generator,
    torch_generator_state,
)
from rover.storage.run_lock import RunLock
from rover.storage.storage import check_writable
from rover.storage.tensor_state import (
    check_tensor_names,
    check_tensors,
    copied_tensors,
    restore_tensors,
)
from rover.storage.tensors import Tensors, read_tensors, write_tensors

__all__ = [
    "SCHEMA_VERSION",
    "Arrays",
    "Checkpoints",
    "JsonLines",
    "JsonLinesContent",
    "RunLock",
    "Tensors",
    "Truncation",
    "check_tensor_names",
    "check_tensors",
    "check_writable",
    "copied_tensors",
    "generator_state",
    "read_arrays",
    "read_json",
    "read_tensors",
    "restore_generator",
    "restore_tensors",
    "restore_torch_generator",
    "torch_generator_state",
    "write_arrays",
    "write_json",
    "write_tensors",
]
