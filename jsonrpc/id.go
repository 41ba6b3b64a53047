package jsonrpc

import (
	"errors"
	"strconv"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Limits of an id that a peer sends. Peers use counters and UUIDs; an id is kept for as long as its request runs and
// is copied into the response, so its size is not the peer's to choose.
const (
	maxIDBytes  = 256 // of a string, between its quotes, as it is written
	maxIDDigits = 20  // of an integer: enough for any 64-bit one
)

// An ID is the identifier of a request: a string or an integer, or nothing when it is the zero value.
//
// It is the JSON text exactly as it was sent, so it is echoed byte for byte, no integer loses precision, and 1 and
// "1" are different ids. IDs are comparable with == and may be keys of a map.
type ID struct {
	raw string
}

// StringID returns the id that is the string s.
func StringID(s string) ID {
	return ID{string(jsonscan.AppendQuote(nil, s))}
}

// IntID returns the id that is the integer n.
func IntID(n int64) ID {
	return ID{strconv.FormatInt(n, 10)}
}

// ParseID reads an id from its JSON text, without white space around it. It refuses everything but a string of at most
// 256 bytes and an integer of at most 20 digits that is written as one: not 1.0, not 1e3, not -0.
func ParseID(raw []byte) (ID, error) {
	if !isID(raw) {
		return ID{}, errNotID
	}
	if raw[0] == '"' {
		if _, err := jsonscan.Unquote(raw); err != nil {
			return ID{}, errNotID
		}
	}
	return ID{string(raw)}, nil
}

var errNotID = errors.New("an id is a string of at most 256 bytes or an integer of at most 20 digits")

// isID reports whether a JSON value that was checked is fit to be an id.
func isID(raw []byte) bool {
	if len(raw) > 0 && raw[0] == '"' {
		return len(raw) <= maxIDBytes+len(`""`)
	}
	digits := raw
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > maxIDDigits {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return digits[0] != '0' || len(raw) == 1
}

// IsZero reports whether there is no id.
func (id ID) IsZero() bool {
	return id.raw == ""
}

// String returns the JSON text of the id, with the quotes of a string id; it is empty when there is no id.
func (id ID) String() string {
	return id.raw
}

// MarshalJSON returns the JSON text of the id, null for the zero ID. The error is always nil.
func (id ID) MarshalJSON() ([]byte, error) {
	if id.IsZero() {
		return []byte("null"), nil
	}
	return []byte(id.raw), nil
}

// UnmarshalJSON reads an id as [ParseID] does, and null as no id.
func (id *ID) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(raw)
	if err == nil {
		*id = parsed
	}
	return err
}
