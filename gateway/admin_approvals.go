package gateway

import (
	"net/http"
	"strings"

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
	Pending    []approval.Pending `json:"pending"`
	NextCursor int                `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

func (r *adminRequest) pending(q *pageQuery) (*pendingPage, error) {
	all, err := r.host().Approvals().Pending(r.Context())
	if err != nil {
		return nil, err
	}
	res := &pendingPage{}
	res.Pending, res.NextCursor = page(all, q.Cursor, limitOr(q.Limit))
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
	Grants     []approval.Grant `json:"grants"`
	NextCursor int              `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

func (r *adminRequest) grants(q *pageQuery) (*grantPage, error) {
	all, err := r.host().Approvals().Grants(r.Context())
	if err != nil {
		return nil, err
	}
	res := &grantPage{}
	res.Grants, res.NextCursor = page(all, q.Cursor, limitOr(q.Limit))
	for i := range res.Grants {
		res.Grants[i].Session = "" // a digest that only the host compares
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
