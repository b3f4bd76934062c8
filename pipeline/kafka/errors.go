package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/pipeline/memory"
)

// Errors of this package. They come wrapped with the topic, partition, group or
// broker that they are about; test with errors.Is.
var (
	// ErrTopicNotFound: the cluster has no such topic. Nothing here creates a
	// topic but CreateTopic.
	ErrTopicNotFound = errors.New("kafka: no such topic")
	// ErrTopicChanged: the topic was deleted and created anew; offsets of the
	// old one mean nothing in it.
	ErrTopicChanged = errors.New("kafka: topic was created anew")
	// ErrUnreachable: no broker answered within the deadline.
	ErrUnreachable = errors.New("kafka: no broker answered")
	// ErrAuth: the brokers refuse the credentials, or what they may do.
	ErrAuth = errors.New("kafka: not authorized")
	// ErrTLS: a broker's certificate cannot be trusted, or the broker does not
	// accept ours.
	ErrTLS = errors.New("kafka: no TLS")
	// ErrTooOld: the broker does not speak a version of a request that this
	// package needs (Kafka 2.8 is the lowest).
	ErrTooOld = errors.New("kafka: broker is too old")
	// ErrTooNew: the broker no longer speaks any version of a request that this
	// package knows.
	ErrTooNew = errors.New("kafka: broker is too new")
	// ErrOtherStore: the consumer group belongs to another store. Two stores in
	// one group would each get half of the records.
	ErrOtherStore = errors.New("kafka: consumer group is used by another store")
	// ErrGenerationEnded: the generation is over: the partitions may belong to
	// another member.
	ErrGenerationEnded = errors.New("kafka: generation has ended")
	// ErrOutOfRange: the log does not hold the asked offset; see
	// OutOfRangeError.
	ErrOutOfRange = errors.New("kafka: offset out of range")
	// ErrTooLarge: the topic does not take a record of that size
	// (max.message.bytes).
	ErrTooLarge = errors.New("kafka: record is too large for the topic")
	// ErrCorruptBatch: a record batch fails its checksum, or cannot be decoded.
	ErrCorruptBatch = errors.New("kafka: corrupt record batch")
	// ErrBatchTooLarge: a record batch is larger than the configured bounds, or than
	// the memory that it may have.
	ErrBatchTooLarge = errors.New("kafka: record batch is too large")
	// ErrClosed: the client, group, fetcher, reader or producer was closed.
	ErrClosed = errors.New("kafka: closed")
)

// PartitionError is why a PartitionReader hands out nothing more: all its errors are of
// this type. It wraps the reason, which does not name the place: an *OutOfRangeError, an
// *UnreadableError, or another one.
type PartitionError struct {
	Topic     string
	Partition int32
	Err       error
}

// Error names the place and the reason.
func (e *PartitionError) Error() string {
	return fmt.Sprintf("fetch %s/%d: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap returns the reason.
func (e *PartitionError) Unwrap() error { return e.Err }

// Reason returns what a *PartitionError in err wraps, for who names the place otherwise; err
// where there is none.
func Reason(err error) error {
	if at, ok := errors.AsType[*PartitionError](err); ok {
		return at.Err
	}
	return err
}

// TopicError is why a topic cannot be described, where the brokers answer, and take this
// client: others may be there. It wraps ErrTopicNotFound, ErrAuth where this user may not
// describe it, or what may be over soon (Temporary).
type TopicError struct {
	Topic string
	Err   error // names the topic
}

// Error is that of the reason.
func (e *TopicError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *TopicError) Unwrap() error { return e.Err }

// OutOfRangeError says which part of the log is missing: Offset lies outside
// [LogStart, End]. Below LogStart the records were removed by retention or by
// hand; beyond End the log was truncated or is another one. It wraps
// ErrOutOfRange.
type OutOfRangeError struct {
	Offset   int64 // the offset that was asked for
	LogStart int64 // first offset that the broker has; -1 = it was not asked
	End      int64 // end of the log (high watermark), or where it diverges
}

// Error says what is lost and where the log goes on.
func (e *OutOfRangeError) Error() string {
	if e.Offset < e.LogStart {
		return fmt.Sprintf("%v: offsets %d to %d are gone, the log starts at %d", ErrOutOfRange, e.Offset, e.LogStart-1, e.LogStart)
	}
	return fmt.Sprintf("%v: offset %d is beyond the end %d: the log was truncated or is another one", ErrOutOfRange, e.Offset, e.End)
}

// Unwrap returns ErrOutOfRange.
func (e *OutOfRangeError) Unwrap() error { return ErrOutOfRange }

// UnreadableError names the record batch that cannot be read. It wraps
// ErrCorruptBatch, or ErrBatchTooLarge.
type UnreadableError struct {
	Offset int64 // first offset of the record batch, or the fetched offset
	Next   int64 // first offset after it, as far as the batches say; -1 = unknown
	Err    error // wraps memory.ErrTooLarge where memory is what it has too little of
}

// errTooMuch: the batch is whole, and beyond a bound.
var errTooMuch = errors.New("more than the bound")

func (e *UnreadableError) kind() error {
	for _, large := range []error{errTooMuch, errBound, errBomb, memory.ErrTooLarge} {
		if errors.Is(e.Err, large) {
			return ErrBatchTooLarge
		}
	}
	return ErrCorruptBatch
}

// Error names the offset and the reason.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%v: offset %d: %v", e.kind(), e.Offset, e.Err)
}

// Unwrap returns ErrCorruptBatch or ErrBatchTooLarge, and the reason.
func (e *UnreadableError) Unwrap() []error { return []error{e.kind(), e.Err} }

// code is an error code of the Kafka protocol.
type code int16

// The codes that this package tells apart
// (https://kafka.apache.org/protocol#protocol_error_codes).
const (
	codeUnknownServerError       code = -1
	codeNone                     code = 0
	codeOffsetOutOfRange         code = 1
	codeCorruptMessage           code = 2
	codeUnknownTopicOrPartition  code = 3
	codeLeaderNotAvailable       code = 5
	codeNotLeader                code = 6
	codeRequestTimedOut          code = 7
	codeBrokerNotAvailable       code = 8
	codeReplicaNotAvailable      code = 9
	codeMessageTooLarge          code = 10
	codeNetworkException         code = 13
	codeLoadInProgress           code = 14
	codeCoordinatorNotAvailable  code = 15
	codeNotCoordinator           code = 16
	codeInvalidTopic             code = 17
	codeRecordListTooLarge       code = 18
	codeNotEnoughReplicas        code = 19
	codeNotEnoughReplicasAppend  code = 20
	codeInconsistentProtocol     code = 23
	codeIllegalGeneration        code = 22
	codeInvalidGroupID           code = 24
	codeUnknownMemberID          code = 25
	codeInvalidSessionTimeout    code = 26
	codeRebalanceInProgress      code = 27
	codeTopicAuthorization       code = 29
	codeGroupAuthorization       code = 30
	codeClusterAuthorization     code = 31
	codeInvalidTimestamp         code = 32
	codeUnsupportedMechanism     code = 33
	codeIllegalSASLState         code = 34
	codeUnsupportedVersion       code = 35
	codeTopicExists              code = 36
	codeNotController            code = 41
	codePolicyViolation          code = 44
	codeOutOfOrderSequence       code = 45
	codeDuplicateSequence        code = 46
	codeInvalidProducerEpoch     code = 47
	codeInvalidProducerIDMapping code = 49
	codeStorageError             code = 56
	codeSASLFailed               code = 58
	codeUnknownProducerID        code = 59
	codeFencedLeaderEpoch        code = 74
	codeUnknownLeaderEpoch       code = 75
	codeGroupIDNotFound          code = 69
	codeFetchSessionNotFound     code = 70
	codeInvalidFetchSessionEpoch code = 71
	codeOffsetNotAvailable       code = 78
	codeGroupMaxSizeReached      code = 81
	codeInvalidRecord            code = 87
	codeUnstableOffsetCommit     code = 88
	codeThrottlingQuota          code = 89
	codeUnknownTopicID           code = 100
	codeInconsistentTopicID      code = 103
	codeFetchSessionTopicID      code = 106
)

var codeNames = map[code]string{
	codeUnknownServerError:       "UNKNOWN_SERVER_ERROR",
	codeOffsetOutOfRange:         "OFFSET_OUT_OF_RANGE",
	codeCorruptMessage:           "CORRUPT_MESSAGE",
	codeUnknownTopicOrPartition:  "UNKNOWN_TOPIC_OR_PARTITION",
	codeLeaderNotAvailable:       "LEADER_NOT_AVAILABLE",
	codeNotLeader:                "NOT_LEADER_OR_FOLLOWER",
	codeRequestTimedOut:          "REQUEST_TIMED_OUT",
	codeBrokerNotAvailable:       "BROKER_NOT_AVAILABLE",
	codeReplicaNotAvailable:      "REPLICA_NOT_AVAILABLE",
	codeMessageTooLarge:          "MESSAGE_TOO_LARGE",
	codeNetworkException:         "NETWORK_EXCEPTION",
	codeLoadInProgress:           "COORDINATOR_LOAD_IN_PROGRESS",
	codeCoordinatorNotAvailable:  "COORDINATOR_NOT_AVAILABLE",
	codeNotCoordinator:           "NOT_COORDINATOR",
	codeInvalidTopic:             "INVALID_TOPIC_EXCEPTION",
	codeRecordListTooLarge:       "RECORD_LIST_TOO_LARGE",
	codeNotEnoughReplicas:        "NOT_ENOUGH_REPLICAS",
	codeNotEnoughReplicasAppend:  "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	codeInconsistentProtocol:     "INCONSISTENT_GROUP_PROTOCOL",
	codeIllegalGeneration:        "ILLEGAL_GENERATION",
	codeInvalidGroupID:           "INVALID_GROUP_ID",
	codeUnknownMemberID:          "UNKNOWN_MEMBER_ID",
	codeInvalidSessionTimeout:    "INVALID_SESSION_TIMEOUT",
	codeRebalanceInProgress:      "REBALANCE_IN_PROGRESS",
	codeTopicAuthorization:       "TOPIC_AUTHORIZATION_FAILED",
	codeGroupAuthorization:       "GROUP_AUTHORIZATION_FAILED",
	codeClusterAuthorization:     "CLUSTER_AUTHORIZATION_FAILED",
	codeInvalidTimestamp:         "INVALID_TIMESTAMP",
	codeUnsupportedMechanism:     "UNSUPPORTED_SASL_MECHANISM",
	codeIllegalSASLState:         "ILLEGAL_SASL_STATE",
	codeUnsupportedVersion:       "UNSUPPORTED_VERSION",
	codeTopicExists:              "TOPIC_ALREADY_EXISTS",
	codeNotController:            "NOT_CONTROLLER",
	codePolicyViolation:          "POLICY_VIOLATION",
	codeOutOfOrderSequence:       "OUT_OF_ORDER_SEQUENCE_NUMBER",
	codeDuplicateSequence:        "DUPLICATE_SEQUENCE_NUMBER",
	codeInvalidProducerEpoch:     "INVALID_PRODUCER_EPOCH",
	codeInvalidProducerIDMapping: "INVALID_PRODUCER_ID_MAPPING",
	codeStorageError:             "KAFKA_STORAGE_ERROR",
	codeSASLFailed:               "SASL_AUTHENTICATION_FAILED",
	codeUnknownProducerID:        "UNKNOWN_PRODUCER_ID",
	codeFencedLeaderEpoch:        "FENCED_LEADER_EPOCH",
	codeUnknownLeaderEpoch:       "UNKNOWN_LEADER_EPOCH",
	codeGroupIDNotFound:          "GROUP_ID_NOT_FOUND",
	codeFetchSessionNotFound:     "FETCH_SESSION_ID_NOT_FOUND",
	codeInvalidFetchSessionEpoch: "INVALID_FETCH_SESSION_EPOCH",
	codeFetchSessionTopicID:      "FETCH_SESSION_TOPIC_ID_ERROR",
	codeOffsetNotAvailable:       "OFFSET_NOT_AVAILABLE",
	codeGroupMaxSizeReached:      "GROUP_MAX_SIZE_REACHED",
	codeInvalidRecord:            "INVALID_RECORD",
	codeUnstableOffsetCommit:     "UNSTABLE_OFFSET_COMMIT",
	codeThrottlingQuota:          "THROTTLING_QUOTA_EXCEEDED",
	codeUnknownTopicID:           "UNKNOWN_TOPIC_ID",
	codeInconsistentTopicID:      "INCONSISTENT_TOPIC_ID",
}

// errUntold: the metadata lack the id of a topic that had one.
var errUntold = errors.New("kafka: the brokers tell no topic id just now")

// Temporary reports whether err is what brokers that are there have answered, and may
// answer otherwise later: a leader that is being elected, a coordinator that loads.
func Temporary(err error) bool {
	e := code(0)
	return errors.As(err, &e) && e.temporary()
}

// OfTopic reports whether err is that the brokers' ACLs refuse this user one topic, which says
// nothing of others, nor of its credentials.
func OfTopic(err error) bool {
	e := code(0)
	return errors.As(err, &e) && e == codeTopicAuthorization
}

// name is the protocol's name of the code, in lower case with underscores: a
// metric label.
func (c code) name() string {
	if n, ok := codeNames[c]; ok {
		return strings.ToLower(n)
	}
	return "code_" + strconv.Itoa(int(c))
}

// Error names the code as the protocol does.
func (c code) Error() string {
	if n, ok := codeNames[c]; ok {
		return n
	}
	return "kafka error code " + strconv.Itoa(int(c))
}

// Is makes codes that mean a refusal match ErrAuth, and those of size ErrTooLarge.
func (c code) Is(target error) bool {
	return target == ErrAuth && c.auth() || target == ErrTooLarge && (c == codeMessageTooLarge || c == codeRecordListTooLarge)
}

// auth: the brokers refuse who we are or what we ask; trying again is useless.
func (c code) auth() bool {
	switch c {
	case codeTopicAuthorization, codeGroupAuthorization, codeClusterAuthorization,
		codeUnsupportedMechanism, codeIllegalSASLState, codeSASLFailed:
		return true
	}
	return false
}

// denied adds to a refusal of the brokers' ACLs what it takes; other codes stay.
func (c code) denied(needs string) error {
	switch c {
	case codeTopicAuthorization, codeGroupAuthorization, codeClusterAuthorization:
		return fmt.Errorf("%w; the brokers' ACLs must allow this user %s", c, needs)
	}
	return c
}

// with adds to err, which has the code, what the broker says of it, where that is more than
// the code.
func (c code) with(err error, said *string) error {
	if said == nil || *said == "" || strings.EqualFold(strings.TrimSpace(*said), c.Error()) {
		return err
	}
	return fmt.Errorf("%w: %s", err, *said)
}

// deniedCommit is denied of a commit of offsets.
func (c code) deniedCommit() error {
	if c == codeGroupAuthorization {
		return c.denied(needsGroup)
	}
	return c.denied(needsRead)
}

// What the ACLs must allow.
const (
	needsDescribe = "DESCRIBE on the topic"
	needsRead     = "READ on the topic"
	needsWrite    = "WRITE on the topic"
	needsGroup    = "READ on the group"
)

// stale: our knowledge of who leads a partition may be outdated.
func (c code) stale() bool {
	switch c {
	case codeUnknownTopicOrPartition, codeLeaderNotAvailable, codeNotLeader, codeReplicaNotAvailable,
		codeStorageError, codeFencedLeaderEpoch, codeUnknownLeaderEpoch, codeUnknownTopicID,
		codeInconsistentTopicID, codeBrokerNotAvailable, codeNetworkException:
		return true
	}
	return false
}

// temporary: the same request may succeed later.
func (c code) temporary() bool {
	switch c {
	case codeUnknownServerError, codeRequestTimedOut, codeLoadInProgress, codeCoordinatorNotAvailable,
		codeNotCoordinator, codeNotEnoughReplicas, codeNotEnoughReplicasAppend, codeNotController,
		codeOffsetNotAvailable, codeUnstableOffsetCommit, codeThrottlingQuota, codeRebalanceInProgress,
		codeFetchSessionNotFound, codeInvalidFetchSessionEpoch, codeFetchSessionTopicID:
		return true
	}
	return c.stale() || c.sequenceLost()
}

// sequenceLost: the broker does not know, or not so far, the numbers of an
// idempotent producer: a leader without the last batches was elected, or retention
// has taken all of them.
func (c code) sequenceLost() bool {
	switch c {
	case codeOutOfOrderSequence, codeUnknownProducerID, codeInvalidProducerEpoch, codeInvalidProducerIDMapping:
		return true
	}
	return false
}
