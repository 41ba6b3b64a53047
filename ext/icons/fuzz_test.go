package icons_test

import (
	"bytes"
	"image"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/icons"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// FuzzDataURIs checks that what is returned is an image of the type and size that Fetch
// documents, and that it is returned again when it is sent as base64.
//
// Requirement: ICON-07
func FuzzDataURIs(f *testing.F) {
	for kind, data := range map[string][]byte{
		"image/png": pngOf(2, 3), "image/jpeg": jpegOf(2, 3), "image/gif": gifOf(2, 3), "image/svg+xml": []byte(svg),
		"image/webp": webpOf("VP8X", 2, 3),
	} {
		f.Add("data:"+kind+","+string(data), kind)
		f.Add(dataURI(kind, data), "")
	}
	f.Add(dataURI("image/webp", webpOf("VP8L", 2, 3)), "image/webp")
	f.Add(dataURI("image/webp", webpOf("VP8 ", 2, 3)), "image/webp")
	f.Fuzz(func(t *testing.T, src, mimeType string) {
		if len(src) < 5 || !strings.EqualFold(src[:5], "data:") {
			src = "data:" + src // so that nothing is fetched
		}
		got, err := icons.Fetch(t.Context(), nil, "", mcp.Icon{Src: src, MIMEType: mimeType})
		if err != nil {
			return
		}
		switch got.MIMEType {
		case "image/png", "image/jpeg", "image/gif":
			c, format, err := image.DecodeConfig(bytes.NewReader(got.Data))
			if err != nil || "image/"+format != got.MIMEType || c.Width > 4096 || c.Height > 4096 {
				t.Errorf("%s: package image returns %s, %+v, %v", got.MIMEType, format, c, err)
			}
		case "image/webp", "image/svg+xml":
		default:
			t.Errorf("got type %q, which is not allowed", got.MIMEType)
		}
		if len(got.Data) > 1<<20 || got.NotInline != (got.MIMEType == "image/svg+xml") {
			t.Errorf("%s: got %d bytes, NotInline %v", got.MIMEType, len(got.Data), got.NotInline)
		}
		again, err := icons.Fetch(t.Context(), nil, "", mcp.Icon{Src: dataURI(got.MIMEType, got.Data)})
		if err != nil || again.MIMEType != got.MIMEType || !bytes.Equal(again.Data, got.Data) {
			t.Errorf("as base64: got %v, %v, want the same image", again, err)
		}
	})
}
