package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Outcomes of a question, to be told apart with [errors.Is]. A dismissed one gives [ErrCancelled].
var (
	// ErrDeclined is the error of a question that the user refused to answer.
	ErrDeclined = errors.New("mcp: declined by the user")
	// ErrUnsupported is the error of a question that cannot be put to the client: it did not declare the capability, or
	// its revision has no way to say it. Nothing was asked, and a handler may go on without the answer. Left
	// unhandled, it tells the client which capability is missing.
	ErrUnsupported = errors.New("mcp: not supported by the client")
)

// errWaiting is what a handler gets whose question is on its way. The handler returns, with whatever error, and runs
// again once the answer is there.
var errWaiting = errors.New("mcp: waiting for the client's answer")

// errWrongAnswer marks an answer of the right form that does not fit what was asked. It is asked again.
var errWrongAnswer = errors.New("mcp: the answer does not fit the question")

// A Question is something to ask the client: [FormQuestion], [URLQuestion], [SampleQuestion] or [RootsQuestion]. It is
// made within a run of a handler and asked in it.
type Question struct {
	key     string
	request InputRequest
	lacks   func(*Request) error               // the client's want of means to answer, or nil
	accept  func(answer json.RawMessage) error // hands an answer to whoever asked
	err     error                              // why this is no question
}

// Ask puts a form to the user and gives the answer, within a handler of a tool, a prompt or a resource.
//
// T is a flat struct of strings, numbers, booleans, enums (types with a method Enum() []T) and slices of enums, whose
// `jsonschema` tags say titles, ranges and defaults; or one such value by itself, which becomes a form with the
// single field "value". The user's answer has been checked against the form, and fields that were left out have their
// defaults.
//
// Asking ends the run. If the answer is not there yet, Ask returns an error that the handler returns in turn; the
// client gets the question, and the handler runs again from its start once the answer has come. Then the same
// Ask returns it. So what comes before an Ask runs more than once: keep it free of effects, or put it into [Once].
// Whatever a handler returns while a question is open is dropped.
//
// The key names the question within the handler and is the same in each run. An answer counts for the question that
// was asked: if message or form have changed since, the user is asked anew.
//
// The error is [ErrDeclined] or [ErrCancelled] if the user did not answer and [ErrUnsupported] if the client cannot
// ask. Forms never ask for passwords or other secrets: that is [AskURL]'s. The options may be nil.
//
// Spec: client/elicitation; basic/patterns/mrtr (2026-07-28).
func Ask[T any](ctx context.Context, key, message string, opts *AskOptions) (T, error) {
	var answer T
	err := AskAll(ctx, FormQuestion(key, message, &answer, opts))
	return answer, err
}

// AskAll asks several questions in one round trip, as [Ask] asks one. Each answer goes to where its question points. When
// all have come and some were refused, the others are still filled in, and the error holds the refusals.
//
// If the client cannot answer one of them, none is asked.
func AskAll(ctx context.Context, questions ...Question) error {
	c := callFrom(ctx)
	if c == nil {
		return errors.New("mcp: only a handler can ask the client")
	}
	for _, q := range questions {
		switch {
		case q.err != nil:
			return fmt.Errorf("mcp: question %q: %w", q.key, q.err)
		case q.key == "" || q.accept == nil:
			return errors.New("mcp: a question has no key")
		}
		if err := q.lacks(c.req); err != nil {
			return fmt.Errorf("question %q: %w", q.key, err)
		}
	}
	return c.ask(questions)
}

// input is what a call can ask of its client.
type input struct {
	mu     sync.Mutex // guards the fields below
	begun  bool       // a handler has run, or runs
	open   bool       // questions may be asked: the method is one that may, and its handler runs
	target targetParams
	state  *inputState // nil for none: most calls ask nothing
}

// A talk is what a call has asked of its client, and what the client has answered. The input's lock guards it.
type inputState struct {
	resumed bool // state is the client's: answers are for the questions that it names
	state   state
	asked   map[string]InputRequest
	keys    map[string]digest // the questions of this run
	onces   map[string]bool   // the keys of Once in this run
	failed  error             // what the call ends with, whatever the handler makes of it
}

// talking returns the talk of a call, a new one at need. The caller holds the lock.
func (in *input) ensureState() *inputState {
	if in.state == nil {
		in.state = &inputState{}
	}
	return in.state
}

// ask returns each question its answer, or records those that have none.
func (c *call) ask(questions []Question) error {
	c.input.mu.Lock()
	defer c.input.mu.Unlock()
	if !c.input.open {
		return fmt.Errorf("mcp: %s cannot ask the client, or its handler has returned", c.req.Method)
	}
	waiting := false
	var refused []error
	for _, q := range questions {
		err := c.answer(q)
		switch {
		case errors.Is(err, errWaiting):
			waiting = true
		case err != nil:
			refused = append(refused, fmt.Errorf("question %q: %w", q.key, err))
		}
	}
	switch {
	case waiting:
		return errWaiting
	case len(refused) == 1:
		return refused[0]
	}
	return errors.Join(refused...)
}

// answer looks for the answer to one question. The caller holds the lock.
func (c *call) answer(q Question) error {
	t := c.input.ensureState()
	asked := q.request.digest()
	if before, used := t.keys[q.key]; used && before != asked {
		t.failed = fmt.Errorf("mcp: two questions of one handler have the key %q", q.key)
		return t.failed
	}
	put(&t.keys, q.key, asked)
	raw, ok := c.input.find(q.key, asked)
	if !ok {
		if t.state.changed(q.key, asked) {
			c.server.log.WarnContext(c, "mcp: a question has changed since it was asked, and is asked anew", "key", q.key)
		}
		put(&t.asked, q.key, q.request)
		return errWaiting
	}
	err := q.accept(raw)
	if errors.Is(err, errWrongAnswer) {
		put(&t.asked, q.key, q.request)
		return errWaiting
	}
	if malformed := asError(err); malformed != nil {
		t.failed = malformed
		return malformed
	}
	put(&t.state.Answers, q.key, answered{Question: asked, Answer: raw})
	return err
}

// find returns the answer to a question: from an earlier round, or from this one. Answers that come with no state were
// volunteered, and nothing ties them to a question but the key.
func (in *input) find(key string, asked digest) (json.RawMessage, bool) {
	t := in.ensureState()
	if a, ok := t.state.Answers[key]; ok && a.Question == asked {
		return a.Answer, true
	}
	if pending, ok := t.state.Asked[key]; t.resumed && (!ok || pending != asked) {
		return nil, false
	}
	if !t.resumed && len(t.onces) > 0 {
		return nil, false // what was done once is not what the client was asked about: it did not bring the state of that
	}
	return jsonscan.Get(in.target.retry.responses(), key)
}

// put adds to a map that may not exist yet.
func put[K comparable, V any](m *map[K]V, key K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = v
}

// malformed returns the error for an answer that is not of the form which the protocol gives it.
//
// Spec: basic/patterns/mrtr (2026-07-28), Error Handling.
func malformed(format string, args ...any) *Error {
	return Errorf(CodeInvalidParams, "params.inputResponses: "+format, args...)
}

// An unsupportedError says what a client lacks. It is [ErrUnsupported] to the handler, and a protocol error to the
// client of a handler that passes it on.
type unsupportedError struct {
	what string
	wire *Error
}

// lacking returns the error for a capability that a client did not declare.
func lacking(what, capability string) error {
	return &unsupportedError{what, MissingCapability(json.RawMessage(capability))}
}

// inexpressible returns the error for what a client's revision does not have.
func inexpressible(r *Request, what string) error {
	return &unsupportedError{what, Errorf(CodeInvalidRequest, "protocol revision %s has no %s, which this request needs", r.Revision(), what)}
}

func (e *unsupportedError) Error() string   { return ErrUnsupported.Error() + ": " + e.what }
func (e *unsupportedError) Unwrap() []error { return []error{ErrUnsupported, e.wire} }

// An InputRequired is the result of a request that cannot be finished before the client has answered something: it
// sends the request again, with the answers. Servers make it of what handlers [Ask]. Middleware may also give one by
// hand, for the methods tools/call, prompts/get and resources/read and for those of extensions that say so, and then reads inputResponses and requestState from
// the params of the next request itself.
//
// Spec: basic/patterns/mrtr (2026-07-28).
type InputRequired struct {
	// InputRequests are the questions, by keys that the answers will have.
	InputRequests map[string]InputRequest `json:"inputRequests,omitempty"`
	// RequestState comes back unchanged with the answers. It has been in the hands of a client: what depends on it
	// needs a seal.
	RequestState string `json:"requestState,omitzero"`
	Meta         `json:"-"`
}

// ResultType is "input_required".
func (*InputRequired) ResultType() string { return ResultInputRequired }

func (r *InputRequired) appendFields(dst []byte) ([]byte, error) {
	if len(r.InputRequests) == 0 && r.RequestState == "" {
		return nil, errors.New("neither inputRequests nor requestState is set")
	}
	return appendMembers(dst, r)
}

// An InputRequest is one question of a server: an elicitation, a sampling or a request for roots.
//
// Spec: schema InputRequest (2026-07-28).
type InputRequest struct {
	Method string          `json:"method"`          // such as "elicitation/create"
	Params json.RawMessage `json:"params,omitzero"` // a JSON object, such as that of an [ElicitParams]
}

// A digest identifies a question.
type digest [16]byte

func digestOf(parts ...[]byte) (d digest) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
		h.Write([]byte{0}) // stands in no JSON text
	}
	copy(d[:], h.Sum(nil))
	return d
}

func (r InputRequest) digest() digest { return digestOf([]byte(r.Method), r.Params) }
