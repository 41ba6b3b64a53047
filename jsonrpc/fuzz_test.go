package jsonrpc_test

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

func addSeeds(f *testing.F) {
	for _, tt := range refusals {
		if len(tt.text) < 1000 {
			f.Add([]byte(tt.text))
		}
	}
	for _, text := range []string{
		toolsCall,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9007199254740993}}`,
		`{"jsonrpc":"2.0","id":"\u0061","result":{"content":[{"type":"text","text":"\ud83d\ude00"}]}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m","data":[{"a":1}]}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},[],1]`,
	} {
		f.Add([]byte(text))
	}
}

// A node is a JSON value as the reference reader decodes it.
type node struct {
	raw    string
	kind   jsontext.Kind
	text   string   // of a string
	keys   []string // of an object
	values []*node  // of an object or array
	depth  int      // of containers in it
}

// A referenceReader decodes JSON token by token.
type referenceReader struct {
	text string
	dec  *jsontext.Decoder
	deep int // the maximum depth
}

func newReferenceReader(text string) *referenceReader {
	return &referenceReader{
		text: text,
		dec:  jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true)),
	}
}

// document reads the one value of the text.
func (r *referenceReader) document() (*node, error) {
	n, err := r.value()
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.ReadToken(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return n, nil
}

func (r *referenceReader) value() (*node, error) {
	start := int(r.dec.InputOffset())
	for start < len(r.text) && strings.IndexByte(" \t\r\n,:", r.text[start]) >= 0 {
		start++
	}
	tok, err := r.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	r.deep = max(r.deep, r.dec.StackDepth())
	n := &node{kind: tok.Kind()}
	switch n.kind {
	case '"':
		n.text = tok.String()
	case '{', '[':
		for r.dec.PeekKind() != '}' && r.dec.PeekKind() != ']' {
			if n.kind == '{' {
				key, err := r.dec.ReadToken()
				if err != nil {
					return nil, err
				}
				n.keys = append(n.keys, key.String())
			}
			child, err := r.value()
			if err != nil {
				return nil, err
			}
			n.values = append(n.values, child)
			n.depth = max(n.depth, child.depth)
		}
		n.depth++
		if _, err := r.dec.ReadToken(); err != nil {
			return nil, err
		}
	}
	n.raw = r.text[start:r.dec.InputOffset()]
	return n, nil
}

// ambiguous reports whether any object in n has a key twice, or too many.
func (n *node) ambiguous() bool {
	seen := map[string]bool{}
	for _, key := range n.keys {
		if seen[key] {
			return true
		}
		seen[key] = true
	}
	for _, child := range n.values {
		if child.ambiguous() {
			return true
		}
	}
	return len(n.keys) > 10_000
}

// all returns the values of key in n.
func (n *node) all(key string) (found []*node) {
	for i, k := range n.keys {
		if k == key {
			found = append(found, n.values[i])
		}
	}
	return found
}

// one returns the first value of key in n, or nil.
func (n *node) one(key string) *node {
	if found := n.all(key); len(found) > 0 {
		return found[0]
	}
	return nil
}

var (
	integerID  = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,19})$`)
	stringID   = regexp.MustCompile(`^"[^\n]{0,256}"$`)
	foldedKeys = regexp.MustCompile("^(?i:j[s\u017f]onrpc|id|method|param[s\u017f]|re[s\u017f]ult|error)\x00*$")
	exactKeys  = regexp.MustCompile(`^(jsonrpc|id|method|params|result|error)$`)
)

func isID(n *node) bool {
	return n != nil && (integerID.MatchString(n.raw) || len(n.raw) <= 258 && stringID.MatchString(n.raw))
}

func (n *node) raws() string {
	if n == nil {
		return ""
	}
	return n.raw
}

// referenceKind returns the kind of a message, or Invalid.
func referenceKind(n *node) jsonrpc.Kind {
	if n.kind != '{' || n.ambiguous() || n.depth > 64 {
		return jsonrpc.Invalid
	}
	for _, key := range n.keys {
		if foldedKeys.MatchString(key) && !exactKeys.MatchString(key) {
			return jsonrpc.Invalid
		}
	}
	version, id, method, params := n.one("jsonrpc"), n.one("id"), n.one("method"), n.one("params")
	result, fault := n.one("result"), n.one("error")
	if version == nil || version.kind != '"' || version.text != "2.0" {
		return jsonrpc.Invalid
	}
	if params != nil && (method == nil || params.kind != '{' && params.kind != '[' && params.raw != "null") {
		return jsonrpc.Invalid
	}
	switch {
	case method != nil && result == nil && fault == nil:
		if method.kind != '"' || method.text == "" {
			return jsonrpc.Invalid
		}
		if id == nil {
			return jsonrpc.Notification
		}
		if isID(id) {
			return jsonrpc.Request
		}
	case method == nil && result != nil && fault == nil:
		if isID(id) {
			return jsonrpc.Response
		}
	case method == nil && result == nil && fault != nil:
		message := fault.one("message") // any code is accepted
		isError := message != nil && message.kind == '"'
		if isError && (id == nil || id.raw == "null" || isID(id)) {
			return jsonrpc.Response
		}
	}
	return jsonrpc.Invalid
}

// FuzzDecode compares Decode with the reference reader: acceptance, code, kind, and every field of the
// message.
func FuzzDecode(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		ref := newReferenceReader(string(data))
		root, wantErr := ref.document()
		m, err := jsonrpc.Decode(data)
		if err == nil && m.Repaired {
			again, err := jsonrpc.Decode(jsonrpc.Append(nil, m))
			if m.Kind() != jsonrpc.Response || err != nil || again.Repaired {
				t.Fatalf("Decode(%q) repaired to %+v, which decodes to %+v, %v", data, m, again, err)
			}
			return
		}
		refused, _ := errors.AsType[*jsonrpc.DecodeError](err)
		if (err != nil) != (refused != nil) || (m == nil) != (err != nil) {
			t.Fatalf("Decode = %+v, %v", m, err)
		}
		switch {
		case wantErr != nil && ref.deep > 64: // below that depth only brackets and quotes are checked
			if refused == nil && !slices.ContainsFunc(m.Batch, func(e *jsonrpc.Message) bool { return e.Refused != nil }) {
				t.Fatalf("Decode(%q) = %+v, %v; want a refusal: %v", data, m, err, wantErr)
			}
		case wantErr != nil:
			if refused == nil || refused.Err.Code != jsonrpc.CodeParseError {
				t.Fatalf("Decode(%q) = %+v, %v; want a parse error: %v", data, m, err, wantErr)
			}
		case root.kind != '[':
			compare(t, root, m, refused)
		case len(root.values) == 0 || len(root.values) > 100:
			if refused == nil || refused.Err.Code != jsonrpc.CodeInvalidRequest {
				t.Fatalf("Decode(%q) = %+v, %v; want refusal of the batch", data, m, err)
			}
		default:
			if err != nil || len(m.Batch) != len(root.values) {
				t.Fatalf("Decode(%q) = %+v, %v; want a batch of %d", data, m, err, len(root.values))
			}
			for i, element := range m.Batch {
				compare(t, root.values[i], element, element.Refused)
			}
		}
	})
}

func compare(t *testing.T, root *node, m *jsonrpc.Message, refused *jsonrpc.DecodeError) {
	t.Helper()
	want := referenceKind(root)
	if (refused != nil) != (want == jsonrpc.Invalid) {
		t.Fatalf("%q decoded to %+v, %v; want %v", root.raw, m, refused, want)
	}
	id := ""
	if ids := root.all("id"); root.kind == '{' && len(ids) == 1 && isID(ids[0]) {
		id = ids[0].raw
	}
	if refused != nil {
		if refused.Err.Code != jsonrpc.CodeInvalidRequest || refused.ID.String() != id {
			t.Fatalf("%q refused with %v and id %q, want code -32600 and id %q", root.raw, refused, refused.ID, id)
		}
		return
	}
	method := ""
	if n := root.one("method"); n != nil {
		method = n.text
	}
	if m.Kind() != want || m.ID.String() != id || m.Method != method ||
		string(m.Params) != strings.TrimPrefix(root.one("params").raws(), "null") ||
		string(m.Result) != root.one("result").raws() {
		t.Fatalf("%q decoded to %+v, want %v", root.raw, m, want)
	}
	fault := root.one("error")
	if (fault != nil) != (m.Error != nil) {
		t.Fatalf("%q decoded to error %v", root.raw, m.Error)
	}
	if fault != nil && (m.Error.Message != fault.one("message").text || string(m.Error.Data) != fault.one("data").raws()) {
		t.Fatalf("%q decoded to error %+v", root.raw, m.Error)
	}
}

// FuzzRoundTrip encodes and decodes a decoded message again.
func FuzzRoundTrip(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := jsonrpc.Decode(data)
		if err != nil || hasRefused(first) {
			return
		}
		line := jsonrpc.Append(nil, first)
		if bytes.ContainsAny(line, "\r\n") {
			t.Fatalf("%q encoded on more than one line: %q", data, line)
		}
		second, err := jsonrpc.Decode(line)
		if err != nil {
			t.Fatalf("%q encoded as %q: %v", data, line, err)
		}
		spaces := cmp.Transformer("spaces", func(raw []byte) string {
			return strings.NewReplacer("\n", " ", "\r", " ").Replace(string(raw))
		})
		if diff := cmp.Diff(first, second, compareMessages, spaces); diff != "" {
			t.Fatalf("%q encoded as %q: -first +second\n%s", data, line, diff)
		}
		if again := jsonrpc.Append(nil, second); !bytes.Equal(line, again) {
			t.Fatalf("%q encoded again as %q", line, again)
		}
	})
}

func hasRefused(m *jsonrpc.Message) bool {
	for _, element := range m.Batch {
		if element.Refused != nil {
			return true
		}
	}
	return false
}

// ParseID and Decode accept the same ids.
func FuzzParseID(f *testing.F) {
	for _, raw := range []string{`1`, `-0`, `01`, `1.0`, `"a"`, `"\ud800"`, `null`, `""`, `"a"b"`, " 1"} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		id, err := jsonrpc.ParseID(raw)
		n, wantErr := newReferenceReader(string(raw)).document()
		if want := wantErr == nil && n.raw == string(raw) && isID(n); want != (err == nil) {
			t.Fatalf("ParseID(%q) = %v, %v", raw, id, err)
		}
		if err == nil && id.String() != string(raw) {
			t.Fatalf("ParseID(%q) = %v", raw, id)
		}
	})
}
