"""Small CMake projects that use tessera as a stranger would, and what the scripts beside it share."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failed(Exception):
    pass


def script(main):
    """Runs a script's main; what it refuses becomes the script's last words and status 1."""
    try:
        main()
    except Failed as failed:
        sys.exit(str(failed))


def run(*command, environment=None, check=True):
    """Returns (status, stdout and stderr together)."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, **(environment or {})})
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-6000:]}")
    return done.returncode, done.stdout


def source_entries():
    """What a checkout has at its top, build folders excepted."""
    return [entry for entry in ROOT.iterdir() if not entry.name.startswith((".", "build"))]


def project_of(arguments, **settings):
    """The project of `WORK_FOLDER --prefix PREFIX | --subdirectory [GENERATOR] [-- CMAKE_ARGUMENT...]`.
    With a GENERATOR, a tessera-generate that was built, the project does not compile one."""
    work, how, *rest = arguments
    prefix = rest.pop(0) if how == "--prefix" else None
    generator = rest.pop(0) if not prefix and rest and rest[0] != "--" else None
    project = Project(work, prefix, [argument for argument in rest if argument != "--"], **settings)
    project.generator = generator
    return project


class Project:
    """A project in an empty folder, which finds tessera in `prefix` or adds a folder of links to `ROOT`.

    The build folder lies in those links as that of the main build lies in `ROOT`, and projects that find
    an installed package lie at one depth: ccache then sees the same relative paths everywhere, and what
    one build compiled serves the others."""

    def __init__(self, folder, prefix=None, arguments=(), languages="CXX"):
        self.folder = pathlib.Path(folder).absolute()
        self.prefix = prefix
        self.arguments = list(arguments)
        self.languages = languages
        self.generator = None
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.sources = self.folder / "sources"
        if prefix:
            self.build_folder = self.folder / "build"
            base = os.path.commonpath([self.folder, pathlib.Path(prefix).absolute()])
        else:
            self.link_sources()
            self.build_folder = self.sources / "build"
            base = self.sources
        self.environment = {"CCACHE_BASEDIR": str(base)}

    def take_generator(self):
        """Puts the generator where tessera_add_kernels would compile it."""
        if self.generator:
            place = self.build_folder / "tessera/configure"
            place.mkdir(parents=True)
            shutil.copy(self.generator, place / "tessera-generate")

    def take_small_table(self, trace):
        """Instead of the default table, one of the portable rows that the problems of a trace take."""
        self.write("trace.txt", trace)
        (self.sources / "generated").unlink()
        run(self.generator, "--output", self.sources / "generated", "--trace", self.folder / "trace.txt",
            "--backends", "cpu_generic", "--costs", ROOT / "generated/cost", "--include", ROOT / "include")

    def link_sources(self):
        self.sources.mkdir()
        for entry in source_entries():
            (self.sources / entry.name).symlink_to(entry)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def copy(self, *names):
        """Copies files of tests/build."""
        for name in names:
            shutil.copy(ROOT / "tests/build" / name, self.folder)

    def cmake_lists(self, text):
        start = f"cmake_minimum_required(VERSION 3.25)\nproject(consumer LANGUAGES {self.languages})\n"
        if self.prefix:
            start += "find_package(tessera REQUIRED)\n"
        else:
            start += "add_subdirectory(sources tessera EXCLUDE_FROM_ALL)\n"
        self.write("CMakeLists.txt", start + text)

    def configure(self, check=True):
        arguments = ["-DCMAKE_BUILD_TYPE=Release", *self.arguments]
        if self.prefix:
            arguments.append(f"-DCMAKE_PREFIX_PATH={self.prefix}")
        if shutil.which("ninja"):
            arguments += ["-G", "Ninja"]
        if shutil.which("ccache"):
            arguments += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in
                          self.languages.split()]
        return run("cmake", "-S", self.folder, "-B", self.build_folder, *arguments,
                   environment=self.environment, check=check)

    def refuses(self, text, pattern):
        """Configuring fails with a message that matches; white space is free, CMake folds lines."""
        self.cmake_lists(text)
        status, output = self.configure(check=False)
        if status == 0 or not re.search(pattern, " ".join(output.split())):
            raise Failed(f"{text}: status {status}, expected /{pattern}/ in:\n{output[-3000:]}")

    def build(self, target="all", check=True):
        """Returns (status, output)."""
        return run("cmake", "--build", self.build_folder, "--parallel", os.cpu_count() or 1,
                   "--target", target, environment=self.environment, check=check)

    def found(self, name):
        """A file that was built."""
        paths = [path for path in self.build_folder.rglob(name) if path.is_file()]
        if not paths:
            raise Failed(f"{name} was not built")
        return paths[0]

    def run(self, program, *arguments, environment=None):
        return run(self.found(program), *arguments, environment=environment)[1]


def compiled_units(output):
    """Names of the sources that a build compiled, from what Ninja or Make printed."""
    return re.findall(r"Building CXX object \S*?([^/\s]+)\.o\b", output)
