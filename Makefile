# The commands of this project; `make` lists them.

CASES := alpha beta gamma control
TARGET := $(or $(CARGO_TARGET_DIR),target)
FLAVOUR := auto

.PHONY: help libtorch services python demo test lint bench load doc

help: ## List the commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

libtorch: ## Find libtorch, or fetch it once (FLAVOUR=auto, cpu or cuda)
	@python3 scripts/libtorch.py --flavour $(FLAVOUR)

# Three Go modules, since the releases pin different versions of the same parts.
services: ## Build the servers that tests talk to: Jaeger and OpenTelemetry Collectors (needs Go)
	@if command -v go >/dev/null; then \
		cd tests/services/collector && go build -o $(abspath $(TARGET))/services/otelcol . && \
		cd ../loadbalancer && go build -o $(abspath $(TARGET))/services/loadbalancer . && \
		cd ../jaeger && go build -o $(abspath $(TARGET))/services/jaeger \
			github.com/jaegertracing/jaeger/cmd/jaeger; \
	else \
		echo "services: no Go here, so the tests that need real servers will be skipped"; \
	fi

# Beside the servers, so that nothing of it comes into the user's Python.
python: ## Install what the Python producer needs (with pip)
	@if ! cmp -s collector/python/requirements.txt $(TARGET)/python/requirements.txt; then \
		rm -rf $(TARGET)/python $(TARGET)/python.partial && \
		python3 -m pip install -q --disable-pip-version-check --root-user-action ignore \
			--target $(TARGET)/python.partial -r collector/python/requirements.txt && \
		cp collector/python/requirements.txt $(TARGET)/python.partial/ && \
		mv $(TARGET)/python.partial $(TARGET)/python; \
	fi

demo: libtorch ## Train the three cases and the control, compare them and name the causes
	cargo build --release --features torch $(CASES:%=--example %)
	cargo build --release -p phasescope-collector
	@mkdir -p demo
	@for case in $(CASES); do \
		$(TARGET)/release/examples/$$case --output demo/$$case.json --overwrite-output || exit 1; \
	done
	@echo
	@$(TARGET)/release/phasescope compare $(CASES:%=demo/%.json)
	@echo
	@$(TARGET)/release/phasescope diagnose $(CASES:%=demo/%.json)

# The tests with libtorch are built in release, so that the demo shares the long build of torch-sys.
test: libtorch services python ## Run all tests
	python3 -B -m unittest discover -s scripts/tests
	cargo test --workspace --exclude phasescope-export-tests
	cargo test --release --features torch
	cargo build --release -p phasescope-collector
	cargo test --release -p phasescope-export-tests

lint: libtorch ## Check format, lints and documentation, the cheapest first
	cargo fmt --all --check
	python3 -B -c "import ast, glob; [ast.parse(open(f).read(), f) for f in glob.glob('scripts/**/*.py', recursive=True) + glob.glob('collector/**/*.py', recursive=True)]"
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --release --features torch --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace

bench: ## Measure what the engine and the layer cost
	cargo bench

load: services ## Measure what the collector takes, beside an OpenTelemetry Collector
	cargo build --release -p phasescope-collector -p phasescope-export-tests
	$(TARGET)/release/load

doc: ## Build the documentation
	cargo doc --no-deps --workspace
