package wire

import (
	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A Standing is an envelope that holds for many requests whose params bring none. It is read once, and put before the
// params of each. Standings that are equal have equal texts.
type Standing struct {
	text                     string // a whole `_meta` object
	revision                 Revision
	logLevel                 string
	clientInfo, capabilities Span // within text
}

// NewStanding gives the envelope of a client that speaks a revision, with two JSON objects that it declared, together
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

// WithLogLevel gives the same envelope with another log level.
func (s Standing) WithLogLevel(level string) Standing {
	text := []byte(s.text)
	return NewStanding(s.revision, s.clientInfo.in(text), s.capabilities.in(text), level)
}

// Meta is the `_meta` object.
func (s Standing) Meta() string { return s.text }

// Join puts the envelope before the params of a request, in memory of their own, and makes e, which is empty, what [Open]
// says of them. Own is the index of the params as they are; that of others is no help. It reports false, and leaves e
// empty, for params that have to be rewritten: which are no object, are empty, or have members that an envelope brings or a
// session does not have.
func (s Standing) Join(e *Envelope, params stdjson.RawMessage, own *Index) (stdjson.RawMessage, bool) {
	const before, between = `{"_meta":`, `,`
	if !own.isOf(params) {
		opened, err := Open(params)
		if err != nil {
			return nil, false
		}
		own = &opened.subject
	}
	if !own.isBare() || len(params) == 0 || jsonscan.Kind(params[1:]) != '"' {
		return nil, false
	}
	joined := make(stdjson.RawMessage, 0, len(before)+len(s.text)+len(between)+len(params)-1)
	joined = append(append(joined, before...), s.text...)
	meta := joined[len(before):len(joined):len(joined)]
	joined = append(append(joined, between...), params[1:]...)
	e.VersionText, e.HasVersion, e.Revision = s.revision.String(), true, s.revision
	e.ClientInfo, e.Capabilities = s.clientInfo.in(meta), s.capabilities.in(meta)
	e.LogLevel, e.Meta = s.logLevel, meta
	own.move(&e.subject, joined, len(joined)-len(params))
	return joined, true
}
