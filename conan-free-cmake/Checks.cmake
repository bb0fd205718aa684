# Registers tests/build and tests/fuzz as ordinary tests.
include_guard(GLOBAL)
