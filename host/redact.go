package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/secrettext"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// redactedText replaces what is removed from texts. Other values become null.
const redactedText = "[redacted]"

const (
	// minRedactedText is the length of the shortest removed text that is removed from other texts too:
	// shorter ones are part of words.
	minRedactedText = 4
	// maxRedactedTexts bounds the removed texts that are searched for in others.
	maxRedactedTexts = 10_000
)

// A redactor removes parts of one result.
type redactor struct {
	pointers [][]string
	secrets  bool
	removed  []string // texts
	exceeded bool     // a limit was exceeded: the result may still contain redacted values
	replace  *strings.Replacer
}

// redact returns a result without the parts that the redactions name. The error is errUnredactable
// if a redaction with MustApply cannot be applied.
func redact(raw []byte, list []Redaction) ([]byte, error) {
	r := &redactor{}
	must := slices.ContainsFunc(list, func(r Redaction) bool { return r.MustApply })
	if must && !redactable(raw) {
		return nil, errUnredactable
	}
	for _, one := range list {
		if one.Pointer == "" {
			r.secrets = true
			continue
		}
		var steps []string
		for step := range strings.SplitSeq(strings.TrimPrefix(one.Pointer, "/"), "/") {
			steps = append(steps, pointerEscapes.Replace(step))
		}
		r.pointers = append(r.pointers, steps)
	}
	if len(r.pointers) > 0 {
		raw = r.structured(raw)
		raw = r.strings(raw, r.inText)
	}
	if must && r.exceeded {
		return nil, errUnredactable
	}
	if len(r.removed) > 0 {
		slices.SortFunc(r.removed, func(a, b string) int { return len(b) - len(a) }) // one may contain another
		var pairs []string
		for _, text := range slices.Compact(r.removed) {
			pairs = append(pairs, text, redactedText)
		}
		r.replace = strings.NewReplacer(pairs...)
		raw = r.strings(raw, r.replace.Replace)
	}
	if r.secrets {
		raw = r.strings(raw, func(text string) string { return secrettext.Redact(text, redactedText) })
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
		out = r.strings(out, func(text string) string { return r.inNested(text, depth-1) })
		b.WriteString(rest[:i])
		b.Write(out)
		rest = rest[end:]
	}
	b.WriteString(rest)
	return b.String()
}

// readJSON returns the JSON value at the beginning of a text, and its length in bytes.
func readJSON(text string) (value []byte, n int, err error) {
	in := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	value, err = in.ReadValue()
	return value, int(in.InputOffset()), err
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

// at removes what a pointer names in a value.
func (r *redactor) at(value []byte, steps []string) []byte {
	if len(steps) == 0 {
		return r.remove(value)
	}
	n := -1
	return edit(value, func(key, member []byte) ([]byte, []byte) {
		n++
		if steps[0] == "*" || key != nil && string(key) == steps[0] || key == nil && isIndex(steps[0], n) {
			return key, r.at(member, steps[1:])
		}
		return key, member
	})
}

// remove returns what replaces a value, and keeps its texts.
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

// strings applies a function to all strings of a value, and to the names of members.
func (r *redactor) strings(value []byte, change func(string) string) []byte {
	switch jsonscan.Kind(value) {
	case '"':
		text, err := jsonscan.Unquote(value)
		if err != nil {
			return value
		}
		if changed := change(text); changed != text {
			return jsonscan.AppendQuote(nil, changed)
		}
		return value
	case '{', '[':
		return edit(value, func(key, member []byte) ([]byte, []byte) {
			if key != nil {
				key = []byte(change(string(key)))
			}
			return key, r.strings(member, change)
		})
	}
	return value
}

// edit returns an object or an array with the members or elements that a function returns, whose keys
// are nil in an array. It returns the value itself if nothing is changed, or if it is neither.
func edit(value []byte, change func(key, member []byte) ([]byte, []byte)) []byte {
	var b []byte
	changed := false
	add := func(key, member []byte) {
		newKey, newMember := change(key, member)
		if len(b) > 1 {
			b = append(b, ',')
		}
		if key != nil {
			b = append(jsonscan.AppendQuote(b, string(newKey)), ':')
		}
		b = append(b, newMember...)
		changed = changed || !bytes.Equal(key, newKey) || !bytes.Equal(member, newMember)
	}
	switch jsonscan.Kind(value) {
	case '{':
		b = append(b, '{')
		for key, member := range jsonscan.Members(value) {
			if key == nil {
				key = []byte{}
			}
			add(key, member)
		}
		b = append(b, '}')
	case '[':
		b = append(b, '[')
		for element := range jsonscan.Elements(value) {
			add(nil, element)
		}
		b = append(b, ']')
	}
	if !changed {
		return value
	}
	return b
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

// faultResult returns an error of a server in the form of a result.
func faultResult(e *mcp.Error) mcp.RawResult {
	b := append(jsonscan.AppendQuote([]byte(`{"error":{"message":`), e.Message), `,"code":`...)
	b = append(b, mustJSON(e.Code)...)
	if len(e.Data) > 0 {
		b = append(append(b, `,"data":`...), e.Data...)
	}
	return append(b, "}}"...)
}

// redactFault returns the error of a server with the message and data of its redacted form.
func redactFault(e *mcp.Error, raw []byte) error {
	fault, _ := jsonscan.Get(raw, "error")
	out := mcp.Errorf(e.Code, "%s", jsonscan.GetString(fault, "message"))
	if data, ok := jsonscan.Get(fault, "data"); ok {
		out.Data = data
	}
	return out
}

// mustJSON returns the JSON of a value of this package.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such type is used
	}
	return b
}
