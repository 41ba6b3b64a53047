package wire

import (
	"slices"
	"strings"
)

// The `_meta` keys that the protocol defines. The file of each revision lists the keys that it
// defines.
const (
	// MetaProgressToken requests progress notifications with this token.
	MetaProgressToken = "progressToken"
	// MetaProtocolVersion is the revision of a request, as a version string.
	MetaProtocolVersion = "io.modelcontextprotocol/protocolVersion"
	// MetaClientInfo is the client's name and version.
	MetaClientInfo = "io.modelcontextprotocol/clientInfo"
	// MetaClientCapabilities is the client's capabilities for this request.
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	// MetaServerInfo is the server's name and version, in results.
	MetaServerInfo = "io.modelcontextprotocol/serverInfo"
	// MetaLogLevel requests log messages of this level and above while the request runs.
	MetaLogLevel = "io.modelcontextprotocol/logLevel"
	// MetaSubscriptionID is the id of the listen request that a notification belongs to.
	MetaSubscriptionID = "io.modelcontextprotocol/subscriptionId"
	// MetaRelatedTask names the task that a message belongs to.
	MetaRelatedTask = "io.modelcontextprotocol/related-task"
	// MetaImmediateResponse is text for the model while a task runs.
	MetaImmediateResponse = "io.modelcontextprotocol/model-immediate-response"
	// MetaTraceParent is the W3C trace context of the sender.
	MetaTraceParent = "traceparent"
	// MetaTraceState is the vendor part of the W3C trace context.
	MetaTraceState = "tracestate"
	// MetaBaggage is W3C baggage.
	MetaBaggage = "baggage"
)

// ValidMetaKey reports whether key follows the grammar of `_meta` keys: an optional prefix of
// dot-separated labels and a slash, then a name. The name may be empty after a prefix.
//
// Spec: basic/index#meta (since 2025-06-18)
func ValidMetaKey(key string) bool {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		return key != "" && validMetaName(key)
	}
	for label := range strings.SplitSeq(prefix, ".") {
		if !validMetaLabel(label) {
			return false
		}
	}
	return name == "" || validMetaName(name)
}

// ValidExtensionID reports whether id can identify a protocol extension: a `_meta` key with prefix
// and name.
//
// Spec: basic/versioning#extension-negotiation (2026-07-28)
func ValidExtensionID(id string) bool {
	i := strings.IndexByte(id, '/')
	return i > 0 && i < len(id)-1 && ValidMetaKey(id)
}

// ReservesMeta reports whether the revision reserves the prefix of key for the protocol.
//
// Spec: basic/index#meta
func (r Revision) ReservesMeta(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	if !ok || !r.Has(MetaKeyGrammar) {
		return false
	}
	labels := strings.Split(prefix, ".")
	if r.Has(MetaSecondLabel) {
		return len(labels) > 1 && protocolLabel(labels[1])
	}
	return slices.ContainsFunc(labels[:len(labels)-1], protocolLabel)
}

func protocolLabel(label string) bool { return label == "mcp" || label == "modelcontextprotocol" }

// validMetaLabel reports whether a label begins with a letter, ends with a letter or digit, and
// contains only letters, digits and hyphens.
func validMetaLabel(label string) bool {
	if label == "" || !isLetter(label[0]) || !isAlphanumeric(label[len(label)-1]) {
		return false
	}
	for i := range len(label) {
		if !isAlphanumeric(label[i]) && label[i] != '-' {
			return false
		}
	}
	return true
}

// validMetaName reports whether a name begins and ends with a letter or digit, and contains only
// these, hyphens, underscores and dots.
func validMetaName(name string) bool {
	if !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case isAlphanumeric(c), c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

func isLetter(c byte) bool       { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isAlphanumeric(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

// logLevels are the eight severities of syslog, least severe first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogLevel returns the log level with a rank; see [LogSeverity].
func LogLevel(rank int) string { return logLevels[rank] }

// LogSeverity returns the rank of a log level, 0 for debug to 7 for emergency, and whether the
// level exists.
//
// Spec: server/utilities/logging#log-levels
func LogSeverity(level string) (rank int, ok bool) {
	rank = slices.Index(logLevels, level)
	return rank, rank >= 0
}
