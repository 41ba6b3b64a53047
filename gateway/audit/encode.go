package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// formatVersion is the member v of records.
	formatVersion = 1
	// maxLine bounds a line, in bytes. Arguments and details that exceed it are left out.
	maxLine = 4 << 20
	// maxText limits each text of a record that a caller or a server chose, in bytes.
	maxText = 1 << 10
)

const timeFormat = "2006-01-02T15:04:05.000Z"

func timeText(t time.Time) string { return t.UTC().Format(timeFormat) }

// An encoder encodes records. It is not safe for concurrent use.
type encoder struct {
	searched int // bytes of the present record that were searched for secrets
	form     Arguments
	public   string // the key, in hex
	hmac     hash.Hash
	sum      []byte        // of hmac
	brief    bool          // leave out arguments and details
	record   *event.Record // the present record
}

func newEncoder(o *Options) encoder {
	key := hmac.New(sha256.New, o.Key.Seed())
	key.Write([]byte("patchbay audit hash"))
	return encoder{form: o.Arguments, public: hex.EncodeToString(o.public()), hmac: hmac.New(sha256.New, key.Sum(nil))}
}

// appendKeyedHash appends the HMAC-SHA-256 of a text, in hex: a plain hash of a short text would reveal it.
func (c *encoder) appendKeyedHash(b, text []byte) []byte {
	c.hmac.Reset()
	c.hmac.Write(text)
	c.sum = c.hmac.Sum(c.sum[:0])
	return hex.AppendEncode(b, c.sum)
}

// appendEntry appends the line of an entry, and returns its hash.
func (c *encoder) appendEntry(
	b []byte, e *entry, seq uint64, now time.Time, prev [sha256.Size]byte,
) ([]byte, [sha256.Size]byte) {
	start := len(b)
	b = strconv.AppendInt(append(b, `{"v":`...), formatVersion, 10)
	b = strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
	if e.record != nil {
		b = c.appendRecord(b, e.record)
	} else {
		b = now.UTC().AppendFormat(append(b, `,"t":"`...), timeFormat)
		b = rawjson.AppendQuote(append(b, `","event":`...), e.event)
		detail, err := json.Marshal(e.detail)
		if err == nil {
			b = append(append(b, `,"detail":`...), detail...)
		}
	}
	b = hex.AppendEncode(append(b, `,"prev":"`...), prev[:])
	b = append(b, '"')
	sum := sha256.Sum256(b[start:])
	b = hex.AppendEncode(append(b, `,"hash":"`...), sum[:])
	return append(b, "\"}\n"...), sum
}

// member appends a text unless it is empty.
func (c *encoder) member(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return rawjson.AppendQuote(b, c.text(text))
}

// text returns a text without secrets, and not too long.
func (c *encoder) text(text string) string {
	if text = c.record.Mask(text); len(text) <= maxText {
		return text
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

func (c *encoder) appendRecord(b []byte, r *event.Record) []byte {
	c.record = r
	at := r.Start
	if r.Duration > 0 {
		at = at.Add(r.Duration)
	}
	b = at.UTC().AppendFormat(append(b, `,"t":"`...), timeFormat)
	b = rawjson.AppendQuote(append(b, `","event":`...), string(r.Event))
	b = c.member(b, "id", r.Call)
	b = c.member(b, "kind", string(r.Kind))
	b = c.member(b, "method", r.Method)
	b = c.appendCaller(b, r)
	b = c.member(b, "server", r.Server)
	b = c.member(b, "target", r.Target)
	b = c.member(b, "public", r.Public)
	if r.Digest != ([32]byte{}) {
		b = append(hex.AppendEncode(append(b, `,"def":"`...), r.Digest[:]), '"')
	}
	if len(r.Arguments) > 0 {
		b = c.appendForm(append(b, `,"args":`...), r.Arguments)
	}
	b = c.appendDecision(b, r)
	b = c.appendOutcome(b, r)
	if len(r.Detail) > 0 && !c.brief && rawjson.Valid(r.Detail) == nil {
		b = c.appendMapped(append(b, `,"detail":`...), r.Detail, r.Mask)
	}
	return b
}

// appendCaller appends the sender of the request.
func (c *encoder) appendCaller(b []byte, r *event.Record) []byte {
	if r.Caller != nil {
		b = c.member(b, "caller", callerName(r.Caller))
		if p := r.Caller.Principal; p != nil && p.Issuer == keyIssuer {
			key, _ := p.Claims["key"].(string)
			b = c.member(b, "key", key)
		}
		b = c.member(b, "profile", r.Caller.Profile)
	}
	if len(r.Client) == 0 || rawjson.Kind(r.Client) != '{' {
		return b
	}
	b = append(b, `,"client":{"name":`...)
	b = rawjson.AppendQuote(b, c.text(rawjson.GetString(r.Client, "name")))
	return append(c.member(b, "version", rawjson.GetString(r.Client, "version")), '}')
}

// keyIssuer is the issuer of the principals of keys. It must equal the constant of package gateway.
const keyIssuer = "patchbay:key"

// LocalCaller identifies the local user, who is no principal, in records.
const LocalCaller = "local"

// callerName returns the name of a caller: its subject and issuer.
func callerName(c *policy.Caller) string {
	p := c.Principal
	switch {
	case p == nil:
		return LocalCaller
	case p.Issuer == "":
		return p.Subject
	}
	return p.Subject + " " + p.Issuer
}

func (c *encoder) appendDecision(b []byte, r *event.Record) []byte {
	b = c.member(b, "rule", r.Rule)
	if len(r.DryRun) > 0 {
		b = append(b, `,"dryRun":[`...)
		for i, text := range r.DryRun {
			if i > 0 {
				b = append(b, ',')
			}
			b = rawjson.AppendQuote(b, c.text(text))
		}
		b = append(b, ']')
	}
	return c.member(c.member(b, "channel", r.Channel), "approver", r.Approver)
}

// Outcomes of records.
const (
	OutcomeOK       = "ok"       // a result
	OutcomeError    = "error"    // an error of the server, or a result that is an error
	OutcomeFailed   = "failed"   // no valid response
	OutcomeRefused  = "refused"  // not sent
	OutcomeQuestion = "question" // the server asks
)

func (c *encoder) appendOutcome(b []byte, r *event.Record) []byte {
	switch r.Event {
	case event.Answer:
		if len(r.Answers) > 0 {
			b = c.appendForm(append(b, `,"answers":`...), r.Answers)
		}
		return b
	case event.End, event.Question, event.Refused:
	default:
		return b
	}
	failed, isError := r.Err != nil, false
	if bytes.Contains(r.Result, []byte(`"isError"`)) || bytes.IndexByte(r.Result, '\\') >= 0 { // an escaped name
		flag, _ := rawjson.Get(r.Result, "isError")
		isError = string(flag) == "true"
	}
	outcome := OutcomeOK
	_, byHost := errors.AsType[*hosterr.Error](r.Err)
	switch {
	case r.Event == event.Refused:
		outcome = OutcomeRefused
	case r.Event == event.Question:
		outcome = OutcomeQuestion
	case failed && byHost:
		outcome = OutcomeFailed
	case failed || isError:
		outcome = OutcomeError
	}
	b = append(append(append(b, `,"outcome":"`...), outcome...), '"')
	if r.Event == event.Question {
		b = c.appendQuestions(b, r.Result)
	}
	if len(r.Result) > 0 {
		b = strconv.AppendInt(append(b, `,"result":{"bytes":`...), int64(len(r.Result)), 10)
		b = strconv.AppendBool(append(b, `,"isError":`...), isError)
		b = append(c.appendKeyedHash(append(b, `,"hash":"`...), r.Result), `"}`...)
	}
	if failed {
		b = c.appendError(b, r.Err)
	}
	return strconv.AppendFloat(append(b, `,"ms":`...), float64(r.Duration)/float64(time.Millisecond), 'f', 3, 64)
}

func (c *encoder) appendError(b []byte, err error) []byte {
	code, mayHaveRun := "error", false
	if e, ok := errors.AsType[*mcp.Error](err); ok {
		code = strconv.Itoa(e.Code)
	}
	if e, ok := errors.AsType[*hosterr.Error](err); ok {
		code, mayHaveRun = string(e.Code), e.MayHaveRun
	}
	b = rawjson.AppendQuote(append(b, `,"error":{"code":`...), code)
	b = append(c.member(b, "message", err.Error()), '}')
	return strconv.AppendBool(append(b, `,"mayHaveRun":`...), mayHaveRun)
}

// maxQuestions bounds the questions of a record, as the host does.
const maxQuestions = 64

func (c *encoder) appendQuestions(b, result []byte) []byte {
	requests, ok := rawjson.Get(result, "inputRequests")
	if !ok || rawjson.Kind(requests) != '{' {
		return b
	}
	b = append(b, `,"questions":[`...)
	n := 0
	for key, request := range rawjson.Members(requests) {
		if n++; n > maxQuestions {
			break
		}
		if n > 1 {
			b = append(b, ',')
		}
		b = rawjson.AppendQuote(append(b, `{"key":`...), c.text(string(key)))
		if rawjson.Kind(request) == '{' {
			b = c.member(b, "method", rawjson.GetString(request, "method"))
			if params, ok := rawjson.Get(request, "params"); ok {
				b = c.appendForm(append(b, `,"params":`...), params)
			}
		}
		b = append(b, '}')
	}
	return append(b, ']')
}
