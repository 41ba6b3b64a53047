package approve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// approvalKey is the key of the question for approval.
const approvalKey = "approval"

// maxShown limits the arguments in a question, in bytes, because a user must read them. A client is not
// asked about longer arguments: its user would approve text that the question does not contain.
const maxShown = 4 << 10

// An approvalState is the content of the requestState of a question for approval.
type approvalState struct {
	Binding string `json:"b"`
	Nonce   string `json:"n"`
	Expires int64  `json:"e"` // in seconds since 1970
}

// mayElicit reports whether the client of a request can ask its user.
func mayElicit(req *mcp.Request) bool {
	m, ok := wire.Latest().Method(req.Method)
	e := req.Capabilities().Elicitation
	revision, known := wire.ParseRevision(req.Revision())
	knowsForms := known && revision.Has(wire.Elicitation)
	return ok && m.MayAskInput && knowsForms && e != nil && (e.Form != nil || e.URL == nil)
}

// question returns the result that asks the user of the client.
func (p *approving) question(req *mcp.Request) mcp.Result {
	st := approvalState{p.c.Approval.Binding, rand.Text(), time.Now().Add(approvalTime).Unix()}
	sealed := p.Ring.SealText(mustJSON(st), p.bound(req)...)
	decision := map[string]any{"type": "string", "title": "Decision", "enum": p.choices(),
		"description": "once: this request only; session and always: further requests for the same, with any arguments"}
	requested := mustJSON(map[string]any{"type": "object", "required": []string{"decision"},
		"properties": map[string]any{"decision": decision}})
	b := append(jsonscan.AppendQuote([]byte(`{"resultType":"input_required","inputRequests":{"`+approvalKey+
		`":{"method":"`+wire.MethodElicitationCreate+`","params":{"mode":"form","message":`), p.message()),
		`,"requestedSchema":`...)
	b = append(append(b, requested...), `}}},"requestState":`...)
	return mcp.RawResult(append(jsonscan.AppendQuote(b, sealed), '}'))
}

// bound returns the texts to which the state of the question is bound. If the store ends with the
// process, they contain the process, because no other process knows the approvals that were used.
func (p *approving) bound(req *mcp.Request) []string {
	bound := append([]string{approvalKey}, round.Bound(p.c.Action.Caller, req)...)
	if p.Process != "" {
		bound = append(bound, p.Process)
	}
	return bound
}

// choices returns the answers that a user can choose.
func (p *approving) choices() []approval.Answer {
	answers := []approval.Answer{approval.Once, approval.Session, approval.Always, approval.Deny}
	if p.session == "" {
		answers = slices.Delete(answers, 1, 2)
	}
	// A grant would not identify its requests.
	if p.c.Action.Kind == policy.ActionOther || len(p.c.Action.Target) > maxGranted {
		answers = []approval.Answer{approval.Once, approval.Deny}
	}
	return answers
}

// message returns the text of the question.
func (p *approving) message() string {
	a := p.c.Action
	var b strings.Builder
	fmt.Fprintf(&b, "Approve this request?%s\n\nServer: %s\n%s: %s\n", shown(because(p.c.Decision)), shown(a.Server),
		map[policy.ActionKind]string{policy.ActionCall: "Tool", policy.ActionGet: "Prompt",
			policy.ActionRead: "Resource"}[a.Kind], shown(a.Target))
	if claims := claimsOf(a.Definition); claims != "" {
		fmt.Fprintf(&b, "The server claims: %s\n", claims)
	}
	if len(a.Arguments) > 0 {
		fmt.Fprintf(&b, "Arguments: %s\n", shown(string(a.Arguments)))
	}
	if len(p.meta) > 0 {
		fmt.Fprintf(&b, "_meta: %s\n", shown(string(p.meta)))
	}
	return b.String()
}

// claimsOf returns the hints of a definition, which are not verified.
func claimsOf(definition []byte) string {
	annotations, _ := jsonscan.Get(definition, "annotations")
	if !jsonscan.IsObject(annotations) {
		return ""
	}
	var claims []string
	for _, hint := range []struct{ key, yes, no string }{
		{"readOnlyHint", "changes nothing", "changes data"},
		{"destructiveHint", "may destroy data", "destroys nothing"},
		{"idempotentHint", "repeating it has no effect", ""}, {"openWorldHint", "reaches other systems", ""},
	} {
		value, _ := jsonscan.Get(annotations, hint.key)
		switch {
		case string(value) == "true":
			claims = append(claims, hint.yes)
		case string(value) == "false" && hint.no != "":
			claims = append(claims, hint.no)
		}
	}
	return strings.Join(claims, ", ")
}

// openAnswer returns the state of the question for approval that a request answers.
func (p *approving) openAnswer(req *mcp.Request) (st approvalState, ok bool) {
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return st, false
	}
	plain, _, err := p.Ring.OpenText(text, p.bound(req)...)
	return st, err == nil && json.Unmarshal(plain, &st) == nil
}

// answered returns the request to send if its user approved it.
func (p *approving) answered(ctx context.Context, req *mcp.Request, st approvalState) (send *mcp.Request, err error) {
	if c := p.c.Decision.Channel; c != "" && c != policy.ChannelClient {
		return nil, p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the policy now requires another approval: start it again")})
	}
	p.c.Decision.Channel = policy.ChannelClient
	p.c.Decision.Approver = approval.ApproverName(cmp.Or(principalText(p.c.Action.Caller), "local"))
	responses, _ := req.Param("inputResponses")
	answer := answerOf(responses)
	switch {
	case st.Binding != p.c.Approval.Binding:
		return nil, p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the approval is for another request, or the policy or the definition has changed since: start it again")})
	case time.Now().Unix() > st.Expires:
		return nil, p.fail(hosterr.CodeApprovalExpired, errNotInTime)
	case answer == approval.Deny || !slices.Contains(p.choices(), answer):
		return nil, p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New("the user has not approved the request")})
	}
	if err := p.consume(ctx, st.Nonce); err != nil {
		return nil, err
	}
	if err := p.grant(ctx, answer); err != nil {
		return nil, p.fail(hosterr.CodeApprovalNeeded, err)
	}
	p.c.Approval.Nonce = rand.Text()
	inner := *req
	inner.Params = jsonscan.Without(req.Params, "requestState", "inputResponses")
	return &inner, nil
}

// answerOf returns the answer to the question for approval, or [approval.Deny] without an answer.
func answerOf(responses []byte) approval.Answer {
	answer, _ := jsonscan.Get(responses, approvalKey)
	content, _ := jsonscan.Get(answer, "content")
	if jsonscan.GetString(answer, "action") != "accept" || !jsonscan.IsObject(content) {
		return approval.Deny
	}
	return approval.Answer(jsonscan.GetString(content, "decision"))
}
