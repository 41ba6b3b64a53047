package wire

import (
	"encoding/json"
	"math"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A Subject holds the members of a request's params that name what the request uses, and how. The
// values alias the params and are not validated; an absent one is nil.
type Subject struct {
	Name           json.RawMessage
	URI            json.RawMessage
	Arguments      json.RawMessage
	InputResponses json.RawMessage
	RequestState   json.RawMessage
}

// The members of a subject, in the order of its fields.
const (
	subjectName = iota
	subjectURI
	subjectArguments
	subjectInputResponses
	subjectRequestState
	subjectMembers // their number
)

// subjectMember returns which member of a subject has the key.
func subjectMember(key []byte) (member int, ok bool) {
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

// Subject returns the subject of a request's params, which must be checked JSON or nil. For the
// params that the envelope was opened from, it does not scan them again.
func (e *Envelope) Subject(params json.RawMessage) Subject {
	if x := &e.subject; x.isOf(params) {
		return Subject{
			x.value(params, subjectName), x.value(params, subjectURI), x.value(params, subjectArguments),
			x.value(params, subjectInputResponses), x.value(params, subjectRequestState),
		}
	}
	var found [subjectMembers]json.RawMessage
	for key, value := range jsonscan.Members(params) {
		if i, ok := subjectMember(key); ok {
			found[i] = value
		}
	}
	return Subject{
		found[subjectName], found[subjectURI], found[subjectArguments],
		found[subjectInputResponses], found[subjectRequestState],
	}
}

// Member returns one member of a request's params, and whether it is there.
func (e *Envelope) Member(params json.RawMessage, key string) (json.RawMessage, bool) {
	i, ok := subjectMember([]byte(key))
	if !ok || !e.subject.isOf(params) {
		return jsonscan.Get(params, key)
	}
	value := e.subject.value(params, i)
	return value, value != nil
}

// Made records that this process encoded params, with this envelope, and where name and arguments
// are in them. The params are then treated like params that the envelope was opened from.
func (e *Envelope) Made(params json.RawMessage, name, arguments Span) {
	e.subject = index{}
	e.subject.bind(params)
	e.subject.spans[subjectName], e.subject.spans[subjectArguments] = name, arguments
}

// IsOf reports whether the envelope was opened from these very params, which were checked before.
func (e *Envelope) IsOf(params json.RawMessage) bool { return e.subject.isOf(params) }

// An index holds the positions of a subject's members in params. The zero index belongs to no
// params.
type index struct {
	first *byte // of the params; nil for none
	size  uint32
	spans [subjectMembers]Span
}

// A Span is the position of a value in a text, from At up to End. The zero Span is an absent value.
type Span struct{ At, End uint32 }

// Shift returns the span moved by a number of bytes; the zero Span stays zero.
func (s Span) Shift(by int) Span {
	if s.End > 0 {
		s.At, s.End = s.At+uint32(by), s.End+uint32(by)
	}
	return s
}

// bind sets the params that the index belongs to.
func (x *index) bind(params []byte) {
	if uint64(len(params)) <= math.MaxUint32 {
		x.first, x.size = &params[0], uint32(len(params))
	}
}

func (x *index) isOf(params []byte) bool {
	return x.first != nil && len(params) == int(x.size) && &params[0] == x.first
}

// add records a member of the params whose value begins at an offset.
func (x *index) add(key []byte, at, size int) {
	if i, ok := subjectMember(key); ok {
		x.spans[i] = Span{uint32(at), uint32(at + size)}
	}
}

// value returns a member of the params that the index belongs to, or nil.
func (x *index) value(params []byte, member int) json.RawMessage {
	s := x.spans[member]
	if s.End == 0 {
		return nil
	}
	return params[s.At:s.End:s.End]
}
