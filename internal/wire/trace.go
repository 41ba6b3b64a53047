package wire

import (
	"bytes"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Limits of a trace context. Spec: https://www.w3.org/TR/trace-context/#tracestate-limits,
// https://www.w3.org/TR/baggage/#limits
const (
	maxTraceState   = 32 // members
	maxTraceMember  = 514
	maxBaggage      = 8192 // bytes
	maxBaggageCount = 180
)

// ValidTraceContext reports whether the value of a member of `_meta` may be passed on: traceparent,
// tracestate and baggage must follow the form of the W3C. Other members are not checked.
//
// Spec: basic/index#meta (2026-07-28)
func ValidTraceContext(key string, value []byte) bool {
	var valid func(string) bool
	switch key {
	case MetaTraceParent:
		return validTraceParent(value)
	case MetaTraceState:
		valid = validTraceState
	case MetaBaggage:
		valid = validBaggage
	default:
		return true
	}
	if jsonscan.Kind(value) != '"' || len(value) > 2*maxTraceState*maxTraceMember {
		return false
	}
	text, err := jsonscan.Unquote(value)
	return err == nil && valid(text)
}

// validTraceParent checks version, trace id, parent id and flags in a JSON string without escapes.
// A version after 00 may append fields.
func validTraceParent(value []byte) bool {
	const length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	text := value[1 : len(value)-1]
	if len(text) < length || len(text) > 2*length || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return false
	}
	version, trace, parent, flags := text[:2], text[3:35], text[36:52], text[53:55]
	if !isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags) || string(version) == "ff" {
		return false
	}
	if len(bytes.Trim(trace, "0")) == 0 || len(bytes.Trim(parent, "0")) == 0 {
		return false
	}
	return len(text) == length || string(version) != "00" && text[length] == '-' && isPrintable(string(text[length:]))
}

func validTraceState(text string) bool {
	members := strings.Split(text, ",")
	if len(members) > maxTraceState {
		return false
	}
	seen := map[string]bool{}
	for _, member := range members {
		key, value, ok := strings.Cut(strings.Trim(member, " \t"), "=")
		if key == "" && !ok {
			continue // empty members are allowed
		}
		if !ok || len(key)+len(value) > maxTraceMember || !validTraceKey(key) || seen[key] ||
			!isPrintable(value) || value == "" || strings.HasSuffix(value, " ") || strings.Contains(value, "=") {
			return false
		}
		seen[key] = true
	}
	return true
}

func validTraceKey(key string) bool {
	if key == "" || key[0] < '0' || '9' < key[0] && key[0] < 'a' || key[0] > 'z' {
		return false
	}
	return strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_-*/@") == "" && strings.Count(key, "@") <= 1
}

// validBaggage checks a list of names with values, each with optional properties.
func validBaggage(text string) bool {
	members := strings.Split(text, ",")
	if len(text) > maxBaggage || len(members) > maxBaggageCount {
		return false
	}
	for _, member := range members {
		pair, _, _ := strings.Cut(member, ";")
		name, value, ok := strings.Cut(pair, "=")
		name, value = strings.Trim(name, " \t"), strings.Trim(value, " \t")
		if !ok || name == "" || strings.ContainsAny(name, "\"(),/:;<=>?@[\\]{} \t") || !isPrintable(name) ||
			strings.ContainsAny(value, "\",;\\ ") || !isPrintable(value) || !isPrintable(member) {
			return false
		}
	}
	return true
}

func isHex(text []byte) bool { return len(bytes.Trim(text, "0123456789abcdef")) == 0 }

// isPrintable reports whether the text is ASCII without control characters.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c > '~' })
}
