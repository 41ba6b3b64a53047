package icons

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const dataScheme = "data:"

const (
	// maxDataURI limits a data URI, in bytes: an image of maxData bytes that are all escaped.
	maxDataURI = 3*maxData + maxDataHead
	// maxDataHead limits the part before the comma of a data URI, in bytes: a media type.
	maxDataHead = 256
)

func isDataURI(src string) bool {
	return len(src) >= len(dataScheme) && netx.EqualFoldASCII(src[:len(dataScheme)], dataScheme)
}

// decodeDataURI returns the media type and the data of a data URI. The type is required: without it
// RFC 2397 means text.
//
// Spec: RFC 2397, section 3.
func decodeDataURI(src string) (kind string, data []byte, err error) {
	if len(src) > maxDataURI {
		return "", nil, errors.New("invalid data URI: longer than 3 MiB")
	}
	head, text, found := strings.Cut(src[len(dataScheme):], ",")
	switch {
	case !found || len(head) > maxDataHead:
		return "", nil, errors.New("invalid data URI: must have a type and a comma")
	case strings.Contains(src, "#"):
		return "", nil, fmt.Errorf("%w: must not have a fragment", oauth.ErrURLRefused)
	}
	if text, err = url.PathUnescape(text); err != nil {
		return "", nil, errors.New("invalid data URI: malformed escape")
	}
	kind, encoding := head, ""
	if i := strings.LastIndexByte(head, ';'); i >= 0 && netx.EqualFoldASCII(head[i+1:], "base64") {
		kind, encoding = head[:i], head[i+1:]
	}
	data = []byte(text)
	if encoding != "" {
		decoding := base64.StdEncoding
		if !strings.HasSuffix(text, "=") {
			decoding = base64.RawStdEncoding // padding is often left out
		}
		if data, err = decoding.DecodeString(text); err != nil {
			return "", nil, errors.New("invalid data URI: malformed base64")
		}
	}
	switch {
	case kind == "":
		return "", nil, errors.New("invalid data URI: must have a type")
	case len(data) > maxData:
		return "", nil, errors.New("invalid data URI: has more than 1 MiB of data")
	}
	return kind, data, nil
}
