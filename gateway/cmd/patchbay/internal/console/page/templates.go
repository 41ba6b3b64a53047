package page

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// shared contains the parts that all screens may use.
//
//go:embed templates
var shared embed.FS

// Templates contains the templates of a [Screen]. It is safe for concurrent use.
type Templates struct {
	pages map[string]*template.Template // by name, each with all parts
	parts *template.Template
}

// Parse parses the templates of a screen; files may be nil. Each template may use the functions of
// more, and these:
//
//   - link: a path with a query of names and values, see [Link]
//   - time: a time for the attribute datetime; the text of a time element is the result of clock
//   - bytes: a number of bytes in words
//   - indent: JSON with line ends, see [Indent]
func Parse(files fs.FS, more template.FuncMap) (*Templates, error) {
	base := template.New("").Option("missingkey=error").Funcs(functions).Funcs(more)
	texts := map[string]string{}
	for _, from := range []fs.FS{shared, files} {
		found, err := read(from)
		if err != nil {
			return nil, err
		}
		maps.Copy(texts, found)
	}
	t := &Templates{pages: map[string]*template.Template{}}
	for name, text := range texts {
		if strings.HasPrefix(name, "part/") {
			if _, err := base.New(name).Parse(text); err != nil {
				return nil, err
			}
		}
	}
	for name, text := range texts {
		if strings.HasPrefix(name, "part/") {
			continue
		}
		whole, err := base.Clone()
		if err == nil {
			_, err = whole.New("screen").Parse(text)
		}
		if err != nil {
			return nil, err
		}
		t.pages[name] = whole
	}
	t.parts = base
	return t, nil
}

// read returns the templates in the folder templates by their names.
func read(files fs.FS) (texts map[string]string, err error) {
	texts = map[string]string{}
	if files == nil {
		return texts, nil
	}
	err = fs.WalkDir(files, "templates", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		texts[strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".html")] = string(text)
		return err
	})
	return texts, err
}

// Body returns the body of a page: its component, or its template.
func (t *Templates) Body(v *View) templ.Component {
	if v.Body != nil {
		return v.Body
	}
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		screen := t.pages[v.Template]
		if screen == nil {
			return fmt.Errorf("no template %q", v.Template)
		}
		return screen.ExecuteTemplate(w, "screen", v.Data)
	})
}

// Part returns the component of a fragment, or its template.
func (t *Templates) Part(f *Fragment) templ.Component {
	if f.Body != nil {
		return f.Body
	}
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		return t.parts.ExecuteTemplate(w, "part/"+f.Part, f.Data)
	})
}

// functions are the functions of all templates, see [Parse].
var functions = template.FuncMap{
	"link":   Link,
	"time":   Time,
	"clock":  Clock,
	"bytes":  term.FormatBytes,
	"indent": func(raw json.RawMessage) string { return Indent(raw) },
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
func ElementID(name string) string { return strings.ReplaceAll(url.PathEscape(name), "%", "_") }

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
