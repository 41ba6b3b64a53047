package round

import (
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	// maxQuestions limits the questions of a round, because clients limit them too.
	maxQuestions = 64
	// maxQuestionBytes bounds their size: a user reads them.
	maxQuestionBytes = 1 << 20
)

// CheckQuestions returns an error if a result asks the caller of a request questions that the caller
// cannot be asked, or not in the form of the protocol. asksRoots means that the caller answers for
// roots. Spec: basic/patterns/mrtr (2026-07-28).
func CheckQuestions(req *mcp.Request, raw []byte, asksRoots bool) error {
	if m, core := wire.Latest().Method(req.Method); core && !m.MayAskInput {
		return fmt.Errorf("%s allows no input requests", req.Method)
	}
	requests, ok := jsonscan.Get(raw, "inputRequests")
	state, hasState := jsonscan.Get(raw, "requestState")
	switch {
	case !ok && !hasState:
		return errors.New("missing inputRequests and requestState")
	case hasState && jsonscan.Kind(state) != '"':
		return errors.New("requestState must be a string")
	case !ok:
		return nil
	case jsonscan.Kind(requests) != '{':
		return errors.New("inputRequests must be an object")
	case len(requests) > maxQuestionBytes:
		return fmt.Errorf("inputRequests of %d bytes, want at most %d", len(requests), maxQuestionBytes)
	}
	if jsonscan.Valid(requests, jsonscan.Limits{}) != nil {
		// Clients may read the other member.
		return errors.New("inputRequests has a member twice, or other invalid JSON")
	}
	n := 0
	for _, request := range jsonscan.Members(requests) {
		if n++; n > maxQuestions {
			return fmt.Errorf("more than %d input requests", maxQuestions)
		}
		method, _ := jsonscan.Get(request, "method")
		name, err := jsonscan.Unquote(method)
		params, _ := jsonscan.Get(request, "params")
		if err != nil || jsonscan.Kind(request) != '{' || params != nil && jsonscan.Kind(params) != '{' {
			return errors.New("an input request must be an object with a method and params")
		}
		if err := checkQuestion(req.Capabilities(), name, params, asksRoots); err != nil {
			return err
		}
	}
	return nil
}

// checkQuestion checks a question against the capabilities that the client declared.
func checkQuestion(caps mcp.ClientCapabilities, method string, params []byte, asksRoots bool) error {
	undeclared := fmt.Errorf("the client has not declared what %.64q needs", method)
	switch method {
	case wire.MethodRootsList:
		if caps.Roots == nil && asksRoots {
			return undeclared
		}
	case wire.MethodSamplingCreateMessage:
		if caps.Sampling == nil || jsonscan.Has(params, "tools") && caps.Sampling.Tools == nil {
			return undeclared
		}
	case wire.MethodElicitationCreate:
		e := caps.Elicitation
		text := jsonscan.GetString(params, "mode")
		if e == nil || text == "url" && e.URL == nil || text != "url" && e.Form == nil && e.URL != nil {
			return undeclared
		}
		if message, _ := jsonscan.Get(params, "message"); jsonscan.Kind(message) != '"' {
			return errors.New("the message of an elicitation must be a string")
		}
		return checkForm(params)
	default:
		return fmt.Errorf("unknown method %.64q", method)
	}
	return nil
}

// checkForm returns an error if a name or value of a form contains hidden characters.
func checkForm(params []byte) (err error) {
	form, _ := jsonscan.Get(params, "requestedSchema")
	jsonscan.EditText(VisibleQuestion(form, false), func(text string) string {
		if r, found := visible.First(text); found {
			err = fmt.Errorf("a name or value of a form contains the hidden character U+%04X", r)
		}
		return text
	})
	return err
}

// VisibleQuestion returns the params of a question without hidden characters in the texts that a
// client shows to its user or sends to its model. The name of the server must stay at the beginning
// of a text, and a user must see the whole text that he approves. Names and values of a form stay
// unchanged, because answers contain them; checkForm refuses hidden characters in them. If all is
// true, value is such a text or an array of such texts.
func VisibleQuestion(value []byte, all bool) []byte {
	switch jsonscan.Kind(value) {
	case '"':
		text, err := jsonscan.Unquote(value)
		if clean := visible.Strip(text); err == nil && all && clean != text {
			return jsonscan.AppendQuote(nil, clean)
		}
	case '{', '[':
		return jsonscan.Edit(value, func(key, member []byte) ([]byte, []byte) {
			shown := all
			switch string(key) {
			case "title", "description", "enumNames", "message", "systemPrompt", "text":
				shown = true
			}
			return key, VisibleQuestion(member, shown && jsonscan.Kind(member) != '{')
		})
	}
	return value
}
