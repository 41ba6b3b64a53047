package call

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Arguments returns the arguments of a request, or nil if there are none. For a method without
// the member arguments, they are the params, except members that other fields of an [policy.Action]
// contain.
func Arguments(req *mcp.Request) json.RawMessage {
	elsewhere := []string{"_meta", "requestState"}
	switch req.Method {
	case wire.MethodToolsCall, wire.MethodPromptsGet, MethodEventsPoll, wire.MethodEventsStream:
		arguments, _ := req.Param("arguments")
		return arguments
	case wire.MethodResourcesRead, MethodSkillGet, MethodDirectoryRead:
		elsewhere = append(elsewhere, "uri", "inputResponses")
	}
	params := req.Params
	for _, key := range elsewhere {
		if jsonscan.Has(params, key) {
			params = jsonscan.Without(params, key)
		}
	}
	for range jsonscan.Members(params) {
		return params
	}
	return nil
}
