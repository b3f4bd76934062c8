# Thin targets; CONTRIBUTING.md says when to use which.
GO ?= go
T ?= 30s
TOOL = $(GO) tool -modfile=tools.mod

.PHONY: demo test build race lint simulation integration alerts fuzz soak bench bench-joins bench-copies bench-hbase bench-flink bench-connect bench-smoke clean

demo: ## the README's first command
	$(GO) run ./cmd/ingest demo

test: ## the README's second command
	$(GO) test ./...

build: ## bin/ingest, bin/export, bin/shell
	$(GO) build -o bin/ ./cmd/...

race: ## short forms, without what .ci/race.leaves names
	GO=$(GO) .ci/race

lint: ## vet, staticcheck, gofumpt, go.mod, structure
	$(GO) vet ./...
	$(GO) vet -tags integration ./...
	$(TOOL) staticcheck ./...
	$(TOOL) staticcheck -tags integration ./...
	@out=$$($(TOOL) gofumpt -l .); if [ -n "$$out" ]; then echo "not gofumpt'd:"; echo "$$out"; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) test ./internal/structure

simulation: ## a thousand random schedules on each engine, and of whole clusters; failing seeds stay in pipeline/testdata/seeds
	$(GO) test -count=1 -timeout 5m -run 'TestRandomSchedules|TestSimulationFindsMutants|TestRandomClusters' ./pipeline -seeds 1000

integration: ## a real Kafka, a real HBase and readers in other languages; see internal/integration/with-servers
	internal/integration/with-servers $(GO) test -tags integration -count=1 -timeout 40m ./internal/integration/... ./pipeline/kafka

alerts: ## the dashboard and the alert rules, evaluated by Prometheus's engine over a running daemon
	$(GO) test -C deploy/promql -count=1 ./...

# By default up to a minute goes into making one input smaller, which is all of T.
# On a busy machine "context deadline exceeded" may end a target that found nothing. One that
# found an input left it in testdata, and fails again.
fuzz: ## every fuzz target for T each
	@fuzz() { $(GO) test -run '^$$' -fuzz "^$$2$$" -fuzztime $(T) -fuzzminimizetime 20x $$1; }; \
	for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; fuzz $$pkg $$f || { echo "$$pkg $$f: again"; fuzz $$pkg $$f; } || exit 1; \
	  done; \
	done

soak: ## the long forms: many seeds, many kills, Spark; PARTS="simulation fuzz" runs these; results in docs/soak.md
	internal/integration/soak $(PARTS)

bench: ## writes bench/RESULTS.md
	$(GO) run ./bench -write bench/RESULTS.md

bench-joins: ## writes bench/JOINS.md: the merge join beside DuckDB; SLUICE_PYTHON has internal/integration/requirements.txt
	$(GO) run ./bench joins -python $(or $(SLUICE_PYTHON),python3) -write bench/JOINS.md

bench-copies: ## writes bench/COPIES.md: Parquet files beside DuckDB's COPY of the same rows; as bench-joins
	$(GO) run ./bench copies -python $(or $(SLUICE_PYTHON),python3) -write bench/COPIES.md

bench-hbase: ## writes bench/HBASE.md; HBASE=host:port of a Thrift2 gateway, PIDS=a directory of its servers' pid files
	$(GO) run ./bench hbase -address "$(HBASE)" -pids "$(PIDS)" -write bench/HBASE.md

FLINK ?= .flink

bench-flink: ## writes bench/FLINK.md: the pipeline beside Flink; needs Java 17 and Maven, and fetches 130 MB of jars into FLINK once
	mvn -B -q -ntp -f bench/flink/pom.xml -DincludeScope=runtime "-DoutputDirectory=$(abspath $(FLINK))/lib" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
	mkdir -p "$(FLINK)/classes"
	javac -nowarn -cp "$(FLINK)/lib/*" -d "$(FLINK)/classes" bench/flink/PageViews.java
	$(GO) run ./bench flink -flink "$(FLINK)" -write bench/FLINK.md

CONNECT ?= .connect

bench-connect: ## writes bench/CONNECT.md: the pipeline beside Kafka Connect; needs Java 17 and Maven, and fetches 33 MB of jars into CONNECT once
	mvn -B -q -ntp -f bench/connect/pom.xml -DincludeScope=runtime "-DoutputDirectory=$(abspath $(CONNECT))/lib" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
	mkdir -p "$(CONNECT)/classes"
	javac -nowarn -cp "$(CONNECT)/lib/*" -d "$(CONNECT)/classes" bench/connect/Sinks.java
	$(GO) run ./bench connect -connect "$(CONNECT)" -write bench/CONNECT.md

bench-smoke:
	$(GO) run ./bench -smoke

clean:
	rm -rf bin sluice-demo
