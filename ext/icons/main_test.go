package icons_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/icons"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/oauth"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

const (
	server  = "https://mcp.example/mcp"
	iconURL = "https://mcp.example/icon"
	svg     = `<svg xmlns="http://www.w3.org/2000/svg"><circle r="1"/></svg>`
)

func pngOf(width, height int) []byte {
	return encoded(width, height, func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) })
}

func jpegOf(width, height int) []byte {
	return encoded(width, height, func(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) })
}

func gifOf(width, height int) []byte {
	return encoded(width, height, func(b *bytes.Buffer, m image.Image) error { return gif.Encode(b, m, nil) })
}

// encoded returns an image without colours.
func encoded(width, height int, encode func(*bytes.Buffer, image.Image) error) []byte {
	var b bytes.Buffer
	if err := encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// webpOf returns the headers of a WebP image with a first chunk of a kind.
func webpOf(kind string, width, height int) []byte {
	var chunk []byte
	switch kind {
	case "VP8 ":
		chunk = append(chunk, 0x10, 0, 0, 0x9d, 0x01, 0x2a)
		chunk = binary.LittleEndian.AppendUint16(chunk, uint16(width))
		chunk = binary.LittleEndian.AppendUint16(chunk, uint16(height))
	case "VP8L":
		chunk = binary.LittleEndian.AppendUint32([]byte{0x2f}, uint32(width-1)|uint32(height-1)<<14)
	default:
		chunk = append(chunk, 0, 0, 0, 0)
		chunk = append(binary.LittleEndian.AppendUint32(chunk, uint32(width-1))[:7], 0, 0, 0)
		binary.LittleEndian.PutUint16(chunk[7:], uint16(height-1))
	}
	b := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(12+len(chunk)))
	b = binary.LittleEndian.AppendUint32(append(b, "WEBP"+kind...), uint32(len(chunk)))
	return append(b, chunk...)
}

func dataURI(kind string, data []byte) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// A site is a server in a network in memory.
type site struct{ *oauthtest.Network }

func newSite(t testing.TB) *site { return &site{oauthtest.NewNetwork(t)} }

func (s *site) fetcher() *oauth.Fetcher { return (*oauth.Fetcher)(s.Fetcher(nil)) }

// serve sets the response to requests for a URL.
func (s *site) serve(address, kind string, data []byte) {
	s.Page(address, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil // no detection by package http
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		_, _ = w.Write(data)
	})
}

// fetch fetches an icon of the server.
func (s *site) fetch(t testing.TB, icon mcp.Icon) (*icons.Image, error) {
	t.Helper()
	return icons.Fetch(t.Context(), s.fetcher(), server, icon)
}
