# Commands for a machine that has Debian 12 or 13, its Python and a C++ compiler. Each sets up whatever is missing, says so, and skips what an earlier run
# already did.
#
#   make demo        read the text of a photographed page with three ONNX models, every layer on the Vulkan device
#   make site        the documentation, with the reference of operators and all measurements, in build/site
#   make check       lint, types, the tests that need no device and the quick ones, from the sources: before every commit
#   make test        lint, types and the test suite on lavapipe, under the Vulkan validation layer
#   make drivers     verify every driver that runs on a processor, SwiftShader and the newest lavapipe too; minutes
#   make test-full   make test, and with it the tests marked "full", which may take hours

.PHONY: demo site check test drivers test-full clean

SET_UP_TESTS = tools/setup_debian.sh vulkan-validationlayers spirv-cross chromium && \
	python3 tools/setup_venv.py --extra docs --extra onnx --extra report --extra test --torch --bench

demo:
	@tools/setup_debian.sh
	@python3 tools/setup_venv.py --extra onnx --with scikit-image
	@.venv/bin/python examples/ocr.py

test:
	@$(SET_UP_TESTS)
	@tools/run_tests.sh

site:
	@tools/setup_debian.sh
	@python3 tools/setup_venv.py --extra docs --extra report --bench
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

check:
	@$(SET_UP_TESTS) --sources
	@tools/run_tests.sh --check

drivers:
	@$(SET_UP_TESTS)
	@.venv/bin/python tools/verify_drivers.py

test-full:
	@$(SET_UP_TESTS)
	@tools/run_tests.sh --full

clean:
	rm -rf .venv build .cache
