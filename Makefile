# Everything a newcomer needs: `make demo`, `make test`. `make help` lists the rest.

PYTHON ?= python3

.PHONY: sdk
sdk: ## Fetch libraries and headers into .sdk/ (by pinned hash; once)
	@$(PYTHON) xtask/sdk/fetch.py
