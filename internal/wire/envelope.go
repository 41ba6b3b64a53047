package wire

import (
	"bytes"
	stdjson "encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Bounds on what a peer may put in an envelope: it is echoed, compared and logged.
const (
	maxVersionText   = 64  // bytes; a version is a date of ten
	maxProgressToken = 256 // bytes of a string token; as for request ids
	maxTokenDigits   = 20  // digits of an integer token; enough for 64 bits
)

// Envelope is what one request says about itself in `params._meta`. Its raw spans alias the params it was opened from;
// a span is nil when its key is absent.
//
// Spec: basic/index#meta (2026-07-28)
type Envelope struct {
	// VersionText is the requested revision as sent, and HasVersion whether one was sent.
	VersionText string
	HasVersion  bool
	// Revision is the known revision that VersionText names, or zero.
	Revision Revision
	// ClientInfo and Capabilities are JSON objects.
	ClientInfo   stdjson.RawMessage
	Capabilities stdjson.RawMessage
	// LogLevel is one of the eight levels, or "" when no log messages are wanted.
	LogLevel string
	// ProgressToken is a JSON string or integer.
	ProgressToken stdjson.RawMessage
	// Meta is the whole `_meta` object.
	Meta stdjson.RawMessage

	subject Index
}

// Open reads the envelope of a request's params, which have to be checked JSON or nil. It judges what is there: a member
// of a wrong JSON type, an unknown log level or an oversized value is [jsonrpc.CodeInvalidParams]. What is missing is
// left to [Envelope.Complete]; an unknown version is left to the caller.
func Open(params stdjson.RawMessage) (e Envelope, err *jsonrpc.Error) {
	err = e.Open(params)
	return e, err
}

// Open is the function Open for an envelope that is empty.
func (e *Envelope) Open(params stdjson.RawMessage) *jsonrpc.Error {
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
		e.subject.add(key, at, len(d.Value()))
	}
	e.subject.bind(params)
	return nil
}

// openMeta reads `_meta`, which is ahead.
func (e *Envelope) openMeta(d *jsonscan.Descent) *jsonrpc.Error {
	at := d.At()
	if !d.Into('{') {
		return invalidParams("params._meta must be an object")
	}
	e.subject.meta = uint32(at)
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		if err := e.take(key, d.Value()); err != nil {
			return err
		}
	}
	e.Meta = d.Since(at)
	return nil
}

// Clone returns a copy that shares no memory with params.
func (e *Envelope) Clone() Envelope {
	c := *e
	c.ClientInfo, c.Capabilities = bytes.Clone(e.ClientInfo), bytes.Clone(e.Capabilities)
	c.ProgressToken, c.Meta = bytes.Clone(e.ProgressToken), bytes.Clone(e.Meta)
	c.subject = Index{}
	return c
}

// take reads one member of `_meta`.
func (e *Envelope) take(key, value []byte) *jsonrpc.Error {
	switch string(key) {
	case MetaProtocolVersion:
		return e.takeVersion(value)
	case MetaLogLevel:
		return e.takeLogLevel(value)
	case MetaClientInfo:
		e.ClientInfo = value
		return wantObject(MetaClientInfo, value)
	case MetaClientCapabilities:
		e.Capabilities = value
		return wantObject(MetaClientCapabilities, value)
	case MetaProgressToken:
		e.ProgressToken = value
		return checkProgressToken(value)
	}
	return nil
}

func (e *Envelope) takeVersion(value []byte) *jsonrpc.Error {
	if jsonscan.Kind(value) != '"' {
		return invalidParams(MetaProtocolVersion + " must be a string")
	}
	if len(value) > maxVersionText {
		return invalidParams(MetaProtocolVersion + " is too long")
	}
	e.HasVersion = true
	for r := Latest(); r != 0; r-- { // as ParseRevision, before a string is made of it
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
	e.Revision, _ = ParseRevision(text) // it may have been written with escapes
	return nil
}

func (e *Envelope) takeLogLevel(value []byte) *jsonrpc.Error {
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

func wantObject(key string, value []byte) *jsonrpc.Error {
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

// isInteger reports whether the JSON number is written as an integer of a bearable size.
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

// Complete reports what a request of the modern era has to say and this one does not, as [jsonrpc.CodeInvalidParams]
// naming the field; nil when nothing is missing.
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

// ForTransports is a parameter of methods that transports of this module have for it: no handler of a user has one by
// chance.
type ForTransports struct{}
