#!/usr/bin/env python3
"""tessera_add_kernels(... BACKENDS cpu_generic cuda_sm80): the rows, what is refused, what the program
needs where it runs. The program runs the CUDA rows if this machine has a GPU, and says so if not. With the
sources as a folder the kernels alone are compiled: add_kernels.py links a library of these.

usage: cuda_kernels.py WORK_FOLDER --prefix PREFIX | --subdirectory GENERATOR  [-- CMAKE_ARGUMENT...]"""
import re
import sys

from consumer import Failed, project_of, run, script

ARCHITECTURES = "set(TESSERA_CUDA_ARCHITECTURES 80-real)\n"
CALL = "tessera_add_kernels(my_kernels TRACE trace.txt BACKENDS cpu_generic cuda_sm80)\n"
TRACE = ("flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true\n"
         "flash_attention q=[1,1,32,128]bf16 k=[1,8192,8,128] causal=true\n")
PROGRAM = "add_executable(smoke smoke.cpp)\ntarget_link_libraries(smoke PRIVATE my_kernels)\n"
ROWS = [rf"attention\.{backend}\.bf16\.d128\.{loop}\d+x\d+{threads}"
        for backend, threads in (("cpu_generic", ""), ("cuda_sm80", r"\.w\d+b\d+r?"))
        for loop in ("", r"decode\.")]


def check_rows(found):
    if len(found) != len(ROWS) or not all(re.fullmatch(*both) for both in zip(ROWS, found)):
        raise Failed(f"the library has the rows {found}, expected one of each of {ROWS}")


def main():
    project = project_of(sys.argv[1:])
    project.take_generator()
    project.copy("smoke.cpp")
    project.write("trace.txt", TRACE)
    project.refuses("set(TESSERA_CUDA_ARCHITECTURES)\n" + CALL, "cuda_sm80 need a GPU architecture")
    project.refuses(ARCHITECTURES + CALL, "cuda_sm80 need the CUDA compiler")

    project.languages = "CXX CUDA"
    project.cmake_lists(ARCHITECTURES + "find_package(CUDAToolkit REQUIRED)\n" + CALL + PROGRAM)
    project.configure()
    check_rows(re.findall(r'^\w+\(\w+, "(attention[^"]+)"', project.found("attention.inc").read_text(), re.M))
    if not project.prefix:
        project.build("my_kernels_units_cuda_sm80")
        print(f"kernels of {len(ROWS)} rows are compiled")
        return
    project.build()
    smoke = project.found("smoke")
    libraries = run("ldd", smoke)[1]
    if "libcudart" in libraries or "libcuda.so" in libraries:
        raise Failed(f"the program needs more than a driver where it runs:\n{libraries}")
    said = project.run("smoke").splitlines()
    skipped = [line for line in said if "were not run" in line] or ["The CUDA rows run here."]
    check_rows([line for line in said if line not in skipped])
    print(f"{len(ROWS)} rows build, {smoke.stat().st_size} bytes. {skipped[0]}")


if __name__ == "__main__":
    script(main)
