package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// withState returns a copy of a request with another requestState, without one if state is nil.
func withState(req *mcp.Request, state json.RawMessage) (*mcp.Request, error) {
	var members map[string]json.RawMessage
	err := jsonv2.Unmarshal(req.Params, &members)
	if err == nil {
		if members["requestState"] = state; state == nil {
			delete(members, "requestState")
		}
		changed := *req
		if changed.Params, err = jsonv2.Marshal(members); err == nil {
			return &changed, nil
		}
	}
	return nil, fmt.Errorf("tasks: rewrite the params of a call: %w", err)
}

// withMember returns a copy of a request with one more member in its params, which must not be
// empty.
func withMember(req *mcp.Request, name string, value json.RawMessage) *mcp.Request {
	changed := *req
	object := bytes.TrimRight(req.Params, " \t\r\n")
	changed.Params = bytes.Join([][]byte{object[:len(object)-1], []byte(`,"` + name + `":`), value, []byte("}")}, nil)
	return &changed
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
