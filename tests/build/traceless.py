#!/usr/bin/env python3
"""Runs a program under strace: it starts no process, opens no socket and opens or changes no file
for writing. Threads of its own are fine. Status 77 where strace is missing or not allowed.

usage: traceless.py PROGRAM [ARGUMENT...]"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from consumer import Failed, script

CALL = re.compile(r"^\d+\s+(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)$")
OPENING = {"open", "openat", "openat2", "creat"}
WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
CHANGING = {"mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2",
            "link", "linkat", "symlink", "symlinkat", "truncate", "chmod", "fchmodat", "chown",
            "fchownat", "lchown", "mknod", "mknodat", "utime", "utimes", "utimensat"}
STARTING = {"fork", "vfork", "clone", "clone3", "execve", "execveat"}


def faults_of(trace):
    """The system calls that the program must not make."""
    started = False
    for line in trace.splitlines():
        found = CALL.match(line)
        if not found:
            continue
        name, rest = found.groups()
        if name in STARTING:
            thread = name.startswith("clone") and "CLONE_THREAD" in rest
            first = name == "execve" and not started
            started = started or first
            if thread or first or line.find(" resumed>") >= 0:
                continue
            yield f"starts a process: {line}"
        elif name in OPENING and (name == "creat" or WRITING.search(rest)):
            yield f"opens a file for writing: {line}"
        elif name in CHANGING:
            yield f"changes a file: {line}"
        elif name in ("socket", "socketpair", "connect", "bind", "accept", "accept4", "sendto", "recvfrom"):
            yield f"uses a socket: {line}"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def main():
    strace = shutil.which("strace")
    if not strace:
        skip("strace is not installed (apt-get install strace)")
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace"
        # An empty home: a table of the user's own would be read, and is not what is asked here.
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith(("TESSERA_", "XDG_"))}
        environment |= {"HOME": folder, "XDG_DATA_DIRS": folder}
        done = subprocess.run([strace, "-f", "-qq", "-o", trace, "-e", "trace=%process,%network,%file",
                               *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=environment)
        if "PTRACE_TRACEME" in done.stdout or "ptrace" in done.stdout and done.returncode:
            skip(f"strace may not trace here: {done.stdout.strip()}")
        if done.returncode != 0:
            raise Failed(f"{' '.join(sys.argv[1:])}: status {done.returncode}\n{done.stdout[-3000:]}")
        text = trace.read_text(errors="replace")
    calls = sum(1 for line in text.splitlines() if CALL.match(line))
    if "execve" not in text or "openat" not in text:
        raise Failed(f"strace shows {calls} calls, and no program that starts")
    faults = list(faults_of(text))
    if faults:
        raise Failed("\n".join(faults))
    print(f"{calls} system calls: no process, no socket, no file opened for writing")


if __name__ == "__main__":
    script(main)
