package authorize

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// errUnredactable refuses a result to which the pointers of its redactions cannot be applied.
var errUnredactable = hosterr.Public{Err: errors.New(
	"denied: the policy redacts parts of the result and cannot find them, " +
		"because the result is not JSON: use a tool that returns structured content")}

// redactable reports whether pointers apply to all contents of a result, of the result of a task, or of
// an error.
func redactable(raw []byte) bool {
	for _, wrapper := range []string{"result", "error"} {
		if inner, ok := jsonscan.Get(raw, wrapper); ok && jsonscan.IsObject(inner) && !redactable(inner) {
			return false
		}
	}
	for _, key := range []string{"structuredContent", "data"} { // data is a member of errors
		if value, ok := jsonscan.Get(raw, key); ok && !isContainer(value) {
			return false
		}
	}
	if text, ok := jsonscan.Get(raw, "message"); ok && !redactableText(text) { // a member of errors
		return false
	}
	if completion, ok := jsonscan.Get(raw, "completion"); ok && jsonscan.IsObject(completion) {
		values, _ := jsonscan.Get(completion, "values")
		for value := range jsonscan.Elements(values) {
			if !redactableText(value) {
				return false
			}
		}
	}
	for _, key := range []string{"content", "contents", "messages"} {
		list, ok := jsonscan.Get(raw, key)
		if !ok {
			continue
		}
		if jsonscan.Kind(list) != '[' {
			return false
		}
		for element := range jsonscan.Elements(list) {
			if !redactableContent(element) {
				return false
			}
		}
	}
	return true
}

// redactableContent reports whether pointers apply to a content block, or to the content of a
// message or an embedded resource.
func redactableContent(content []byte) bool {
	if !jsonscan.IsObject(content) {
		return false
	}
	if text, ok := jsonscan.Get(content, "text"); ok {
		return redactableText(text)
	}
	for _, key := range []string{"resource", "content"} { // of an embedded resource, of a message
		inner, ok := jsonscan.Get(content, key)
		if ok && jsonscan.Kind(inner) != '[' {
			return redactableContent(inner)
		}
		if ok {
			for element := range jsonscan.Elements(inner) {
				if !redactableContent(element) {
					return false
				}
			}
			return true
		}
	}
	return false // an image, another blob, or a link
}

// redactableText reports whether a text consists of JSON objects and arrays, white space and
// fences.
func redactableText(value []byte) bool {
	if jsonscan.Kind(value) != '"' {
		return false
	}
	rest, err := jsonscan.Unquote(value)
	if err != nil {
		return false
	}
	for {
		rest = strings.TrimSpace(rest)
		if rest == "" {
			return true
		}
		if line, after, _ := strings.Cut(rest, "\n"); isFence(line) {
			rest = after
			continue
		}
		if rest[0] != '{' && rest[0] != '[' {
			return false
		}
		_, n, err := readJSON(rest)
		if err != nil {
			return false
		}
		rest = rest[n:]
	}
}

// isFence reports whether a line begins or ends a block of JSON in Markdown.
func isFence(line string) bool {
	switch strings.TrimSpace(line) {
	case "```", "~~~", "```json", "~~~json", "```jsonl", "```ndjson":
		return true
	}
	return false
}

// isContainer reports whether a value is an object or an array.
func isContainer(value []byte) bool {
	kind := jsonscan.Kind(value)
	return kind == '{' || kind == '['
}

// readJSON returns the JSON value at the beginning of a text, and its length in bytes.
func readJSON(text string) (value []byte, n int, err error) {
	in := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	value, err = in.ReadValue()
	return value, int(in.InputOffset()), err
}
