package tasks

import (
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// setParam returns a copy of a request with a member of params set, or removed if value is nil.
func setParam(req *mcp.Request, name string, value json.RawMessage) (*mcp.Request, error) {
	params := make(map[string]json.RawMessage)
	if err := jsonv2.Unmarshal(req.Params, &params); err != nil {
		return nil, fmt.Errorf("tasks: decode the params of a call: %w", err)
	}
	params[name] = value
	if value == nil {
		delete(params, name)
	}
	raw, err := jsonv2.Marshal(params, jsonv2.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("tasks: encode the params of a call: %w", err)
	}
	changed := *req
	changed.Params = raw
	return &changed, nil
}

func toolOf(req *mcp.Request) string {
	var p struct {
		Name string `json:"name"`
	}
	_ = jsonv2.Unmarshal(req.Params, &p) // the server refuses invalid params
	return p.Name
}

func metaOf(req *mcp.Request) json.RawMessage {
	var p struct {
		Meta json.RawMessage `json:"_meta"`
	}
	_ = jsonv2.Unmarshal(req.Params, &p)
	return p.Meta
}
