package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Detached continues a call without its client, which may be gone, as a task does. It provides
// the answers to the handler's questions, and stores the handler's state. Only one run of the call
// may use it at a time; between two runs its fields may be read, stored and changed.
type Detached struct {
	// State is the state of the handler between two runs: answers, results of [Once], and progress.
	// [Server.ServeMCP] sets it if the result is an [*InputRequiredResult], whose RequestState is
	// then empty. It is a JSON object and never expires. It contains the answers of users and must
	// not be shown to clients. It is nil before the first run.
	State json.RawMessage
	// Responses contains the client's answers, by the keys of the InputRequiredResult of the
	// previous run. The handler asks again for a missing answer.
	Responses map[string]json.RawMessage
	// Progress receives each step that the handler reports with [Progress], in order, whether or
	// not the client asked for progress. It is not called after the end of the run. It must not
	// block for long, and must not call [Progress]. It may be nil.
	Progress func(done, total float64, message string)

	err error // of an invalid request state
}

// Detach returns a request that continues the call of r without its client, as a task does. It does
// not end with ctx. It contains the method, params (without inputResponses and requestState),
// revision, capabilities and principal of r, and no stream: log messages are dropped. It shares no
// memory with r.
//
// If d.State is nil and ctx is the context of this call, the answers and results of [Once] so far
// become d.State and d.Responses, so that the handler continues from there. A request that was
// stored and recreated with [NewRequest] starts without them.
//
// Serve the request with [Server.ServeMCP] and a context that carries the principal (see
// [WithPrincipal]) and is not derived from ctx. As long as the result is an [*InputRequiredResult],
// it may be served again, with Responses. [ServerOptions.MaxInFlight] does not count it: the caller
// must limit such calls. All middleware sees each run, and recognizes it by [Request.Detached]. If
// the client sent an invalid request state, the first run returns the error for that. d may be nil.
func (r *Request) Detach(ctx context.Context, d *Detached) *Request {
	d = cmp.Or(d, &Detached{})
	params := bytes.Clone(r.Params)
	if jsonscan.IsObject(params) {
		params = jsonscan.Without(r.Params, "inputResponses", "requestState")
	}
	n := &Request{Method: r.Method, ID: r.ID, Params: params, Principal: r.Principal,
		detached: d}
	n.env.Envelope = r.env.Clone()
	if c := callFrom(ctx); c != nil && c.isOf(r) && d.State == nil {
		d.takeOver(c)
	}
	if r.server != nil {
		if o, ok := r.server.opts.Observer.(interface {
			Detached(context.Context, *Request)
		}); ok {
			o.Detached(ctx, n)
		}
	}
	return n
}

// isOf reports whether r is the request of the call, or a copy made by middleware. The context may
// belong to another call, such as a call that answers a detached call.
func (c *call) isOf(r *Request) bool {
	return c.req == r || r.Method == c.req.Method && len(r.Params) > 0 && len(r.Params) == len(c.req.Params) &&
		&r.Params[0] == &c.req.Params[0]
}

// Detached returns the Detached that continues the call, or nil for a request of a client.
func (r *Request) Detached() *Detached { return r.detached }

func (d *Detached) takeOver(c *call) {
	in := &c.input
	in.mu.Lock()
	defer in.mu.Unlock()
	target, before := in.target, state{}
	if in.state != nil {
		before = in.state.state
	}
	if !in.begun { // middleware detaches the call before the handler runs
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

func (s *state) empty() bool {
	return s.Progress == nil && len(s.Asked) == 0 && len(s.Answers) == 0 && len(s.Once) == 0
}

func (d *Detached) keep(next *state) error {
	next.Expires = 0
	plain, err := jsonv2.Marshal(next, deterministic)
	if err != nil {
		return fmt.Errorf("state of a detached call: %w", err)
	}
	if len(plain) > maxStoredState {
		return fmt.Errorf("state of a detached call: %d bytes, want at most %d", len(plain), maxStoredState)
	}
	d.State = plain
	return nil
}

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

// responses returns the answers in the form in which a client sends them, or nil.
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

func (d *Detached) report(done, total float64, message string) {
	if math.IsNaN(total) || math.IsInf(total, 0) || total < 0 {
		total = 0
	}
	d.Progress(done, total, message)
}
