package capture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Request is a recorded request that can be sent again.
type Request struct {
	Server, Method string
	Name           string          // of the tool, prompt or resource at the server, or ""
	Params         json.RawMessage // the text of the record, without `_meta`, which belongs to the connection
	HidesSecrets   bool            // Params may contain marks in place of secrets
}

// ofConnection are the methods of requests that belong to their connection, and ofRecords the methods of
// requests that the record of a host describes completely.
var (
	ofConnection = []string{driver.MethodInitialize, driver.MethodSubscriptionsListen}
	ofRecords    = []string{driver.MethodToolsCall, driver.MethodPromptsGet, driver.MethodResourcesRead}
)

// Request returns the request with which an exchange began.
func (r *Ring) Request(id uint64) (*Request, error) {
	x, frames, ok := r.Get(id)
	if !ok {
		return nil, fmt.Errorf("exchange %d is no longer held: the oldest exchanges are dropped first", id)
	}
	isOwn := x.Hop == Upstream && !slices.Contains(ofConnection, x.Method) &&
		!strings.HasPrefix(x.Method, "notifications/")
	if !isOwn && (x.Hop != Downstream || !slices.Contains(ofRecords, x.Method)) {
		return nil, fmt.Errorf("exchange %d is not a request that can be sent again", id)
	}
	text := ""
	if first := slices.IndexFunc(frames, func(f Frame) bool { return f.Kind == Message && f.Sent }); first >= 0 {
		text = frames[first].Text
	}
	if rawjson.Valid([]byte(text)) != nil || stringMember([]byte(text), "method") != x.Method ||
		strings.HasSuffix(x.Name, cutMark) {
		return nil, errors.New("the request is not recorded completely: the oldest frames are dropped first")
	}
	params, _ := rawjson.Get([]byte(text), "params")
	found := &Request{Server: x.Server, Method: x.Method, Params: ownParams(params, x.Name),
		HidesSecrets: strings.Contains(text, hidden) || strings.Contains(text, "[secret]")}
	found.Name = partsOf(found.Params).target
	return found, nil
}

// ownParams returns params without `_meta`, and with the name that the server uses unless it is empty. The
// text of each other value is unchanged.
func ownParams(params []byte, name string) json.RawMessage {
	if _, hasMeta := rawjson.Get(params, "_meta"); !hasMeta && name == "" && len(params) > 0 {
		return params
	}
	members := []byte("{")
	for key, value := range rawjson.Members(params) {
		if isName := string(key) == "name" || string(key) == "uri"; isName && name != "" {
			value = rawjson.AppendQuote(nil, name)
		}
		if string(key) != "_meta" {
			members = append(append(append(rawjson.AppendQuote(members, string(key)), ':'), value...), ',')
		}
	}
	return append(bytes.TrimSuffix(members, []byte{','}), '}')
}
