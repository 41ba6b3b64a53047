package mcphttp

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const (
	typeJSON        = "application/json"
	typeEventStream = "text/event-stream"
)

// maxRanges bounds the media ranges of an Accept header that are read. Browsers send less than ten,
// programs two.
const maxRanges = 32

// checkContent returns the reason not to read the body, or nil. Only plain JSON is accepted: with
// any other type HTML forms could post to the endpoint across sites, without a preflight.
func checkContent(head *head) *refusal {
	if encoding := head.encoding; encoding != "" && !strings.EqualFold(encoding, "identity") {
		return refuse(http.StatusUnsupportedMediaType, "compressed bodies are not read")
	}
	if !isJSON(head.contentType) {
		return refuse(http.StatusUnsupportedMediaType, "Content-Type must be "+typeJSON)
	}
	return nil
}

func isJSON(contentType string) bool {
	if contentType == typeJSON {
		return true
	}
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != typeJSON {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// checkAccept returns the reason not to answer a POST, or nil. The client must accept JSON, and
// should accept event streams: the server chooses between them while it processes the request. A
// client that accepts only JSON receives the response without the notifications and requests that a
// stream carries before it. Spec: basic/transports/streamable-http#sending-messages
func checkAccept(accept []string) *refusal {
	if accepts(accept, typeJSON) {
		return nil
	}
	return errNotAcceptable
}

var errNotAcceptable = refuse(http.StatusNotAcceptable, "Accept must list "+typeJSON+" and "+typeEventStream)

// accepts reports whether the Accept lines allow a media type. The most specific matching range
// decides. Without any line everything is allowed. Spec: RFC 9110, section 12.5.1
func accepts(lines []string, want string) bool {
	if len(lines) == 0 {
		return true
	}
	best, allowed, ranges := 0, false, 0
	for _, line := range lines {
		if line == typeJSON+", "+typeEventStream || line == typeEventStream+", "+typeJSON {
			return true // the value that nearly every client sends
		}
		for ; line != "" && ranges < maxRanges; ranges++ {
			var element string
			element, line = cutElement(line)
			mediaRange, params, err := mime.ParseMediaType(element)
			if err != nil {
				continue
			}
			if s := specificity(mediaRange, want); s > best {
				weight, err := strconv.ParseFloat(params["q"], 64)
				best, allowed = s, err != nil || weight != 0
			}
		}
	}
	return allowed
}

// cutElement splits a list at its first comma outside quotes.
func cutElement(list string) (element, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch list[i] {
		case '"':
			quoted = !quoted
		case '\\':
			if quoted {
				i++
			}
		case ',':
			if !quoted {
				return list[:i], list[i+1:]
			}
		}
	}
	return list, ""
}

// specificity is 0 for a media range that does not match.
func specificity(mediaRange, mediaType string) int {
	switch {
	case mediaRange == mediaType:
		return 3
	case mediaRange == "*/*":
		return 1
	}
	if major, ok := strings.CutSuffix(mediaRange, "/*"); ok && strings.HasPrefix(mediaType, major+"/") {
		return 2
	}
	return 0
}
