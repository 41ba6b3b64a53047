package wire

import (
	"bytes"
	stdjson "encoding/json"
	"math"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A Subject is what the params of a request say about the one thing that it uses, and how. The values alias the params
// and are not judged; nil when absent.
type Subject struct {
	Name           stdjson.RawMessage
	URI            stdjson.RawMessage
	Arguments      stdjson.RawMessage
	InputResponses stdjson.RawMessage
	RequestState   stdjson.RawMessage
}

// The places of the members of a subject, in the order of its fields.
const (
	subjectName = iota
	subjectURI
	subjectArguments
	subjectInputResponses
	subjectRequestState
	subjectKeys // how many there are
)

// subjectKey returns the place of a key among those of a subject.
func subjectKey(key []byte) (place int, ok bool) {
	switch string(key) {
	case "name":
		return subjectName, true
	case "uri":
		return subjectURI, true
	case "arguments":
		return subjectArguments, true
	case "inputResponses":
		return subjectInputResponses, true
	case "requestState":
		return subjectRequestState, true
	}
	return 0, false
}

// Subject returns the subject of a request's params, which have to be checked JSON or nil. For the params that the
// envelope was opened from it has been found already.
func (e *Envelope) Subject(params stdjson.RawMessage) Subject {
	if x := &e.subject; x.isOf(params) {
		return Subject{
			x.in(params, subjectName), x.in(params, subjectURI), x.in(params, subjectArguments),
			x.in(params, subjectInputResponses), x.in(params, subjectRequestState),
		}
	}
	var found [subjectKeys]stdjson.RawMessage
	for key, value := range jsonscan.Members(params) {
		if i, ok := subjectKey(key); ok {
			found[i] = value
		}
	}
	return Subject{found[subjectName], found[subjectURI], found[subjectArguments], found[subjectInputResponses], found[subjectRequestState]}
}

// Member returns one member of a request's params, as [Envelope.Subject] gives several.
func (e *Envelope) Member(params stdjson.RawMessage, key string) (stdjson.RawMessage, bool) {
	i, ok := subjectKey([]byte(key))
	if !ok || !e.subject.isOf(params) {
		return jsonscan.Get(params, key)
	}
	value := e.subject.in(params, i)
	return value, value != nil
}

// Made says that this process has made just these params, behind the envelope and of strict JSON, and where in them their
// subject stands: a name, arguments, and nothing else. They are then as good as params that it was opened from.
func (e *Envelope) Made(params stdjson.RawMessage, name, arguments Span) {
	e.subject = Index{meta: uint32(len(`{"_meta":`))}
	e.subject.bind(params)
	e.subject.spans[subjectName], e.subject.spans[subjectArguments] = name, arguments
}

// Index tells where the subject stands in the params that the envelope was opened from.
func (e *Envelope) Index() Index { return e.subject }

// IsOf reports whether the envelope was opened from just these params, which were checked before. In others there may be
// anything.
func (e *Envelope) IsOf(params stdjson.RawMessage) bool { return e.subject.isOf(params) }

// An Index tells where in params the subject stands. The zero Index is that of no params.
type Index struct {
	first *byte // of the params; nil for none
	size  uint32
	meta  uint32 // where the `_meta` beside it begins; zero for none
	spans [subjectKeys]Span
}

// A Span is where in a text a value begins, and where it ends; zero for none.
type Span struct{ At, End uint32 }

// Shift returns the same span of a text in which it stands further behind.
func (s Span) Shift(by int) Span {
	if s.End > 0 {
		s.At, s.End = s.At+uint32(by), s.End+uint32(by)
	}
	return s
}

func (s Span) in(text []byte) []byte { return text[s.At:s.End:s.End] }

// HasMeta reports whether the params have a `_meta`.
func (x *Index) HasMeta() bool { return x.meta > 0 }

// bind says of which params the index is; before that it is of none.
func (x *Index) bind(params []byte) {
	if uint64(len(params)) <= math.MaxUint32 {
		x.first, x.size = &params[0], uint32(len(params))
	}
}

func (x *Index) isOf(params []byte) bool {
	return x.first != nil && len(params) == int(x.size) && &params[0] == x.first
}

// add takes note of a member of the params, whose value has a size.
func (x *Index) add(key []byte, at, size int) {
	if i, ok := subjectKey(key); ok {
		x.spans[i] = Span{uint32(at), uint32(at + size)}
	}
}

// in returns the value at a place, out of the params that the index is of; nil for none.
func (x *Index) in(params []byte, place int) stdjson.RawMessage {
	s := x.spans[place]
	if s.End == 0 {
		return nil
	}
	return s.in(params)
}

// isRetry reports whether the params have what a client puts there that comes again, which is none of a session.
func (x *Index) isRetry() bool {
	return x.spans[subjectInputResponses].End > 0 || x.spans[subjectRequestState].End > 0
}

// hasPlainMeta reports whether the key of the `_meta`, if there is one, is written without escapes.
func (x *Index) hasPlainMeta(params []byte) bool {
	before := bytes.TrimRight(params[:x.meta], ": \t\r\n")
	return x.meta == 0 || bytes.HasSuffix(before, []byte(`"_meta"`))
}

// move makes to, which is zero, the index of params that hold the same members, those behind a place further behind, and a
// `_meta` that begins at meta.
func (x *Index) move(to *Index, params []byte, behind, by, meta int) {
	to.bind(params)
	to.meta = uint32(meta)
	for i, s := range x.spans {
		if s.At >= uint32(behind) {
			s = s.Shift(by)
		}
		to.spans[i] = s
	}
}
