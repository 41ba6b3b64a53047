package check

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxExpected limits the assertions that [Expect] makes, because a person reads them.
	maxExpected = 50
	// maxExpectedValue limits a value that an assertion repeats, in bytes. Assertions about a
	// larger value describe the value.
	maxExpectedValue = 4 << 10
	// maxExpectedDepth limits the depth of the values that are described member by member.
	maxExpectedDepth = 12
	// maxSteadyDepth limits the depth at which [Steady] looks for times and ids: each level is
	// copied.
	maxSteadyDepth = 64
)

// NewCall returns a call whose params are sent unchanged: the text ${ does not begin a variable.
func NewCall(name, method string, params []byte, expect []*Assertion) (*Call, error) {
	literal, err := escape(params)
	if err != nil {
		return nil, err
	}
	return &Call{Name: name, Method: method, Params: literal, Expect: expect}, nil
}

// Expect returns assertions that a result of a method passes, and that another result with the same
// content passes: values that look like times and ids are described by their type or a pattern.
func Expect(method string, result []byte) []*Assertion {
	var e expectation
	if _, found := rawjson.Get(result, "isError"); !found && method == driver.MethodToolsCall {
		e.all = append(e.all, &Assertion{At: new("/isError"), Exists: new(false)})
	}
	for key, value := range rawjson.Members(result) {
		if !slices.Contains(ignored, string(key)) {
			e.add([]string{string(key)}, value)
		}
	}
	return e.all
}

// ExpectError returns the assertion that a call ends with an error.
func ExpectError(code int) []*Assertion { return []*Assertion{{Error: &code}} }

// ignored are the members of results that describe the transfer and not the content.
var ignored = []string{"_meta", "resultType", "ttlMs", "cacheScope", "nextCursor"}

// An expectation collects assertions.
type expectation struct{ all []*Assertion }

// add describes the value at some steps.
func (e *expectation) add(steps []string, value []byte) {
	if len(e.all) >= maxExpected {
		return
	}
	kind, last := rawjson.Kind(value), steps[len(steps)-1]
	isLarge := len(value) > maxExpectedValue
	a := &Assertion{At: new(config.Pointer(steps...))}
	switch {
	case isVolatileName(last) && kind != '{' && kind != '[' || len(steps) == maxExpectedDepth:
		a.Type = new(typeOf(value))
	case !isLarge && !isVolatile(value):
		a.Equals, _ = escape(value) // valid
	case kind == '{':
		for key, member := range rawjson.Members(value) {
			e.add(append(slices.Clone(steps), string(key)), member)
		}
		return
	case kind == '[':
		n := 0
		for element := range rawjson.Elements(value) {
			e.add(append(slices.Clone(steps), strconv.Itoa(n)), element)
			n++
		}
		a.Length = &n
	case isLarge: // a string
		n, _ := strconv.Atoi(string(length(value)))
		a.Length = &n
	default:
		text, _ := rawjson.Unquote(value) // valid
		a.Matches = new(pattern(text))
	}
	e.all = append(e.all, a)
}

// typeOf returns the JSON type of a value.
func typeOf(value []byte) string {
	switch rawjson.Kind(value) {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// isVolatile reports whether a value contains a part that looks like a time or an id.
func isVolatile(value []byte) bool {
	for key, member := range rawjson.Members(value) {
		if isVolatileName(string(key)) || isVolatile(member) {
			return true
		}
	}
	for element := range rawjson.Elements(value) {
		if isVolatile(element) {
			return true
		}
	}
	text, err := rawjson.Unquote(value)
	return err == nil && (volatileText.MatchString(text) || isVolatileJSON(text))
}

// isVolatileJSON reports whether a text is JSON with a volatile part, such as the text of a tool
// that repeats its structured content.
func isVolatileJSON(text string) bool {
	kind := rawjson.Kind([]byte(text))
	return (kind == '{' || kind == '[') && rawjson.Valid([]byte(text)) == nil && isVolatile([]byte(text))
}

// Steady returns a JSON value with "…" in place of each part that looks like a time or an id, also
// within texts that contain JSON. Parts at a depth of more than maxSteadyDepth are unchanged.
func Steady(value []byte) []byte { return steady(value, 0) }

func steady(value []byte, depth int) []byte {
	text, err := rawjson.Unquote(value)
	kind := rawjson.Kind(value)
	out := []byte{kind}
	switch {
	case depth == maxSteadyDepth:
	case err == nil && isVolatileJSON(text):
		return rawjson.AppendQuote(nil, string(steady([]byte(text), depth+1)))
	case err == nil && volatileText.MatchString(text):
		return rawjson.AppendQuote(nil, volatileText.ReplaceAllString(text, "…"))
	case kind == '{':
		for key, member := range rawjson.Members(value) {
			if inner := rawjson.Kind(member); isVolatileName(string(key)) && inner != '{' && inner != '[' {
				member = []byte(`"…"`)
			}
			out = append(append(rawjson.AppendQuote(out, string(key)), ':'), steady(member, depth+1)...)
			out = append(out, ',')
		}
		return append(bytes.TrimSuffix(out, []byte{','}), '}')
	case kind == '[':
		for element := range rawjson.Elements(value) {
			out = append(append(out, steady(element, depth+1)...), ',')
		}
		return append(bytes.TrimSuffix(out, []byte{','}), ']')
	}
	return value
}

// volatileWords end the names of members with a time or an id.
var volatileWords = []string{"id", "ids", "uuid", "guid", "at", "time", "timestamp", "date", "duration", "elapsed",
	"ms", "nonce", "etag", "cursor", "pid", "token", "traceparent"}

// isVolatileName reports whether the name of a member says that its value is a time or an id, such
// as createdAt and session_id.
func isVolatileName(name string) bool {
	last := name
	for i, r := range name {
		isStart := unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1]))
		if isStart || r == '_' || r == '-' || r == '.' {
			last = strings.TrimLeft(name[i:], "_-.")
		}
	}
	return slices.Contains(volatileWords, strings.ToLower(last))
}

// Patterns of times and ids, for the text of a value and for the value of another call.
const (
	uuidPattern = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
	timePattern = `[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?`
	clock       = `[0-9]{1,2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?`
)

var volatileText = regexp.MustCompile(uuidPattern + "|" + timePattern + "|" + clock)

// pattern returns a regular expression for a text with other times and ids. A text of JSON may
// contain more times and ids, so the pattern describes only its beginning.
func pattern(text string) string {
	if isVolatileJSON(text) {
		return `^\s*` + regexp.QuoteMeta(string(rawjson.Kind([]byte(text))))
	}
	var b strings.Builder
	b.WriteString("^")
	at := 0
	for _, found := range volatileText.FindAllStringIndex(text, -1) {
		b.WriteString(regexp.QuoteMeta(text[at:found[0]]))
		b.WriteString("(" + volatileText.String() + ")")
		at = found[1]
	}
	return b.String() + regexp.QuoteMeta(text[at:]) + "$"
}

// IsFor reports whether the file may be for a target, because it names no other server and no
// other URL.
func (f *File) IsFor(target any) bool {
	name, isName := target.(string)
	own, err := rawjson.Unquote(f.target)
	return err != nil || !isName || own == name
}
