package mcp

import (
	"encoding/base64"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// A Resource describes something that clients can read: a file, a record, a page.
//
// Spec: server/resources; schema Resource.
type Resource struct {
	// URI identifies the resource. Use the https scheme only if clients can fetch the URI from the
	// web by themselves.
	URI         string `json:"uri"`
	Name        string `json:"name"`                 // for programs
	Title       string `json:"title,omitzero"`       // the name for people; default: Name
	Description string `json:"description,omitzero"` // explains the contents to the model
	// MIMEType is the type of the contents. Default: text/plain for functions that return a string,
	// application/octet-stream for functions that return bytes.
	MIMEType string `json:"mimeType,omitzero"`
	// Size is the number of bytes of the contents; nil if unknown.
	Size        *int64       `json:"size,omitzero"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Icons       []Icon       `json:"icons,omitempty"`
	Meta        Meta         `json:"_meta,omitzero"`

	// Cache contains the cache hints of the contents. Default: no caching.
	Cache Cache `json:"-"`
}

// A ResourceTemplate describes a family of resources by the pattern of their URIs.
//
// Spec: server/resources, Resource Templates; schema ResourceTemplate.
type ResourceTemplate struct {
	// URITemplate is the pattern, by RFC 6570, such as "file:///logs/{day}{?level}".
	URITemplate string `json:"uriTemplate"`
	Name        string `json:"name"`                 // for programs
	Title       string `json:"title,omitzero"`       // the name for people; default: Name
	Description string `json:"description,omitzero"` // explains the contents to the model
	// MIMEType is the type of the contents, if it is the same for all. Default: as for [Resource].
	MIMEType    string       `json:"mimeType,omitzero"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Icons       []Icon       `json:"icons,omitempty"`
	Meta        Meta         `json:"_meta,omitzero"`

	// Cache contains the cache hints of the contents. Default: no caching.
	Cache Cache `json:"-"`
	// Complete contains functions that suggest values for variables, by the variables' names. A
	// variable whose type is an enum is completed by default.
	Complete map[string]CompleteFunc `json:"-"`
}

// Expand returns the URI of a resource of the family. The values of variables must be string,
// []string or map[string]string; absent variables expand to an empty text. It returns an error if
// the template is malformed or a value is of another type.
//
// Spec: server/resources, Resource Templates; RFC 6570.
func (t *ResourceTemplate) Expand(vars map[string]any) (string, error) {
	parsed, err := uritemplate.Parse(t.URITemplate)
	if err != nil {
		return "", fmt.Errorf("URI template %.128q: %w", t.URITemplate, err)
	}
	uri, err := parsed.Expand(vars)
	if err != nil {
		return "", fmt.Errorf("URI template %.128q: %w", t.URITemplate, err)
	}
	return uri, nil
}

// ResourceContents are the contents of a resource, or a part: text, or bytes if Blob is not nil.
//
// Spec: server/resources, Resource Contents; schema TextResourceContents, BlobResourceContents.
type ResourceContents struct {
	URI      string `json:"uri"`               // default in a function: the requested URI
	MIMEType string `json:"mimeType,omitzero"` // default in a function: the MIMEType of the resource
	Text     string `json:"text,omitzero"`
	Blob     []byte `json:"blob,omitzero"` // base64 on the wire
	Meta     Meta   `json:"_meta,omitzero"`
}

// MarshalJSON encodes the contents with either text or blob, even if that is empty.
func (c *ResourceContents) MarshalJSON() ([]byte, error) { return c.append(nil) }

func (c *ResourceContents) append(dst []byte) ([]byte, error) {
	dst = append(dst, `{"uri":`...)
	dst = jsonscan.AppendQuote(dst, c.URI)
	if c.MIMEType != "" {
		dst = append(dst, `,"mimeType":`...)
		dst = jsonscan.AppendQuote(dst, c.MIMEType)
	}
	if c.Blob != nil {
		dst = append(dst, `,"blob":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, c.Blob)
		dst = append(dst, '"')
	} else {
		dst = append(dst, `,"text":`...)
		dst = jsonscan.AppendQuote(dst, c.Text)
	}
	if c.Meta != nil {
		dst = append(dst, `,"_meta":`...)
		var err error
		if dst, err = appendValue(dst, c.Meta); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// A ReadResourceResult contains the contents of a resource, in one or several parts.
//
// Spec: server/resources, Reading Resources; schema ReadResourceResult.
type ReadResourceResult struct {
	Contents []*ResourceContents `json:"contents"`
	// Cache contains the cache hints. Default in a function: the hints of the resource.
	Cache
	Meta `json:"-"`
	complete
}

func (r *ReadResourceResult) appendFields(dst []byte) ([]byte, error) {
	dst = append(dst, `"contents":[`...)
	var err error
	for i, c := range r.Contents {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = c.append(dst); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

// A ListResourcesResult is a page of a server's resources.
//
// Spec: server/resources, Listing Resources.
type ListResourcesResult struct {
	Resources  []*Resource `json:"resources"`
	NextCursor string      `json:"nextCursor,omitzero"`
	Cache
	Meta `json:"-"`
	complete

	page *listPage[*Resource]
}

// A ListResourceTemplatesResult is a page of a server's resource templates.
//
// Spec: server/resources, Resource Templates.
type ListResourceTemplatesResult struct {
	ResourceTemplates []*ResourceTemplate `json:"resourceTemplates"`
	NextCursor        string              `json:"nextCursor,omitzero"`
	Cache
	Meta `json:"-"`
	complete

	page *listPage[*ResourceTemplate]
}
