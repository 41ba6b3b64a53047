package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// defaultMaxRounds is how many times a request may ask: a long form in several steps, and some more.
	defaultMaxRounds = 16
	// defaultInputTimeout is how long a user may think, in all.
	defaultInputTimeout = 10 * time.Minute
	// maxInputRequests is the number of questions of one round; a user would not look at more.
	maxInputRequests = 64
	// stateOnlyPause is how long the client waits before it tries again because the server asks for nothing but that.
	stateOnlyPause = 100 * time.Millisecond
)

// answering is what has been spent on the questions of one request.
type answering struct {
	asked time.Duration // spent so far
	bare  int           // rounds without questions, one after the other
}

// answerInput answers the questions of an input_required result. It gives the members that the request is sent again with.
//
// Spec: basic/patterns/mrtr (2026-07-28), Client Requirements.
func (c *Client) answerInput(ctx context.Context, in *answering, method string, raw RawResult) ([]byte, error) {
	if m, core := wire.Latest().Method(method); core && !m.MayAskInput {
		return nil, c.invalid(method, errors.New("it asks for input")) // an extension's method may, by the rules of that
	}
	requests, asks := jsonscan.Get(raw, "inputRequests")
	state, keeps := jsonscan.Get(raw, "requestState")
	switch {
	case !asks && !keeps:
		return nil, c.invalid(method, errors.New("it asks for input without inputRequests and requestState"))
	case asks && jsonscan.Kind(requests) != '{':
		return nil, c.invalid(method, errors.New("its inputRequests are no object"))
	case keeps && jsonscan.Kind(state) != '"':
		return nil, c.invalid(method, errors.New("its requestState is no string"))
	case len(state) > maxRequestState+2:
		return nil, c.invalid(method, fmt.Errorf("its requestState has more than %d bytes", maxRequestState))
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.InputTimeout-in.asked, fmt.Errorf("the questions took too long: %w", ErrTimeout))
	defer cancel()
	var members []byte
	if empty := len(requests) == 0 || string(requests) == "{}"; empty {
		if err := in.pause(ctx); err != nil {
			return nil, err
		}
	} else {
		responses, err := c.answerAll(ctx, method, requests)
		if err != nil {
			return nil, err
		}
		members = append(append(members, `,"inputResponses":`...), responses...)
		in.bare = 0
	}
	in.asked += time.Since(began)
	if keeps {
		members = append(append(members, `,"requestState":`...), state...)
	}
	return members, nil
}

// pause waits before a request is repeated for the server's sake alone, longer each time.
func (in *answering) pause(ctx context.Context) error {
	timer := time.NewTimer(stateOnlyPause << in.bare)
	defer timer.Stop()
	in.bare = min(in.bare+1, 6)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answerAll asks one question after the other: there is one user. A question that cannot be answered ends the request,
// since the server would only ask again.
func (c *Client) answerAll(ctx context.Context, method string, requests []byte) ([]byte, error) {
	b := []byte{'{'}
	n := 0
	for key, value := range jsonscan.Members(requests) {
		if n++; n > maxInputRequests {
			return nil, c.invalid(method, fmt.Errorf("it asks more than %d questions", maxInputRequests))
		}
		name, _ := jsonscan.Get(value, "method")
		asked, err := jsonscan.Unquote(name)
		if err != nil {
			return nil, c.invalid(method, fmt.Errorf("its input request %.64q has no method", key))
		}
		params, _ := jsonscan.Get(value, "params")
		answer, err := c.answer(ctx, asked, params)
		if err != nil {
			return nil, c.notAnswered(method, asked, err)
		}
		if n > 1 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendQuote(b, string(key)), ':')
		b = append(b, answer...)
	}
	return append(b, '}'), nil
}

// notAnswered is the error of a request whose question asked has no answer. An [*Error] in it would be taken for what the
// server says of the request.
func (c *Client) notAnswered(method, asked string, err error) error {
	format := "mcp: %s: the server's %.64s is not answered: %w"
	var fault *Error
	switch {
	case !errors.As(err, &fault):
		return fmt.Errorf(format, method, asked, err)
	case errors.Is(err, errWronglyAsked):
		return c.invalid(method, fmt.Errorf("its %.64s: %s", asked, fault.Message))
	}
	return fmt.Errorf(format, method, asked, errors.New(err.Error()))
}

// errWronglyAsked is within the error for a question that the server may not ask, or not so.
var errWronglyAsked = errors.New("the server must not ask this")

// wronglyAsked returns that error; the server is told the code and the message where it can be.
func wronglyAsked(code int, format string, args ...any) error {
	return fmt.Errorf("%w: %w", errWronglyAsked, Errorf(code, format, args...))
}

// answerDirect answers a question that is a request of its own, as servers of older revisions send it. What the server may
// not know is logged.
func (c *Client) answerDirect(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error) {
	c.requests.beginQuestion()
	defer c.requests.endQuestion()
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.InputTimeout, ErrTimeout)
	defer cancel()
	raw, err := c.answer(ctx, method, params)
	if err == nil {
		return raw, nil
	}
	if e := asError(err); e != nil {
		return nil, e
	}
	c.opts.Logger.WarnContext(ctx, "mcp: question of the server is not answered", "method", method, "error", err)
	return nil, errInternal
}

// answer has one of the caller's functions answer a question of the server. The error is
// [errWronglyAsked] if it is the server's fault.
func (c *Client) answer(ctx context.Context, method string, params json.RawMessage) (answer json.RawMessage, err error) {
	defer recovered(ctx, c.opts.Logger, method, &err)
	switch {
	case method == wire.MethodElicitationCreate && c.caps.Elicitation != nil:
		return c.answerElicitation(ctx, params)
	case method == wire.MethodSamplingCreateMessage && c.opts.Sample != nil:
		return c.answerSampling(ctx, params)
	case method == wire.MethodRootsList && c.opts.Roots != nil:
		roots, err := c.opts.Roots(ctx)
		if err != nil {
			return nil, err
		}
		return jsonv2.Marshal(map[string][]Root{"roots": append([]Root{}, roots...)}, deterministic)
	}
	return nil, wronglyAsked(CodeMethodNotFound, "method not found: %.128q", method)
}

// answerElicitation asks the user.
//
// Spec: client/elicitation (2026-07-28).
func (c *Client) answerElicitation(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var p ElicitParams
	if err := jsonv2.Unmarshal(params, &p); err != nil {
		return nil, wronglyAsked(CodeInvalidParams, "the params of an elicitation cannot be read")
	}
	switch {
	case p.Mode == modeURL && c.opts.ElicitURL != nil:
		if err := checkPage(p.URL); err != nil {
			return nil, wronglyAsked(CodeInvalidParams, "%v", err)
		}
		r, err := c.opts.ElicitURL(ctx, &p)
		if err := checkElicited("ElicitURL", r, err); err != nil {
			return nil, err
		}
		return jsonv2.Marshal(ElicitResult{Action: r.Action}, deterministic)
	case (p.Mode == "" || p.Mode == modeForm) && c.opts.Elicit != nil:
		p.Mode = modeForm
		return c.answerForm(ctx, &p)
	}
	return nil, wronglyAsked(CodeInvalidParams, "the mode %.64q of elicitation was not declared", p.Mode)
}

// checkElicited says what is wrong with what one of the caller's functions returned.
func checkElicited(function string, r *ElicitResult, err error) error {
	switch {
	case err != nil:
		return err
	case r == nil:
		return fmt.Errorf("ClientOptions.%s returned neither a result nor an error", function)
	case r.Action != ElicitAccept && r.Action != ElicitDecline && r.Action != ElicitCancel:
		return fmt.Errorf("ClientOptions.%s returned the action %q", function, r.Action)
	}
	return nil
}

// answerForm has the user fill in a form, completes what was left out and checks it.
func (c *Client) answerForm(ctx context.Context, p *ElicitParams) (json.RawMessage, error) {
	form, err := schema.Compile(p.RequestedSchema)
	if err != nil {
		return nil, wronglyAsked(CodeInvalidParams, "requestedSchema: %v", err)
	}
	r, err := c.opts.Elicit(ctx, p)
	if err := checkElicited("Elicit", r, err); err != nil {
		return nil, err
	}
	if r.Action != ElicitAccept {
		return jsonv2.Marshal(ElicitResult{Action: r.Action}, deterministic)
	}
	content := r.Content
	if len(content) == 0 {
		content = json.RawMessage("{}")
	}
	if err := jsonscan.Valid(content, jsonscan.Limits{}); err != nil || jsonscan.Kind(content) != '{' {
		return nil, fmt.Errorf("the content of the form is no JSON object: %.64q", []byte(content))
	}
	content = form.ApplyDefaults(content)
	if err := form.Validate(content); err != nil {
		return nil, fmt.Errorf("the content of the form is not what was asked for: %w", err)
	}
	return jsonv2.Marshal(ElicitResult{Action: ElicitAccept, Content: content}, deterministic)
}

// answerSampling has the model continue a conversation.
//
// Spec: client/sampling (2026-07-28).
func (c *Client) answerSampling(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var p SampleParams
	if err := jsonv2.Unmarshal(params, &p); err != nil {
		return nil, wronglyAsked(CodeInvalidParams, "the params of sampling cannot be read: %v", err)
	}
	if p.usesTools() && !c.opts.SampleTools {
		return nil, wronglyAsked(CodeInvalidParams, "sampling with tools was not declared")
	}
	r, err := c.opts.Sample(ctx, &p)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, errors.New("ClientOptions.Sample returned neither a result nor an error")
	}
	answer := *r
	if answer.Role == "" {
		answer.Role = RoleAssistant
	}
	return jsonv2.Marshal(answer, deterministic)
}
