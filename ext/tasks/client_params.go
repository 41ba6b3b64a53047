package tasks

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// withState returns a request with another requestState; nil is none.
func withState(req *mcp.Request, state stdjson.RawMessage) (*mcp.Request, error) {
	var b bytes.Buffer
	d, e := jsontext.NewDecoder(bytes.NewReader(req.Params)), jsontext.NewEncoder(&b)
	failed := errors.Join(discard(d.ReadToken()), e.WriteToken(jsontext.BeginObject))
	for failed == nil && d.PeekKind() == '"' {
		key, err := d.ReadToken()
		name := key.String()
		value, err2 := d.ReadValue()
		failed = errors.Join(err, err2)
		if failed == nil && name != "requestState" {
			failed = errors.Join(e.WriteToken(jsontext.String(name)), e.WriteValue(value))
		}
	}
	if state != nil {
		failed = errors.Join(failed, e.WriteToken(jsontext.String("requestState")), e.WriteValue(jsontext.Value(state)))
	}
	if failed = errors.Join(failed, e.WriteToken(jsontext.EndObject)); failed != nil {
		return nil, fmt.Errorf("tasks: params of a call: %w", failed)
	}
	changed := *req
	changed.Params = bytes.TrimSpace(b.Bytes())
	return &changed, nil
}

func discard(_ jsontext.Token, err error) error { return err }

// withMember returns a request whose params have one member more.
func withMember(req *mcp.Request, name string, value stdjson.RawMessage) *mcp.Request {
	changed := *req
	object := bytes.TrimRight(req.Params, " \t\r\n")
	changed.Params = bytes.Join([][]byte{object[:len(object)-1], []byte(`,"` + name + `":`), value, []byte("}")}, nil)
	return &changed
}

// toolOf returns the name of the tool that a request calls; empty if it does not say.
func toolOf(req *mcp.Request) string {
	var p struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(req.Params, &p) // a server would have refused it
	return p.Name
}

// metaOf returns the `_meta` of a request as it is.
func metaOf(req *mcp.Request) stdjson.RawMessage {
	var p struct {
		Meta stdjson.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(req.Params, &p) // the client has made it
	return p.Meta
}
