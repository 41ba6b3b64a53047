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

// maxRootsRounds bounds how often a server may ask for the roots of the configuration during one
// request.
const maxRootsRounds = 16

// roots returns which roots the server gets. Those of a caller are files of its machine: only a
// process for the local user gets them unless the configuration says otherwise.
func (p *Pool) roots() config.RootsMode {
	u := p.up
	switch mode := u.entry().Settings.Roots.Mode; {
	case mode != config.RootsDefault:
		return mode
	case u.isCommand() && p.caller.Principal == nil && u.Share() != config.ShareShared:
		return config.RootsPass
	}
	return config.RootsNone
}

// passesRoots reports whether callers answer for roots.
func (p *Pool) passesRoots() bool { return p.roots() == config.RootsPass }

// declaresRoots reports whether the server is told that its client has roots. If it gets none, the
// answer is an empty list: some servers refuse requests of clients without roots.
func (p *Pool) declaresRoots(byClient bool) bool { return byClient || p.roots() == config.RootsList }

// ownRoots returns the function that answers for roots outside of requests.
func (p *Pool) ownRoots() func(context.Context) ([]mcp.Root, error) {
	if p.roots() == config.RootsPass {
		return p.up.servers.Client.Roots
	}
	return func(context.Context) ([]mcp.Root, error) { return p.listedRoots(), nil }
}

// listedRoots returns the roots of the configuration: none unless it has a list.
func (p *Pool) listedRoots() (roots []mcp.Root) {
	if p.roots() != config.RootsList {
		return nil
	}
	for _, uri := range p.up.entry().Settings.Roots.URIs {
		roots = append(roots, mcp.Root{URI: uri})
	}
	return roots
}

// takeRoots removes the questions for roots that the configuration answers from a result. It returns
// their keys. others reports whether there are further questions.
func (p *Pool) takeRoots(res mcp.Result) (rest mcp.RawResult, keys []string, others bool) {
	raw, ok := res.(mcp.RawResult)
	if !ok || p.roots() == config.RootsPass || raw.ResultType() != driver.ResultInputRequired {
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

// withRoots returns a request with answers to questions for roots, in addition to those of the client.
func (p *Pool) withRoots(req *mcp.Request, keys []string) *mcp.Request {
	if len(keys) == 0 {
		return req
	}
	answer, err := json.Marshal(map[string]any{"roots": append([]mcp.Root{}, p.listedRoots()...)})
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

// nextRound returns the request that answers a result with roots alone.
func (p *Pool) nextRound(req *mcp.Request, res mcp.RawResult, keys []string) *mcp.Request {
	inner := *req
	inner.Params = jsonscan.Without(jsonscan.Without(req.Params, "requestState"), "inputResponses")
	if state, ok := jsonscan.Get(res, "requestState"); ok {
		inner.Params = jsonscan.WithMember(inner.Params, "requestState", slices.Clone(state))
	}
	return p.withRoots(&inner, keys)
}
