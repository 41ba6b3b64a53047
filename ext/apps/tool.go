package apps

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A ToolUI says what a tool has to do with views.
//
// Spec: SEP-1865, McpUiToolMeta.
type ToolUI struct {
	// View is the URI of the view that shows the tool's results; empty for none.
	View string `json:"resourceUri,omitzero"`
	// Visibility says who may use the tool. Default, if it is nil: the model and the view.
	Visibility []Visibility `json:"visibility,omitzero"`
}

// A Visibility is somebody who may use a tool.
type Visibility string

// Who may use a tool. Spec: SEP-1865, Visibility.
const (
	VisibilityModel Visibility = "model" // the model sees and calls the tool
	VisibilityApp   Visibility = "app"   // views of the same server call the tool
)

// ForModel reports whether the model may see and call the tool.
func (u ToolUI) ForModel() bool {
	return u.Visibility == nil || slices.Contains(u.Visibility, VisibilityModel)
}

// ForApp reports whether views of the same server may call the tool.
func (u ToolUI) ForApp() bool {
	return u.Visibility == nil || slices.Contains(u.Visibility, VisibilityApp)
}

// ToolUIOf returns what a server says about one of its tools and views. An error means that it says it wrongly; the tool is
// then for nobody, since it cannot be told from whom it is to be hidden.
//
// Spec: SEP-1865, Resource Discovery.
func ToolUIOf(t *mcp.Tool) (ToolUI, error) {
	if u, ok := t.Meta[metaKey].(ToolUI); ok {
		return u, nil // a server's own
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
			return ToolUI{Visibility: []Visibility{}}, fmt.Errorf("tool %.128q: its view: %w", t.Name, err)
		}
	}
	return u, nil
}

// checkURI holds the URI of a view to its scheme; the rest is an opaque name.
func checkURI(uri string) error {
	if name, ok := strings.CutPrefix(uri, scheme); !ok || name == "" {
		return fmt.Errorf("the URI %.128q does not begin with %s and a name", uri, scheme)
	}
	if len(uri) > maxURI {
		return fmt.Errorf("the URI has %d characters, at most %d are taken", len(uri), maxURI)
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("the URI holds spaces, or characters that are to be percent-encoded")
	}
	return nil
}
