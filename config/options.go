package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/store"
)

// PipelineNames returns the names of the pipelines, sorted.
func (c *Config) PipelineNames() []string { return slices.Sorted(maps.Keys(c.Pipelines)) }

// JobNames returns the names of the jobs, sorted.
func (c *Config) JobNames() []string { return slices.Sorted(maps.Keys(c.Jobs)) }

// Addresses returns the brokers' addresses, one an element.
func (k *Kafka) Addresses() []string {
	var all []string
	for _, b := range k.Brokers {
		for part := range strings.SplitSeq(b, ",") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

// KafkaOptions returns the options of the Kafka client, without its Logger. It
// reads the files of certificates that the configuration names.
func (c *Config) KafkaOptions() (*kafka.Options, error) {
	k := &c.Kafka
	o := &kafka.Options{
		Brokers: k.Addresses(), ClientID: k.ClientID,
		DialTimeout: k.DialTimeout, RequestTimeout: k.RequestTimeout, MaxDecompressed: int(cmp.Or(k.MaxDecompressed, min(c.Memory/2, maxMaxDecompressed))),
	}
	if k.SASL.Mechanism != "none" {
		o.SASL = kafka.SASL{Mechanism: strings.ToUpper(k.SASL.Mechanism), User: k.SASL.User, Password: string(k.SASL.Password)}
		o.PasswordNow = c.secret("kafka.sasl.password", k.SASL.Password)
	}
	var err error
	if o.TLS, o.RootCAs, err = k.TLS.load("kafka.tls", c.renewed); err != nil {
		return nil, fmt.Errorf("kafka.tls: %w", err)
	}
	return o, nil
}

// KafkaPartitions returns the partitions that a static assignment names, of each topic; nil =
// it names none, and reads all.
func (p *Pipeline) KafkaPartitions() []int32 {
	var all []int32
	for _, n := range p.Partitions {
		all = append(all, int32(n))
	}
	return all
}

// tableFinder returns a function that finds the file's schemas, also those of
// templates.
func (c *Config) tableFinder() func(string) *store.TableDescriptor {
	byKey := map[string]*store.TableDescriptor{}
	for key := range c.Tables {
		if spec, err := c.tableSpec(key); err == nil {
			byKey[key] = spec.Descriptor
		}
	}
	return c.findTable(byKey)
}

// findTable returns a function that finds schemas, by the file's keys of tables,
// for the tables that rules and jobs name.
func (c *Config) findTable(byKey map[string]*store.TableDescriptor) func(string) *store.TableDescriptor {
	return func(name string) *store.TableDescriptor {
		key := c.tableKey(name)
		d := byKey[key]
		if d != nil && isTemplate(key) && !strings.Contains(name, "{") { // one of its tables, not those of a rule
			d = d.Clone()
			d.Name = store.CanonicalName(name)
		}
		return d
	}
}

// NewMemory returns the memory of all pipelines together, as the file bounds it.
func (c *Config) NewMemory() (*memory.Budget, error) { return c.memory(c.Memory) }

// memory returns a budget of m bytes for the pipelines of the file.
func (c *Config) memory(m Size) (*memory.Budget, error) {
	for _, p := range c.Pipelines {
		if p.Decode.Unpacks() {
			return memory.NewUnpacking(int64(m))
		}
	}
	return memory.New(int64(m))
}

// ErrNoPipeline: a tool was told of a pipeline that the file does not have.
var ErrNoPipeline = errors.New("config: no such pipeline")

// PipelineOptions returns the options of a pipeline of the file, its rules
// compiled, without what the process shares: Client, Engine, StoreID, Memory (of
// NewMemory) and Logger. Its error wraps ErrNoPipeline where there is none.
func (c *Config) PipelineOptions(name string) (*pipeline.Options, error) {
	p, ok := c.Pipelines[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no pipeline %q; it has %s", ErrNoPipeline, c.file, name, strings.Join(c.PipelineNames(), ", "))
	}
	var err error
	if p.Decode.Registered() {
		if p.Decode.Schemas, err = c.schemas(); err != nil {
			return nil, fmt.Errorf("pipeline %s: %w", name, err)
		}
	}
	plan, err := mapping.Compile(c.rules(&p), c.tableFinder())
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", name, err)
	}
	o := &pipeline.Options{
		Name: name, Topics: slices.Clone(p.Topics), Group: p.Group, Start: p.Start.pipeline(), Plan: plan,
		Static:          p.Assign == "static",
		Partitions:      p.KafkaPartitions(),
		DeadLetterTopic: p.DeadLetters.Topic,
		Poison:          p.DeadLetters.poison(),
		Flush:           pipeline.Flush{MaxRecords: p.Flush.Records, MaxBytes: int64(p.Flush.Bytes), MaxAge: p.Flush.Age},
		Backfill:        pipeline.Backfill{Lag: int64(p.Backfill.Lag), MaxRecords: p.Backfill.Records},
		InFlight:        p.InFlight,
		DrainTimeout:    c.DrainTimeout,
		SessionTimeout:  c.Kafka.SessionTimeout, Heartbeat: c.Kafka.HeartbeatInterval, Rebalance: c.Kafka.RebalanceTimeout,
		Fetch: &kafka.FetchOptions{
			MaxWait: p.Fetch.MaxWait, MinBytes: int(p.Fetch.MinBytes), MaxPartitionBytes: int(p.Fetch.MaxPartitionBytes),
			MaxBytes: int(p.Fetch.MaxBytes), MaxBatchBytes: int(cmp.Or(p.Fetch.MaxBatchBytes, maxMaxBatchBytes)), BufferBytes: int64(p.Fetch.Buffer), Rack: c.Kafka.Rack,
		},
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = -1 // the file's 0 means not at all, the option's the default
	}
	if p.OnDataLoss == "skip" {
		o.OnDataLoss = pipeline.SkipLostData
	}
	if p.OnTopicChange == "new_incarnation" {
		o.OnTopicChange = pipeline.NewIncarnation
	}
	return o, nil
}

func (s Start) pipeline() pipeline.Start {
	switch {
	case s.Time != 0:
		return pipeline.Start{From: pipeline.StartAtTime, Time: time.UnixMilli(s.Time)}
	case s.Latest:
		return pipeline.Start{From: pipeline.StartLatest}
	case s.Committed:
		return pipeline.Start{From: pipeline.StartCommitted}
	}
	return pipeline.Start{From: pipeline.StartEarliest}
}
