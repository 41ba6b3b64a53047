// Package jsonscan checks JSON text strictly and finds its way in text that was checked.
//
// It is the one tokenizer that a peer's bytes meet first. What it accepts has exactly one reading: no object names a
// key twice at any depth, every string is valid Unicode, nothing stands before or after the value. What it refuses it
// names in a [*SyntaxError]. It keeps positions, not values: the bytes that were checked are the bytes that everyone
// after it reads.
//
// All functions are safe for concurrent use, and none allocates on the good path of a message of ordinary shape.
package jsonscan

import "fmt"

const (
	// DefaultDepth is how many containers may stand inside one another. Real messages stay under 20; the limit keeps
	// every recursive reader of the same bytes within a small stack.
	DefaultDepth = 64

	// DefaultKeys is how many members one object may have. It bounds the work of finding duplicates.
	DefaultKeys = 10_000
)

// Limits bounds the text that is accepted. The zero value means the defaults.
type Limits struct {
	Depth int // containers inside one another, the outermost included; 0 means DefaultDepth
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

// A Reason says why text was refused.
type Reason uint8

// The reasons. The last three are rules of ours about text that is JSON by its grammar.
const (
	Malformed     Reason = iota + 1 // not JSON: wrong or missing token, control character, unknown escape
	InvalidUTF8                     // a string holds bytes that are not UTF-8
	LoneSurrogate                   // a \u escape names half of a surrogate pair
	ByteOrderMark                   // the text begins with U+FEFF
	TrailingData                    // something other than white space follows the value
	DuplicateKey                    // an object names a key twice, compared after decoding escapes
	TooDeep                         // more containers inside one another than Limits.Depth
	TooManyKeys                     // an object has more members than Limits.Keys
)

// String returns a fixed phrase that is fit to be shown to a peer.
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

// A SyntaxError is a refusal of text.
type SyntaxError struct {
	Offset int    // byte at which the fault was noticed
	Reason Reason // what is wrong
}

// Error describes the refusal without quoting the text.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%v at byte %d", e.Reason, e.Offset)
}

// WellFormed reports whether the text was refused for a rule of this package (duplicate keys, depth, number of keys)
// and not for the grammar of JSON. The scan of such text went on to its end; what lies below the depth limit was
// followed by its brackets and quotes alone.
func (e *SyntaxError) WellFormed() bool {
	return e.Reason >= DuplicateKey
}
