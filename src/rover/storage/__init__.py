"""Files that are written atomically and checked when they are read; nothing is ever unpickled."""

from rover.storage.files import (
    check_writable,
    checked_path,
    file_digest,
    refuse_links,
    replace_file,
    run_lock,
)
from rover.storage.json_files import JsonLines, fitting, flatten, read_json, write_json
from rover.storage.runs import (
    RUN_FORMAT,
    RunConfig,
    is_complete,
    read_manifest,
    read_run_config,
    remove_manifest,
    write_manifest,
)
from rover.storage.sealed import (
    check_tensors,
    copied_tensors,
    read_sealed,
    restore_tensors,
    restored_module,
    write_sealed,
)

__all__ = [
    "RUN_FORMAT",
    "JsonLines",
    "RunConfig",
    "check_tensors",
    "check_writable",
    "checked_path",
    "copied_tensors",
    "file_digest",
    "fitting",
    "flatten",
    "is_complete",
    "read_json",
    "read_manifest",
    "read_run_config",
    "read_sealed",
    "refuse_links",
    "remove_manifest",
    "replace_file",
    "restore_tensors",
    "restored_module",
    "run_lock",
    "write_json",
    "write_manifest",
    "write_sealed",
]
