package run

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A configMask replaces values of a configuration file that may be secret by masks, and masks by the
// values again. A mask is bound to its value and to the place of it, so that a text with a mask in
// another place, such as the argument of a command, does not get the value.
type configMask struct{ key []byte }

// NewConfigMask returns a mask for the secrets of a configuration file.
func NewConfigMask() *configMask {
	m := &configMask{make([]byte, sha256.Size)}
	_, _ = rand.Read(m.key) // never fails
	return m
}

// MaskText matches a mask.
var MaskText = regexp.MustCompile(`\[masked:[0-9a-f]{16}\]`)

func (m *configMask) sum(parts ...string) string {
	h := hmac.New(sha256.New, m.key)
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	const digits = 16
	return hex.EncodeToString(h.Sum(nil))[:digits]
}

// version returns a text that changes with a file, and must not reveal anything about it.
func (m *configMask) version(text []byte) string { return m.sum("version", string(text)) }

// A maskedPart is a part of a file that is masked.
type maskedPart struct {
	start, end int    // in the text
	place      string // a JSON pointer, or "comment"
	mask       string
}

// commentPlace is the place of a word of a comment.
const commentPlace = "comment"

// Masked returns the text of a file with masks. Of a file that is not JSON, values stay hidden.
func (m *configMask) Masked(text []byte) string {
	parts, err := m.Parts(text)
	if err != nil {
		var b strings.Builder
		for line := range strings.Lines(string(text)) {
			b.WriteString(configedit.MaskLine(line))
		}
		return b.String()
	}
	var b strings.Builder
	at := 0
	for _, p := range parts {
		b.Write(text[at:p.start])
		b.WriteString(p.mask)
		at = p.end
	}
	b.Write(text[at:])
	return b.String()
}

// Parts returns the parts that are masked, in the order of the text.
func (m *configMask) Parts(text []byte) (parts []maskedPart, err error) {
	plain, err := config.Plain(text)
	if err != nil {
		return nil, err
	}
	all, err := configTexts(plain)
	if err != nil {
		return nil, err
	}
	add := func(start, end int, place, value string) {
		parts = append(parts, maskedPart{start, end, place, "[masked:" + m.sum(place, value) + "]"})
	}
	for _, t := range all {
		if isSecretText(all, t) {
			add(t.start+1, t.end-1, t.place, string(plain[t.start+1:t.end-1])) // without the quotation marks
		}
	}
	for _, word := range target.KeyLike.FindAllIndex(text, -1) {
		value := string(text[word[0]:word[1]])
		if isComment(text, plain, word[0], word[1]) && target.HideKeys(value) != value {
			add(word[0], word[1], commentPlace, value)
		}
	}
	slices.SortFunc(parts, func(a, b maskedPart) int { return a.start - b.start })
	return parts, nil
}

// isComment reports whether a part of a text is in a comment, which the plain JSON lacks.
func isComment(text, plain []byte, start, end int) bool {
	return len(plain) < end || !bytes.Equal(text[start:end], plain[start:end])
}

// Restore replaces the masks in text by the values that old contains.
func (m *configMask) Restore(old []byte, text string) ([]byte, error) {
	found := MaskText.FindAllStringIndex(text, -1)
	if len(found) == 0 {
		return []byte(text), nil
	}
	parts, err := m.Parts(old)
	if err != nil {
		return nil, err
	}
	plain, err := config.Plain([]byte(text))
	if err != nil {
		return nil, err
	}
	places, err := configTexts(plain)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	at := 0
	for _, f := range found {
		place := commentPlace
		if !isComment([]byte(text), plain, f[0], f[1]) {
			place = ""
			for _, t := range places {
				if t.start+1 == f[0] && t.end-1 == f[1] {
					place = t.place
				}
			}
		}
		i := slices.IndexFunc(parts, func(p maskedPart) bool { return p.mask == text[f[0]:f[1]] && p.place == place })
		if i < 0 {
			return nil, fmt.Errorf("%s: the mask %s stands for no value in this place: write the value or a "+
				"variable such as ${NAME}", config.Position(plain, f[0]), text[f[0]:f[1]])
		}
		b.WriteString(text[at:f[0]])
		b.Write(old[parts[i].start:parts[i].end])
		at = f[1]
	}
	b.WriteString(text[at:])
	return b.Bytes(), nil
}

// A configText is a text in a file.
type configText struct {
	start, end int // with the quotation marks
	place      string
	value      string
}

var errTooManyTexts = errors.New("the file has too many texts")

// configTexts returns the texts of plain JSON, which are no names of members.
func configTexts(plain []byte) (all []configText, err error) {
	const most = 100_000
	d := jsontext.NewDecoder(bytes.NewReader(plain), jsontext.AllowDuplicateNames(true))
	for {
		kind := d.PeekKind()
		token, err := d.ReadToken()
		if err != nil {
			if d.StackDepth() == 0 && len(bytes.TrimSpace(plain[d.InputOffset():])) == 0 {
				return all, nil
			}
			return nil, err
		}
		parent, n := d.StackIndex(d.StackDepth())
		if kind != '"' || parent == '{' && n%2 == 1 {
			continue
		}
		end := int(d.InputOffset())
		start := bytes.LastIndexByte(plain[:end-1], '"')
		for start > 0 && isEscaped(plain, start) {
			start = bytes.LastIndexByte(plain[:start], '"')
		}
		if all = append(all, configText{start, end, string(d.StackPointer()), token.String()}); len(all) > most {
			return nil, errTooManyTexts
		}
	}
}

// isEscaped reports whether a character of JSON is behind an odd number of backslashes.
func isEscaped(plain []byte, at int) bool {
	n := 0
	for at-n > 0 && plain[at-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}

// variableOnly matches variables, which are not secret unless they contain a default.
var variableOnly = regexp.MustCompile(`\$\{(?:env:|input:|secret:|file:)?[A-Za-z0-9._~/-]*\}`)

// isSecretText reports whether a text of a file may be secret: the value of a variable or header,
// the value of a member or flag with a secret name, a URL with credentials, or a text that
// resembles a key.
func isSecretText(all []configText, t configText) bool {
	rest := strings.TrimSpace(variableOnly.ReplaceAllString(t.value, ""))
	if rest == "" || rest == "Bearer" || rest == "Basic" {
		return false
	}
	segments := strings.Split(t.place, "/")
	name := segments[len(segments)-1]
	parent := ""
	if len(segments) > 1 {
		parent = segments[len(segments)-2]
	}
	switch parent {
	case "env", "headers", "environment", "http_headers", "env_http_headers", "envs":
		return true
	case "args", "command":
		before := strings.TrimSuffix(t.place, name)
		var args []string
		at := -1
		for _, other := range all {
			if strings.HasPrefix(other.place, before) && !strings.Contains(other.place[len(before):], "/") {
				if other.place == t.place {
					at = len(args)
				}
				args = append(args, other.value)
			}
		}
		return at >= 0 && target.PublicArguments(args)[at] != t.value
	}
	if target.SecretName.MatchString(name) && name != "keys" {
		return true
	}
	if strings.Contains(rest, "://") {
		return target.PublicURL(rest) != rest
	}
	return target.HideKeys(rest) != rest
}
