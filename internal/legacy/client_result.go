package legacy

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// modernResults take out of results what the modern era has not. All else in them it has too. Tools of the last revision
// with sessions keep what they say of tasks, for whoever speaks of tasks with their server.
var modernResults = sync.OnceValue(compileModernResults)

func compileModernResults() map[string]*projection {
	results := map[string]*projection{}
	for method, fields := range resultShapes() {
		results[method] = project(wire.Latest(), &shape{fields: fields})
	}
	return results
}

// modernResult turns the result of a session's server into that of a modern one. It is complete, and nothing says that it
// may be kept. What only the modern era has a meaning for is not believed: a server of a session cannot mean it. It reports
// whether the result has a member called task.
//
// Spec: basic#responses (2026-07-28)
func modernResult(rev wire.Revision, method string, result []byte) (modern json.RawMessage, hasTask bool, err error) {
	if jsonscan.Kind(result) != '{' {
		return nil, false, fmt.Errorf("%s: %w: it is not an object", method, ErrMalformed)
	}
	m, _ := wire.Latest().Method(method)
	const room = 64 // for what is added
	dst := append(make([]byte, 0, len(result)+room), `{"resultType":"complete",`...)
	if m.Cacheable {
		dst = append(dst, `"ttlMs":0,"cacheScope":"private",`...)
	}
	p := modernResults()[method]
	if rev.Has(wire.ToolExecution) {
		p = nil
	}
	for key, value := range jsonscan.Members(result) {
		if isModernMember(method, string(key)) {
			continue
		}
		hasTask = hasTask || string(key) == "task"
		if p != nil {
			if f := p.find(key); f != nil {
				before := len(dst)
				if dst = f.append(dst, value); len(dst) > before {
					dst = append(dst, ',')
				}
				continue
			}
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	return closeWith(dst, '}'), hasTask, nil
}

// isModernMember reports whether the modern era has added a member to the results of a method.
func isModernMember(method, member string) bool {
	switch member {
	case "resultType":
		return true
	case "ttlMs", "cacheScope":
		m, _ := wire.Latest().Method(method)
		return m.Cacheable
	case "inputRequests", "requestState":
		return mayAskInput(method)
	}
	return false
}

// modernError turns the error of a session's server into that of a modern one, or into the result that a modern one would
// give instead. It stays remote.
//
// Spec: server/resources#error-handling (2026-07-28)
func (c *Client) modernError(method string, params []byte, e *jsonrpc.Error) (json.RawMessage, error) {
	switch {
	case e.Code == wire.CodeResourceNotFoundLegacy && method == wire.MethodResourcesRead:
		modern := *e
		modern.Code = jsonrpc.CodeInvalidParams
		if uri, ok := jsonscan.Get(params, "uri"); ok && !namesURI(e.Data) {
			modern.Data = append(appendMember([]byte{'{'}, []byte("uri"), uri), '}')
		}
		return nil, &modern
	case e.Code == wire.CodeURLElicitationRequired:
		if result := c.elicitationsRequired(method, e.Data); result != nil {
			return result, nil
		}
	}
	return nil, e
}
