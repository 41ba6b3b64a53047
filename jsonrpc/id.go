package jsonrpc

import (
	"errors"
	"strconv"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Limits of the id of a received request, which is kept while the request runs and copied into the
// response.
const (
	maxIDBytes  = 256 // of a string as encoded, without its quotes
	maxIDDigits = 20  // of an integer; enough for 64 bits
)

// An ID identifies a request. It is a string or an integer. The zero ID means that there is no id.
//
// It holds the JSON text as received and is echoed byte for byte, so integers lose no precision,
// and 1 and "1" are different. IDs are comparable with == and may be map keys.
type ID struct {
	raw string
}

// StringID returns the ID of a string.
func StringID(s string) ID {
	return ID{string(jsonscan.AppendQuote(nil, s))}
}

// IntID returns the ID of an integer.
func IntID(n int64) ID {
	return ID{strconv.FormatInt(n, 10)}
}

// parseID returns the ID with the given JSON text, which must not contain white space around it.
func parseID(raw []byte) (ID, error) {
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

// isID reports whether a valid JSON value may be an id.
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

// String returns the JSON text of the id, including the quotes of a string; it is empty for the
// zero ID.
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

// UnmarshalJSON decodes null as the zero ID, and a string of at most 256 bytes or an integer of at
// most 20 digits without fraction or exponent as an ID. Anything else, and -0, is an error.
func (id *ID) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		*id = ID{}
		return nil
	}
	parsed, err := parseID(raw)
	if err == nil {
		*id = parsed
	}
	return err
}
