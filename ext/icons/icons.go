// Package icons fetches the icons of servers, tools, resources and prompts safely.
//
// An [mcp.Icon] is data that a server chose. A program that showed its URL as it is would let the
// server see users, call addresses within their networks, and run scripts. [Fetch] fetches an icon
// when the program needs it, and returns its bytes:
//
//	image, err := icons.Fetch(ctx, nil, serverURL, tool.Icons[0])
//
// Only https and data URIs are used. An https URL must be at the origin of the server. The request
// contains no cookies, no Authorization and no client certificate, and no redirect is followed.
//
// An image is PNG, JPEG, GIF, WebP or SVG, recognized by its content, in at most 1 MiB. PNG, JPEG,
// GIF and WebP contain at most 4096 by 4096 pixels. They are not decoded, so the rest of the data
// may be malformed, and the number of frames is not bounded: decode the first frame only.
//
// # SVG
//
// An SVG document can contain scripts and links to other hosts, so its [Image] is marked NotInline.
// Browsers run no scripts in the source of an HTML img element; everywhere else, such as inside a
// page or as a document of its own, they do. A program that draws SVG itself must not load
// resources that it links to. Documents with a document type declaration are refused, since
// entities can expand without bound.
//
// Spec: basic, Icons (2025-11-25 and 2026-07-28).
package icons

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/url"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// maxData limits an image, in bytes. It is the limit of an [oauth.Fetcher]. Icons take a few
// kilobytes.
const maxData = oauthfetch.MaxDocument

// An Image is the data of an icon that was checked.
type Image struct {
	MIMEType string // image/png, image/jpeg, image/gif, image/webp or image/svg+xml
	Data     []byte // at most 1 MiB
	// NotInline is whether the image can contain scripts: SVG. It must not become part of a page;
	// see the documentation of the package.
	NotInline bool
}

// Fetch returns the image of an icon that the server at serverURL sent. serverURL is empty for
// a server without a URL, such as a child process, whose icons can only be data URIs. f may be nil;
// its rules for addresses apply, so that http is only for servers on this machine, and 10 seconds
// by default are the time limit.
//
// The error wraps [oauth.ErrURLRefused] if the URL is not allowed, and is an [*oauth.FetchError] if
// the image could not be fetched. An image whose content is not of the type that the icon or the
// response declares is refused. Fetch does not cache, and is safe for concurrent use.
//
// Spec: basic, Icons, Security Considerations (2025-11-25 and 2026-07-28).
func Fetch(ctx context.Context, f *oauth.Fetcher, serverURL string, icon mcp.Icon) (*Image, error) {
	image, err := fetch(ctx, f, serverURL, icon)
	if err != nil {
		return nil, fmt.Errorf("icons: %w", err)
	}
	return image, nil
}

func fetch(ctx context.Context, f *oauth.Fetcher, serverURL string, icon mcp.Icon) (*Image, error) {
	var data []byte
	var declared string
	var err error
	if isDataURI(icon.Src) {
		declared, data, err = decodeDataURI(icon.Src)
	} else {
		declared, data, err = get(ctx, f, serverURL, icon.Src)
	}
	if err != nil {
		return nil, err
	}
	found, err := sniff(data)
	if err != nil {
		return nil, err
	}
	for _, text := range []string{declared, icon.MIMEType} {
		if text != "" && mediaType(text) != found {
			return nil, fmt.Errorf("invalid type %.64q of an image: its content is %s", text, found)
		}
	}
	return &Image{MIMEType: found, Data: data, NotInline: found == typeSVG}, nil
}

// get returns the Content-Type and the body of a URL at the origin of a server.
func get(ctx context.Context, f *oauth.Fetcher, serverURL, src string) (string, []byte, error) {
	server, err := url.Parse(serverURL)
	if err != nil {
		return "", nil, errors.New("invalid URL of the server")
	}
	if f == nil {
		f = oauth.NewFetcher(nil)
	}
	guarded := (*oauthfetch.Fetcher)(f.For(server)).WithoutRedirects().WithoutCertificates()
	u, err := guarded.CheckURL(src)
	switch {
	case err != nil:
		return "", nil, err
	case server.Host == "":
		return "", nil, fmt.Errorf("%w: must be a data URI, since the server has no URL", oauth.ErrURLRefused)
	case !netx.SameOrigin(server, u):
		return "", nil, fmt.Errorf("%w: must be at the origin of the server, %s", oauth.ErrURLRefused,
			netx.Origin(server))
	}
	r, err := guarded.Get(ctx, src, acceptedTypes)
	if err != nil {
		return "", nil, err
	}
	return r.Header.Get("Content-Type"), r.Body, nil
}

// mediaType returns a media type without parameters, in the form that sniff returns. It is empty if
// the text is malformed.
func mediaType(text string) string {
	kind, _, err := mime.ParseMediaType(text)
	switch {
	case err != nil:
		return ""
	case kind == "image/jpg":
		return typeJPEG
	}
	return kind
}
