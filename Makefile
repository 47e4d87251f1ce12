# megatrain: `make demo` and `make test` are all a fresh machine needs; `make help` lists the rest.
PRESET ?= release
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
# Where the preset builds (CMakePresets.json); not for the user to say.
override BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))

.PHONY: all build configure deps demo tests test test-asan test-tsan test-cuda soak analyze fuzz install uninstall package format clean help

all: build

# Warnings are errors in CI only: a newer compiler must not keep a user from building.
ifdef CI
CMAKE_ARGS += -DMT_WERROR=ON
endif

configure: deps
	@cmake --preset $(PRESET) $(CMAKE_ARGS) > $(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@rm -f $(BUILD).configure.log

build: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target megatrain
	@scripts/build-note.sh $(BUILD)

deps:
	@scripts/install-deps.sh

demo: build
	@scripts/demo.sh $(BUILD)/megatrain

tests: build
	@cmake --build --preset $(PRESET) -j $(JOBS)

test: configure
	@BUILD=$(BUILD) scripts/test.sh

test-asan: deps
	cmake --preset asan && cmake --build --preset asan -j $(JOBS) && ctest --preset asan

test-tsan: deps
	cmake --preset tsan && cmake --build --preset tsan -j $(JOBS) && ctest --preset tsan

test-cuda: tests
	@scripts/test-cuda.sh $(BUILD)

soak: tests
	@BUILD=$(BUILD) scripts/soak.sh

analyze: configure
	@BUILD=$(BUILD) scripts/analyze.sh

MINUTES ?= 10
fuzz: deps
	@JOBS=$(JOBS) scripts/fuzz.sh $(MINUTES)

install: build
	@cmake --build --preset $(PRESET) -j $(JOBS) --target manual
	cmake --install $(BUILD) --prefix $(PREFIX)

# What make install has listed; folders that are empty then, if they are megatrain's.
INSTALLED = $(PREFIX)/share/megatrain/installed-files.txt
uninstall:
	@test -f '$(INSTALLED)' || { echo "no $(INSTALLED): set PREFIX to where make install put megatrain" >&2; exit 1; }
	@xargs -d '\n' rm -f < '$(INSTALLED)' && rm -f '$(INSTALLED)'
	@find '$(PREFIX)/share/megatrain' '$(PREFIX)/share/doc/megatrain' -depth -type d -empty -delete

package: deps
	@scripts/package.sh

format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

clean:
	rm -rf build build-*

help:
	@echo "make            build build/megatrain and the library"
	@echo "make demo       install what is missing, build, train a small model (two minutes on two idle cores), ask it questions"
	@echo "make test       everything that can be proved without a GPU (half an hour on two idle cores)"
	@echo "make test-cuda  the same ops and models on this machine's GPU"
	@echo "make soak       the long runs"
	@echo "make analyze    GCC's analyzer and clang-tidy over the sources"
	@echo "make fuzz       every fuzz target, MINUTES=10 in all (needs clang)"
	@echo "make install    into PREFIX (default /usr/local)"
	@echo "make uninstall  what make install put into PREFIX"
	@echo "make package    a relocatable tarball with the libraries a bare server lacks"
