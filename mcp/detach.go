package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Detached is what carries a call on in place of its client, which may be gone: a task, say. It answers what the handler
// asks, and keeps what the handler has to remember meanwhile. One run of the call uses it at a time; between two runs
// its fields may be read, stored and changed.
type Detached struct {
	// State is what the handler has to remember from one run to the next: the answers so far, what [Once] gave, how far
	// the progress was told. [Server.ServeMCP] sets it when the result is an [*InputRequired], whose RequestState is
	// empty. It is a JSON object, never expires, and is shown to no client: it holds what users have answered. Nil is the
	// first run.
	State json.RawMessage
	// Responses are the client's answers, by the keys of the InputRequired of the run before. Those that are missing are
	// asked for again.
	Responses map[string]json.RawMessage
	// Progress takes what the handler tells with [Progress], whether the client has asked for it or not: each step, one
	// after the other, none after the run has ended. It must not block for long, nor call [Progress] itself. Nil takes
	// nothing.
	Progress func(done, total float64, message string)

	err error // why the answers so far are not to be had
}

// Detach returns a request for the same call that outlives ctx and its client. It has the method, the params (without
// inputResponses and requestState), the envelope and the principal of r, and no stream: log messages are dropped. It
// shares no memory with r.
//
// If d.State is nil, what the call of ctx has been answered so far, by the client and by [Once], becomes d.State and
// d.Responses, so that its handler goes on from there. That is nothing where ctx is not the context of this very call, as
// for a request that was stored and put together anew with [NewRequest].
//
// Serve it with [Server.ServeMCP], with a context that carries the principal (see [WithPrincipal]) and is not derived from
// ctx; it may be served again, with Responses, for as long as the result is an [*InputRequired]. It does not count in
// [ServerOptions.MaxInFlight]: whoever detaches calls bounds them. All middleware sees each run, and tells them from a
// client's own requests with [Request.Detached]. If the client has sent a state that is not valid, the first run ends
// with the error for that.
//
// The d may be nil.
func (r *Request) Detach(ctx context.Context, d *Detached) *Request {
	if d == nil {
		d = &Detached{}
	}
	n := &Request{Method: r.Method, ID: r.ID, Params: withoutAnswers(r.Params), Principal: r.Principal, env: r.env.Clone(), detached: d}
	if c := callFrom(ctx); c != nil && c.isOf(r) && d.State == nil {
		d.takeOver(c)
	}
	return n
}

// isOf reports whether r is the request of the call, or a copy that middleware made of it. A context may be that of another
// one, such as the answer to a question of a call that was detached before.
func (c *call) isOf(r *Request) bool {
	return c.req == r || r.Method == c.req.Method && len(r.Params) > 0 && len(r.Params) == len(c.req.Params) && &r.Params[0] == &c.req.Params[0]
}

// Detached returns what carries the call on in place of its client; nil for a client's own request.
func (r *Request) Detached() *Detached { return r.detached }

// withoutAnswers returns a copy of the params of a request that leaves out what belongs to one round.
func withoutAnswers(params json.RawMessage) json.RawMessage {
	if jsonscan.Kind(params) != '{' {
		return bytes.Clone(params)
	}
	b := append(make([]byte, 0, len(params)), '{')
	for key, value := range jsonscan.Members(params) {
		if k := string(key); k == "inputResponses" || k == "requestState" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jsonscan.AppendQuote(b, string(key)), ':'), value...)
	}
	return append(b, '}')
}

// takeOver takes up what a call has been answered so far.
func (d *Detached) takeOver(c *call) {
	in := &c.input
	in.mu.Lock()
	defer in.mu.Unlock()
	target, before := in.target, state{}
	if in.state != nil {
		before = in.state.state
	}
	if !in.begun { // it is middleware that detaches, ahead of the handler
		method, _ := wire.Latest().Method(c.req.Method)
		if !method.MayAskInput {
			return
		}
		var opened *state
		if target, d.err = parseTarget(c.req, method.NameParam); d.err == nil {
			opened, d.err = c.stateBefore(target)
		}
		if opened != nil {
			before = *opened
		}
	}
	if told := c.progress.told(); told != nil {
		before.Progress = told
	}
	if d.err == nil && !before.empty() {
		d.err = d.keep(&before)
	}
	if d.Responses == nil {
		for key, answer := range jsonscan.Members(target.retry.responses()) {
			put(&d.Responses, string(key), json.RawMessage(bytes.Clone(answer)))
		}
	}
}

// empty reports whether there is nothing to remember.
func (s *state) empty() bool {
	return s.Progress == nil && len(s.Asked) == 0 && len(s.Answers) == 0 && len(s.Once) == 0
}

// keep sets what the next run is to remember.
func (d *Detached) keep(next *state) error {
	next.Expires = 0
	plain, err := jsonv2.Marshal(next, deterministic)
	if err != nil {
		return fmt.Errorf("state of a detached call: %w", err)
	}
	if len(plain) > maxStoredState {
		return fmt.Errorf("state of a detached call: %d bytes, at most %d are kept: ask for less", len(plain), maxStoredState)
	}
	d.State = plain
	return nil
}

// state returns what the run before has left, nil for none.
func (d *Detached) state() (*state, error) {
	if d.err != nil || d.State == nil {
		return nil, d.err
	}
	var before state
	if err := jsonv2.Unmarshal(d.State, &before); err != nil {
		return nil, fmt.Errorf("state of a detached call: %w", err)
	}
	return &before, nil
}

// responses returns the answers in the form in which a client sends them, nil for none.
func (d *Detached) responses() (json.RawMessage, error) {
	if len(d.Responses) == 0 {
		return nil, nil
	}
	raw, err := jsonv2.Marshal(d.Responses, deterministic)
	if err != nil {
		return nil, fmt.Errorf("responses of a detached call: %w", err)
	}
	return raw, nil
}

// tell hands on a step of progress.
func (d *Detached) tell(done, total float64, message string) {
	if math.IsNaN(total) || math.IsInf(total, 0) || total < 0 {
		total = 0
	}
	d.Progress(done, total, message)
}
