package upstream

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// maxRootsRounds limits how often a server may ask for the roots of the configuration during a
// request.
const maxRootsRounds = 16

// roots answers the questions of a server for roots. The roots of a caller are files of its machine: a
// server receives them only if it is a process of the local user, or if the configuration says so.
type roots struct {
	mode config.RootsMode
	uris []string // of the configuration
}

// roots returns the roots that the server receives.
func (p *Pool) roots() roots {
	u, set := p.up, p.Entry().Settings.Roots
	switch {
	case set.Mode != config.RootsDefault:
		return roots{set.Mode, set.URIs}
	case u.isCommand() && p.caller.Principal == nil && u.Share() != config.ShareShared:
		return roots{mode: config.RootsPass}
	}
	return roots{mode: config.RootsNone}
}

// areOfCaller reports whether callers answer for roots.
func (r roots) areOfCaller() bool { return r.mode == config.RootsPass }

// areDeclared reports whether the server is told that its client supports roots. A server that
// receives no roots gets an empty list, because some servers refuse requests of clients without
// roots.
func (r roots) areDeclared(byClient bool) bool { return byClient || r.mode == config.RootsList }

// answer returns the function that answers for roots outside of requests. ofClient answers for the roots
// of the caller.
func (r roots) answer(ofClient func(context.Context) ([]mcp.Root, error)) func(context.Context) ([]mcp.Root, error) {
	if r.areOfCaller() {
		return ofClient
	}
	return func(context.Context) ([]mcp.Root, error) { return r.list(), nil }
}

// list returns the roots of the configuration. It is empty unless the configuration contains a
// list.
func (r roots) list() (all []mcp.Root) {
	if r.mode != config.RootsList {
		return nil
	}
	for _, uri := range r.uris {
		all = append(all, mcp.Root{URI: uri})
	}
	return all
}

// take removes the questions for roots that the configuration answers from a result. It returns
// their keys. others reports whether there are further questions.
func (r roots) take(res mcp.Result) (rest mcp.RawResult, keys []string, others bool) {
	raw, ok := res.(mcp.RawResult)
	if !ok || r.areOfCaller() || raw.ResultType() != driver.ResultInputRequired {
		return raw, nil, false
	}
	requests, _ := jsonscan.Get(raw, "inputRequests")
	if jsonscan.Kind(requests) != '{' {
		return raw, nil, false
	}
	left := requests
	for key, request := range jsonscan.Members(requests) {
		method, _ := jsonscan.Get(request, "method")
		if name, err := jsonscan.Unquote(method); err == nil && name == wire.MethodRootsList {
			keys = append(keys, string(key))
			left = jsonscan.Without(left, string(key))
			continue
		}
		others = true
	}
	if len(keys) == 0 {
		return raw, nil, others
	}
	return mcp.RawResult(jsonscan.WithMember(raw, "inputRequests", left)), keys, others
}

// with returns a request that contains answers to questions for roots in addition to the client's
// answers.
func (r roots) with(req *mcp.Request, keys []string) *mcp.Request {
	if len(keys) == 0 {
		return req
	}
	answer, err := json.Marshal(map[string]any{"roots": append([]mcp.Root{}, r.list()...)})
	if err != nil {
		return req
	}
	answers, ok := jsonscan.Get(req.Params, "inputResponses")
	if !ok || jsonscan.Kind(answers) != '{' {
		answers = []byte("{}")
	}
	for _, key := range keys {
		answers = jsonscan.WithMember(answers, key, answer)
	}
	inner := *req
	inner.Params = jsonscan.WithMember(req.Params, "inputResponses", answers)
	return &inner
}

// next returns the request that answers a result with roots alone.
func (r roots) next(req *mcp.Request, res mcp.RawResult, keys []string) *mcp.Request {
	inner := *req
	inner.Params = jsonscan.Without(req.Params, "requestState", "inputResponses")
	if state, ok := jsonscan.Get(res, "requestState"); ok {
		inner.Params = jsonscan.WithMember(inner.Params, "requestState", slices.Clone(state))
	}
	return r.with(&inner, keys)
}
