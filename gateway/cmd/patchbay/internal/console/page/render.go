package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Render returns the HTML of a component, with hidden characters escaped. The component may call
// [Asset], [AssetsDigest] and [Has].
func (s *Site) Render(c templ.Component) ([]byte, error) {
	var b bytes.Buffer
	if err := c.Render(context.WithValue(context.Background(), siteKey{}, s), &b); err != nil {
		return nil, err
	}
	return showHidden(b.Bytes()), nil
}

// A siteKey is the key of the site in the context of a component.
type siteKey struct{}

func siteOf(ctx context.Context) *Site { return ctx.Value(siteKey{}).(*Site) }

// Asset returns the URL of a file in assets. The context must be the context of a component.
func Asset(ctx context.Context, name string) string { return siteOf(ctx).AssetURL(name) }

// AssetsDigest returns the digest of the assets, with which live.js notices a newer console. The
// context must be the context of a component.
func AssetsDigest(ctx context.Context) string { return siteOf(ctx).AssetsDigest }

// Has reports whether the console has a screen or action at a path. The context must be the
// context of a component.
func Has(ctx context.Context, path string) bool { return siteOf(ctx).HasPath(path) }

// Time returns a time for the attribute datetime. The text of a time element is the result of
// [Clock].
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Clock returns the time of day, in the time zone of the console.
func Clock(t time.Time) string { return t.Local().Format("15:04:05") }

// If returns yes if the condition is true, otherwise no.
func If(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// hintOf returns the kind of a field and the limits of its value, in words.
func hintOf(f *form.Field) string {
	var words []string
	switch {
	case f.Kind == form.KindJSON:
		words = append(words, "JSON")
	case f.Kind == form.KindList:
		words = append(words, "list")
	case f.IsContainer():
		words = append(words, "object")
	case f.Kind == form.KindNumber && len(f.Notes) == 0:
		words = append(words, "number")
	case f.Kind == form.KindText && f.Format != "":
		words = append(words, f.Format)
	}
	words = append(words, f.Notes...)
	return strings.Join(words, ", ") + If(f.Nullable, ", or null", "")
}

// Link returns a path with a query of names and values. It returns an error for a name without a
// value.
func Link(path string, words ...string) (string, error) {
	if len(words)%2 != 0 {
		return "", fmt.Errorf("link %s: a name without a value", path)
	}
	q := url.Values{}
	for i := 0; i < len(words); i += 2 {
		q.Set(words[i], words[i+1])
	}
	if len(q) == 0 {
		return path, nil
	}
	return path + "?" + q.Encode(), nil
}

// ElementID returns a text without the characters that an id must not contain, different for
// different names.
func ElementID(name string) string {
	return strings.NewReplacer("_", "_5F", "%", "_").Replace(url.PathEscape(name))
}

// Indent returns JSON with line ends, and the same numbers and strings. Hidden characters are
// escaped. A text that is no JSON is returned with hidden characters escaped.
func Indent(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		b.Reset()
		b.Write(raw)
	}
	return term.CleanJSON(b.String())
}
