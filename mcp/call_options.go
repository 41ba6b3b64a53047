package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// CallOptions are how single requests of a [Client] differ from its others. The zero value is how all are.
type CallOptions struct {
	// Progress is told how far the server has come, note after note on a goroutine of the client's; no note begins after
	// the request has returned. Setting it asks the server for progress.
	Progress func(ProgressUpdate)
	// Timeout is how long the server may be silent: until the answer, or between notes of progress if Progress is set.
	// Default: that of the client.
	Timeout time.Duration
	// MaxTimeout is how long the request may take in all, whatever progress it makes. Default: that of the client.
	MaxTimeout time.Duration
	// LogLevel asks for the log messages of the request from this level on. Default: that of the client.
	LogLevel LogLevel
	// Meta is added to the `_meta` of the request. Keys that the protocol has a meaning for are refused, but for those of
	// trace context.
	Meta Meta
	// NoCache asks the server even if an answer is still fresh.
	NoCache bool
}

// A ProgressUpdate is one note of progress.
//
// Spec: basic/utilities/progress; schema ProgressNotificationParams.
type ProgressUpdate struct {
	Progress float64  `json:"progress"`         // how far it has come, in any unit; it only grows
	Total    *float64 `json:"total,omitzero"`   // how far there is to go; nil when unknown
	Message  string   `json:"message,omitzero"` // for people
}

type callOptionsKey struct{}

// WithCallOptions returns a context whose requests have these options. They replace all of those that ctx had.
func WithCallOptions(ctx context.Context, o CallOptions) context.Context {
	return context.WithValue(ctx, callOptionsKey{}, &o)
}

var noCallOptions CallOptions

func callOptionsFrom(ctx context.Context) *CallOptions {
	if o, ok := ctx.Value(callOptionsKey{}).(*CallOptions); ok {
		return o
	}
	return &noCallOptions
}

// limits returns the time limits of a request.
func (o *CallOptions) limits(client *ClientOptions) peer.TimeLimits {
	return peer.TimeLimits{
		Idle:  cmp.Or(o.Timeout, client.Timeout),
		Total: cmp.Or(o.MaxTimeout, max(client.MaxTimeout, o.Timeout)),
		Grace: client.InputTimeout,
	}
}

// checkMeta refuses what would contradict the envelope.
func (o *CallOptions) checkMeta() error {
	for key := range o.Meta {
		if key == wire.MetaProgressToken || wire.Latest().ReservesMeta(key) {
			return fmt.Errorf("mcp: CallOptions.Meta: the key %q belongs to the protocol", key)
		}
		if !wire.ValidMetaKey(key) {
			return fmt.Errorf("mcp: CallOptions.Meta: %q is no key of _meta", key)
		}
	}
	return nil
}

// A LogMessage is a log message of a server.
//
// Spec: server/utilities/logging; schema LoggingMessageNotificationParams.
type LogMessage struct {
	Level  LogLevel        `json:"level"`
	Logger string          `json:"logger,omitzero"` // the part of the server that speaks
	Data   json.RawMessage `json:"data"`            // any JSON: text, or an object with fields
}

// Text returns the data as a line: the text itself if it is one, or the message of an object that has one, or JSON.
func (m *LogMessage) Text() string {
	var text string
	if jsonv2.Unmarshal(m.Data, &text) == nil {
		return text
	}
	var object struct {
		Msg     string `json:"msg"`
		Message string `json:"message"`
	}
	if jsonv2.Unmarshal(m.Data, &object) == nil && object.Msg+object.Message != "" {
		return strings.TrimSpace(object.Msg + object.Message)
	}
	return string(m.Data)
}
