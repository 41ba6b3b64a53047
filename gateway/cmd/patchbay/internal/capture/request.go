package capture

import (
	"bytes"
	"encoding/json"
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

// ofConnection lists the methods of requests that belong to their connection. ofRecords lists the
// methods of requests whose record contains the whole request.
var (
	ofConnection = []string{driver.MethodInitialize, driver.MethodSubscriptionsListen}
	ofRecords    = []string{driver.MethodToolsCall, driver.MethodPromptsGet, driver.MethodResourcesRead}
)

// Request returns the request that began an exchange.
func (r *Ring) Request(id uint64) (*Request, error) {
	x, frames, ok := r.Get(id)
	if !ok {
		return nil, fmt.Errorf("exchange %d is not recorded any more: new exchanges replace the oldest; "+
			"repeat the call to record the request again", id)
	}
	isOwn := x.Hop == Upstream && !slices.Contains(ofConnection, x.Method) &&
		!strings.HasPrefix(x.Method, "notifications/")
	if !isOwn && (x.Hop != Downstream || !slices.Contains(ofRecords, x.Method)) {
		return nil, fmt.Errorf("cannot send exchange %d again: it must be a request to a server, or a call, prompt "+
			"or resource of a caller; select such an exchange", id)
	}
	// The frame of a later message may contain answers of the person who sent it.
	text := ""
	if first := slices.IndexFunc(frames, func(f Frame) bool { return f.Kind == Message && f.Sent }); first >= 0 &&
		frames[0].before == 0 {
		text = frames[first].Text
	}
	if rawjson.Valid([]byte(text)) != nil || strings.HasSuffix(x.Name, cutMark) {
		return nil, fmt.Errorf("exchange %d is recorded without its complete request: messages of at most %d bytes "+
			"are recorded while a browser shows the console; repeat the call, or send it from Explore", id, maxFrame)
	}
	params, _ := rawjson.Get([]byte(text), "params")
	_, hasAnswers := rawjson.Get(params, "inputResponses")
	if _, hasState := rawjson.Get(params, "requestState"); hasAnswers || hasState ||
		rawjson.GetString([]byte(text), "method") != x.Method {
		return nil, fmt.Errorf("exchange %d begins with answers to questions: send the request from Explore", id)
	}
	found := &Request{Server: x.Server, Method: x.Method, Params: ownParams(params, x.Name),
		HidesSecrets: strings.Contains(text, hidden) || strings.Contains(text, "[secret]")}
	found.Name = partsOf(found.Params).target
	return found, nil
}

// ownParams returns params without `_meta`. If name is not empty, it replaces the name or URI in
// params. The text of each other value is unchanged.
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
