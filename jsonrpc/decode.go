package jsonrpc

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// maxBatch is the maximum number of messages in a batch. They are all kept until the batch is
// answered.
const maxBatch = 100

// Decode decodes a message or a batch, with only white space around it.
//
// The error is a [*DecodeError]. Its code is [CodeParseError] for text that is not JSON, including
// invalid UTF-8, a byte order mark, trailing data and, in a request or notification, a lone
// surrogate. In a response, U+FFFD replaces a lone surrogate and Repaired is set. The code is
// [CodeInvalidRequest] for JSON that is not a message: duplicate keys at any depth, more than 64
// levels or 10,000 keys of an object, a version other than "2.0", an id that is not a string or an
// integer, members of several kinds of messages, and keys that differ from the keys of JSON-RPC
// only in case or by a trailing NUL. Other keys are ignored. A batch is rejected as a whole if it
// is not JSON, empty, or contains more than 100 messages. Otherwise its invalid messages are
// rejected separately.
//
// The message aliases data, which must not change afterwards.
func Decode(data []byte) (*Message, error) {
	m := new(Message) // on the stack of a caller that does not keep it, since Decode is inlined
	if err := m.decode(data); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Message) decode(data []byte) error {
	var refused *DecodeError
	if jsonscan.Kind(data) == '[' {
		refused = m.decodeBatch(data)
	} else {
		refused = m.decodeOne(data)
	}
	if refused != nil {
		return refused
	}
	return nil
}

func (m *Message) decodeBatch(data []byte) *DecodeError {
	// A level more than a message may use, for the array. Errors in text that is still JSON
	// belong to an element, and are found again there.
	err := jsonscan.Valid(data, jsonscan.Limits{Depth: jsonscan.DefaultDepth + 1})
	if err != nil && !isJSON(err) {
		return &DecodeError{Err: syntaxError(err)}
	}
	for raw := range jsonscan.Elements(data) {
		if len(m.Batch) == maxBatch {
			return &DecodeError{Kind: Batch, Err: invalid("batch of more than 100 messages")}
		}
		element := new(Message)
		if refused := element.decodeOne(raw); refused != nil {
			element = &Message{Refused: refused}
		}
		m.Batch = append(m.Batch, element)
	}
	if len(m.Batch) == 0 {
		return &DecodeError{Kind: Batch, Err: invalid("empty batch")}
	}
	return nil
}

func (m *Message) decodeOne(data []byte) *DecodeError {
	var e envelope
	err := jsonscan.Visit(data, jsonscan.Limits{}, e.add)
	if isLoneSurrogate(err) && e.kind() == Response {
		// Programs truncate text within a surrogate pair: the rest of the result is still useful.
		e, m.Repaired = envelope{}, true
		err = jsonscan.Visit(jsonscan.ReplaceSurrogates(data), jsonscan.Limits{}, e.add)
	}
	if err != nil {
		e.broken = !isJSON(err)
		e.cutNumber = breaksNumber(data, err)
		return e.refusal(syntaxError(err))
	}
	if fault := e.fill(m, jsonscan.Kind(data)); fault != "" {
		return e.refusal(invalid(fault))
	}
	return nil
}

// syntaxError returns the protocol error for rejected text. It does not quote the text.
func syntaxError(err error) *Error {
	if isJSON(err) {
		return invalid(err.Error())
	}
	return &Error{Code: CodeParseError, Message: "parse error: " + err.Error()}
}

// breaksNumber reports whether the error in text follows a digit.
func breaksNumber(text []byte, err error) bool {
	fault, ok := errors.AsType[*jsonscan.SyntaxError](err)
	if !ok || fault.Offset == 0 || fault.Offset > len(text) {
		return false
	}
	last := text[fault.Offset-1]
	return '0' <= last && last <= '9'
}

// isJSON reports whether the rejected text is still JSON by the grammar.
func isJSON(err error) bool {
	fault, ok := errors.AsType[*jsonscan.SyntaxError](err)
	return ok && fault.WellFormed()
}

func isLoneSurrogate(err error) bool {
	fault, ok := errors.AsType[*jsonscan.SyntaxError](err)
	return ok && fault.Reason == jsonscan.LoneSurrogate
}

func invalid(what string) *Error {
	return &Error{Code: CodeInvalidRequest, Message: "invalid request: " + what}
}

// A field is a key of a message.
type field uint8

const (
	fieldVersion field = iota
	fieldID
	fieldMethod
	fieldParams
	fieldResult
	fieldError
	fields // their number
)

var fieldNames = [fields]string{"jsonrpc", "id", "method", "params", "result", "error"}

// An envelope holds the raw fields of a message.
type envelope struct {
	values    [fields][]byte // also nil for a malformed value
	seen      [fields]bool
	twice     [fields]bool
	lookalike bool
	broken    bool // the text is malformed
	cutNumber bool // the text ends right after a digit
	endsInID  bool // the id is the last member so far
}

// add adds a member of the message.
func (e *envelope) add(key, value []byte) {
	f := fieldOf(key)
	e.endsInID = f == fieldID
	if f == fields {
		e.lookalike = e.lookalike || isLookalike(key)
		return
	}
	e.twice[f] = e.seen[f]
	e.seen[f] = true
	e.values[f] = value
}

// fieldOf returns the field of a key, or fields for any other key.
func fieldOf(key []byte) field {
	for f, name := range fieldNames {
		if string(key) == name {
			return field(f)
		}
	}
	return fields
}

// isLookalike reports whether a less strict reader would take key for a key of JSON-RPC. Case
// folding follows Unicode: the long s and the Kelvin sign count as s and k.
func isLookalike(key []byte) bool {
	key = bytes.TrimRight(key, "\x00")
	for _, name := range fieldNames {
		if bytes.EqualFold(key, []byte(name)) {
			return true
		}
	}
	return false
}

// refusal returns the error for this message, with its id and kind if they are certain.
func (e *envelope) refusal(err *Error) *DecodeError {
	refused := &DecodeError{Kind: e.kind(), Err: err}
	mayBeCut := e.cutNumber && e.endsInID // 12 could have been the beginning of 123
	if id := e.values[fieldID]; !e.twice[fieldID] && isID(id) && !mayBeCut {
		refused.ID = ID{string(id)}
	}
	return refused
}

// kind returns the intended kind of a rejected message. It is Notification only if that is certain,
// since notifications get no response: a method, the right version, and no id up to the end.
func (e *envelope) kind() Kind {
	call := e.seen[fieldMethod]
	reply := e.seen[fieldResult] || e.seen[fieldError]
	switch {
	case call == reply:
		return Invalid
	case reply:
		return Response
	case e.seen[fieldID]:
		return Request
	case e.broken || e.lookalike || !e.isVersion2() || jsonscan.Kind(e.values[fieldMethod]) != '"':
		return Invalid
	}
	return Notification
}

func (e *envelope) isVersion2() bool {
	raw := e.values[fieldVersion]
	if string(raw) == `"2.0"` {
		return true
	}
	version, err := jsonscan.Unquote(raw)
	return err == nil && version == "2.0"
}

// fill fills the message from an envelope whose text is valid, or returns what is wrong with it.
func (e *envelope) fill(m *Message, kind byte) (fault string) {
	switch {
	case kind != '{':
		return "not an object"
	case e.lookalike:
		return "key that differs from one of JSON-RPC's in case or by a NUL"
	case !e.isVersion2():
		return `"jsonrpc" is not "2.0"`
	case e.seen[fieldMethod] && (e.seen[fieldResult] || e.seen[fieldError]):
		return "both a call and a response"
	case e.seen[fieldMethod]:
		return e.fillCall(m)
	case e.seen[fieldResult] && e.seen[fieldError]:
		return `both "result" and "error"`
	case e.seen[fieldParams]:
		return `"params" without "method"`
	case e.seen[fieldResult], e.seen[fieldError]:
		return e.fillResponse(m)
	}
	return `none of "method", "result" and "error"`
}

const badID = `"id" is not a string of at most 256 bytes or an integer of at most 20 digits`

func (e *envelope) fillCall(m *Message) (fault string) {
	if e.seen[fieldID] && !isID(e.values[fieldID]) {
		return badID
	}
	method := e.values[fieldMethod]
	if jsonscan.Kind(method) != '"' || len(method) == len(`""`) {
		return `"method" is not a string, or is empty`
	}
	if jsonscan.Kind(e.values[fieldParams]) == 'n' {
		e.values[fieldParams] = nil // null means that params is absent
	} else if e.seen[fieldParams] {
		if k := jsonscan.Kind(e.values[fieldParams]); k != '{' && k != '[' {
			return `"params" is not an object or array`
		}
	}
	m.Params = e.values[fieldParams]
	m.ID = ID{string(e.values[fieldID])}
	m.Method, _ = jsonscan.Unquote(method) // valid, as Visit checked it
	return ""
}

func (e *envelope) fillResponse(m *Message) (fault string) {
	m.Result = e.values[fieldResult]
	if e.seen[fieldError] {
		if m.Error, fault = decodeError(e.values[fieldError]); fault != "" {
			return fault
		}
	}
	switch id := e.values[fieldID]; {
	case isID(id):
		m.ID = ID{string(id)}
	case e.seen[fieldError] && (id == nil || string(id) == "null"):
		// Spec: schema#jsonrpcerrorresponse. The request's id could not be read; older peers send
		// null.
	case id == nil:
		return `"result" without "id"`
	default:
		return badID
	}
	return ""
}

// decodeError decodes an error object. A value of any other type contains no code.
func decodeError(raw []byte) (err *Error, fault string) {
	code, _ := jsonscan.Get(raw, "code")
	message, _ := jsonscan.Get(raw, "message")
	data, _ := jsonscan.Get(raw, "data")
	err = &Error{Code: errorCode(code), Data: data, remote: true}
	var bad error
	if err.Message, bad = jsonscan.Unquote(message); bad != nil {
		return nil, `"error.message" is not a string`
	}
	return err, ""
}

// errorCode decodes the code of an error. Some peers send a string such as "-32601", or -32601.0.
// Any other value becomes the code of an internal error, so that the message of the error is not lost.
func errorCode(raw []byte) int {
	code, err := strconv.Atoi(string(bytes.TrimSuffix(bytes.Trim(raw, `"`), []byte(".0"))))
	if err != nil {
		return -32603
	}
	return code
}
