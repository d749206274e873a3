"""A newcomer's path: fresh environment → install → first result → own environment → goal → SB3.

    python .ci/newcomer.py            # in a new environment, with everything installed
    python .ci/newcomer.py --here     # with this interpreter, nothing installed

The code is that of the pages of "Start here", block by block as they stand; what is printed is how
many lines a newcomer types, and how long each block takes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("install", "first_result", "five_lines")
MOST_LINES = 25
DRIVER = """
import json, sys, time, warnings
names = {"__name__": "__main__"}
for number, block in enumerate(json.loads(sys.argv[1])):
    began = time.perf_counter()
    exec(compile(block, f"block {number}", "exec"), names)
    print("TOOK", time.perf_counter() - began)
"""


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and code of the blocks of a page that are typed, but for those that need a GPU."""
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    text = re.sub(
        r'<!-- skip: next "it needs a GPU" -->\s+^```.*?^```$', "", text, flags=re.M | re.S
    )
    found: list[tuple[str, str]] = re.findall(r"^```(python|bash)\n(.*?)^```$", text, re.M | re.S)
    return found


def typed_lines() -> int:
    """The lines of code of the whole path."""
    codes = [code for page in PAGES for _, code in blocks(page)]
    return sum(bool(line.strip()) for code in codes for line in code.splitlines())


def run_shell(page: str, codes: list[tuple[str, str]], where: Path, env: dict[str, str]) -> None:
    """Run the blocks of a page that are typed in a shell."""
    for _, code in (one for one in codes if one[0] == "bash"):
        began = time.perf_counter()
        subprocess.run(["bash", "-euc", code], cwd=where, env=env, check=True)
        print(f"{page:16} {code.splitlines()[0][:40]:40} {time.perf_counter() - began:7.1f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="install nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, env = Path(place), dict(os.environ)
        python = sys.executable
        if not options.here:
            began = time.perf_counter()
            venv.create(folder / "venv", with_pip=True)
            print(f"fresh environment {time.perf_counter() - began:20.1f} s")
            python = str(folder / "venv" / "bin" / "python")
            env.pop("PYTHONPATH", None)
        env |= {"PATH": f"{Path(python).parent}:{env['PATH']}", "MPLBACKEND": "agg"}
        for page in PAGES[options.here :]:
            where = ROOT if page == "install" else folder
            codes = blocks(page)
            first = next((n for n, (kind, _) in enumerate(codes) if kind == "python"), len(codes))
            run_shell(page, codes[:first], where, env)
            python_code = [code for language, code in codes if language == "python"]
            words = [python, "-W", "ignore", "-c", DRIVER, json.dumps(python_code)]
            run = subprocess.run(
                words, cwd=where, env=env, check=True, capture_output=True, text=True
            )
            for code, took in zip(python_code, re.findall(r"TOOK (\S+)", run.stdout), strict=True):
                print(f"{page:16} {code.splitlines()[0][:40]:40} {float(took):7.1f} s")
            run_shell(page, codes[first:], where, env)
    print(f"{typed_lines()} lines of code, at most {MOST_LINES}")
    return typed_lines() > MOST_LINES


if __name__ == "__main__":
    sys.exit(main())
