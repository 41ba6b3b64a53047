package legacy

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// samplingShape is a sampling request.
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
// understand it.
//
// Spec: client/sampling#creating-messages
func projectSampling(rev wire.Revision, params []byte) (json.RawMessage, *jsonrpc.Error) {
	if err := checkSampling(rev, params); err != nil {
		return nil, err
	}
	if !rev.Has(wire.SamplingContentArrays) {
		params = splitMessages(params)
	}
	return projectionOf(rev).sampling.apply(params), nil
}

// checkSampling returns an error if the request has content that the revision does not have and
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
			case isString(typ, "audio") && !rev.Has(wire.AudioContent):
				return cannotAsk("its protocol revision has no audio")
			case (isString(typ, "tool_use") || isString(typ, "tool_result")) && !rev.Has(wire.SamplingTools):
				return cannotAsk("its protocol revision has no tools in sampling")
			}
		}
	}
	return nil
}

// splitMessages splits the messages of a sampling request so that each has one content block, of
// the same role and in the same order.
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

// appendMessage appends a message with its content replaced.
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
