package load

import (
	"bytes"
	"fmt"
	"net/url"
)

// A second makes the further requests of a call that the server answers with a
// question, or of a list of several pages.
type second struct {
	list   bool
	url    *url.URL
	header string
	body   []byte // the first request without its last two braces
}

// request returns the request that follows a response. It has the id of the first
// request, which has ended.
func (s *second) request(response, id []byte) ([]byte, error) {
	var members []byte
	if s.list {
		cursor, found := member(response, `"nextCursor":"`)
		if !found {
			return nil, fmt.Errorf("response to id %s has no cursor: %.300q", id, response)
		}
		members = fmt.Appendf(nil, `"cursor":"%s"`, cursor)
	} else {
		state, found := member(response, `"requestState":"`)
		key, asked := member(response, `"inputRequests":{"`)
		if !found || !asked {
			return nil, fmt.Errorf("response to id %s has no question: %.300q", id, response)
		}
		members = fmt.Appendf(nil, `"requestState":"%s","inputResponses":{"%s":`+
			`{"action":"accept","content":{"value":true}}}`, state, key)
	}
	body := fmt.Appendf(nil, "%s,%s}}", s.body, members)
	_, digits, _ := bytes.Cut(body, []byte(`"id":`))
	copy(digits[:idDigits], id)
	return post(s.url, s.header, body), nil
}

// member returns the rest of a string that begins with opening, and has no
// escapes.
func member(response []byte, opening string) ([]byte, bool) {
	_, after, found := bytes.Cut(response, []byte(opening))
	text, _, ended := bytes.Cut(after, []byte(`"`))
	return text, found && ended && !bytes.Contains(text, []byte(`\\`))
}
