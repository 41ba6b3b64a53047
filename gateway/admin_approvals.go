package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/osuser"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

func approvalRoutes() []*adminRoute {
	return []*adminRoute{
		getRoute("/pending", "Requests that wait for approval, the oldest first", (*adminRequest).pending),
		postRoute("/pending/{name}", "decide", "Answer a request that waits for approval", (*adminRequest).decide),
		getRoute("/grants", "Approvals for a session or always", (*adminRequest).grants),
		postRoute("/grants/{name}", "revoke", "Remove a grant: the next request asks again", (*adminRequest).revoke),
	}
}

// A pageQuery selects a page.
type pageQuery struct {
	Cursor int `json:"cursor,omitzero" jsonschema:"nextCursor of the previous page,minimum=0"`
	Limit  int `json:"limit,omitzero" jsonschema:"of a page,minimum=1,maximum=1000"`
}

// A pendingPage is a page of requests that wait.
type pendingPage struct {
	Pending    []pendingEntry `json:"pending"`
	NextCursor int            `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

// A pendingEntry is a request that waits. See [approval.Pending].
type pendingEntry struct {
	ID         string          `json:"id"`
	Created    time.Time       `json:"created"`
	Expires    time.Time       `json:"expires"`
	Principal  string          `json:"principal,omitzero" jsonschema:"who sends the request; absent for the local user"`
	Client     string          `json:"client,omitzero" jsonschema:"what the client calls itself; not verified"`
	Server     string          `json:"server"`
	Method     string          `json:"method"`
	Target     string          `json:"target" jsonschema:"name or URI that the server uses"`
	Arguments  json.RawMessage `json:"arguments,omitzero" jsonschema:"what the server receives, without secrets"`
	Meta       json.RawMessage `json:"meta,omitzero" jsonschema:"members of _meta that the server receives"`
	Definition json.RawMessage `json:"definition,omitzero" jsonschema:"as the server sent it; not trusted"`
	Rule       string          `json:"rule,omitzero"`
	Reason     string          `json:"reason,omitzero"`
	Answers    []string        `json:"answers" jsonschema:"those that can be given"`
}

func (r *adminRequest) pending(q *pageQuery) (*pendingPage, error) {
	all, err := r.host().Approvals().Pending(r.Context())
	if err != nil {
		return nil, err
	}
	res := &pendingPage{Pending: []pendingEntry{}}
	all, res.NextCursor = page(all, q.Cursor, limitOr(q.Limit))
	for i := range all {
		p := &all[i]
		e := pendingEntry{ID: p.ID, Created: p.Created, Expires: p.Expires, Principal: p.Principal, Client: p.Client,
			Server: p.Server, Method: p.Method, Target: p.Target, Arguments: p.Arguments, Meta: p.Meta,
			Definition: p.Definition, Rule: p.Rule, Reason: p.Reason, Answers: []string{}}
		for _, a := range p.Answers {
			e.Answers = append(e.Answers, string(a))
		}
		res.Pending = append(res.Pending, e)
	}
	return res, nil
}

// A decision is the answer to a request that waits.
type decision struct {
	Answer string `json:"answer" jsonschema:"once is for this request,enum=once|session|always|deny"`
}

// A decided is the response to a decision.
type decided struct {
	ID     string `json:"id"`
	Answer string `json:"answer"`
}

func (r *adminRequest) decide(body *decision) (*decided, error) {
	approver := osuser.Name() // only processes of this user can connect to the socket
	if p := r.principal(); p != nil {
		approver = callerName(&policy.Caller{Principal: p})
	}
	err := r.host().Approvals().Decide(r.Context(), r.name, approval.Answer(body.Answer), approver)
	if err != nil && strings.Contains(err.Error(), "invalid answer") {
		return nil, problemf(http.StatusConflict, "invalid_answer", "%v", err)
	}
	if err != nil {
		return nil, err
	}
	return &decided{r.name, body.Answer}, nil
}

// A grantPage is a page of grants.
type grantPage struct {
	Grants     []grantEntry `json:"grants"`
	NextCursor int          `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

// A grantEntry is a grant. See [approval.Grant].
type grantEntry struct {
	ID         string    `json:"id"`
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires,omitzero" jsonschema:"absent for never"`
	Principal  string    `json:"principal,omitzero" jsonschema:"absent for the local user"`
	Server     string    `json:"server"`
	Method     string    `json:"method"`
	Target     string    `json:"target"`
	Rule       string    `json:"rule,omitzero"`
	Scope      string    `json:"scope" jsonschema:"session or always"`
	Channel    string    `json:"channel" jsonschema:"how it was approved"`
	Approver   string    `json:"approver,omitzero" jsonschema:"who approved it: OS user, principal, or webhook host"`
	Definition string    `json:"definition" jsonschema:"digest: the grant is void if the definition changes"`
}

func (r *adminRequest) grants(q *pageQuery) (*grantPage, error) {
	all, err := r.host().Approvals().Grants(r.Context())
	if err != nil {
		return nil, err
	}
	res := &grantPage{Grants: []grantEntry{}}
	all, res.NextCursor = page(all, q.Cursor, limitOr(q.Limit))
	for _, g := range all {
		res.Grants = append(res.Grants, grantEntry{g.ID, g.Created, g.Expires, g.Principal, g.Server, g.Method,
			g.Target, g.Rule, string(g.Scope), string(g.Channel), g.Approver, g.Definition})
	}
	return res, nil
}

// A revoked is the response to a revocation.
type revoked struct {
	Revoked string `json:"revoked" jsonschema:"id of the grant, or name of the key"`
}

func (r *adminRequest) revoke(*noBody) (*revoked, error) {
	if err := r.host().Approvals().Revoke(r.Context(), r.name); err != nil {
		return nil, err
	}
	return &revoked{r.name}, nil
}
