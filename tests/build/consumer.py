"""Small CMake projects that use tessera as a stranger would; shared by the scripts beside it."""
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failed(Exception):
    pass


def run(*command, environment=None, check=True):
    """Returns (status, stdout and stderr together)."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, **(environment or {})})
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-6000:]}")
    return done.returncode, done.stdout


class Project:
    """A project in an empty folder, which finds tessera in `prefix` or adds `ROOT` as a folder."""

    def __init__(self, folder, prefix=None, arguments=()):
        self.folder = pathlib.Path(folder)
        self.prefix = prefix
        self.arguments = list(arguments)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def cmake_lists(self, text):
        start = "cmake_minimum_required(VERSION 3.25)\nproject(consumer LANGUAGES CXX)\n"
        if self.prefix:
            start += "find_package(tessera REQUIRED)\n"
        else:
            start += f"add_subdirectory({ROOT} tessera EXCLUDE_FROM_ALL)\n"
        self.write("CMakeLists.txt", start + text)

    def configure(self, check=True):
        arguments = ["-DCMAKE_BUILD_TYPE=Release", *self.arguments]
        if self.prefix:
            arguments.append(f"-DCMAKE_PREFIX_PATH={self.prefix}")
        if shutil.which("ninja"):
            arguments += ["-G", "Ninja"]
        if shutil.which("ccache"):
            arguments.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        return run("cmake", "-S", self.folder, "-B", self.folder / "build", *arguments, check=check)

    def build(self):
        return run("cmake", "--build", self.folder / "build", "--parallel", os.cpu_count() or 1)

    def run(self, program, *arguments, environment=None):
        found = [path for path in (self.folder / "build").rglob(program) if path.is_file()]
        if not found:
            raise Failed(f"{program} was not built")
        return run(found[0], *arguments, environment=environment)[1]
