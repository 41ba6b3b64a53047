package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Errors of questions, for [errors.Is].
var (
	// ErrDeclined is the error of a question that the user declined.
	ErrDeclined = errors.New("mcp: declined by the user")
	// ErrDismissed is the error of a question that the user dismissed, the action "cancel".
	ErrDismissed = errors.New("mcp: dismissed by the user")
)

// errWaiting is the error of a question that the client did not answer yet. The handler must
// return, with any error, and runs again with the answer.
var errWaiting = errors.New("mcp: waiting for the client's answer")

// errWrongAnswer marks an answer that does not match its question, which is asked again.
var errWrongAnswer = errors.New("mcp: the answer does not fit the question")

// A Question is a question to the client: a [FormQuestion], [URLQuestion], [SampleQuestion],
// [RootsQuestion] or [RawQuestion]. It must be made and asked within one run of a handler.
type Question struct {
	key     string
	request InputRequest
	lacks   func(*Request) error               // returns an error if the client lacks the means to answer
	accept  func(answer json.RawMessage) error // stores an answer
	err     error                              // set if the question is invalid
}

// Ask asks the client's user to fill in a form and returns the answer. It must be called in a
// handler of a tool, a prompt or a resource.
//
// T is a flat struct of strings, numbers, booleans, enums (types with a method Enum() []T) and
// slices of enums, with `jsonschema` tags for titles, ranges and defaults. T may also be a single
// value of such a type, which becomes a form with the field "value". The answer is valid for the
// form, and contains the defaults of fields that the user left out.
//
// Asking ends this execution (run) of the handler. While the question is open, Ask returns an
// unexported error, which the handler must return, as it is or wrapped; a result of the handler is
// discarded. The client receives the question, and after its response the handler runs again from
// its start. Then the same Ask returns the answer. The code before an Ask therefore runs more than
// once: it must be free of side effects or wrapped in [Once].
//
// The key identifies the question within the handler. It must differ from the keys of other
// questions and be the same in each run. An answer is valid for its question only: if the message
// or the form changes, the user is asked again. A message must not contain the time or a counter,
// unless the value comes from [Once].
//
// The error is [ErrDeclined] if the user refused, [ErrDismissed] if the user dismissed the
// question, and wraps [errors.ErrUnsupported] if the client cannot ask. A handler may treat these
// three; it must return every other error, because that may be the error of an open question. Forms
// must not ask for passwords or other secrets; use [AskURL]. The options may be nil.
//
// Spec: client/elicitation; basic/patterns/mrtr (2026-07-28).
func Ask[T any](ctx context.Context, key, message string, opts *AskOptions) (T, error) {
	var answer T
	err := AskAll(ctx, FormQuestion(key, message, &answer, opts))
	return answer, err
}

// AskAll asks several questions in one round trip; see [Ask]. Each answer is stored in the variable
// that its question points to. If the user declined some questions, the other answers are stored
// nevertheless, and the error joins the refusals.
//
// If the client cannot answer a question, AskAll asks no question and returns the error.
func AskAll(ctx context.Context, questions ...Question) error {
	c := callFrom(ctx)
	if c == nil || c.server == nil {
		return errors.New("mcp: questions can only be asked in a handler of a Server")
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

type input struct {
	used string // the request state of the call, once a OnceStore accepted it

	mu     sync.Mutex // guards the fields below
	begun  bool       // a handler was started
	open   bool       // questions may be asked: the method allows it and its handler runs
	target targetParams
	state  *inputState // nil if no question was asked, as in most calls
}

// An inputState holds the questions and answers of a call. The mutex of input guards it.
type inputState struct {
	resumed bool // state came from the client: answers belong to its questions
	state   state
	asked   map[string]InputRequest
	keys    map[string]digest // the questions of this run
	onces   map[string]bool   // the keys of Once in this run
	failed  error             // the error of the call, whatever the handler returns
}

// ensureState returns the state of a call, and creates it if needed. The caller holds the lock.
func (in *input) ensureState() *inputState {
	if in.state == nil {
		in.state = &inputState{}
	}
	return in.state
}

// ask stores the answer of each question, and records the questions without an answer.
func (c *call) ask(questions []Question) error {
	c.input.mu.Lock()
	defer c.input.mu.Unlock()
	if !c.input.open {
		return fmt.Errorf("mcp: %s cannot ask the client, or its handler has returned", c.req.Method)
	}
	for _, q := range questions {
		switch q.request.Method {
		case wire.MethodSamplingCreateMessage:
			c.warnDeprecated(wire.Sampling, "sampling")
		case wire.MethodRootsList:
			c.warnDeprecated(wire.Roots, "roots")
		}
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

// answer stores the answer of a question. The caller must hold the lock.
func (c *call) answer(q Question) error {
	t := c.input.ensureState()
	asked := q.request.digest()
	if before, used := t.keys[q.key]; used && before != asked {
		return c.misused("two different questions have the key %q: each question needs its own", q.key)
	}
	put(&t.keys, q.key, asked)
	raw, ok := c.input.find(q.key, asked)
	if !ok {
		if t.state.changed(q.key, asked) {
			c.server.log.WarnContext(c, "mcp: asking again: the message or form of the question has changed",
				"method", c.req.Method, "name", c.input.target.target, "key", q.key)
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

// misused ends the call with an error of its handler's author, and logs it. It requires the lock.
func (c *call) misused(format string, args ...any) error {
	err := Errorf(CodeInternalError, "%s %q: %s", c.req.Method, c.input.target.target, fmt.Sprintf(format, args...))
	c.server.log.ErrorContext(c, "mcp: invalid handler", "error", err.Message)
	c.input.ensureState().failed = err
	return err
}

// find returns the answer to a question from an earlier round or this round. If the client sent an
// answer without request state, although it was not asked, only the key relates the answer to a
// question.
func (in *input) find(key string, asked digest) (json.RawMessage, bool) {
	t := in.ensureState()
	if a, ok := t.state.Answers[key]; ok && a.Question == asked {
		return a.Answer, true
	}
	if pending, ok := t.state.Asked[key]; t.resumed && (!ok || pending != asked) {
		return nil, false
	}
	if !t.resumed && len(t.onces) > 0 {
		return nil, false // the results of Once differ from the results of the run that asked the client
	}
	return jsonscan.Get(in.target.retry.responses(), key)
}

func put[K comparable, V any](m *map[K]V, key K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = v
}

// Spec: basic/patterns/mrtr (2026-07-28), Error Handling.
func malformed(format string, args ...any) *Error {
	return Errorf(CodeInvalidParams, "params.inputResponses: "+format, args...)
}

// An unsupportedError is the error of a question that the client cannot be asked. A handler sees
// [errors.ErrUnsupported], and the client of a handler that returns it sees a protocol error.
type unsupportedError struct {
	what string
	wire *Error
}

func lacking(what, capability string) error {
	return &unsupportedError{what, driver.MissingClientCapability(json.RawMessage(capability))}
}

// inexpressible returns the error for a feature that the client's revision lacks.
func inexpressible(r *Request, what string) error {
	return &unsupportedError{what, Errorf(CodeInvalidRequest,
		"protocol revision %s has no %s, which this request needs", r.Revision(), what)}
}

func (e *unsupportedError) Error() string   { return "mcp: not supported by the client: " + e.what }
func (e *unsupportedError) Unwrap() []error { return []error{errors.ErrUnsupported, e.wire} }

// An InputRequiredResult is the result of a request that needs input from the client: the client
// sends the request again, with the answers. The server makes it from the questions that a handler
// asks with [Ask]. Middleware may also return an InputRequiredResult, for tools/call, prompts/get,
// resources/read and methods of extensions that allow it. It must then read inputResponses and
// requestState from the params of the next request.
//
// Spec: basic/patterns/mrtr (2026-07-28).
type InputRequiredResult struct {
	// InputRequests contains the questions by key. The answers use the same keys.
	InputRequests map[string]InputRequest `json:"inputRequests,omitempty"`
	// RequestState is returned unchanged with the answers. The client can read and change it, so it
	// must be encrypted or signed if anything depends on it.
	RequestState string `json:"requestState,omitzero"`
	Meta         `json:"-"`
}

// ResultType is "input_required".
func (*InputRequiredResult) ResultType() string { return driver.ResultInputRequired }

func (r *InputRequiredResult) appendFields(dst []byte) ([]byte, error) {
	if len(r.InputRequests) == 0 && r.RequestState == "" {
		return nil, errors.New("neither inputRequests nor requestState is set")
	}
	return appendMembers(dst, r)
}

// An InputRequest is a request of a server for input: elicitation, sampling or roots.
//
// Spec: schema InputRequest (2026-07-28).
type InputRequest struct {
	Method string          `json:"method"`          // such as "elicitation/create"
	Params json.RawMessage `json:"params,omitzero"` // a JSON object, such as an encoded [ElicitRequestParams]
}

type digest [16]byte

func digestOf(parts ...[]byte) (d digest) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
		h.Write([]byte{0}) // does not occur in JSON
	}
	copy(d[:], h.Sum(nil))
	return d
}

func (r InputRequest) digest() digest { return digestOf([]byte(r.Method), r.Params) }
