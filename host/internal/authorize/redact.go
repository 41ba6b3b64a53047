package authorize

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// redactedText replaces removed parts of texts. Other values become null.
const redactedText = "[redacted]"

const (
	// minRedactedText is the length of the shortest removed text that is removed from other texts too:
	// shorter texts are part of words.
	minRedactedText = 4
	// maxRedactedTexts limits the removed texts that are searched for in other texts.
	maxRedactedTexts = 10_000
)

// A redactor removes parts of a result.
type redactor struct {
	pointers [][]string
	secrets  bool
	removed  []string // texts
	exceeded bool     // a limit was exceeded: the result may still contain redacted values
	replace  *strings.Replacer
}

// Redact returns a result without the parts that the redactions name. It returns an error if a
// redaction with MustApply cannot be applied.
func Redact(raw []byte, list []policy.Redaction) ([]byte, error) {
	r := &redactor{}
	must := slices.ContainsFunc(list, func(r policy.Redaction) bool { return r.MustApply })
	if must && !redactable(raw) {
		return nil, errUnredactable
	}
	for _, redaction := range list {
		if redaction.Pointer == "" {
			r.secrets = true
			continue
		}
		var steps []string
		for step := range strings.SplitSeq(strings.TrimPrefix(redaction.Pointer, "/"), "/") {
			steps = append(steps, pointerEscapes.Replace(step))
		}
		r.pointers = append(r.pointers, steps)
	}
	if len(r.pointers) > 0 {
		raw = r.structured(raw)
		raw = jsonscan.EditText(raw, r.inText)
	}
	if must && r.exceeded {
		return nil, errUnredactable
	}
	if len(r.removed) > 0 {
		slices.SortFunc(r.removed, func(a, b string) int { return len(b) - len(a) }) // a text may contain another
		var pairs []string
		for _, text := range slices.Compact(r.removed) {
			pairs = append(pairs, text, redactedText)
		}
		r.replace = strings.NewReplacer(pairs...)
		raw = jsonscan.EditText(raw, r.replace.Replace)
	}
	if r.secrets {
		raw = jsonscan.EditText(raw, func(text string) string { return policy.RedactSecrets(text, redactedText) })
	}
	return raw, nil
}

var pointerEscapes = strings.NewReplacer("~1", "/", "~0", "~")

// structured applies the pointers to the structured contents of a result, also if it is in the result
// of a task, and to the data of an error.
func (r *redactor) structured(raw []byte) []byte {
	for _, at := range [][2]string{{"", "structuredContent"}, {"result", "structuredContent"}, {"error", "data"}} {
		object := raw
		if at[0] != "" {
			var ok bool
			if object, ok = jsonscan.Get(raw, at[0]); !ok || !jsonscan.IsObject(object) {
				continue
			}
		}
		value, ok := jsonscan.Get(object, at[1])
		if !ok {
			continue
		}
		object = jsonscan.WithMember(object, at[1], r.all(value))
		if at[0] != "" {
			object = jsonscan.WithMember(raw, at[0], object)
		}
		raw = object
	}
	return raw
}

const (
	// maxRedactDepth limits how deeply texts that contain JSON may be nested within each other.
	maxRedactDepth = 4
	// redactScans limits how often each byte of a text is read in search of JSON.
	redactScans = 16
)

// inText applies the pointers to all JSON objects and arrays in a text, such as the whole text, its
// lines and fenced blocks, and to the texts in these values.
func (r *redactor) inText(text string) string { return r.inNested(text, maxRedactDepth) }

func (r *redactor) inNested(text string, depth int) string {
	var b strings.Builder
	budget, rest := redactScans*len(text), text
	for {
		if budget < 0 {
			r.exceeded = true
			return b.String() + redactedText // the text was made to be slow to read
		}
		i := strings.IndexAny(rest, "{[")
		if i < 0 {
			break
		}
		if depth == 0 {
			r.exceeded = true
			break
		}
		value, n, err := readJSON(rest[i:])
		if err != nil {
			budget -= readBytes(err, len(rest)-i)
			b.WriteString(rest[:i+1])
			rest = rest[i+1:]
			continue
		}
		end := i + n
		out := r.all(value)
		out = jsonscan.EditText(out, func(text string) string { return r.inNested(text, depth-1) })
		b.WriteString(rest[:i])
		b.Write(out)
		rest = rest[end:]
	}
	b.WriteString(rest)
	return b.String()
}

// readBytes returns how many of at most n bytes were read before an error.
func readBytes(err error, n int) int {
	if syntax := (*jsontext.SyntacticError)(nil); errors.As(err, &syntax) {
		return min(int(syntax.ByteOffset)+1, n)
	}
	return n
}

func (r *redactor) all(value []byte) []byte {
	for _, steps := range r.pointers {
		value = r.at(value, steps)
	}
	return value
}

// at removes the part of a value that a pointer identifies.
func (r *redactor) at(value []byte, steps []string) []byte {
	if len(steps) == 0 {
		return r.remove(value)
	}
	n := -1
	return jsonscan.Edit(value, func(key, member []byte) ([]byte, []byte) {
		n++
		if steps[0] == "*" || key != nil && string(key) == steps[0] || key == nil && isIndex(steps[0], n) {
			return key, r.at(member, steps[1:])
		}
		return key, member
	})
}

// remove returns the replacement of a value, and records the texts of the value.
func (r *redactor) remove(value []byte) []byte {
	r.keep(value)
	if jsonscan.Kind(value) == '"' {
		return []byte(`"` + redactedText + `"`)
	}
	return []byte("null")
}

func (r *redactor) keep(value []byte) {
	text := string(value)
	switch jsonscan.Kind(value) {
	case '{':
		for _, member := range jsonscan.Members(value) {
			r.keep(member)
		}
		return
	case '[':
		for element := range jsonscan.Elements(value) {
			r.keep(element)
		}
		return
	case '"':
		text, _ = jsonscan.Unquote(value)
	case 't', 'f', 'n':
		return
	}
	switch {
	case len(text) < minRedactedText, text == redactedText:
	case len(r.removed) < maxRedactedTexts:
		r.removed = append(r.removed, text)
	default:
		r.exceeded = true
	}
}

// isIndex reports whether a step of a JSON pointer is an index.
func isIndex(step string, n int) bool {
	at := 0
	for _, c := range []byte(step) {
		if c < '0' || c > '9' || at > n {
			return false
		}
		at = at*10 + int(c-'0')
	}
	return step != "" && at == n
}

// FaultResult returns an error of a server in the form of a result, which [Redact] can change.
func FaultResult(e *mcp.Error) mcp.RawResult {
	b := append(jsonscan.AppendQuote([]byte(`{"error":{"message":`), e.Message), `,"code":`...)
	b = strconv.AppendInt(b, int64(e.Code), 10)
	if len(e.Data) > 0 {
		b = append(append(b, `,"data":`...), e.Data...)
	}
	return append(b, "}}"...)
}

// RedactedFault returns the error of a server with the message and data of a redacted [FaultResult].
func RedactedFault(e *mcp.Error, raw []byte) error {
	fault, _ := jsonscan.Get(raw, "error")
	out := mcp.Errorf(e.Code, "%s", jsonscan.GetString(fault, "message"))
	if data, ok := jsonscan.Get(fault, "data"); ok {
		out.Data = data
	}
	return out
}
