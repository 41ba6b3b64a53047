package legacy

import (
	"encoding/json"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

var formElicitShape = shape{fields: []field{
	meta,
	{key: "mode", needs: wire.ElicitationURL},
	{key: "requestedSchema", shape: &shape{fields: []field{
		{key: "$schema", needs: wire.SchemaDialect},
		{key: "properties", byName: true, shape: &shape{fields: []field{
			{key: "oneOf", needs: wire.ElicitationEnumTitled, instead: enumWithNames},
			{key: "default", needs: wire.ElicitationDefaults, as: ifBoolean},
		}}},
	}}},
}}

// projectInputRequest returns the params of an input request for a client of rev, or an error if a
// client of that revision cannot be asked. elicitationID is for revisions in which URL elicitations
// contain an id; it may be empty for others.
func projectInputRequest(rev wire.Revision, method string, params json.RawMessage,
	elicitationID string) (json.RawMessage, *jsonrpc.Error) {
	if m, ok := rev.Method(method); !ok || m.Direction == wire.ClientToServer || m.Notification {
		return nil, cannotAsk("its protocol revision has no %s", method)
	}
	if len(params) == 0 {
		return nil, nil
	}
	if jsonscan.Kind(params) != '{' {
		return nil, cannotAsk("params of %s: want an object", method)
	}
	switch method {
	case wire.MethodElicitationCreate:
		return projectElicitation(rev, params, elicitationID)
	case wire.MethodSamplingCreateMessage:
		return projectSampling(rev, params)
	}
	return projections.get(rev).metaOnly.apply(params), nil
}

func cannotAsk(format string, args ...any) *jsonrpc.Error {
	return invalidRequest("this client cannot be asked for input: " + fmt.Sprintf(format, args...))
}

// Spec: client/elicitation#elicitation-requests
func projectElicitation(rev wire.Revision, params []byte, id string) (json.RawMessage, *jsonrpc.Error) {
	mode, hasMode := jsonscan.Get(params, "mode")
	if hasMode && !jsonscan.IsString(mode, "form") {
		return projectURLElicitation(rev, params, mode, id)
	}
	if !rev.Has(wire.ElicitationMultiSelect) {
		if name, ok := MultiSelect(params); ok {
			return nil, cannotAsk("its protocol revision has no multiple choice, and field %q is one", name)
		}
	}
	projected := projections.get(rev).elicitation.apply(params)
	if rev.Has(wire.ElicitationURL) && !hasMode {
		// It is the default, but not every client knows.
		projected = jsonscan.WithMember(projected, "mode", []byte(`"form"`))
	}
	return projected, nil
}

func projectURLElicitation(rev wire.Revision, params, mode []byte, id string) (json.RawMessage, *jsonrpc.Error) {
	if !rev.Has(wire.ElicitationURL) || !jsonscan.IsString(mode, "url") {
		return nil, cannotAsk("its protocol revision has no elicitation of mode %s", mode)
	}
	projected := projections.get(rev).metaOnly.apply(params)
	if _, has := jsonscan.Get(params, "elicitationId"); !has && rev.Has(wire.ElicitationIDs) {
		projected = jsonscan.WithMember(projected, "elicitationId", jsonscan.AppendQuote(nil, id))
	}
	return projected, nil
}

// MultiSelect returns the name of a form's first field that accepts several values.
func MultiSelect(params []byte) (name string, ok bool) {
	schema, _ := jsonscan.Get(params, "requestedSchema")
	properties, _ := jsonscan.Get(schema, "properties")
	for name, property := range jsonscan.Members(properties) {
		if typ, _ := jsonscan.Get(property, "type"); jsonscan.IsString(typ, "array") {
			return string(name), true
		}
	}
	return "", false
}

// enumWithNames adds enum and enumNames to a field that lost its titled choices.
func enumWithNames(dst []byte, start int, choices []byte) []byte {
	for _, key := range []string{"enum", "enumNames"} {
		if _, has := jsonscan.Get(dst[start:], key); has {
			return dst
		}
	}
	values, names := []byte(`"enum":[`), []byte(`"enumNames":[`)
	for choice := range objects(choices) {
		value, ok := jsonscan.Get(choice, "const")
		if !ok {
			continue
		}
		name, ok := jsonscan.Get(choice, "title")
		if !ok {
			name = value
		}
		values = append(append(values, value...), ',')
		names = append(append(names, name...), ',')
	}
	dst = dst[:len(dst)-1]
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(append(dst, closeWith(values, ']')...), ',')
	return append(append(dst, closeWith(names, ']')...), '}')
}

func ifBoolean(dst []byte, key string, value []byte) []byte {
	switch jsonscan.Kind(value) {
	case 't', 'f':
		return appendMember(dst, []byte(key), value)
	}
	return dst
}

// projectInputResponse returns the result of a client of rev as the modern response to an input
// request. It removes members that only messages of a session contain. It does not validate the
// response. Spec: basic/patterns/mrtr#inputresponse (2026-07-28)
func projectInputResponse(rev wire.Revision, method string, result json.RawMessage) json.RawMessage {
	if rev.Modern() || jsonscan.Kind(result) != '{' {
		return result
	}
	dst := append(make([]byte, 0, len(result)), '{')
	for key, value := range jsonscan.Members(result) {
		if string(key) == "_meta" {
			if value = inputRequestMeta(value); value == nil {
				continue
			}
		}
		if hasResponseMember(method, string(key)) && jsonscan.Kind(value) != 'n' {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}

// hasResponseMember reports whether the response to an input request may contain the member.
func hasResponseMember(method, member string) bool {
	switch method {
	case wire.MethodElicitationCreate:
		return member == "action" || member == "content"
	case wire.MethodRootsList:
		return member == "roots"
	case wire.MethodSamplingCreateMessage:
		return member == "role" || member == "content" || member == "model" || member == "stopReason" ||
			member == "_meta"
	}
	return true
}

var samplingShape = shape{fields: []field{
	meta,
	{key: "tools", needs: wire.SamplingTools, shape: &toolShape},
	{key: "toolChoice", needs: wire.SamplingTools},
	{key: "messages", shape: &shape{fields: []field{
		{key: "_meta", needs: wire.SamplingTools}, // since 2025-11-25
		{key: "content", shape: &shape{fields: append([]field{dataMeta, annotations}, toolOutput...)}},
	}}},
}}

// projectSampling projects a sampling request. It returns an error if a client of rev cannot
// understand it. Spec: client/sampling#creating-messages
func projectSampling(rev wire.Revision, params []byte) (json.RawMessage, *jsonrpc.Error) {
	if err := checkSampling(rev, params); err != nil {
		return nil, err
	}
	if !rev.Has(wire.SamplingContentArrays) {
		params = splitMessages(params)
	}
	return projections.get(rev).sampling.apply(params), nil
}

// checkSampling returns an error if the request contains content that the revision lacks and
// that cannot be replaced.
func checkSampling(rev wire.Revision, params []byte) *jsonrpc.Error {
	tools, _ := jsonscan.Get(params, "tools")
	for range objects(tools) {
		if !rev.Has(wire.SamplingTools) {
			return cannotAsk("its protocol revision has no tools in sampling")
		}
	}
	messages, _ := jsonscan.Get(params, "messages")
	for message := range objects(messages) {
		content, _ := jsonscan.Get(message, "content")
		for block := range objects(content) {
			typ, _ := jsonscan.Get(block, "type")
			switch {
			case jsonscan.IsString(typ, "audio") && !rev.Has(wire.AudioContent):
				return cannotAsk("its protocol revision has no audio")
			case !rev.Has(wire.SamplingTools) &&
				(jsonscan.IsString(typ, "tool_use") || jsonscan.IsString(typ, "tool_result")):
				return cannotAsk("its protocol revision has no tools in sampling")
			}
		}
	}
	return nil
}

// splitMessages splits the messages of a sampling request so that each contains a single content
// block, of the same role and in the same order.
func splitMessages(params []byte) []byte {
	dst := append(make([]byte, 0, len(params)), '{')
	for key, value := range jsonscan.Members(params) {
		if string(key) != "messages" || jsonscan.Kind(value) != '[' {
			dst = append(appendMember(dst, key, value), ',')
			continue
		}
		dst = append(appendMember(dst, key, nil), '[')
		for message := range objects(value) {
			content, _ := jsonscan.Get(message, "content")
			for block := range objects(content) {
				dst = append(appendMessage(dst, message, block), ',')
			}
		}
		dst = append(closeWith(dst, ']'), ',')
	}
	return closeWith(dst, '}')
}

func appendMessage(dst, message, content []byte) []byte {
	dst = append(dst, '{')
	for key, value := range jsonscan.Members(message) {
		if string(key) == "content" {
			value = content
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	return closeWith(dst, '}')
}
