package hbasestore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/thrift/lib/go/thrift"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

var (
	// errInternal: an exception in the gateway that its IDL does not name. It says
	// nothing but "Internal error".
	errInternal = errors.New("hbasestore: the gateway had an internal error; its log says which")
	// errNotServing: a region is not where it was, or its table is disabled.
	errNotServing error = &class{"hbasestore: region is not served", store.ErrTransient}
	// errScanner: the gateway has forgotten a scanner.
	errScanner error = &class{"hbasestore: scanner has expired", store.ErrTransient}
	// errAltered: the table was altered by somebody else between the master's taking a
	// change of a family and making it (ModifyTableProcedure, with its check of the
	// descriptor). Nothing of the change was made, though its class is one of those that
	// HBase calls DoNotRetryIOException.
	errAltered error = &class{"hbasestore: the table was altered by another at the same moment", store.ErrTransient}
)

// class is an error that belongs to a class of the store's.
type class struct {
	text string
	is   error
}

func (c *class) Error() string { return c.text }
func (c *class) Unwrap() error { return c.is }

// javaClasses are the exceptions that HBase's answers name, without their packages;
// with the beginning of their text where a class has several meanings, that before
// the class alone.
var javaClasses = []struct {
	name string
	err  error
}{
	{"NoSuchColumnFamilyException", store.ErrFamilyNotFound},
	{"InvalidFamilyOperationException", store.ErrInvalidSchema},

	{"ConcurrentTableModificationException", errAltered},
	{"TableNotFoundException", store.ErrTableNotFound},
	{"TableExistsException", store.ErrTableExists},
	{"TableNotDisabledException", store.ErrTableNotDisabled},
	{"TableNotEnabledException", store.ErrTableNotEnabled},
	{"NamespaceNotFoundException", store.ErrNamespaceNotFound},
	{"NamespaceExistException", store.ErrNamespaceExists},
	{"ConstraintException", store.ErrConstraint},
	{"FailedSanityCheckException", store.ErrTimestampTooFar},
	{"MergeRegionException", store.ErrMergeRegion},
	{"DoNotRetryIOException: Field is not a long", store.ErrNotANumber},
	{"DoNotRetryIOException: region is read only", store.ErrTableReadOnly}, // HRegion.checkReadOnly
	{"DoNotRetryIOException: Cell with size", store.ErrCellTooLarge},
	{"DoNotRetryIOException: Cell[", store.ErrCellTooLarge}, // from 2.6 on: Cell[row/f:q/…] with size
	{"DoNotRetryIOException", store.ErrRefused},
	{"AccessDeniedException", store.ErrRefused},
	{"IllegalArgumentException", store.ErrInvalidArgument},

	{"NotServingRegionException", errNotServing},
	{"UnknownScannerException", errScanner},
	{"OutOfOrderScannerNextException", errScanner},
	{"ScannerResetException", errScanner},
	{"LeaseException", errScanner},
	{"RegionTooBusyException", store.ErrTransient},
	{"RegionMovedException", store.ErrTransient},
	{"RegionOpeningException", store.ErrTransient},
	{"RegionInRecoveryException", store.ErrTransient},
	{"WrongRegionException", store.ErrTransient},
	{"NoServerForRegionException", store.ErrTransient},
	{"NotAllMetaRegionsOnlineException", store.ErrTransient},
	{"RegionServerStoppedException", store.ErrTransient},
	{"RegionServerAbortedException", store.ErrTransient},
	{"ServerNotRunningYetException", store.ErrTransient},
	{"ServerOverloadedException", store.ErrTransient},
	{"FailedServerException", store.ErrTransient},
	{"PleaseHoldException", store.ErrTransient},
	{"MasterNotRunningException", store.ErrTransient},
	{"MasterRegistryFetchException", store.ErrTransient},
	{"CallQueueTooBigException", store.ErrTransient},
	{"CallDroppedException", store.ErrTransient},
	{"CallTimeoutException", store.ErrTransient},
	{"TimeoutIOException", store.ErrTransient},
	{"SocketTimeoutException", store.ErrTransient},
	{"InterruptedIOException", store.ErrTransient},
	{"ConnectException", store.ErrTransient},
	{"ConnectionClosedException", store.ErrTransient},
	{"ConnectionClosingException", store.ErrTransient},
	{"ConnectionLossException", store.ErrTransient},
	{"SessionExpiredException", store.ErrTransient},
	{"ZooKeeperConnectionException", store.ErrTransient},
}

// classify gives an answer of the gateway the class of the store that it belongs
// to. table is the one that was asked for.
func classify(table string, err error) error {
	if err == nil {
		return nil
	}
	var illegal *hbase.TIllegalArgument
	if errors.As(err, &illegal) {
		if strings.Contains(illegal.GetMessage(), "scanner") {
			return fmt.Errorf("%w: %s", errScanner, illegal.GetMessage())
		}
		return fmt.Errorf("%w: %s", store.ErrInvalidArgument, illegal.GetMessage())
	}
	var answer *hbase.TIOError
	if !errors.As(err, &answer) {
		var application thrift.TApplicationException
		if errors.As(err, &application) && application.TypeId() == thrift.UNKNOWN_METHOD {
			return fmt.Errorf("%w: the gateway is too old: %w", store.ErrUnsupported, err)
		}
		return fmt.Errorf("%w: %w", errInternal, err)
	}
	text := withoutTrace(answer.GetMessage())
	class := classOf(table, text)
	switch {
	case table == "":
	case errors.Is(class, store.ErrTableNotEnabled):
		class = &store.DisabledError{Table: table}
	case errors.Is(class, store.ErrTableReadOnly):
		class = &store.ReadOnlyError{Table: table}
	}
	if len(text) > maxAnswer {
		text = strings.ToValidUTF8(text[:maxAnswer], "") + "…"
	}
	if class != nil {
		return fmt.Errorf("%w: HBase: %s", class, text)
	}
	if !answer.GetCanRetry() {
		return fmt.Errorf("%w: HBase: %s", store.ErrRefused, text)
	}
	return fmt.Errorf("%w: HBase: %s", store.ErrTransient, text)
}

// classOf returns the class of the exception that text names first, or nil: what
// stands first was caused by the others. Some come without their Java class.
func classOf(table, text string) error {
	var first error
	at := len(text)
	for _, c := range javaClasses {
		if i := strings.Index(text, c.name); i >= 0 && i < at {
			at, first = i, c.err
		}
	}
	if first == nil && (strings.Contains(text, "RetriesExhausted") || strings.HasPrefix(text, "Zookeeper ")) {
		// Whatever it was, and HBase's client without its servers, which says that
		// it must not be tried again: "Zookeeper GET could not be completed in …".
		first = store.ErrTransient
	}
	if first != nil || table == "" {
		return first
	}
	switch rest, _ := strings.CutPrefix(text, store.DefaultNamespace+":"); {
	case rest == table, strings.HasSuffix(text, ": "+table), strings.Contains(text, " action: "+table+": "), strings.Contains(text, " actions: "+table+": "):
		return store.ErrTableNotFound
	case rest == table+" is disabled.":
		return store.ErrTableNotEnabled
	case strings.HasPrefix(text, "tableName="+table+", state=ENABLED"):
		return store.ErrTableNotDisabled
	}
	return nil
}

// maxAnswer bounds what errors quote of the gateway's answers, which hold schemas
// and the traces of several servers.
const maxAnswer = 300

// withoutTrace returns an answer without the lines of Java's stack traces.
func withoutTrace(message string) string {
	var kept []string
	for line := range strings.SplitSeq(message, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "at ") && !strings.HasPrefix(line, "... ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "; ")
}
