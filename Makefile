# Thin: each target calls one script, which can be run by itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
export ENGINEWRIGHT_VENV := $(abspath $(VENV))
# Containers often set it; each of the many processes here would then compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

##@ Try it

comma := ,
.PHONY: demo demo-llm demo-clean
demo: deps ## A real model, optimised and served on a local Kubernetes node (11 min cold, 2 min warm)
	hack/demo/begin.sh demo $(ARGS)

demo-llm: deps ## A language model: built, held against the source, served with vLLM, asked in chat, scaled (ARGS=--brief: few configurations)
	hack/demo/begin.sh demo.llm $(ARGS)

demo-clean: venv ## Remove everything that the demos made
	PYTHONPATH=hack $(VENV)/bin/python -m demo --clean

##@ Check

.PHONY: test test-unit test-triton test-vllm test-integration test-e2e lint typecheck imports verify
test: ## Everything: static checks, unit, golden, property, integration and end-to-end tests
	hack/dev/check.sh

test-unit: venv ## Unit, golden, property and security tests (no server, no cluster, not the studies of make test)
	$(VENV)/bin/pytest -q -n "$$(nproc)" --dist worksteal --hypothesis-profile quick -m "not triton and not torch and not study and not integration" \
	  tests/unit tests/golden tests/security tests/fuzz $(ARGS)

.PHONY: fuzz
fuzz: venv ## Parsers of foreign bytes and all property tests with new examples, many more of them (ARGS="-k manifests")
	$(VENV)/bin/pytest -q -n "$$(nproc)" --timeout 3600 --hypothesis-profile fuzz -m "not triton and not torch and not integration" \
	  tests/fuzz tests/security tests/unit $(ARGS)

test-triton: venv ## Tests of the builder that export with PyTorch or start a real tritonserver
	$(VENV)/bin/pytest -q -m "triton or torch" tests/unit tests/integration tests/security

test-vllm: venv ## Tests of language models with a real vLLM (2.6 GB in the cache, and minutes until it is ready)
	$(VENV)/bin/pytest -q -m vllm tests/integration/builder_vllm $(ARGS)

test-integration: venv test-deps ## Tests against a real kube-apiserver, two files at a time
	@hack/cluster/cluster build >/dev/null
	$(VENV)/bin/pytest -q -n 2 --dist loadfile -m "integration and not triton and not vllm" tests/integration tests/security $(ARGS)

test-e2e: venv test-deps ## Tests on a real Kubernetes node
	@reason=$$(hack/dev/can-run-node.sh) || { echo "end-to-end tests cannot run here: $$reason"; exit 1; }
	$(VENV)/bin/pytest -q tests/e2e

.PHONY: shake
shake: venv ## Tests again and again under load, in random order, to find those that depend on luck (SUITE=integration ROUNDS=10)
	hack/dev/shake.sh $(or $(SUITE),unit) $(or $(ROUNDS),20)

.PHONY: test-images-gpu
test-images-gpu: venv deps ## Build the images for NVIDIA GPUs and ask them in pods what they have: no GPU, 30 GB of disk
	$(VENV)/bin/pytest -q tests/gpu_images

.PHONY: test-image-vllm
test-image-vllm: venv deps ## Build vLLM's image and serve a small model in it, as a restricted pod would: 1 GB, 6 GB of disk (ACCELERATOR=cuda: ask it what it has, without a GPU: 30 GB of disk)
	$(VENV)/bin/pytest -q tests/vllm_image/test_vllm_image$(if $(filter cuda,$(ACCELERATOR)),_cuda).py

.PHONY: test-keda
test-keda: venv deps ## KEDA's own operator scales a model by the example: builds KEDA first, a quarter of an hour and 2 GB of modules
	KEDA_BINARIES="$$(hack/dev/keda.sh)" $(VENV)/bin/pytest -q tests/keda

.PHONY: test-kserve
test-kserve: venv deps ## KServe's own manager serves an exported engine on the local node: builds the manager first, some minutes and 2 GB of modules
	KSERVE_MANAGER="$$(hack/dev/kserve.sh)" $(VENV)/bin/pytest -q tests/kserve

.PHONY: e2e-rollout
e2e-rollout: venv deps ## Rollouts, rollbacks, kills and a drain under load on the local node: 200,000 requests (50 min; ARGS="--equal 5 --bad 4")
	PYTHONPATH=studies:hack $(VENV)/bin/python -m rollouts $(ARGS)

.PHONY: streams-study
streams-study: venv deps ## Chat streams of a real vLLM through rollouts, ways back, scaling, a drain and deletions on the local node: 10,000, into build/streams/summary.json (45 min; ARGS="--requests 2000 --rate 6")
	PYTHONPATH=studies:hack $(VENV)/bin/python -m streams $(ARGS)

lint: venv ## Ruff
	$(VENV)/bin/ruff check .

typecheck: venv ## Mypy, strict
	$(VENV)/bin/mypy

imports: venv ## The layers' import contracts
	$(VENV)/bin/lint-imports --no-logo

verify: venv ## Generated files are what their sources give
	hack/dev/generate.sh --check

.PHONY: gate-study
gate-study: venv ## Sabotaged and sound engines before the accuracy gate, into docs/benchmarks/gate.json (COUNT=1000 each)
	PYTHONPATH=studies:hack:builders $(VENV)/bin/python -m gate_study --count $(or $(COUNT),1000)

.PHONY: model-count
model-count: venv ## Small models that nothing was written for, from their framework to an answer of Triton or a refusal, into docs/benchmarks/model-count.json (an hour; ARGS="--models PointNet,graph --at-once 2")
	PYTHONPATH=studies:hack:builders ENGINEWRIGHT_TENSORFLOW="$$(hack/dev/tensorflow.sh)" $(VENV)/bin/python -m model_count $(ARGS)

.PHONY: language-gate-study
language-gate-study: $(if $(filter gpu,$(ACCELERATOR)),,venv) ## Broken and sound language models before their gate, through a real vLLM, into docs/benchmarks/language-gate.json (COUNT=200 each, MINUTES=120; ACCELERATOR=gpu where carry-llm.sh's parts lie; ARGS="--after FILE" adds to an earlier run's)
	PYTHONPATH=studies:hack:builders:tests/support:$$PYTHONPATH $(if $(filter gpu,$(ACCELERATOR)),python3,$(VENV)/bin/python) -m language_gate --count $(or $(COUNT),200) --minutes $(or $(MINUTES),120) $(ARGS) \
	  $(if $(filter gpu,$(ACCELERATOR)),--accelerator gpu --model $(or $(INPUTS_LLM),/tmp/bench-llm)/models/smollm2 --output build/bench/language-gate-gpu.json)

.PHONY: scaling-study
scaling-study: venv ## What each part of the scaler is worth, into docs/benchmarks/scaling.md (TABLES="held-out parts": those alone; TRACE=FILE.csv adds a trace)
	PYTHONPATH=studies:hack:operator:builders $(VENV)/bin/python -m scaling_study --seeds $(or $(SEEDS),1) $(if $(TRACE),--trace $(TRACE)) $(if $(TABLES),--tables $(TABLES))

.PHONY: reality-check
reality-check: venv ## The simulator beside real Triton replicas under the same requests: ENGINE=folder of an engine in a store, NAME of its model
	PYTHONPATH=studies:hack:operator:builders $(VENV)/bin/python -m reality --engine $(ENGINE) --name "$(NAME)" --replicas $(or $(REPLICAS),1) \
	  --seconds $(or $(SECONDS),60) --repeats $(or $(REPEATS),3) $(if $(TRACE),--trace $(TRACE) --begin $(or $(BEGIN),0)) \
	  $(if $(FIRST),--first) --output docs/benchmarks

.PHONY: planner-study
planner-study: venv ## The planner beside the optimum, first-fit, best-fit and FGD, into docs/benchmarks/planner.md (10 min)
	studies/planner_study/run.sh --count $(or $(COUNT),1000) --traces $(or $(TRACES),20)

.PHONY: takeover-study
takeover-study: venv deps ## How long no operator leads when a leading operator is killed, fifty times (KILLS=50)
	ENGINEWRIGHT_KILLS=$(or $(KILLS),50) $(VENV)/bin/pytest -q -s --timeout 1800 tests/integration/test_leadership.py -k killed

.PHONY: two-operators-study
two-operators-study: venv deps ## Fifty times one of two operators is paused for 60 s while its writes are late: what is undone, what is refused (25 min; PAIRS=10 at once)
	ENGINEWRIGHT_PAUSES=$(or $(PAUSES),50) ENGINEWRIGHT_PAIRS=$(or $(PAIRS),10) ENGINEWRIGHT_PAUSE_SECONDS=$(or $(SECONDS),60) \
		$(VENV)/bin/pytest -q -s --timeout 7200 tests/security/cluster/test_12_two_operators.py

.PHONY: attack-drill
attack-drill: venv deps ## The operator beside 125 hostile replicas, on a real apiserver, into docs/benchmarks/attack.json (4 min; ARGS="--honest 5 --seconds 10")
	PYTHONPATH=studies:hack:operator:builders:tests/support $(VENV)/bin/python -m attack $(ARGS)

.PHONY: reading-study
reading-study: venv ## CPU time that one reading of a replica's queue takes, printed (ARGS="--n 300 --rounds 20 --by queue measured")
	PYTHONPATH=studies:operator:builders:hack:tests/support $(VENV)/bin/python -m scale_study.reading $(ARGS)

.PHONY: scale-study
scale-study: venv deps ## What many models cost the apiserver, into build/scale/summary.json (N=300,1000 NAMESPACES=1,100 ARGS="--minutes 10"; KSERVE_MANAGER=PATH KSERVE_SOURCE=PATH add KServe's manager)
	PYTHONPATH=studies:hack:operator:builders:tests/support $(VENV)/bin/python -m scale_study --n $(or $(N),300) --namespaces $(or $(NAMESPACES),1) $(ARGS)

.PHONY: soak-study
soak-study: venv deps ## What the operator keeps after 100,000 events in an hour on a real apiserver, into build/soak.json (ARGS="--events 3000 --minutes 2")
	PYTHONPATH=studies:hack:operator:builders:tests/support $(VENV)/bin/python -m soak_study $(ARGS)

.PHONY: survive-study
survive-study: venv deps ## Random changes, faults and kill -9 on a real apiserver, and what must hold, into build/survive.json (ARGS="--seed 1 --sequences 20 --steps 500 --processes 2 --lanes 2 --minutes 10")
	PYTHONPATH=studies:hack:operator:builders:tests/support $(VENV)/bin/python -m survive_study $(ARGS)

##@ Change it

.PHONY: venv generate golden lock sbom hooks docs pictures
venv: ## Make .venv from the lock, hashes checked (skipped when unchanged)
	@hack/dev/bootstrap.sh

generate: venv ## Write what is made from the models and the chart: CRD, template, reference of fields, Kustomize base
	hack/dev/generate.sh

golden: venv ## Rewrite the golden files from what the code gives now; read the diff before committing it
	ENGINEWRIGHT_UPDATE_GOLDENS=1 $(VENV)/bin/pytest -q -k "golden" tests/golden tests/integration/chart

docs: venv ## The documents as a site in build/site, links checked
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo build/site/index.html

pictures: venv ## The README's picture and explanation, from the last run of make demo (needs a browser: hack/bin-deps.sh --tests)
	PYTHONPATH=hack $(VENV)/bin/python -m docs.pictures

lock: ## Resolve requirements/*.in with hashes (UPGRADE=1 for the newest of everything)
	hack/dev/lock.sh

sbom: venv ## A CycloneDX file of each image's Python packages, from the locks, in build/sbom
	hack/dev/sbom.sh

hooks: venv ## Install the pre-commit hooks into this clone
	$(VENV)/bin/pre-commit install

##@ Measure again

.PHONY: grids search-study
grids: venv ## Record the CPU grids of docs/benchmarks/grids on this machine, which should be idle (8 min)
	PYTHONPATH=studies:hack:builders $(VENV)/bin/python -m grids record minilm --precision int8-dynamic --repeats 5 \
	  --output docs/benchmarks/grids/minilm-int8-dynamic-cpu.json
	PYTHONPATH=studies:hack:builders $(VENV)/bin/python -m grids record resnet18 --precision fp32 --repeats 5 \
	  --output docs/benchmarks/grids/resnet18-fp32-cpu.json

search-study: venv ## Replay the search on all recorded grids and write docs/benchmarks/search.md
	PYTHONPATH=studies:hack:builders $(VENV)/bin/python -m grids study

##@ Local cluster and images

.PHONY: deps cluster-up cluster-down cluster-status images
deps: ## Install the Debian packages that the cluster and the images need (as root)
	@hack/bin-deps.sh

.PHONY: test-deps
test-deps: ## And those that only tests need: a browser
	@hack/bin-deps.sh --tests

cluster-up: deps ## Start a Kubernetes node on this machine (root; builds Kubernetes the first time)
	hack/cluster/cluster up

cluster-down: ## Stop it and remove all that it made
	hack/cluster/cluster down

cluster-status: ## What runs, and where its logs are
	hack/cluster/cluster status

images: deps ## Build the operator, builder and server images (ACCELERATOR=cuda: for NVIDIA GPUs; IMAGES=server-vllm: that one alone, or other names)
	hack/images/images build $(if $(ACCELERATOR),--accelerator $(ACCELERATOR)) $(IMAGES)

##@ Release

.PHONY: release verify-release version krew
release: venv deps ## All files of a release into build/release (REGISTRY=host/path URL=https://… RELEASE_KEY=file.pem CUDA=1 TWICE=1 DIRTY=1 WITHOUT="images plugin")
	PYTHONPATH=hack:operator:builders $(VENV)/bin/python -m release --registry "$(REGISTRY)" --url "$(URL)" --key "$(RELEASE_KEY)" \
	  $(if $(CUDA),--cuda) $(if $(TWICE),--twice) $(if $(DIRTY),--dirty) $(addprefix --without ,$(WITHOUT)) $(ARGS)

verify-release: venv ## Check a release's sums, signatures and bills of materials with their own tools (FOLDER=build/release KEY=release.pub)
	hack/release/verify.sh "$(or $(FOLDER),build/release)" $(KEY)

version: venv ## Write the version TO=X.Y.Z into all files that have it, and what is generated from them
	PYTHONPATH=hack:operator:builders $(VENV)/bin/python -m release --to "$(or $(TO),?)"
	hack/dev/generate.sh

krew: venv ## Archives of the kubectl plugin and their manifest for krew, into build/krew (URL=https://… where they will lie)
	PYTHONPATH=hack:operator:builders $(VENV)/bin/python -m krew --url "$(URL)"

##@ Benchmarks

.PHONY: bench-gpu bench-page
MODELS ?=
PRECISIONS ?=
SECONDS_PER_MODEL ?= 300
INPUTS ?= /tmp/bench-inputs
bench-gpu: ## On a machine with a GPU, inputs carried in by hack/bench/carry.sh: the real build and all else, MODELS=a,b PRECISIONS=… BUDGET=…
	mkdir -p build/bench
	PYTHONPATH=hack:builders:$$PYTHONPATH python3 -m bench --inputs $(INPUTS)/models --models "$(MODELS)" \
	  --precisions "$(PRECISIONS)" --seconds-per-model $(SECONDS_PER_MODEL) $(if $(BUDGET),--budget $(BUDGET)) \
	  --output build/bench/product-$(or $(subst $(comma),-,$(MODELS)),all).json

.PHONY: bench-llm
bench-llm: ## On such a machine, inputs carried in by hack/bench/carry-llm.sh: a build of a language model, and a larger one beside vLLM's own settings (ARGS="--parts=build")
	mkdir -p build/bench
	PYTHONPATH=hack:builders:$$PYTHONPATH python3 -m bench.llm --inputs $(or $(INPUTS_LLM),/tmp/bench-llm)/models \
	  --output build/bench/language-models.json --logs build/bench/language-models-logs.tar.gz $(ARGS)

.PHONY: bench-ways
bench-ways: ## On such a machine: Triton's backends and transports side by side, into build/bench/ways.json (MODELS=a,b WAYS=a,b BACKENDS=DIR)
	mkdir -p build/bench
	PYTHONPATH=hack:builders:$$PYTHONPATH python3 -m bench.ways --inputs $(INPUTS)/models $(if $(MODELS),--models "$(MODELS)") \
	  $(if $(WAYS),--ways "$(WAYS)") $(if $(BACKENDS),--backends "$(BACKENDS)") --output build/bench/ways.json

.PHONY: bench-whole
bench-whole: ## On such a machine: images and sentences, prepared by the client and by the engine, into build/bench/whole.json (INPUTS=DIR; ACCELERATOR=cpu)
	mkdir -p build/bench
	PYTHONPATH=hack:builders:$$PYTHONPATH python3 -m bench.whole $(if $(ACCELERATOR),--accelerator $(ACCELERATOR)) $(if $(filter cpu,$(ACCELERATOR)),,--inputs $(INPUTS)/models) --output build/bench/whole.json

.PHONY: bench-sequences
bench-sequences: ## On such a machine: steps of sequences joined and apart, into build/bench/sequences.json (ACCELERATOR=cpu)
	PYTHONPATH=hack:builders:$$PYTHONPATH python3 -m bench.sequences $(if $(ACCELERATOR),--accelerator $(ACCELERATOR)) --output build/bench/sequences.json

.PHONY: test-gpu
test-gpu: ## On such a machine: tests of TensorRT and compiled PyTorch on its GPU (GPUS=2: also those that need two; GPU_METRICS=1: also of what Triton says of its GPU)
	PYTHONPATH=hack:builders:$$PYTHONPATH python3 -m pytest $(or $(PATHS),tests/gpu) -p no:cacheprovider --durations=8 $(ARGS) \
	  -m "gpu$(if $(filter 2,$(GPUS)),, and not two_gpus)$(if $(filter 1,$(GPU_METRICS)),, and not gpu_metrics)"

bench-page: venv ## Merge build/bench/product-*.json into docs/benchmarks/product.json, and its page
	PYTHONPATH=hack $(VENV)/bin/python -m bench.product_page docs/benchmarks/product.json build/bench/product-*.json

.PHONY: help
help:
	@if [ -t 1 ]; then b=$$'\e[1m' c=$$'\e[36m' o=$$'\e[0m'; fi; \
	awk -v b="$$b" -v c="$$c" -v o="$$o" 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s%s%s\n", b, substr($$0, 5), o } \
	  /^[a-z0-9-]+:.*## / { printf "  %s%-17s%s %s\n", c, $$1, o, $$2 }' $(MAKEFILE_LIST)
