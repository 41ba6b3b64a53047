package capture

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// maxNames limits the names of secret members of a server, which sends them.
	maxNames = 1000
	// maxNested limits the JSON texts within strings of JSON texts whose escapes are decoded.
	maxNested = 4
	// maxSecret is the size of the largest secret that is found at the cut of a frame, in bytes: a
	// private key of 8 KiB in which each byte is escaped as \u0041.
	maxSecret = 6 * 8 << 10
	// hidden replaces a value that is secret wherever it occurs.
	hidden = "[hidden]"
)

// names contains the names of members whose values are secret.
type names map[string]struct{}

// A masker replaces secrets. It is safe for concurrent use.
type masker struct {
	secrets atomic.Pointer[func(text string) string] // nil if no secrets are known

	mu      sync.RWMutex
	members map[string]names // by server; guarded by mu, and the values never change
}

// text returns a text without secrets.
func (m *masker) text(text string) string {
	if secrets := m.secrets.Load(); secrets != nil && text != "" {
		return (*secrets)(text)
	}
	return text
}

// target returns the text of a summary without secrets.
func (m *masker) target(text string) string {
	return bounded(m.escaped(m.text(text), maxNested), maxText)
}

// frame returns the text of a frame: without secrets, also in escaped form, and without the values of
// members with the names, and cut to maxFrame bytes.
func (m *masker) frame(text []byte, secret names) string {
	most := maxFrame + maxSecret
	isCut := len(text) > most
	if isCut {
		text = text[:most]
	}
	if len(secret) > 0 {
		text = hideMembers(text, secret)
	}
	masked := m.escaped(m.text(string(text)), maxNested)
	if isCut { // the end may be the beginning of a secret
		masked = masked[:max(len(masked)-maxSecret, 0)] + cutMark
	}
	return bounded(masked, maxFrame)
}

// escaped returns a text with the JSON strings that contain secrets in escaped form replaced.
func (m *masker) escaped(text string, depth int) string {
	if m.secrets.Load() == nil || depth == 0 || !strings.Contains(text, `\`) {
		return text
	}
	var out []byte
	last := 0
	for at := 0; at < len(text); at++ {
		if text[at] != '"' {
			continue
		}
		end, hasEscape := at+1, false
		for ; end < len(text) && text[end] != '"'; end++ {
			if text[end] == '\\' {
				end, hasEscape = end+1, true
			}
		}
		if end = min(end+1, len(text)); hasEscape {
			plain, closed := text[at:end], strings.HasSuffix(text[at:end], `"`)
			if !closed { // the text was cut
				plain += `"`
			}
			if decoded, err := rawjson.Unquote([]byte(plain)); err == nil {
				if masked := m.escaped(m.text(decoded), depth-1); masked != decoded {
					out = rawjson.AppendQuote(append(out, text[last:at]...), masked)
					last = end
				}
			}
		}
		at = end - 1
	}
	if out == nil {
		return text
	}
	return string(out) + text[last:]
}

// hideMembers returns a JSON text with the values of all members with the names hidden. The text may be
// cut.
func hideMembers(text []byte, secret names) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var out []byte
	last := 0
	for {
		token, err := d.ReadToken()
		if err != nil {
			return append(out, text[last:]...)
		}
		kind, n := d.StackIndex(d.StackDepth())
		if kind != '{' || n%2 == 0 { // no name of a member
			continue
		}
		if _, ok := secret[token.String()]; !ok {
			continue
		}
		begin := int(d.InputOffset())
		begin += len(text[begin:]) - len(bytes.TrimLeft(text[begin:], ": \t\r\n"))
		_, err = d.ReadValue()
		out = append(append(out, text[last:begin]...), `"`+hidden+`"`...)
		if last = int(d.InputOffset()); err != nil {
			return out // the value is cut
		}
	}
}

// learn notes the members that a schema within a JSON text declares as secret, with writeOnly or with
// the format password.
func (m *masker) learn(server string, text []byte) {
	if !bytes.Contains(text, []byte(`"writeOnly"`)) && !bytes.Contains(text, []byte(`"password"`)) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found := maps.Clone(m.members[server])
	if found == nil {
		found = names{}
	}
	found.collect(text, "")
	found.collect(text, "") // with the references to definitions that the first pass found
	if m.members == nil {
		m.members = map[string]names{}
	}
	m.members[server] = found
}

// of returns the names of secret members of a server, which must not be changed.
func (m *masker) of(server string) names {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.members[server]
}

// collect adds the names of members whose schema, within value, declares a secret. name is the member
// that value describes.
func (n names) collect(value []byte, name string) {
	switch rawjson.Kind(value) {
	case '[':
		for v := range rawjson.Elements(value) {
			n.collect(v, name)
		}
	case '{':
		for key, v := range rawjson.Members(value) {
			isText := rawjson.Kind(v) == '"'
			switch key := string(key); {
			case key == "writeOnly" && string(v) == "true", key == "format" && string(v) == `"password"`:
				n.add(name)
			case key == "$ref" && isText:
				ref, _ := rawjson.Unquote(v)
				if _, known := n[ref[strings.LastIndexByte(ref, '/')+1:]]; known {
					n.add(name)
				}
			case slices.Contains(applicators, key):
				n.collect(v, name)
			default:
				n.collect(v, key)
			}
		}
	}
}

// applicators are the keywords whose schemas describe the same member as the schema around them, or
// its elements.
var applicators = []string{"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties", "then", "else"}

func (n names) add(name string) {
	if name != "" && len(n) < maxNames {
		n[name] = struct{}{}
	}
}

// An id of a session appears as shownDigits digits of its hash: enough to tell the sessions of a page apart.
const shownDigits = 6

// appendHeader appends the first line and the headers of an HTTP message. Only the values of public
// headers are shown.
func appendHeader(to []byte, first string, header map[string][]string) []byte {
	to = append(append(to, first...), '\n')
	names := make([]string, 0, 32) // enough for most messages
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := strings.Join(header[name], ", ")
		switch canonical := http.CanonicalHeaderKey(name); {
		case value == hidden: // by the transport
		case canonical == "Mcp-Session-Id":
			sum := sha256.Sum256([]byte(value))
			value = "session " + hex.EncodeToString(sum[:])[:shownDigits]
		case canonical == "Location":
			value = target.PublicURL(value)
		case !slices.Contains(publicHeaders, canonical):
			value = hidden
		}
		to = append(append(append(append(to, name...), ": "...), value...), '\n')
	}
	return to
}
