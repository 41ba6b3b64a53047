// Package jsonscan validates JSON text strictly and reads text that was validated.
//
// Every message of a peer is validated by it first. Valid text has exactly one meaning: no object
// has a duplicate key at any depth, every string is valid Unicode, and only white space surrounds
// the value. Anything else is rejected with a [*SyntaxError]. The package returns positions and
// slices of the text, so later readers see the same bytes.
//
// All functions are safe for concurrent use. They do not allocate for valid messages of ordinary
// shape.
package jsonscan

import "fmt"

const (
	// DefaultDepth is the maximum nesting depth of containers. Real messages stay below 20. The
	// limit bounds the stack of recursive readers of the same text.
	DefaultDepth = 64

	// DefaultKeys is the maximum number of members of an object. It bounds the work of finding
	// duplicates.
	DefaultKeys = 10_000
)

// Limits limits the accepted text. The zero value means the defaults.
type Limits struct {
	Depth int // nested containers, including the outermost; 0 means DefaultDepth
	Keys  int // members of one object; 0 means DefaultKeys
}

func (l Limits) orDefault() Limits {
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	if l.Keys <= 0 {
		l.Keys = DefaultKeys
	}
	return l
}

// A Reason says why text was rejected.
type Reason uint8

// The reasons. The last three concern text that is JSON by the grammar.
const (
	Malformed     Reason = iota + 1 // not JSON: wrong or missing token, control character, unknown escape
	InvalidUTF8                     // a string has bytes that are not UTF-8
	LoneSurrogate                   // a \u escape is half of a surrogate pair
	ByteOrderMark                   // the text begins with U+FEFF
	TrailingData                    // something other than white space follows the value
	DuplicateKey                    // an object has a key twice, compared after decoding escapes
	TooDeep                         // more nested containers than Limits.Depth
	TooManyKeys                     // an object has more members than Limits.Keys
)

// String returns a fixed phrase that may be shown to a peer.
func (r Reason) String() string {
	switch r {
	case Malformed:
		return "malformed JSON"
	case InvalidUTF8:
		return "invalid UTF-8"
	case LoneSurrogate:
		return "lone surrogate"
	case ByteOrderMark:
		return "byte order mark"
	case TrailingData:
		return "data after the value"
	case DuplicateKey:
		return "duplicate key"
	case TooDeep:
		return "nested too deeply"
	case TooManyKeys:
		return "too many keys in one object"
	}
	return "unknown reason"
}

// A SyntaxError describes why text was rejected.
type SyntaxError struct {
	Offset int    // in bytes, where the error was detected
	Reason Reason // the kind of error
}

// Error describes the error without quoting the text.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%v at byte %d", e.Reason, e.Offset)
}

// WellFormed reports whether the text is JSON by the grammar, but breaks a rule of this package:
// duplicate keys, depth or number of keys. Such text was scanned to its end. Below the depth limit,
// only brackets and quotes were checked.
func (e *SyntaxError) WellFormed() bool {
	return e.Reason >= DuplicateKey
}
