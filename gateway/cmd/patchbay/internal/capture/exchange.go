// Package capture records the traffic between clients, the host and its servers, for the console.
//
// A [Ring] holds a summary of each [Exchange], and its frames while a [Watcher] is open. The
// sources are [Ring.Connect] for the messages and the process of a transport, and [Ring.Recorder]
// for the requests of callers. Secrets are replaced before a byte enters the ring.
package capture

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Hop is the part of the way on which an exchange was seen.
type Hop string

// Hops.
const (
	Downstream Hop = "downstream" // between a client and this program
	Upstream   Hop = "upstream"   // between this program and a server
	HTTP       Hop = "http"       // an HTTP request that carries no single message
	OAuth      Hop = "oauth"      // a step of a login
	Process    Hop = "process"    // the life of a server's process
)

// An Exchange summarizes a request, its response and all frames that belong to it. Texts of peers
// are masked and at most maxText bytes long. Durations count from Queued and are zero until the
// event.
type Exchange struct {
	ID    uint64 `json:"id"`             // consecutive, from 1
	Cause uint64 `json:"cause,omitzero"` // the exchange that made this program send the request, or 0
	Hop   Hop    `json:"hop"`

	Revision string `json:"revision,omitzero"` // of the protocol, as far as it is known
	Server   string `json:"server,omitzero"`
	Caller   string `json:"caller,omitzero"` // the name of the local user is empty
	Method   string `json:"method"`          // of the protocol, or of HTTP for the hops http and oauth
	Target   string `json:"target,omitzero"` // the tool, prompt, URI, URL or program
	Name     string `json:"name,omitzero"`   // the name of a caller's Target that the server uses
	Status   string `json:"status"`          // empty while the exchange is in progress; see [StatusOK]
	Trace    string `json:"trace,omitzero"`  // the trace id of a request with a trace context

	Queued    time.Time     `json:"queued"` // when the request arrived or was made
	Sent      time.Duration `json:"sent"`
	FirstByte time.Duration `json:"firstByte"`
	End       time.Duration `json:"end"`

	Bytes  int64 `json:"bytes"`  // of all frames
	Rounds int   `json:"rounds"` // 1, and 1 more for each question that the server asked
	Frames int   `json:"-"`      // more than the ring holds if it dropped the oldest frames
}

// Values of [Exchange.Status]. The status of an error ends with its code, such as "error -32602",
// and the status of an HTTP request is "http" with its code.
const (
	StatusOK        = "ok"
	StatusToolError = "tool error"
	StatusQuestion  = "question" // the server waits for an answer
	StatusCancelled = "cancelled"
	StatusRefused   = "refused" // the host did not send the request
	StatusFailed    = "failed"  // there was no response
)

// IsOver reports whether the exchange ended.
func (x *Exchange) IsOver() bool { return x.End > 0 }

// IsError reports whether the exchange ended without a successful response.
func (x *Exchange) IsError() bool {
	switch x.Status {
	case "", StatusOK, StatusQuestion:
		return false
	}
	return !strings.HasPrefix(x.Status, "http 2") && !strings.HasPrefix(x.Status, "http 3")
}

// A Kind is the kind of a frame.
type Kind string

// Kinds of frames.
const (
	Message  Kind = "message"  // a message of the protocol
	Header   Kind = "header"   // the first line and the headers of an HTTP request or response
	Body     Kind = "body"     // the public parts of a body of a login
	Stdout   Kind = "stdout"   // a line of standard output that is no message
	Stderr   Kind = "stderr"   // a line of standard error
	Decision Kind = "decision" // what the host decided about a request
)

// A Frame is a recorded part of an exchange. Its text is exact, except for secrets and the cut.
type Frame struct {
	Kind Kind      `json:"kind"`
	Sent bool      `json:"sent"` // towards the server
	Time time.Time `json:"time"`
	Size int       `json:"size"` // of the text in bytes, before masking and cutting
	Text string    `json:"text"` // at most maxFrame bytes

	before int // the earlier frames of the exchange, also frames that are not held
}

// A Line is a line that a server printed, or a log message of a server.
type Line struct {
	Server string
	Kind   Kind   // Stderr, Stdout, or Message for a log message
	Level  string // of a log message
	Text   string
}

// IsCut reports whether the text may be incomplete.
func (f *Frame) IsCut() bool { return f.Size > maxFrame }

const (
	// maxSummaries is about a day of a busy person's work; a summary has 128 bytes and shares
	// most texts, so that the summaries need 7 MiB.
	maxSummaries = 50_000
	// maxProcesses limits the processes that [Ring.Stderr] reads: more than most hosts run.
	maxProcesses = 50
	// maxBodies bounds the texts of all frames, in bytes: the console must fit beside a gateway on
	// a small machine.
	maxBodies = 64 << 20
	// maxFrame bounds the text of a frame, in bytes: a person does not read more, and a browser
	// still shows it at once.
	maxFrame = 256 << 10
	// frameCost is added to the size of each text, so that empty frames count as well.
	frameCost = 128
	// maxText bounds a text of a summary, in bytes.
	maxText = 128
	// firstFrames is the initial capacity for the frames of an exchange: a request and a response.
	firstFrames = 2
	// maxBuffer is the size of the largest reused buffer, in bytes. Most messages are smaller.
	maxBuffer = 64 << 10
	// cutMark ends a text that is cut.
	cutMark = "…"
)

// bounded returns the beginning of a text, as valid UTF-8.
func bounded(text string, most int) string {
	if len(text) <= most {
		if utf8.ValidString(text) { // checks eight bytes at a time
			return text
		}
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.ToValidUTF8(text[:most-len(cutMark)], "") + cutMark
}

// statusOf returns the status of a response to a request of a method.
func statusOf(method string, result []byte, err *mcp.Error) string {
	switch {
	case err != nil:
		return "error " + strconv.Itoa(err.Code)
	case mcp.RawResult(result).ResultType() == driver.ResultInputRequired:
		return StatusQuestion
	case method == driver.MethodToolsCall && (bytes.Contains(result, []byte("isError")) || hasEscape(result)):
		if raw, _ := rawjson.Get(result, "isError"); string(raw) == "true" {
			return StatusToolError
		}
	}
	return StatusOK
}

// hasEscape reports whether a name in a JSON text may be written with escapes. A search for the name and
// for escapes is faster than a search for the member, which most texts lack.
func hasEscape(text []byte) bool { return bytes.Contains(text, []byte(`\u`)) }

func httpStatus(code int) string { return "http " + strconv.Itoa(code) }
