package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// defaultMaxRounds limits how often a request may require input: enough for a form in several
	// steps.
	defaultMaxRounds = 16
	// defaultInputTimeout is how long the user may take in total.
	defaultInputTimeout = 10 * time.Minute
	// maxInputRequests limits the input requests of a round.
	maxInputRequests = 64
	// stateOnlyDelay is the first delay of a retry that the server requested without input
	// requests. It doubles with each further retry.
	stateOnlyDelay = 100 * time.Millisecond
)

// questions answers the questions of the server with the functions of the options.
type questions struct {
	opts       *ClientOptions
	via        driver.Carrier              // of the transport
	connection *atomic.Pointer[connection] // of the client
	requests   *requestSet                 // pauses its timeouts while a question is open
	forwards   *forward.Table              // receives the questions of forwarded requests

	pages        peer.RecentIDs   // of pages that the user was asked to visit; other completions are ignored
	perMinute    peer.MinuteLimit // so that a hostile server cannot flood the user
	deprecations deprecations
}

type inputRounds struct {
	spent     time.Duration // on input so far
	stateOnly int           // consecutive rounds without input requests
}

// answerInput responds to input requests, and returns the members to send the request again with.
// Spec: basic/patterns/mrtr (2026-07-28), Client Requirements.
func (q *questions) answerInput(ctx context.Context, in *inputRounds, method string, raw RawResult) ([]byte, error) {
	if m, core := wire.Latest().Method(method); core && !m.MayAskInput {
		// Methods of extensions may.
		return nil, invalidResult(method, errors.New("the method does not allow input requests"))
	}
	requests, hasRequests := jsonscan.Get(raw, "inputRequests")
	state, hasState := jsonscan.Get(raw, "requestState")
	switch {
	case !hasRequests && !hasState:
		return nil, invalidResult(method, errors.New("input_required without inputRequests and requestState"))
	case hasRequests && jsonscan.Kind(requests) != '{':
		return nil, invalidResult(method, errors.New("invalid inputRequests: must be an object"))
	case hasState && jsonscan.Kind(state) != '"':
		return nil, invalidResult(method, errors.New("invalid requestState: must be a string"))
	case len(state) > maxRequestState+2:
		return nil, invalidResult(method, fmt.Errorf("invalid requestState: more than %d bytes", maxRequestState))
	}
	began := time.Now()
	tooLate := fmt.Errorf("the input requests took too long: %w", ErrTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, q.opts.InputTimeout-in.spent, tooLate)
	defer cancel()
	var members []byte
	if len(requests) == 0 || string(requests) == "{}" {
		if err := sleep(ctx, stateOnlyDelay<<min(in.stateOnly, 6)); err != nil {
			return nil, err
		}
		in.stateOnly++
	} else {
		responses, err := q.answerAll(ctx, method, requests)
		if err != nil {
			return nil, err
		}
		members = append(append(members, `,"inputResponses":`...), responses...)
		in.stateOnly = 0
	}
	in.spent += time.Since(began)
	if hasState {
		members = append(append(members, `,"requestState":`...), state...)
	}
	return members, nil
}

// answerAll handles the input requests in sequence, because there is a single user. An error of an
// input request fails the whole request, because the server would only repeat it.
func (q *questions) answerAll(ctx context.Context, method string, requests []byte) ([]byte, error) {
	b := []byte{'{'}
	n := 0
	for key, value := range jsonscan.Members(requests) {
		if n++; n > maxInputRequests {
			return nil, invalidResult(method, fmt.Errorf("more than %d input requests", maxInputRequests))
		}
		name, _ := jsonscan.Get(value, "method")
		inputMethod, err := jsonscan.Unquote(name)
		if err != nil {
			return nil, invalidResult(method, fmt.Errorf("invalid input request %.64q: method is missing", key))
		}
		params, _ := jsonscan.Get(value, "params")
		answer, err := q.answer(ctx, inputMethod, params)
		if err != nil {
			return nil, inputError(method, inputMethod, err)
		}
		if n > 1 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendQuote(b, string(key)), ':')
		b = append(b, answer...)
	}
	return append(b, '}'), nil
}

// inputError returns the error of a request whose input request failed. It wraps no [*Error], which
// would look like the response of the server.
func inputError(method, asked string, err error) error {
	format := "mcp: %s: input request %.64s: %w"
	var fault *Error
	switch {
	case !errors.As(err, &fault):
		return fmt.Errorf(format, method, asked, err)
	case errors.Is(err, errInvalidInputRequest):
		return invalidResult(method, fmt.Errorf("invalid input request %.64s: %s", asked, fault.Message))
	}
	return fmt.Errorf(format, method, asked, errors.New(err.Error()))
}

// errInvalidInputRequest is within the error for an input request that violates the protocol.
var errInvalidInputRequest = errors.New("invalid input request")

// invalidInputRequest returns that error. A server of a session gets the code and the message.
func invalidInputRequest(code int, format string, args ...any) error {
	return fmt.Errorf("%w: %w", errInvalidInputRequest, Errorf(code, format, args...))
}

// answerDirect responds to a request of a server of the session era. Errors that the server must
// not see are logged.
func (q *questions) answerDirect(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error) {
	if q.opts.ForwardInput {
		return q.forwards.Ask(ctx, method, params)
	}
	return q.answerHere(ctx, method, params, q.answer)
}

// answerHere responds with the functions of the options.
func (q *questions) answerHere(
	ctx context.Context, method string, params json.RawMessage, answer answerFunc,
) (json.RawMessage, *Error) {
	q.requests.beginQuestion()
	defer q.requests.endQuestion()
	ctx, cancel := context.WithTimeoutCause(ctx, q.opts.InputTimeout, ErrTimeout)
	defer cancel()
	raw, err := answer(ctx, method, params)
	if err == nil {
		return raw, nil
	}
	if e := asError(err); e != nil {
		return nil, e
	}
	q.opts.Logger.WarnContext(ctx, "mcp: input request failed, sending the server an internal error",
		"method", method, "error", err)
	return nil, errInternal
}

// answerDefault responds to a question that belongs to no forwarded request.
func (q *questions) answerDefault(ctx context.Context, method string, params json.RawMessage) (
	_ json.RawMessage, _ *Error, ok bool,
) {
	if !q.answersHere(method) {
		return nil, nil, false
	}
	raw, err := q.answerHere(ctx, method, params, q.answerWith) // within answerBy
	return raw, err, true
}

// answersHere reports whether the options contain a function for an input request.
func (q *questions) answersHere(method string) bool {
	switch method {
	case wire.MethodElicitationCreate:
		return q.opts.Elicit != nil || q.opts.ElicitURL != nil
	case wire.MethodSamplingCreateMessage:
		return q.opts.Sample != nil
	}
	return method == wire.MethodRootsList && q.opts.Roots != nil
}

// answer calls the function of the options that handles an input request. The error wraps
// errInvalidInputRequest if the server violates the protocol.
func (q *questions) answer(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return q.answerBy(ctx, method, params, q.answerWith)
}

func (q *questions) answerWith(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	switch {
	case !q.answersHere(method):
		return nil, invalidInputRequest(CodeMethodNotFound, "method not found: %.128q", method)
	case method == wire.MethodElicitationCreate:
		return q.answerElicitation(ctx, params)
	case method == wire.MethodSamplingCreateMessage:
		return q.answerSampling(ctx, params)
	}
	return q.answerRoots(ctx)
}

// Spec: client/elicitation (2026-07-28).
func (q *questions) answerElicitation(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	if !q.perMinute.Allow(time.Now(), float64(q.opts.ElicitationsPerMinute)) {
		return nil, wire.Busy("too many questions to the user")
	}
	var p ElicitRequestParams
	if err := jsonv2.Unmarshal(params, &p); err != nil {
		return nil, invalidInputRequest(CodeInvalidParams, "invalid params of elicitation/create")
	}
	switch {
	case p.Mode == modeURL && q.opts.ElicitURL != nil:
		page, err := checkPage(p.URL)
		if err != nil {
			return nil, invalidInputRequest(CodeInvalidParams, "%v", err)
		}
		p.URL = page
		q.pages.Add(p.ElicitationID)
		r, err := q.opts.ElicitURL(ctx, &p)
		err = checkElicited("ElicitURL", r, err)
		if err != nil || r.Action != ElicitAccept {
			q.pages.Remove(p.ElicitationID)
		}
		if err != nil {
			return nil, err
		}
		return schema.Encode(ElicitResult{Action: r.Action})
	case (p.Mode == "" || p.Mode == modeForm) && q.opts.Elicit != nil:
		p.Mode = modeForm
		return q.answerForm(ctx, &p)
	}
	return nil, invalidInputRequest(CodeInvalidParams, "invalid mode %.64q: the client did not declare it", p.Mode)
}

// checkElicited returns an error if a function of the options returned an invalid result.
func checkElicited(function string, r *ElicitResult, err error) error {
	switch {
	case err != nil:
		return err
	case r == nil:
		return fmt.Errorf("ClientOptions.%s returned neither a result nor an error", function)
	case r.Action != ElicitAccept && r.Action != ElicitDecline && r.Action != ElicitCancel:
		return fmt.Errorf("ClientOptions.%s returned the invalid action %q", function, r.Action)
	}
	return nil
}

// answerForm calls Elicit, adds the defaults of the form to the content and validates it.
func (q *questions) answerForm(ctx context.Context, p *ElicitRequestParams) (json.RawMessage, error) {
	form, err := schema.Compile(p.RequestedSchema)
	if err != nil {
		return nil, invalidInputRequest(CodeInvalidParams, "requestedSchema: %v", err)
	}
	if bytes.Contains(p.RequestedSchema, []byte(`"enumNames"`)) {
		q.warnDeprecated(ctx, wire.ElicitationEnumNames, "enumNames")
	}
	r, err := q.opts.Elicit(ctx, p)
	if err := checkElicited("Elicit", r, err); err != nil {
		return nil, err
	}
	if r.Action != ElicitAccept {
		return schema.Encode(ElicitResult{Action: r.Action})
	}
	content := r.Content
	if len(content) == 0 {
		content = json.RawMessage("{}")
	}
	if err := jsonscan.Valid(content, jsonscan.Limits{}); err != nil || jsonscan.Kind(content) != '{' {
		return nil, fmt.Errorf("invalid form content %.64q: must be a JSON object", []byte(content))
	}
	content = form.ApplyDefaults(content)
	if err := form.Validate(content); err != nil {
		return nil, fmt.Errorf("invalid form content: %w", err)
	}
	return schema.Encode(ElicitResult{Action: ElicitAccept, Content: content})
}

func (q *questions) warnDeprecated(ctx context.Context, f wire.Feature, name string) {
	if conn := q.connection.Load(); conn != nil {
		q.deprecations.log(ctx, q.opts.Logger, slog.LevelInfo, conn.revision, f, name)
	}
}

// Spec: client/roots (2026-07-28).
func (q *questions) answerRoots(ctx context.Context) (json.RawMessage, error) {
	q.warnDeprecated(ctx, wire.Roots, "roots")
	roots, err := q.opts.Roots(ctx)
	if err != nil {
		return nil, err
	}
	for i, r := range roots {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("ClientOptions.Roots returned an invalid root %d: %w", i, err)
		}
	}
	return schema.Encode(map[string][]Root{"roots": append([]Root{}, roots...)})
}

// Spec: client/sampling (2026-07-28).
func (q *questions) answerSampling(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var p CreateMessageParams
	if err := jsonv2.Unmarshal(params, &p); err != nil {
		return nil, invalidInputRequest(CodeInvalidParams, "invalid params of sampling/createMessage: %v", err)
	}
	if p.usesTools() && !q.opts.SampleTools {
		return nil, invalidInputRequest(CodeInvalidParams, "the client did not declare sampling with tools")
	}
	if err := p.check(); err != nil {
		return nil, invalidInputRequest(CodeInvalidParams, "invalid params of sampling/createMessage: %v", err)
	}
	q.warnDeprecated(ctx, wire.Sampling, "sampling")
	if p.IncludeContext != "" && p.IncludeContext != contextNone {
		q.warnDeprecated(ctx, wire.SamplingContext, "includeContext")
	}
	r, err := q.opts.Sample(ctx, &p)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, errors.New("ClientOptions.Sample returned neither a result nor an error")
	}
	answer := *r
	answer.Role = cmp.Or(answer.Role, RoleAssistant)
	return schema.Encode(answer)
}

// elicitationCompleted calls ElicitationComplete for a page that the user was asked to visit.
func (q *questions) elicitationCompleted(ctx context.Context, params json.RawMessage) {
	var p struct {
		ElicitationID string `json:"elicitationId"`
	}
	if q.opts.ElicitationComplete == nil || jsonv2.Unmarshal(params, &p) != nil || !q.pages.Remove(p.ElicitationID) {
		return
	}
	q.opts.ElicitationComplete(ctx, p.ElicitationID)
}
