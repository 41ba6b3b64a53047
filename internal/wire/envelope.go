package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Limits of the values in an envelope, which are echoed, compared and logged.
const (
	maxVersionText   = 64  // bytes; a version takes ten
	maxProgressToken = 256 // bytes of a string token, as for request ids
	maxTokenDigits   = 20  // digits of an integer token; enough for 64 bits
)

// An Envelope is the metadata that a request carries in `params._meta`. Its raw values alias the
// params; an absent value is nil.
//
// Spec: basic/index#meta (2026-07-28)
type Envelope struct {
	// VersionText is the requested revision as sent. HasVersion reports whether there is a
	// revision.
	VersionText string
	HasVersion  bool
	// Revision is the revision that VersionText names, or zero if it is unknown.
	Revision Revision
	// Projected reports whether the result has the form of Revision, a revision with sessions.
	Projected bool
	// ClientInfo and Capabilities are JSON objects.
	ClientInfo   json.RawMessage
	Capabilities json.RawMessage
	// LogLevel is any of the eight levels, or "" if the client wants no log messages.
	LogLevel string
	// ProgressToken is a JSON string or integer.
	ProgressToken json.RawMessage
	// Meta is the whole `_meta` object.
	Meta json.RawMessage
	// Checked are the URIs of a session's subscriptions; nil in the modern era.
	Checked *CheckedURIs

	params  json.RawMessage // that the envelope was opened from
	subject SubjectIndex    // of params
}

// A Request is a request whose envelope was opened.
type Request struct {
	ID       jsonrpc.ID
	Method   string
	Params   json.RawMessage
	Envelope Envelope // of Params
}

// A Splicer is a carrier of requests that can write a part of a response without copying the part.
type Splicer interface {
	// Splice inserts part into the response after the bytes in dst, and reports whether it did. It
	// reports false unless dst is the buffer of the response. The part must never change. A shared part
	// takes no memory of the response.
	Splice(dst, part []byte, shared bool) bool
}

// Open reads the envelope of a request's params, which must be checked JSON or nil. A member of the
// wrong JSON type, an unknown log level or an oversized value is an error with
// [CodeInvalidParams]. [Envelope.Complete] reports missing members. The caller must reject
// unknown versions.
func Open(params json.RawMessage) (e Envelope, err *jsonrpc.Error) {
	err = e.Open(params)
	return e, err
}

// Open reads the envelope as the function Open does. The envelope must be empty.
func (e *Envelope) Open(params json.RawMessage) *jsonrpc.Error {
	if len(params) == 0 {
		return nil
	}
	if jsonscan.Kind(params) != '{' {
		return invalidParams("params must be an object")
	}
	d := jsonscan.Descend(params)
	d.Into('{')
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		if string(key) == "_meta" {
			if err := e.openMeta(&d); err != nil {
				return err
			}
			continue
		}
		at := d.At()
		e.subject.Set(key, d.Value(), at)
	}
	e.params = params
	return nil
}

// openMeta reads `_meta`, which is the next value of d.
func (e *Envelope) openMeta(d *jsonscan.Descent) *jsonrpc.Error {
	at := d.At()
	if !d.Into('{') {
		if jsonscan.Kind(d.Value()) == 'n' {
			return nil
		}
		return invalidParams("params._meta must be an object")
	}
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		if err := e.SetMember(key, d.Value()); err != nil {
			return err
		}
	}
	e.Meta = d.Since(at)
	return nil
}

// Clone returns a copy that does not alias the params.
func (e *Envelope) Clone() Envelope {
	c := *e
	c.ClientInfo, c.Capabilities = bytes.Clone(e.ClientInfo), bytes.Clone(e.Capabilities)
	c.ProgressToken, c.Meta = bytes.Clone(e.ProgressToken), bytes.Clone(e.Meta)
	c.params, c.subject = nil, SubjectIndex{}
	return c
}

// SetMember sets the field of a member of `_meta`, and ignores other members and null. Its errors
// are the errors of [Open].
func (e *Envelope) SetMember(key, value []byte) *jsonrpc.Error {
	if jsonscan.Kind(value) == 'n' {
		return nil
	}
	switch string(key) {
	case MetaProtocolVersion:
		return e.readVersion(value)
	case MetaLogLevel:
		return e.readLogLevel(value)
	case MetaClientInfo:
		e.ClientInfo = value
		return checkObject(MetaClientInfo, value)
	case MetaClientCapabilities:
		e.Capabilities = value
		return checkObject(MetaClientCapabilities, value)
	case MetaProgressToken:
		e.ProgressToken = value
		return checkProgressToken(value)
	}
	return nil
}

func (e *Envelope) readVersion(value []byte) *jsonrpc.Error {
	if jsonscan.Kind(value) != '"' {
		return invalidParams(MetaProtocolVersion + " must be a string")
	}
	if len(value) > maxVersionText {
		return invalidParams(MetaProtocolVersion + " is too long")
	}
	e.HasVersion = true
	for r := Latest(); r != 0; r-- { // as ParseRevision, without an allocation
		if version := r.String(); string(value[1:len(value)-1]) == version {
			e.Revision, e.VersionText = r, version
			return nil
		}
	}
	text, err := jsonscan.Unquote(value)
	if err != nil {
		return invalidParams(MetaProtocolVersion + " must be a string")
	}
	e.VersionText = text
	e.Revision, _ = ParseRevision(text) // the text may contain escapes
	return nil
}

func (e *Envelope) readLogLevel(value []byte) *jsonrpc.Error {
	if jsonscan.Kind(value) == '"' {
		for _, level := range logLevels {
			if string(value[1:len(value)-1]) == level {
				e.LogLevel = level
				return nil
			}
		}
	}
	return invalidParams(MetaLogLevel + " must be one of " + strings.Join(logLevels, ", "))
}

func checkObject(key string, value []byte) *jsonrpc.Error {
	if jsonscan.Kind(value) != '{' {
		return invalidParams(key + " must be an object")
	}
	return nil
}

// Spec: basic/patterns/progress#progress-flow
func checkProgressToken(value []byte) *jsonrpc.Error {
	switch jsonscan.Kind(value) {
	case '"':
		if len(value)-2 <= maxProgressToken {
			return nil
		}
		return invalidParams(MetaProgressToken + " is too long")
	case '0':
		if isInteger(value) {
			return nil
		}
	}
	return invalidParams(MetaProgressToken + " must be a string or an integer")
}

// isInteger reports whether a JSON number is written as an integer of at most maxTokenDigits.
func isInteger(number []byte) bool {
	if number[0] == '-' {
		number = number[1:]
	}
	for _, c := range number {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(number) <= maxTokenDigits
}

// Complete returns an error that names the first required member that is missing, with
// [CodeInvalidParams]; or nil.
//
// Spec: basic/index#meta (2026-07-28)
func (e *Envelope) Complete() *jsonrpc.Error {
	switch {
	case e.Meta == nil:
		return invalidParams("missing required field params._meta")
	case !e.HasVersion:
		return invalidParams("missing required field params._meta[\"" + MetaProtocolVersion + "\"]")
	case e.Capabilities == nil:
		return invalidParams("missing required field params._meta[\"" + MetaClientCapabilities + "\"]")
	}
	return nil
}

// A Subject holds the members of a request's params that name the objects that the request uses,
// and how. The values alias the params and are not validated; an absent value is nil.
type Subject struct {
	Name           json.RawMessage
	URI            json.RawMessage
	Arguments      json.RawMessage
	InputResponses json.RawMessage
	RequestState   json.RawMessage
}

// A SubjectIndex holds the positions of a [Subject] in the params: it needs a third of the memory.
type SubjectIndex [5]struct{ from, to uint32 }

// subjectMember returns the index of a member of the params in a SubjectIndex, or -1.
func subjectMember(key []byte) int {
	switch string(key) {
	case "name":
		return 0
	case "uri":
		return 1
	case "arguments":
		return 2
	case "inputResponses":
		return 3
	case "requestState":
		return 4
	}
	return -1
}

// Set records that a member of the params has the value at an offset. It ignores other members, and
// null, which some clients write for an absent member.
func (x *SubjectIndex) Set(key, value []byte, at int) {
	if i := subjectMember(key); i >= 0 && jsonscan.Kind(value) != 'n' {
		x[i].from, x[i].to = uint32(at), uint32(at+len(value))
	}
}

// value returns the value with an index, or nil.
func (x *SubjectIndex) value(params json.RawMessage, i int) json.RawMessage {
	if at := x[i]; at.to > 0 {
		return params[at.from:at.to:at.to]
	}
	return nil
}

// Subject returns the subject of a request's params, which must be checked JSON or nil. For the
// params that the envelope was opened from, it does not scan them again.
func (e *Envelope) Subject(params json.RawMessage) Subject {
	x := &e.subject
	if !e.IsOf(params) {
		x = new(SubjectIndex)
		d := jsonscan.Descend(params)
		d.Into('{')
		for key, ok := d.Key(); ok; key, ok = d.Key() {
			at := d.At()
			x.Set(key, d.Value(), at)
		}
	}
	return Subject{x.value(params, 0), x.value(params, 1), x.value(params, 2), x.value(params, 3), x.value(params, 4)}
}

// Member returns a member of a request's params, and whether it is there.
func (e *Envelope) Member(params json.RawMessage, key string) (json.RawMessage, bool) {
	if i := subjectMember([]byte(key)); i >= 0 && e.IsOf(params) {
		value := e.subject.value(params, i)
		return value, value != nil
	}
	return jsonscan.Get(params, key)
}

// Describe makes e the envelope of params, which the caller made from e and subject. It saves
// [Envelope.Open].
func (e *Envelope) Describe(params json.RawMessage, subject SubjectIndex) {
	e.params, e.subject = params, subject
}

// IsOf reports whether the envelope was opened from these very params, which were checked before.
func (e *Envelope) IsOf(params json.RawMessage) bool {
	return len(params) > 0 && len(params) == len(e.params) && &params[0] == &e.params[0] &&
		uint64(len(params)) <= math.MaxUint32 // the largest offset of a SubjectIndex
}
