# The few commands that people and CI share.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ASAN := build/asan
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

.PHONY: setup demo test lint types unit asan format clean

setup: $(STAMP)

# Pinned by constraints.txt, so that a clone of today still installs tomorrow.
$(STAMP): pyproject.toml constraints.txt $(wildcard src/turnout/kernels/cpu/* src/turnout/kernels/cpu/*/*)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo]' --group dev
	touch $@

demo: setup
	$(BIN)/turnout demo

test: lint types unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

# On all cores, the tests of one file on one of them, for they share what is slow to make.
unit: setup
	$(BIN)/pytest --numprocesses auto --dist loadfile

# The native kernels and their tests once under the address and undefined behaviour sanitizers of GCC, built apart from
# the installed ones. Python itself is not instrumented, so the sanitizer's library has to be loaded before it.
asan: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade --target $(ASAN)/packages nanobind
	cmake -S src/turnout/kernels/cpu -B $(ASAN)/cpu -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=g++ \
		-DCMAKE_CXX_FLAGS='$(SANITIZE)' -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
		-Dnanobind_DIR=$(abspath $(ASAN)/packages/nanobind/cmake)
	cmake --build $(ASAN)/cpu --parallel 2
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0,verify_asan_link_order=0 UBSAN_OPTIONS=print_stacktrace=1 \
		TURNOUT_EXTENSION=$$(ls $(abspath $(ASAN)/cpu)/_cpu*.so) \
		$(BIN)/python -m pytest -p tests.kernels.built_extension tests/kernels

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
