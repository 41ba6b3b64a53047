package apps

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A ToolUI describes the view of a tool, and who may call the tool.
//
// Spec: SEP-1865, McpUiToolMeta.
type ToolUI struct {
	// View is the URI of the view that shows the tool's results, or empty.
	View string `json:"resourceUri,omitzero"`
	// Visibility lists who may see and call the tool. Default, if it is nil: the model and views.
	Visibility []Visibility `json:"visibility,omitzero"`
}

// A Visibility is a kind of caller of a tool.
type Visibility string

// The kinds of callers.
//
// Spec: SEP-1865, Visibility.
const (
	VisibilityModel Visibility = "model" // the model may see and call the tool
	VisibilityApp   Visibility = "app"   // views of the same server may call the tool
)

// ForModel reports whether the model may see and call the tool.
func (u ToolUI) ForModel() bool {
	return u.Visibility == nil || slices.Contains(u.Visibility, VisibilityModel)
}

// ForApp reports whether views of the same server may call the tool.
func (u ToolUI) ForApp() bool {
	return u.Visibility == nil || slices.Contains(u.Visibility, VisibilityApp)
}

// ToolUIOf returns the ToolUI in the metadata of a tool. If the metadata is malformed it returns an
// error, and a ToolUI that allows no caller, because the metadata may be meant to hide the tool.
//
// Spec: SEP-1865, Resource Discovery.
func ToolUIOf(t *mcp.Tool) (ToolUI, error) {
	if u, ok := t.Meta[metaKey].(ToolUI); ok {
		return u, nil // set by WithUI in the same process
	}
	u := ToolUI{}
	found, err := decodeMeta(t.Meta, &u)
	if err != nil {
		return ToolUI{Visibility: []Visibility{}}, fmt.Errorf("tool %.128q: %w", t.Name, err)
	}
	if flat, ok := t.Meta[flatKey].(string); ok && (!found || u.View == "") {
		u.View = flat
	}
	if u.View != "" {
		if err := checkURI(u.View); err != nil {
			return ToolUI{Visibility: []Visibility{}}, fmt.Errorf("tool %.128q: invalid view: %w", t.Name, err)
		}
	}
	return u, nil
}

// checkURI returns an error if uri cannot be the URI of a view: "ui://" and an opaque name.
func checkURI(uri string) error {
	if name, ok := strings.CutPrefix(uri, scheme); !ok || name == "" {
		return fmt.Errorf("invalid URI %.128q: want %s and a name", uri, scheme)
	}
	if len(uri) > maxURI {
		return fmt.Errorf("the URI has %d bytes, the limit is %d", len(uri), maxURI)
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("the URI has spaces or characters that must be percent-encoded")
	}
	return nil
}
