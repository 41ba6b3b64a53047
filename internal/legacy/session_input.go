package legacy

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// cancelledElicitation is the result of an elicitation to which the client responds with an error:
// as if the user had closed the dialog.
const cancelledElicitation = `{"action":"cancel"}`

// errNoResponse ends the wait for a client that does not respond.
var errNoResponse = errors.New("not answered in time")

// An inputRequest is an input request that is sent to the client.
type inputRequest struct {
	*peer.Question
	key    string // in inputRequests
	visit  string // the id of an elicitation of mode url; empty for other requests
	method string
	params json.RawMessage
}

// askInput sends the input requests of a result to the client and waits for all responses, for a
// limited time. Cached roots are not asked for. It returns the additional members of the retried
// request: the input responses, and the request state unchanged. It adds the ids of the
// elicitations of mode url that the user accepted to x.visits.
//
// Spec: basic/patterns/mrtr#client-requirements-basic-workflow (2026-07-28)
func (x *Exchange) askInput(ctx context.Context, result []byte) (*retryParams, *jsonrpc.Error) {
	s, out := x.session, x.out
	roots, changes := s.roots.cached()
	x.roots = nil
	answers := []byte{'{'}
	sent, err := s.newInputRequests(ctx, result, func(key, method string) (known bool) {
		known = method == wire.MethodRootsList && roots != nil
		if known {
			answers = append(appendMember(answers, []byte(key), roots), ',')
		}
		return known
	})
	defer func() {
		for _, q := range sent {
			q.Withdraw() // no effect on answered requests
		}
	}()
	if err != nil {
		return nil, err
	}
	waitCtx, stop := context.WithTimeoutCause(ctx, cmp.Or(s.cfg.AnswerTimeout, DefaultAnswerTimeout), errNoResponse)
	defer stop()
	for _, q := range sent {
		if err := out.Send(ctx, &jsonrpc.Message{ID: q.ID, Method: q.method, Params: q.params}); err != nil {
			return nil, s.failure(ctx, "input request not delivered", err)
		}
	}
	for i, q := range sent {
		answer, err := s.await(waitCtx, q)
		if err != nil {
			open := sent[i+1:]
			if waitCtx.Err() != nil {
				open = sent[i:] // this request was not answered either
			}
			s.cancelRequests(ctx, open, out)
			return nil, err
		}
		switch {
		case q.visit != "" && jsonscan.GetString(answer, "action") == "accept":
			x.visits = append(x.visits, q.visit)
		case q.method == wire.MethodRootsList:
			x.roots = &rootsAnswer{answer, changes}
		}
		answers = append(appendMember(answers, []byte(q.key), answer), ',')
	}
	retry := new(retryParams)
	if len(answers) > len("{") {
		retry.inputResponses = closeWith(answers, '}')
	}
	retry.requestState, _ = jsonscan.Get(result, "requestState")
	return retry, nil
}

// newInputRequests returns the requests that a result asks for, all or no request, except requests
// whose answer is known. The caller must withdraw the returned requests, also when there is an
// error.
func (s *Session) newInputRequests(ctx context.Context, result []byte,
	isKnown func(key, method string) bool) (all []inputRequest, err *jsonrpc.Error) {
	requests, _ := jsonscan.Get(result, "inputRequests")
	for key, request := range jsonscan.Members(requests) {
		if isKnown(string(key), jsonscan.GetString(request, "method")) {
			continue
		}
		q, err := s.newInputRequest(string(key), request)
		if err != nil {
			return all, err
		}
		asked, askErr := s.calls.Ask(s.newID())
		if askErr != nil {
			return all, s.notAsked(ctx, askErr)
		}
		q.Question = asked
		all = append(all, q)
	}
	return all, nil
}

// newInputRequest returns an input request that is not registered with the table of calls yet.
func (s *Session) newInputRequest(key string, request []byte) (q inputRequest, err *jsonrpc.Error) {
	q = inputRequest{key: key, method: jsonscan.GetString(request, "method")}
	params, _ := jsonscan.Get(request, "params")
	elicitationID := ""
	if q.method == wire.MethodElicitationCreate && s.rev.Has(wire.ElicitationIDs) {
		elicitationID = rand.Text()
	}
	q.params, err = projectInputRequest(s.rev, q.method, params, elicitationID)
	if elicitationID != "" {
		q.visit = jsonscan.GetString(q.params, "elicitationId") // the id of params, if they contain an id
	}
	return q, err
}

// completeElicitations notifies the client that the user completed the pages of this request. A
// handler that finds a page incomplete returns an error. A failed result of a tool completes no
// page.
//
// Spec: client/elicitation#completion-notifications-for-url-mode-elicitation (2025-11-25)
func (x *Exchange) completeElicitations(ctx context.Context, result []byte) {
	if len(x.visits) == 0 {
		return // as in most requests; a scan of a long list would cost more than all else
	}
	if isError, _ := jsonscan.Get(result, "isError"); string(isError) == "true" {
		return
	}
	for _, id := range x.visits {
		params := append(jsonscan.AppendQuote([]byte(`{"elicitationId":`), id), '}')
		if x.notify(ctx, wire.NotificationElicitationComplete, params) != nil {
			return
		}
	}
}

func (s *Session) notAsked(ctx context.Context, err error) *jsonrpc.Error {
	if errors.Is(err, peer.ErrTooManyQuestions) {
		return invalidRequest("too many input requests are waiting for the client")
	}
	return s.failure(ctx, "input request not sent", err)
}

// await waits for a response and returns it in the modern form.
func (s *Session) await(ctx context.Context, q inputRequest) (json.RawMessage, *jsonrpc.Error) {
	response, err := q.Wait(ctx)
	switch {
	case errors.Is(err, errNoResponse):
		return nil, invalidRequest("the client did not answer " + q.method + " in time")
	case err != nil:
		return nil, invalidRequest("the session ended before the response to " + q.method)
	case response.Error == nil && jsonscan.Kind(response.Result) == '{':
		return projectInputResponse(s.rev, q.method, response.Result), nil
	case q.method == wire.MethodElicitationCreate:
		return json.RawMessage(cancelledElicitation), nil
	case response.Error == nil:
		return nil, declined(q.method, "its result is not an object")
	}
	return nil, declined(q.method, response.Error.Message)
}

// declined returns the error of a request whose input request the client refused. The modern
// era cannot report this to the handler: a client that refuses does not retry.
func declined(method, why string) *jsonrpc.Error {
	const shown = 256 // bytes of the client's text
	return &jsonrpc.Error{
		Code:    wire.CodeUserRejected,
		Message: fmt.Sprintf("the client refused %s: %s", method, strings.ToValidUTF8(why[:min(len(why), shown)], "")),
	}
}

// cancelRequests cancels input requests at the client. If the client cancelled the request that
// they belong to, it sends no message. Spec: basic/utilities/cancellation
func (s *Session) cancelRequests(ctx context.Context, sent []inputRequest, out Sender) {
	for _, q := range sent {
		if ctx.Err() != nil {
			return
		}
		params := append(appendMember([]byte{'{'}, []byte("requestId"), []byte(q.ID.String())), '}')
		if out.Send(ctx, &jsonrpc.Message{Method: wire.NotificationCancelled, Params: params}) != nil {
			return
		}
	}
}
