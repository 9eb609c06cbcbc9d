# Forebay. `make` prints the targets. Needs Go, git and make. A target builds its other tools below .cache/.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
BIN     := $(CURDIR)/bin
DIST    := $(CURDIR)/dist
CACHE   := $(CURDIR)/.cache

PKG      ?= ./...
TIMEOUT  ?= 40m
RACE_TIMEOUT ?= 40m
FUZZTIME ?= 3s
BENCH    ?= .
DIR      ?=

# All targets compile alike, so that each finds in Go's cache the packages that another has compiled, in another
# clone, too. A target that needs cgo sets it. The tags keep cgo out of the standard library there, too, or
# nearly all would be compiled anew. -tags on a command line takes their place, so it names them. Tests are
# not vetted, since make lint vets everything, with all checks.
export CGO_ENABLED := 0
TAGS := netgo,osusergo
ALIKE := -trimpath -tags=$(TAGS) -vet=off
export GOFLAGS := $(strip $(ALIKE) $(filter-out $(ALIKE),$(GOFLAGS)))

# Most tests wait more than they compute, so more of them run at a time than there are
# processors. Under the race detector each needs several times its memory and time, and still waits for a
# third to a half of it, so two of a package run at once.
ATONCE      := -p $(shell expr $$(nproc) + 1) -parallel $(shell expr $$(nproc) + 2)
RACE_ATONCE := -p $(shell nproc) -parallel 2

# A program with the race detector sleeps a second before it ends, so that goroutines that still run may meet
# a race. The tests of packages that start goroutines check that none is left.
race race-all: export GORACE := atexit_sleep_ms=10

# A run repeats two failed tests once, each by itself, and lists those as flaky that pass then.
TESTRUN := $(CACHE)/bin/testrun -again 2

# Two targets at a time, each with its output in one piece when it ends, since the one waits while the other computes.
# If one fails, make waits for the end of the other and fails. bin/ is built before, so that neither writes there.
BESIDE := -j2 --output-sync=target

# Builds the pinned S3 server that the tests of the S3 adaptor start.
S3SERVER := scripts/s3server-build.sh

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PKG=./bbd/... narrows test, race, fuzz, bench and cover; demo writes DIR=/some/tree."

.PHONY: build
build: build-go ## Build bin/bbd, bbctl, bbmount and bbbench, static, with libfabric bbd-ofi, bbctl-ofi and bbbench-ofi too, with Java the jars
	@if scripts/ofi-tools.sh; then $(MAKE) --no-print-directory build-ofi; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: bbd-ofi, bbctl-ofi and bbbench-ofi are not built."; fi
	@if scripts/java-tools.sh; then $(MAKE) --no-print-directory build-java; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: the jars of sdk/java are not built."; fi

.PHONY: build-go
build-go:
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/bbd ./cmd/bbctl ./cmd/bbmount ./cmd/bbbench

.PHONY: s3server
s3server: ## Run a small S3 server at 127.0.0.1:7070, to try the quick start with
	@scripts/s3server.sh

.PHONY: packages
packages: build-go ## Build the deb and rpm packages and the OCI image archive, in DIST (dist)
	@scripts/packages.sh '$(BIN)' '$(DIST)' "$$(scripts/package-version.sh '$(VERSION)' "$$(git rev-list --count HEAD 2>/dev/null || echo 0)")"
	@ls -1 '$(DIST)'

.PHONY: build-ofi
build-ofi:
	for p in bbd bbctl bbbench; do CGO_ENABLED=1 go build -tags $(TAGS),ofi -ldflags '$(LDFLAGS)' -o $(BIN)/$$p-ofi ./cmd/$$p || exit 1; done

.PHONY: build-java
build-java: ## Build the jars of sdk/java, below sdk/java/*/target (part of build)
	scripts/maven.sh -q package -DskipTests

.PHONY: test
test: test-tools ## Run the tests for every change: the Go tests but those in .ci/long-tests, the clients of Python and Java
	@go test -C tools ./...
	@$(TESTRUN) -allow .ci/long-tests -- -short $(ATONCE) -timeout $(TIMEOUT) $(PKG)
ifeq ($(PKG),./...)
	@$(MAKE) --no-print-directory build-go
	@$(MAKE) --no-print-directory $(BESIDE) test-python test-java-client
endif

.PHONY: test-all
test-all: ## Run every other test: long, with libfabric, of programs of others, packages, verbs, the race detector
	@$(MAKE) --no-print-directory test-long
	@$(MAKE) --no-print-directory build-go
	@$(MAKE) --no-print-directory $(BESIDE) test-with-maven test-with-roots
	@$(MAKE) --no-print-directory test-verbs
	@$(MAKE) --no-print-directory race

# Those that build in sdk/java, one after the other. The client's tests on Maven's JDK are a part of test.
.PHONY: test-with-maven
test-with-maven:
	@for t in 'test-java CLIENT_TESTED=yes' test-apps test-spark; do $(MAKE) --no-print-directory $$t || exit 1; done

# Those of which testrun repeats what fails beside others. They write nothing that the tests of sdk/java read. test-verbs
# is not one of them: an emulated machine that gets too little time finds no way over the device in time.
.PHONY: test-with-roots
test-with-roots:
	@for t in test-ofi test-packages; do $(MAKE) --no-print-directory $$t || exit 1; done

.PHONY: test-long
test-long: test-tools ## Run the Go tests that test leaves out, in full: .ci/long-tests (part of test-all)
	@$(TESTRUN) -allow .ci/allowed-skips -only .ci/long-tests -- $(ATONCE) -timeout $(TIMEOUT)

.PHONY: test-lustre
test-lustre: ## Run suites of stores, staging, shared files and receipts in FOREBAY_LUSTRE_DIR, a directory on a Lustre
	@mkdir -p $(CACHE)/bin
	@go build -C tools -o $(CACHE)/bin/ ./testrun
	@TESTRUN='$(TESTRUN)' scripts/test-lustre.sh

# The packages that are something else with the build tag ofi.
OFI := ./rdma/ofi/... ./rdma/route

.PHONY: test-ofi
test-ofi: ## Run the tests that need libfabric (part of test-all)
	@mkdir -p $(CACHE)/bin
	@go build -C tools -o $(CACHE)/bin/ ./testrun
	@if scripts/ofi-tools.sh; then $(MAKE) --no-print-directory test-with-ofi; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: nothing is tested with libfabric."; fi

.PHONY: test-with-ofi
test-with-ofi:
	@CGO_ENABLED=1 $(TESTRUN) -allow .ci/allowed-skips -- -tags $(TAGS),ofi -timeout $(TIMEOUT) $(OFI)
	@CGO_ENABLED=1 $(TESTRUN) -allow .ci/allowed-skips -- -tags $(TAGS),ofi -timeout $(TIMEOUT) \
		-run 'Libfabric|TestFabric|TestCluster(Read|Shared|Over|Replica)|TestFar' ./bbd ./client ./cmd/bbbench

.PHONY: test-java-client
test-java-client: ## Run the tests of the Java client, against a real daemon (part of test)
	@if scripts/java-tools.sh; then $(MAKE) --no-print-directory build-go && scripts/maven.sh -pl client test; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: sdk/java is not tested."; fi

.PHONY: test-java
test-java: ## Run the tests of sdk/java, against a real daemon (part of test-all)
	@if scripts/java-tools.sh; then $(MAKE) --no-print-directory test-with-java; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: sdk/java is not tested."; fi

.PHONY: test-with-java
test-with-java: build-go
	@scripts/maven.sh test $(if $(CLIENT_TESTED),-DskipClientTests=true)
	@jdk=$$(scripts/newest-jdk.sh) || exit 1; if [ -n "$$jdk" ]; then \
		echo "forebay-client on $$jdk:"; scripts/maven.sh surefire:test -pl client -Djvm="$$jdk/bin/java"; \
	else echo "note: there is no newer JDK than Maven's to test forebay-client on."; fi

.PHONY: test-apps
test-apps: ## Run programs of others on bb://, from their own artefacts (part of test-all)
	@if scripts/java-tools.sh; then $(MAKE) --no-print-directory test-with-apps; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: no programs are tested on bb://."; fi

.PHONY: test-with-apps
test-with-apps: build-go
	@scripts/maven.sh -Papps package

.PHONY: test-mount
test-mount: ## Run suites of file systems on a mount: fsx, pjdfstest, fio, dbench, stress-ng, rsync, MPI-IO, HDF5, docker, as root (part of soak)
	@if suites=$$(scripts/mount-suites.sh); then \
		PATH="$$suites:$$PATH" go test -tags $(TAGS),suites -count 1 -timeout $(TIMEOUT) -v -run 'TestFsx|TestFio|TestDbench|TestRsync|TestStress|TestPjdfstest|TestParallelHDF5|TestDocker' ./cmd/bbmount; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: no suites are run on a mount."; fi

MINUTES ?= 60

.PHONY: soak-mount
soak-mount: ## Run those suites and more on a mount while the daemon is killed and the namespace's server restarts: each alone, then all at once by several users, as root (MINUTES, 60; part of soak)
	@if suites=$$(scripts/mount-suites.sh); then \
		PATH="$$suites:$$PATH" FOREBAY_MINUTES=$(MINUTES) go test -tags $(TAGS),suites -count 1 -timeout 0 -v -run 'TestSuitesKilled|TestEverything' ./cmd/bbmount; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: no suites are run on a mount."; fi

.PHONY: test-spark
test-spark: ## Run Spark on bb://, which is downloaded once (0.5 GB; part of test-all)
	@if scripts/java-tools.sh && home=$$(scripts/spark.sh); then $(MAKE) --no-print-directory test-with-spark SPARK="$$home"; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: Spark is not tested on bb://."; fi

.PHONY: build-spark
build-spark: ## Build the benchmarks for Spark, which is downloaded once (0.5 GB)
	home=$$(scripts/spark.sh) && cd sdk/java && mvn -B -ntp -q -Pspark -Dspark.home="$$home" package -DskipTests

.PHONY: test-spark-slurm
test-spark-slurm: build-spark ## Run the Slurm job of docs/spark.md, as root
	@scripts/slurm.sh tools
	@FOREBAY_SPARK=$$(scripts/spark.sh) FOREBAY_SPARK_JAR=$$(echo $(CURDIR)/sdk/java/spark/target/forebay-spark-*-all.jar) \
		go test -tags $(TAGS),spark -run TestSparkDocs -count 1 ./slurm/node

.PHONY: test-with-spark
test-with-spark: build-go
	@scripts/maven.sh -Pspark -Dspark.home='$(SPARK)' package

# Python writes its compiled and cached files below .cache, not into the sources.
PYTHON_ENV := PYTHONPYCACHEPREFIX=$(CACHE)/pycache MYPY_CACHE_DIR=$(CACHE)/mypy RUFF_CACHE_DIR=$(CACHE)/ruff

PYTEST = timeout -k 10 900 $(VENV)/bin/python -m pytest -o cache_dir=$(CACHE)/pytest

.PHONY: test-python
test-python: ## Check and test sdk/python, against a real daemon (part of test)
	@if env=$$(scripts/python-tools.sh); then $(MAKE) --no-print-directory test-with-python VENV="$$env"; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: sdk/python is not tested."; fi

.PHONY: test-with-python
test-with-python: build-go
	@cd sdk/python && export $(PYTHON_ENV) && \
		$(VENV)/bin/ruff format --check -q . && $(VENV)/bin/ruff check -q . && \
		$(VENV)/bin/mypy --no-error-summary && \
		{ $(PYTEST) || { [ "$$(grep -c :: $(CACHE)/pytest/v/cache/lastfailed)" -le 2 ] && \
		echo "once more, by themselves (flaky, if they pass):" && $(PYTEST) --last-failed --last-failed-no-failures none; }; }

.PHONY: test-torch
test-torch: build-go ## Test forebay.torch with ranks of PyTorch, which is installed below .cache, 4.4 GB (part of soak; FOREBAY_KILLS)
	@env=$$(scripts/python-env.sh torch) && cd sdk/python && $(PYTHON_ENV) \
		timeout -k 10 3600 "$$env"/bin/python -m pytest -o cache_dir=$(CACHE)/pytest-torch $(TORCH_TESTS) tests_torch

.PHONY: test-torch-core
test-torch-core: ## Test forebay.torch as test-torch does, without the tests that kill ranks and daemons
	@$(MAKE) --no-print-directory test-torch TORCH_TESTS='-m "not kills"'

.PHONY: test-python-apps
test-python-apps: build-go ## Test programs of others on bb:// that are installed below .cache, 0.5 GB: Hugging Face datasets, multi-storage-client (part of soak)
	@env=$$(scripts/python-env.sh apps) && cd sdk/python && $(PYTHON_ENV) \
		timeout -k 10 900 "$$env"/bin/python -m pytest -o cache_dir=$(CACHE)/pytest-apps tests_apps

.PHONY: test-snakemake
test-snakemake: build-go ## Test the plug-in for Snakemake, which is installed below .cache (part of soak)
	@env=$$(scripts/python-env.sh snakemake) && cd sdk/python && $(PYTHON_ENV) \
		timeout -k 10 900 "$$env"/bin/python -m pytest -W default -o cache_dir=$(CACHE)/pytest-snakemake tests_snakemake

.PHONY: build-python
build-python: ## Build the wheel of sdk/python, below sdk/python/dist
	@env=$$(scripts/python-tools.sh) && cd sdk/python && rm -rf dist && \
		$(PYTHON_ENV) "$$env"/bin/python -m build --no-isolation --wheel >/dev/null && ls dist

.PHONY: demo-python
demo-python: build-go ## Show a training loop in Python that is killed and loses nothing, with a plot below bin/
	@env=$$(scripts/python-tools.sh) && cd sdk/python && \
		"$$env"/bin/python -m pip --disable-pip-version-check -q install --only-binary :all: --require-hashes -r requirements-demo.txt && \
		$(PYTHON_ENV) "$$env"/bin/python demo/training.py --plot $(BIN)/training.png

.PHONY: bench-small-flush
bench-small-flush: build-go ## Measure the flush of 5,000 small files beside cp and sync, on ext4, XFS and tmpfs, as root (BEFORE=folder of another build, FILES, ROUNDS, STORES)
	@scripts/bench-small-flush.sh $(BIN) $(BEFORE)

.PHONY: bench-python
bench-python: build-go ## Measure a write of 1 GiB from Python beside one pass of checksum and copy, tmpfs, fsync, boto3 and s3fs (MIB, MOUNT=off)
	@env=$$(scripts/python-env.sh bench) && s3=$$($(S3SERVER)) && cd sdk/python && \
		$(PYTHON_ENV) "$$env"/bin/python bench/throughput.py --s3 "$$s3" $(if $(MIB),--mib $(MIB)) $(if $(MOUNT),--mount $(MOUNT))

.PHONY: bench-torch
bench-torch: build-go ## Measure how long an asynchronous save of 2 GiB from PyTorch blocks, beside one copy, tmpfs and fsync (MIB, MOUNT=off)
	@env=$$(scripts/python-env.sh torch) && cd sdk/python && $(PYTHON_ENV) "$$env"/bin/python bench/checkpoint.py $(if $(MIB),--mib $(MIB)) $(if $(MOUNT),--mount $(MOUNT))

# Tools of the tests beyond Go.
.PHONY: test-tools
test-tools:
	@mkdir -p $(CACHE)/bin
	@go build -C tools -o $(CACHE)/bin/ ./testrun
	@$(S3SERVER) >/dev/null
	@scripts/netns-tools.sh
	@scripts/mount-tools.sh
	@scripts/store-tools.sh
	@scripts/nss-tools.sh
	@scripts/slurm.sh tools || [ -z "$$CI" ]
	@scripts/lua-tools.sh || [ -z "$$CI" ]
	@scripts/prometheus.sh >/dev/null || [ -z "$$CI" ]
	@if [ "$$(id -u)" != 0 ]; then \
		echo "note: not root: huge-page mounts and other users' rights are tested as far as an ordinary user may, clusters of hosts and Slurm not at all."; fi

.PHONY: test-verbs
test-verbs: ## Run the tests over verbs, on a software device in an emulated machine
	@scripts/rxe.sh

.PHONY: test-packages
test-packages: ## Install the packages in bare roots, follow docs/deploy.md and docs/operations.md, boot the unit, and run the image, as root (part of test-all)
	@mkdir -p $(CACHE)/bin
	@go build -C tools -o $(CACHE)/bin/ ./testrun
	@if [ "$$(id -u)" != 0 ]; then echo "note: not root: packages are not tested."; \
	elif scripts/package-tools.sh; then $(TESTRUN) -allow .ci/allowed-skips -- -tags $(TAGS),packages -count 1 -timeout $(TIMEOUT) ./packaging; \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: packages are not tested."; fi

.PHONY: test-power
test-power: ## Cut the power of an emulated machine with one daemon, five times (three minutes; FOREBAY_SEED, FOREBAY_KILLS)
	@scripts/power.sh

.PHONY: demo
demo: build-go ## Show the main job: burst, kill, recover, drain, compare (DIR=tree to write)
	@DIR='$(DIR)' scripts/demo.sh

.PHONY: bench
bench: ## Run the Go benchmarks (BENCH=pattern)
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

.PHONY: soak
soak: test-tools ## Run the tests that are too long for test: many kills, also of the namespace's server, namespaces that are damaged, race-all, fuzz, soak-buckets, test-mount, soak-mount, test-torch, test-python-apps and test-snakemake (FOREBAY_KILLS, FOREBAY_SEEDS, MINUTES)
	go test -tags $(TAGS),soak -count 1 -timeout 0 -run 'TestNamespaceDamaged|TestServerKilled|TestDaemonKilled|TestAttacksBite|TestHostileUserForLong|TestMajorityLost|TestManyBadInputs|TestStoppedWriters' ./cmd/bbd
	@$(MAKE) --no-print-directory race-all RACE_TIMEOUT=4h
	@$(MAKE) --no-print-directory fuzz FUZZTIME=1m
	@$(MAKE) --no-print-directory soak-buckets
	@$(MAKE) --no-print-directory soak-commit
	@$(MAKE) --no-print-directory test-mount
	@$(MAKE) --no-print-directory soak-mount
	@$(MAKE) --no-print-directory test-torch
	@$(MAKE) --no-print-directory test-python-apps
	@$(MAKE) --no-print-directory test-snakemake

.PHONY: soak-buckets
soak-buckets: ## Run the tests of clusters with namespaces in buckets, which is the default no more (part of soak)
	FOREBAY_TEST_ENGINE=buckets go test -tags $(TAGS) -count 1 -timeout $(TIMEOUT) -run TestCluster ./bbd
	FOREBAY_TEST_ENGINE=buckets go test -tags $(TAGS) -count 1 -timeout $(TIMEOUT) ./internal/clustertest

.PHONY: soak-commit
soak-commit: build-go ## Commit a job of 20,000 files in 500 partitions while they are listed (part of soak)
	@scripts/java-tools.sh
	@cd sdk/java && FOREBAY_COMMIT_FILES=20000 FOREBAY_COMMIT_PARTITIONS=500 \
		mvn -B -ntp test -pl client,hadoop -Dtest=OneStepTest -Dsurefire.failIfNoSpecifiedTests=false

.PHONY: bench-commit
bench-commit: build-go ## Measure the commit of a job of 10,000 files by each committer, on bb://
	@scripts/java-tools.sh
	@cd sdk/java && mvn -B -q -ntp test-compile dependency:build-classpath -pl client,hadoop -Dmdep.includeScope=test -Dmdep.outputFile=target/test.classpath
	@cd sdk/java/hadoop && java -Xmx1g -Dforebay.bin=$(BIN) -cp "target/test-classes:target/classes:$$(cat target/test.classpath)" forebay.hadoop.JobCommitBench

.PHONY: bench-apps
bench-apps: build-go ## Measure programs on bb://, file:// and hdfs:// side by side, then bench-commit (ten minutes)
	@scripts/java-tools.sh
	@home=$$(scripts/spark.sh) && cd sdk/java && \
		mvn -B -q -ntp -Papps,spark -Dspark.home="$$home" -DskipTests package && \
		cd ../.. && scripts/bench-apps.sh "$$home"
	@$(MAKE) --no-print-directory bench-commit

.PHONY: lint
lint: ## Formatting, vet, staticcheck, go fix
	@scripts/lint.sh

# The packages of race: without PKG, all but the packages in .ci/no-race.
RACED = $(if $(filter ./...,$(PKG)),$$(go list ./... | grep -vxFf .ci/no-race),$(PKG))

.PHONY: race
race: test-tools ## Run the short tests with the race detector and checked locks (needs a C compiler), without those in .ci/long-tests and .ci/no-race
	@command -v $${CC:-gcc} >/dev/null || { echo "the race detector needs a C compiler: apt-get install gcc" >&2; exit 1; }
	@CGO_ENABLED=1 $(TESTRUN) -allow .ci/long-tests -- $(RACE_ATONCE) -race -tags $(TAGS),lockorder -short -timeout $(RACE_TIMEOUT) $(RACED)
ifeq ($(PKG),./...)
	@if scripts/ofi-tools.sh; then CGO_ENABLED=1 $(TESTRUN) -allow .ci/long-tests -- -tags $(TAGS),ofi -race -short -timeout $(TIMEOUT) $(OFI); \
	elif [ -n "$$CI" ]; then exit 1; else echo "note: nothing is tested with libfabric."; fi
endif

.PHONY: race-all
race-all: ## Run race of all packages, with the daemons that tests start built with the race detector, too (part of soak)
	@$(MAKE) --no-print-directory race RACED=./...

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (3s), led by the code that its inputs reach (part of soak, a minute each)
	@FUZZTIME=$(FUZZTIME) PKG='$(PKG)' scripts/fuzz.sh

.PHONY: cover
cover: test-tools ## Test coverage by function, total last
	@go test -short -coverprofile $(CACHE)/cover.out $(PKG)
	@go tool cover -func $(CACHE)/cover.out

.PHONY: generate
generate: ## Regenerate Go code from .proto files, and reference pages from code
	@go run -C tools ./genproto $(CURDIR)
	@go test ./cmd/bbd/config ./bbd/metrics ./cmd/bbctl -run Page -update >/dev/null

.PHONY: generate-check
generate-check: ## Fail if generated files are not current
	@go run -C tools ./genproto -check $(CURDIR)
	@go test ./cmd/bbd/config ./bbd/metrics ./cmd/bbctl -run Page

.PHONY: clean
clean: ## Remove built files
	rm -rf $(BIN) $(DIST) $(CACHE)
