package wire

import (
	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A Standing is an envelope that holds for many requests whose params bring none. It is read once, and put into the params
// of each. Standings that are equal have equal texts.
type Standing struct {
	text                     string // a whole `_meta` object
	revision                 Revision
	logLevel                 string
	clientInfo, capabilities Span // within text
}

// NewStanding returns the envelope of a client that speaks a revision, with two JSON objects that it declared, together
// shorter than 4 GiB.
func NewStanding(rev Revision, clientInfo, capabilities []byte, logLevel string) Standing {
	s := Standing{revision: rev, logLevel: logLevel}
	b := append(jsonscan.AppendQuote([]byte(`{"`+MetaProtocolVersion+`":`), rev.String()), `,"`+MetaClientInfo+`":`...)
	b, s.clientInfo = appendSpan(b, clientInfo)
	b, s.capabilities = appendSpan(append(b, `,"`+MetaClientCapabilities+`":`...), capabilities)
	b = jsonscan.AppendQuote(append(b, `,"`+MetaLogLevel+`":`...), logLevel)
	s.text = string(append(b, '}'))
	return s
}

func appendSpan(dst, value []byte) ([]byte, Span) {
	at := len(dst)
	dst = append(dst, value...)
	return dst, Span{uint32(at), uint32(len(dst))}
}

// WithLogLevel returns the same envelope with another log level.
func (s Standing) WithLogLevel(level string) Standing {
	text := []byte(s.text)
	return NewStanding(s.revision, s.clientInfo.in(text), s.capabilities.in(text), level)
}

// Meta is the `_meta` object.
func (s Standing) Meta() string { return s.text }

// Join puts the envelope before the params of a request, in memory of their own, and makes e, which is empty, what [Open]
// says of them. To a `_meta` that they have already it adds the envelope's members. Own is the index of the params as they
// are; that of others is no help. It reports false, and leaves e empty, for params that have to be rewritten: which are no
// object, are empty or have an empty `_meta`, or one with an escape in its key, or have members that an envelope brings or a
// session does not have.
func (s Standing) Join(e *Envelope, params stdjson.RawMessage, own *Index) (stdjson.RawMessage, bool) {
	if !own.isOf(params) {
		opened, err := Open(params)
		if err != nil {
			return nil, false
		}
		own = &opened.subject
	}
	at, before, text := 1, `"_meta":`, s.text
	metaAt := at + len(before)
	if own.meta > 0 {
		metaAt = int(own.meta)
		at, before, text = metaAt+1, "", s.text[1:len(s.text)-1]
	}
	if own.isRetry() || len(params) <= at || jsonscan.Kind(params[at:]) != '"' || !own.hasPlainMeta(params) {
		return nil, false
	}
	by := len(before) + len(text) + len(`,`)
	joined := append(make(stdjson.RawMessage, 0, len(params)+by), params[:at]...)
	joined = append(append(append(joined, before...), text...), ',')
	joined = append(joined, params[at:]...)
	metaEnd := metaAt + len(s.text)
	if own.meta > 0 {
		size, ok := e.takeOwn(joined[at+by:])
		if !ok {
			*e = Envelope{}
			return nil, false
		}
		metaEnd = at + by + size
	}
	s.fill(e, joined[metaAt:metaEnd:metaEnd])
	own.move(&e.subject, joined, at, by, metaAt)
	return joined, true
}

// fill says what is in a `_meta` that begins with the members of the envelope.
func (s Standing) fill(e *Envelope, meta stdjson.RawMessage) {
	e.VersionText, e.HasVersion, e.Revision = s.revision.String(), true, s.revision
	e.ClientInfo, e.Capabilities = s.clientInfo.in(meta), s.capabilities.in(meta)
	e.LogLevel, e.Meta = s.logLevel, meta
}

// takeOwn reads the members of the `_meta` that a request in a session has itself, and gives their size with the bracket
// behind them. It reports false if one is wrong, or of those that the standing envelope brings.
func (e *Envelope) takeOwn(members []byte) (size int, ok bool) {
	d := jsonscan.Descend(members)
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		switch string(key) {
		case MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaLogLevel:
			return 0, false
		}
		if e.take(key, d.Value()) != nil {
			return 0, false
		}
	}
	return len(d.Since(0)), true
}
