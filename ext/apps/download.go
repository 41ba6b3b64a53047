package apps

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

// A Download is a file that a page offers the user. Its content is as untrusted as the page.
//
// Spec: SEP-1865, ui/download-file.
type Download struct {
	// Name is a file name for every operating system, of 1 to 120 bytes, without separators, hidden
	// characters and a dot at the beginning.
	Name     string
	MIMEType string // as the page states, or empty
	Data     []byte // the content, or nil for a link
	// URI is the http or https URL of a link, as for BridgeOptions.OpenLink, or the URI of a
	// resource that the host reads from the page's server, never from the user's machine.
	URI string
}

const (
	maxDownloads = 16  // files of one request, which a user reviews in one dialog
	maxFileName  = 120 // bytes at the end of a name, which contain the extension
)

func (b *Bridge) downloadFile(ctx context.Context, p requestParams) error {
	var decoded mcp.CallToolResult // decodes content by its type
	err := jsonv2.Unmarshal(slices.Concat([]byte(`{"content":`), p.Contents, []byte("}")), &decoded)
	if n := len(decoded.Content); err != nil || n == 0 || n > maxDownloads {
		return mcp.Errorf(mcp.CodeInvalidParams, "want 1 to %d resources and links as contents", maxDownloads)
	}
	files := make([]Download, len(decoded.Content))
	for i, c := range decoded.Content {
		if files[i], err = downloadOf(c); err != nil {
			return mcp.Errorf(mcp.CodeInvalidParams, "invalid file %d: %s", i, err)
		}
	}
	return refusal(b.opts.DownloadFile(ctx, files))
}

func downloadOf(c mcp.ContentBlock) (d Download, err error) {
	switch c := c.(type) {
	case *mcp.EmbeddedResource:
		if r := c.Resource; r != nil {
			return Download{Name: fileName(r.URI), MIMEType: r.MIMEType, Data: append([]byte(r.Text), r.Blob...)}, nil
		}
	case *mcp.ResourceLink:
		d = Download{Name: fileName(c.URI), MIMEType: c.MIMEType, URI: c.URI}
		if scheme, _, _ := strings.Cut(strings.ToLower(c.URI), ":"); scheme == "http" || scheme == "https" {
			d.URI, err = checkLink(c.URI)
		} else if c.URI == "" || len(c.URI) > maxURI || strings.ContainsFunc(c.URI, visible.Hidden) {
			err = fmt.Errorf("want a URI of 1 to %d visible characters", maxURI)
		}
		return d, err
	}
	return d, errors.New("want the type resource or resource_link")
}

// fileName returns a safe file name from the last segment of a URI.
func fileName(uri string) string {
	name, _, _ := strings.Cut(uri, "#")
	name, _, _ = strings.Cut(name, "?")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	name = strings.Map(func(r rune) rune {
		if visible.Hidden(r) || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
	name = strings.Trim(strings.ToValidUTF8(name[max(0, len(name)-maxFileName):], ""), ". ")
	if name == "" || device.MatchString(name) {
		return "download"
	}
	return name
}

// device matches the names that open devices on Windows.
var device = regexp.MustCompile(`(?i)^(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\.|$)`)
